"""What each benchmark counts, and its goals; the tests time nothing and start nothing of a machine."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from bench import capacity, fleet, flood, handover, stall, trip, year
from bench.fleet_peers import RequestCounter, Upstream, data
from bench.harness import Goal, Row, summary
from bench.stage import DROP, HANDOVER, KILL, GapGauge

FLEET: Row = {"streams": 10, "handovers": 2.5, "gaps": 0, "lost": 0, "strange": 0, "twice": 0}
GOOD: Row = {"streams": 40, "connected_ms": 3000.0, "handovers": 80, "gaps": 0}


def row(
    policy: str = "evicts",
    drops: tuple[float, ...] = (300.0, 2000.0),
    handovers: tuple[float, ...] = (0.0,),
    connects: tuple[float, ...] = (5.0, 20.0),
    lost: int = 0,
    machine: str = "connections",
) -> Row:
    """Return a row of bench.handover; by default it meets all goals."""
    gaps = {HANDOVER: summary(handovers), DROP: summary(drops), "connect": summary(connects)}
    return {"machine": machine, "policy": policy, "lost": lost} | gaps


def met(one: Row) -> list[bool]:
    """Return which goals of a row are met, in order."""
    return [goal.met for goal in handover.goals([one])]


def test_a_row_that_meets_all_goals_has_a_line_for_each() -> None:
    """The goals are no gap at a handover, at most two seconds after a drop, and no lost event."""
    goals = handover.goals([row()])
    assert goals == [
        Goal("evicts", "no gap at a handover", 0, 0.0, True),
        Goal("evicts", "p99 after a drop", 2000, 2000.0, True),
        Goal("evicts", "no event lost", None, None, True),
    ]
    assert [goal.line for goal in goals][1:] == [
        "ok      evicts: p99 after a drop: 2000 ms, at most 2000 ms",
        "ok      evicts: no event lost",
    ]


def test_each_goal_of_a_handover_can_be_missed() -> None:
    """A millisecond, a lost event, or no measurement misses a goal; in place the limit is the connect and 50 ms."""
    found = [
        met(row(handovers=(0.0, 0.1))), met(row(drops=(2000.1,))), met(row(lost=1)), met(row(drops=())),
        met(row("reconnects", drops=(55.0, 70.0))), met(row("reconnects", drops=(55.1, 55.2, 70.1))),
        met(row("reconnects", connects=())),
    ]  # fmt: skip
    assert found == [
        [False, True, True], [True, False, True], [True, True, False], [True, False, True],
        [True, True, True, True], [True, False, False, True], [True, False, False, True],
    ]  # fmt: skip
    missed = handover.goals([row(drops=())])[1]
    assert missed.line == "missed  evicts: p99 after a drop: nothing measured, at most 2000 ms"


def test_forbidden_overlaps_and_the_plain_machine_have_fewer_goals() -> None:
    """A handover leaves a gap if two connections are forbidden; the plain machine is only the peer."""
    assert [goal.goal for goal in handover.goals([row("forbids")])] == ["p99 after a drop", "no event lost"]
    assert handover.goals([row(machine="staggered", lost=9)]) == []


def test_the_flood_and_the_stall_have_their_own_goals() -> None:
    """Beside a flood, 99 in 100 wait less than a second and no stream is silent; a stall is below 100 ms."""
    judged = [
        *(flood.goals("flood", p99_ms, silent) for p99_ms, silent in ((999.9, 0), (1000.0, 0), (None, 99))),
        [stall.goal("sort", 4, slowest_ms) for slowest_ms in (99.9, 100)],
    ]
    assert [[goal.met for goal in goals] for goals in judged] == [
        [True, True], [False, True], [False, False], [True, False],
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"connected_ms": 15_001.0}, {"connected_ms": None}, {"gaps": 2}, {"handovers": 39}])
def test_the_capacity_is_the_greatest_number_without_a_gap_and_in_time(change: Row) -> None:
    """The greatest number of streams that held counts; the goal is the service's promise."""
    bad = GOOD | change
    assert (capacity.has_held(GOOD), capacity.has_held(bad)) == (True, False)
    assert (capacity.most_held([GOOD, bad]), capacity.most_held([bad]), capacity.most_held([])) == (40, 0, 0)
    assert (capacity.capacity_goal([GOOD, bad], 40).met, capacity.capacity_goal([GOOD, bad], 41).met) == (True, False)


