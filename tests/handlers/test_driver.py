"""One connection from claim to outcome, with real sockets on one side and the tables on the other."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.threads import SystemClock
from tests.handlers.aws import CONTROL, EVENTS, Aws, Client
from tests.handlers.lanes import run
from tests.handlers.servers import UNTIL_CLOSE, Peer, Script, Server, sends, serving

STREAM = "demo"
WAIT_S = 60.0


def profile_of(server: Server, **fields: Any) -> Profile:
    table = {"address": server.address + "/{streamId}", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    return parse("demo", {**table, "allow_private": True, "overlap_s": 0.1, **fields}, {})


def event(number: int) -> bytes:
    return b"id: %d\ndata: %d\n\n" % (number, number)


def goes_on(first: int) -> Script:
    """Send an event every 20 ms and never end."""

    def script(peer: Peer) -> None:
        peer.send(UNTIL_CLOSE)
        number = first
        while not peer.gone.wait(0.02):
            peer.send(event(number))
            number += 1

    return script


def given_up_requests_end() -> None:
    """Return once abandoned requests have ended, so that they do not write into another test's tables."""
    for thread in threading.enumerate():
        if thread.name == "store":
            thread.join(WAIT_S)
            assert not thread.is_alive()


def stored(aws: Aws) -> list[str]:
    return [item["data"] for item in sorted(aws.items(EVENTS, STREAM).values(), key=lambda item: item["position"])]


def ledger(aws: Aws, fence: int) -> dict[str, Any]:
    return {"duplicates": 0, "dead_lettered": 0} | aws.items(CONTROL, STREAM)[f"connection#{fence:012d}"]


def test_a_stream_that_closes_was_dropped_and_all_of_it_is_stored(aws: Aws) -> None:
    """Every event is stored in order, the cursor is the last one's, the ledger says how it ended."""
    with serving(sends(UNTIL_CLOSE, event(1) + event(2), event(3) + b"data: unterminated")) as server:
        report = run(profile_of(server), aws.store())
    assert (report.outcome.error, report.outcome.message) == (
        "StreamDropped",
        "the stream was closed (ended_by_upstream)",
    )
    assert stored(aws) == ["1", "2", "3"]
    assert aws.store().read(STREAM).cursor == "3"
    record = ledger(aws, 1)
    assert {name: record[name] for name in ("lane", "request_id", "ended_by", "frames", "stored", "duplicates")} == {
        "lane": "A",
        "request_id": "r1",
        "ended_by": "ended_by_upstream",
        "frames": 3,
        "stored": 3,
        "duplicates": 0,
    }
    assert record["unterminated_bytes"] == len(b"data: unterminated")
    assert record["claimed_ms"] <= record["opened_ms"] <= record["closed_ms"]
    lease = aws.store().read_lease(STREAM)
    assert (lease.fence, lease.connected_token, lease.released_token, lease.holder) == (1, 1, 1, "A/r1")
    assert report.connect_ms is not None


def test_the_next_connection_resumes_behind_the_cursor_and_stores_nothing_twice(aws: Aws) -> None:
    """It sends the last event ID; repeated events are duplicates."""
    with serving(sends(UNTIL_CLOSE, event(1) + event(2)), sends(UNTIL_CLOSE, event(1) + event(2) + event(3))) as server:
        run(profile_of(server), aws.store())
        report = run(profile_of(server), aws.store(), request_id="r2")
        requests = [peer.request.lower() for peer in server.peers]
    assert [b"last-event-id" in request for request in requests] == [False, True]
    assert b"\r\nlast-event-id: 2\r\n" in requests[1]
    assert stored(aws) == ["1", "2", "3"]
    assert (report.progress.stored, report.progress.duplicates) == (1, 2)
    assert aws.store().read(STREAM).cursor == "3"


