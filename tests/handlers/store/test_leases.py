"""How streams are listed and their leases read: no stream is missed, and the number of requests is bounded."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handlers.connection.lease import Lease
from handlers.errors import StoreUnavailable
from handlers.store import control_record
from handlers.store.leases import Leases
from handlers.watching.lease_rounds import Rounds, Turn
from tests.examples import examples
from tests.handlers.aws import CONTROL, Client, CountingClient, Memory
from tests.permission_edges import own_requests

NOW_MS = 1_800_000_000_000
# The number of streams read between two readings of the clock, in a test with `small_parts`.
PART = 4
GENERATED = settings(max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture])


def fill(memory: Memory, items: list[dict[str, Any]]) -> None:
    """Write leases and other records."""
    for item in items:
        memory.dynamodb.put_item(TableName=CONTROL, Item=item)


def lease(stream_id: str, *, held: bool, **more: Any) -> dict[str, Any]:
    """Return a lease whose holder is not connected."""
    item = {"PK": {"S": stream_id}, "SK": {"S": "lease"}, "generation": {"N": "1"}}
    item |= {"started_at": {"S": "2026-01-01T00:00:00.000Z"}}
    return item | ({"execution": {"S": f"arn:{stream_id}"}} if held else {"ending": {"S": "StreamEnded"}}) | more


def record(stream_id: str) -> dict[str, Any]:
    """Return a connection's record, which names an execution too."""
    return {"PK": {"S": stream_id}, "SK": {"S": "connection#000000000001"}, "execution": {"S": "arn"}}