def test_a_fleet_is_judged_by_handovers_gaps_and_stored_events() -> None:
    """The verdict uses a fleet's handovers, their gaps, and the tables' content."""
    changes: list[tuple[Row, list[int]]] = [
        ({}, []), ({"handovers": 1.9}, [0]), ({"gaps": 1}, [1]), ({"lost": 1}, [2]), ({"twice": 1}, [3]),
        ({"strange": 1}, [3]),
    ]  # fmt: skip
    for change, missed in changes:
        goals = fleet.goals(FLEET | change)
        assert [number for number, goal in enumerate(goals) if not goal.met] == missed, change


@pytest.mark.parametrize(
    ("main", "options"),
    [
        *((capacity.main, line) for line in ("--step 0", "--step -5", "--first 0", "--seconds 0", "--most x")),
        (capacity.main, "--first 401"),
        *((fleet.main, line) for line in ("--streams 0", "--per-function x", "--seconds -1", "--function-s 89")),
    ],
)
def test_invalid_numbers_are_refused_before_the_start(
    main: Any, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Invalid numbers are refused before anything is started: no figure, and no verdict on the machine."""
    with pytest.raises(SystemExit) as ended:
        main(options.split())
    written = capsys.readouterr()
    assert (ended.value.code, written.out, "held" in written.err) == (2, "", False)
    assert "must be a" in written.err


def test_a_gap_belongs_to_the_fault_that_it_began_with() -> None:
    """A gap lasts from the last close to the next opening; a later opening is a handover again, the very first none."""
    gauge = GapGauge()
    gauge.record_connections(0, 1)
    gauge.record_fault(DROP)
    for at_ms, connected in ((1000, 0), (1400, 1), (5000, 0), (5080, 1), (7000, 2)):
        gauge.record_connections(at_ms, connected)
    gauge.record_fault(KILL)
    for at_ms, connected in ((7500, 1), (7501, 0), (9501, 1)):
        gauge.record_connections(at_ms, connected)
    assert gauge.gaps_ms == {HANDOVER: [80.0, 0.0], DROP: [400.0], KILL: [2000.0]}
    assert (gauge.openings, gauge.unconnected_ms) == (5, 2480.0)


def test_requests_are_counted_however_they_are_cut() -> None:
    """A request whose head comes in pieces counts once, and so does each of several that come together."""
    head = b"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.%s\r\nContent-Length: 2\r\n\r\n{}"
    text = b"".join(head % name for name in (b"UpdateItem", b"Query", b"UpdateItem"))
    for size in (1, 7, 80, len(text)):
        counted, rest = RequestCounter(), b""
        for at in range(0, len(text), size):
            rest = counted._counts(rest + text[at : at + size])
        assert counted.requests == {"UpdateItem": 2, "Query": 1}


def test_a_fleets_upstream_resumes_and_remembers() -> None:
    """A request from an event on gets the later ones; the report has all that was sent on any connection."""

    async def run() -> tuple[bytes, Upstream]:
        upstream = Upstream(1, 0.02)
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        await asyncio.sleep(0.2)
        upstream.quiet()
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET /0 HTTP/1.1\r\nLast-Event-ID: 3\r\n\r\n")
        read = await reader.readuntil(b"id: 8\n")
        writer.close()
        await writer.wait_closed()
        server.close()
        while upstream.streams[0].connected:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # its side is closed too
        return read, upstream

    read, upstream = asyncio.run(run())
    assert [number for number in range(10) if data(0, number).encode() in read] == [4, 5, 6, 7]
    stream = upstream.streams[0]
    assert stream.sent == set(range(4, max(stream.sent) + 1))
    assert stream.openings == 1


def test_three_days_cross_a_renewal_without_a_failure() -> None:
    """A lane makes a pass every 28 minutes, so a hundred are due after two days; nothing fails."""
    figures = year.measure(3)
    assert (figures["executions"], figures["failed"]) == (2, 0)
    assert 3 * 100 < figures["connections"] < 3 * 110


def test_no_client_but_dynamodbs_is_loaded_by_a_cold_start() -> None:
    """The connection manager's modules import neither boto3 nor botocore before one of their services is needed."""
    modules = "handlers.connection.reconnection, handlers.aws.lambda_environment, handlers.store"
    code = f"import sys, {modules}; print('boto3' in sys.modules, 'botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(("kind", "most"), [("alone", 40), ("group", 90)])
def test_an_event_goes_through_few_modules(kind: str, most: int) -> None:
    """A reader can follow an event from chunk to request; Python 3.12 counts less, as its lists have no frames."""
    assert trip.measure_way(kind)["module_moves"] <= most