def test_it_leaves_before_its_deadline(aws: Aws) -> None:
    """It leaves a never-pausing stream a margin before the kill; the cursor is that of the last stored event."""
    with serving(goes_on(1)) as server:
        report = run(profile_of(server), aws.store(), lasts_ms=4000, margin_ms=3000)
        assert server.peers[0].gone.wait(WAIT_S)
    assert report.outcome.error == "ConnectionExpired"
    numbers = [int(data) for data in stored(aws)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert aws.store().read(STREAM).cursor == str(len(numbers))
    assert ledger(aws, 1)["ended_by"] == "expired"


def test_a_store_that_hangs_does_not_outlast_the_deadline(aws: Aws) -> None:
    """It abandons a request that never returns before the function is killed."""
    released = threading.Event()

    def hangs(call: Callable[..., Any], **parameters: Any) -> Any:
        assert released.wait(WAIT_S)
        return call(**parameters)

    store = aws.store(Client(aws.dynamodb, "put_item", hangs))
    with serving(sends(UNTIL_CLOSE, event(1), then=Peer.wait_until_gone)) as server:
        report = run(profile_of(server), store, lasts_ms=3000, margin_ms=2600)
        assert report.outcome.error == "StoreUnavailable"
        assert server.peers[0].gone.wait(WAIT_S)
    released.set()
    given_up_requests_end()


def test_thousands_of_events_in_one_read_keep_neither_cursor_nor_lease_waiting(aws: Aws) -> None:
    """The cursor follows the writes, and a requested stop closes the upstream; events that were read are stored."""
    count = 1000
    progress: list[tuple[str | None, bool]] = []

    def slow(call: Callable[..., Any], **parameters: Any) -> Any:
        threading.Event().wait(0.02)
        progress.append((aws.store().read(STREAM).cursor, server.peers[0].gone.is_set()))
        if len(progress) == 12:
            aws.put_control(STREAM, "lease", stop={"BOOL": True})
        return call(**parameters)

    events = b"".join(event(number) for number in range(count))
    with serving(sends(UNTIL_CLOSE + events, then=Peer.wait_until_gone)) as server:
        report = run(profile_of(server), aws.store(Client(aws.dynamodb, "batch_execute_statement", slow)))
    assert (report.outcome.status, report.progress.stored) == ("stopped", count)
    assert progress[0] == (None, False)
    # The first write's cursor is saved at once.
    assert [cursor for cursor, _ in progress][10] == "249"
    assert progress[-1][1]


def test_the_ledger_covers_nothing_that_waits_for_a_slow_store(aws: Aws) -> None:
    """At each save, every event from before the covered instant is stored."""
    idle = threading.Event()
    done: set[str] = set()
    records: list[tuple[int, set[str], int]] = []

    def puts(call: Callable[..., Any], **parameters: Any) -> Any:
        idle.wait(0.06)
        answer = call(**parameters)
        done.add(parameters["Item"]["SK"]["S"])
        return answer

    def batches(call: Callable[..., Any], Statements: list[dict[str, Any]]) -> Any:
        idle.wait(0.06 * len(Statements))
        answer = call(Statements=Statements)
        done.update(statement["Parameters"][1]["S"] for statement in Statements)
        return answer

    def updates(call: Callable[..., Any], **parameters: Any) -> Any:
        shown = parameters["ExpressionAttributeValues"].get(":live")
        if shown is not None:
            seen_ms = int(shown["M"]["seen_ms"]["N"])
            records.append((seen_ms, set(done), time.time_ns() // 1_000_000))
        return call(**parameters)

    writes = Client(Client(aws.dynamodb, "put_item", puts), "batch_execute_statement", batches)
    store = aws.store(Client(writes, "update_item", updates))
    with serving(goes_on(0)) as server:
        report = run(profile_of(server), store, lasts_ms=2_500, margin_ms=1_000)
    given_up_requests_end()
    shown = aws.items(CONTROL, STREAM)["lease"]["live"]
    assert (report.outcome.error, "closed_ms" in shown) == ("StoreUnavailable", False)
    came_ms = {key: item["received_at_ms"] for key, item in aws.items(EVENTS, STREAM).items()}
    for seen_ms, stored_then, _ in records:
        assert {key for key, at_ms in came_ms.items() if at_ms < seen_ms} <= stored_then
    assert max(now_ms - seen_ms for seen_ms, _, now_ms in records) > 200, "the store was not slow"


def test_the_clock_starts_at_the_wall_clock_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the wall clock is set back by an hour, a connection renews forward."""
    before_ms = time.time_ns() // 1_000_000
    clock = SystemClock()
    instants = [clock.now_ms() for _ in range(1000)]
    assert before_ms <= instants[0] <= time.time_ns() // 1_000_000 + 1
    wall_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns - 3_600 * 10**9)
    instants.append(clock.now_ms())
    assert instants == sorted(instants)
    assert instants[-1] < before_ms + 3_000_000