def walk(leases: Leases, limit: int) -> list[str]:
    """Return the streams of all pages, in order."""
    shown: list[str] = []
    while page := leases.started_streams(shown[-1] if shown else "", limit):
        shown += page
    return shown


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a check read few streams at a time."""
    for name in ("KEYS", "AT_ONCE"):
        monkeypatch.setattr(f"handlers.watching.lease_rounds.{name}", 2)


@pytest.fixture(scope="module")
def ids() -> list[str]:
    """Return stream ids in order."""
    return [f"demo:{number:04d}" for number in range(240)]


@pytest.fixture
def filled(memory: Memory, ids: list[str]) -> Memory:
    """Return a table of streams of which every second is held; twenty more have only a stop request."""
    items = [lease(stream_id, held=number % 2 == 0) for number, stream_id in enumerate(ids)]
    items += [record(stream_id) for stream_id in ids[:50]]
    items += [
        {"PK": {"S": f"demo:00{number:02d}x"}, "SK": {"S": "lease"}, "stop": {"BOOL": True}} for number in range(20)
    ]
    fill(memory, items)
    return memory


def test_a_page_costs_one_request_at_any_place(filled: Memory, ids: list[str]) -> None:
    """A page is one request, whatever its place: with any number of streams, no record before or after it is read."""
    client = CountingClient(filled.dynamodb)
    leases = Leases(client, CONTROL)
    assert leases.started_streams("demo:0139", 100) == ids[140:]
    assert leases.started_streams("demo:0100", 7) == ids[101:108]
    assert client.requests == ["query", "query"]


def test_a_page_is_filled_past_streams_that_were_never_started(filled: Memory, ids: list[str]) -> None:
    """A lease with only a stop request is no stream: the page skips it and is filled up to its limit."""
    leases = Leases(filled.dynamodb, CONTROL)
    assert [leases.started_streams("", limit) for limit in (1, 7, 60)] == [ids[:1], ids[:7], ids[:60]]


def test_a_check_reads_a_hundred_held_streams_a_request(filled: Memory, ids: list[str]) -> None:
    """A check reads a hundred held streams a request, besides the list, and no record of a stream without a holder."""
    client = CountingClient(filled.dynamodb)
    seen = Rounds(Leases(client, CONTROL), 1, Turn(1000)).check(NOW_MS, lambda: False)
    assert (seen.is_whole, seen.wanted, seen.missing, list(seen.away_ms)) == (True, 120, 120, ids[::2])
    assert client.requests == ["query", "batch_get_item", "batch_get_item"]


@GENERATED
@given(st.data())
def test_pages_miss_no_stream_that_was_there_throughout(filled: Memory, ids: list[str], data: st.DataObject) -> None:
    """Pages miss no stream, though streams start, stop, renew or end between them, even the last stream of a page."""
    limit = data.draw(st.sampled_from([37, 100, 150]))
    touched: set[str] = set()

    def change(*_: object) -> None:
        with own_requests():
            changed()

    def changed() -> None:
        number = data.draw(st.integers(0, len(ids) - 1))
        stream_id, kind = ids[number], data.draw(st.sampled_from(["renew", "hold", "release", "delete", "new"]))
        if kind == "new":
            stream_id += "-new"
        if kind in ("delete", "new"):
            touched.add(stream_id)
        if kind == "delete":
            filled.dynamodb.delete_item(TableName=CONTROL, Key={"PK": {"S": stream_id}, "SK": {"S": "lease"}})
            return
        generation = {"N": str(data.draw(st.integers(2, 9)))}
        fill(filled, [lease(stream_id, held=kind != "release", generation=generation)])

    shown = walk(Leases(CountingClient(filled.dynamodb, change), CONTROL), limit)
    assert shown == sorted(set(shown))
    assert [one for one in ids if one not in touched] == [one for one in shown if one in ids and one not in touched]
    fill(filled, [lease(stream_id, held=True) for stream_id in touched & set(ids)])
    for stream_id in touched - set(ids):
        filled.dynamodb.delete_item(TableName=CONTROL, Key={"PK": {"S": stream_id}, "SK": {"S": "lease"}})


@given(st.lists(st.sets(st.text("abc", max_size=3)), max_size=8), st.integers(1, 4))
def test_every_suspect_has_its_turn(looks: list[set[str]], most: int) -> None:
    """At most `most` suspects have a turn at a time, and a suspect that stays waits for at most all others."""
    turn, stays = Turn(most), {"a", "b", "bc", "c"}
    asked: set[str] = set()
    for look in looks + [set()] * 5:
        for stream_id in sorted(look | stays):
            turn.offer(stream_id, Lease(execution=stream_id))
        # Few leases are remembered, whatever the number of offers.
        assert repr(turn).count("Lease(") <= 2 * most
        those = list(turn.take())
        assert len(those) == len(dict(those)) == min(most, len(look | stays))
        asked |= {stream_id for stream_id, lease in those if lease.execution == stream_id}
    assert asked >= stays


@pytest.mark.usefixtures("small_parts")
def test_the_worst_stream_counts_until_a_whole_round_has_found_it_well(memory: Memory) -> None:
    """The worst stream counts until a whole round has found it well, even in a run that did not check it."""
    known = {"expires_at_ms": {"N": str(NOW_MS - 5_000)}}
    names = [f"demo:{number:04d}" for number in range(PART + 1)]
    fill(memory, [lease(name, held=True, **known) for name in names[1:]])
    fill(memory, [lease(names[0], held=True)])
    rounds = Rounds(Leases(memory.dynamodb, CONTROL), 1, Turn(1))
    worst_ms = NOW_MS - 1_767_225_600_000
    always: Callable[[], bool] = lambda: True  # noqa: E731
    lengths: list[tuple[int, int, int]] = []
    seen: list[str] = []
    for _ in range(2):
        look = rounds.check(NOW_MS, always)
        assert look.is_whole is (len(lengths) == 1)
        seen += look.away_ms
        lengths.append(rounds.numbers())
    assert seen == names
    every = len(names)
    assert lengths == [(PART, PART, worst_ms), (every, every, worst_ms)]
    fill(memory, [lease(names[0], held=True, **known)])
    for expected in (worst_ms, 5_000):
        rounds.check(NOW_MS, always)
        assert rounds.numbers() == (every, every, expected)


def test_a_check_that_is_refused_midway_begins_again_at_the_same_place(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused check has reported nothing, so the next one begins at the same place."""
    names = ["demo:a", "demo:b", "demo:c", "demo:d"]
    fill(memory, [lease(name, held=True) for name in names])
    # The check reads one stream between two readings of the clock.
    for name in ("KEYS", "AT_ONCE"):
        monkeypatch.setattr("handlers.watching.lease_rounds." + name, 1)
    groups: list[str] = []

    def refuse_the_third(name: str, _parameters: object) -> None:
        groups.append(name)
        if name == "batch_get_item" and groups.count(name) == 3:
            raise StoreUnavailable("refused")

    rounds = Rounds(Leases(CountingClient(memory.dynamodb, refuse_the_third), CONTROL), 1, Turn(1))
    with pytest.raises(StoreUnavailable):
        rounds.check(NOW_MS, lambda: False)
    assert list(rounds.check(NOW_MS, lambda: False).away_ms) == names
    assert rounds.last is not None
    assert list(rounds.last.away_ms) == names


def test_a_late_check_also_stops_among_streams_without_a_holder(memory: Memory) -> None:
    """A late check also stops after a page of streams without a holder, and the next one goes on after it."""
    fill(memory, [*(lease(f"x{number}", held=False) for number in range(3)), lease("y", held=True)])
    client = CountingClient(Client(memory.dynamodb, "query", lambda call, **asked: call(**asked, Limit=3)))
    rounds = Rounds(Leases(client, CONTROL), 1, Turn(1))
    looks = [rounds.check(NOW_MS, lambda: True) for _ in range(2)]
    assert [(look.is_whole, list(look.away_ms)) for look in looks] == [(False, []), (True, ["y"])]
    assert client.requests == ["query", "query", "batch_get_item"]


def test_a_lease_knows_its_first_and_its_last_stop() -> None:
    """A repeated stop keeps its first time beside its last, and a move counts only for the last stop."""
    instants = {"stop_since": {"S": "1970-01-01T00:00:05Z"}, "stop_at": {"S": "1970-01-01T00:00:07Z"}}
    read = control_record.lease_of({"stop": {"BOOL": True}} | instants)
    assert (read.stop, read.stop_at_ms, read.last_stop_ms) == (True, 5_000, 7_000)
    marks = [{"moved_to": {"S": f"prod@eu-west-1 {instants[name]['S']}"}} for name in ("stop_at", "stop_since")]
    assert [control_record.lease_of(instants | one).moved_to for one in marks] == ["prod@eu-west-1", ""]
