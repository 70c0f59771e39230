"""The requests of each step, their order, and how many a connection takes."""

import contextlib
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from handlers.connection.effects import (
    Claim,
    Effect,
    Heartbeat,
    MarkConnected,
    Progress,
    RecordGaps,
    Release,
    ReplaceCursor,
    SaveRecord,
    TakeTurn,
)
from handlers.connection.inputs import Chunk, Claimed, LeaseRead, Opened, Resumption, Written
from handlers.connection.steps import Invocation
from handlers.errors import StoreUnavailable
from handlers.run.requests import Requests
from handlers.store import control_table
from handlers.store.connection_store import Store
from handlers.store.ledger_records import GAP, SEARCHED_CONNECTIONS
from local.costs.units import item_bytes
from local.simulation.shared_tasks import store_on
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import CountingClient
from tests.handlers.connection.managers import connected, drain, fresh, profile

NAMES = {"events_table": "events", "control_table": "control", "dead_letter_queue": "queue"}
STREAM = "demo"
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:streamkeeper-prod-connections:"


class Table(CountingClient):
    """The control table in memory, which keeps its requests and the keys of its writes."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.refuses = ""  # no request about the item of this sort key is answered
        self.tables = MemoryDynamoDB(
            "events", "control", on_change=lambda _table, key, _item: self.written.append(key[1])
        )
        super().__init__(self.tables, self.check)

    def check(self, _name: str, parameters: dict[str, Any]) -> None:
        if self.refuses and parameters.get("Key", {}).get("SK") == {"S": self.refuses}:
            raise ReadTimeoutError(endpoint_url="https://dynamodb.invalid")

    def store(self) -> Store:
        return store_on(self, NAMES)

    def item(self, key: str = "lease") -> dict[str, Any]:
        keys = {"PK": {"S": STREAM}, "SK": {"S": key}}
        item: dict[str, Any] = self.tables.get_item(TableName="control", Key=keys).get("Item", {})
        return item

    def put(self, key: str, **attributes: Any) -> None:
        self.tables.put_item(TableName="control", Item={"PK": {"S": STREAM}, "SK": {"S": key}} | attributes)


class Function:
    """The requests of one invocation, at a clock that does not move; `ask` works as a performer does."""

    def __init__(self, table: Table, request_id: str, now_ms: int = 0, overlap: str = "evicts") -> None:
        self.now_ms = now_ms
        who = Invocation(STREAM, "A", "", request_id, 900_000, 4_000, 1_000, 1_000, 0)
        self._requests = Requests(profile(overlap), table.store(), who, lambda: self.now_ms)

    def ask(self, effect: Effect) -> Any:
        return [request() for request in self._requests.requests_of(effect)][-1]

    def claim(self) -> Claimed:
        answer = self.ask(Claim())
        assert isinstance(answer, Claimed)
        return answer


def opened(table: Table, request_id: str = "r1", overlap: str = "evicts") -> Function:
    """Return the stream's first connection, answered and marked as connected."""
    function = Function(table, request_id, overlap=overlap)
    function.claim()
    if overlap == "forbids":
        function.ask(TakeTurn(1, 9_000))
    function.ask(MarkConnected(1, 9_000, row(1, 1_010)))
    return function


def overlapping(table: Table) -> tuple[Function, Function]:
    """Return the stream's first connection, and a newer one that is connected too."""
    older, newer = opened(table), Function(table, "r2")
    newer.claim()
    newer.ask(MarkConnected(2, 9_900, row(2, 2_010)))
    return older, newer


def row(fence: int, seen_ms: int, **more: Any) -> Progress:
    """Return a connection that was answered ten milliseconds after its claim."""
    return Progress(fence, claimed_ms=fence * 1_000, opened_ms=fence * 1_000 + 10, seen_ms=seen_ms, **more)


def test_the_ledger_records_an_expired_cursor_before_it_is_replaced() -> None:
    """The ledger has the record of an expired cursor before a cursor is saved that passes the forgotten events."""
    resume = {"header": "Last-Event-ID", "fallback": "start", "expired": {"event": "gone"}}
    manager = connected(resume=resume)
    effects = drain(manager, 50, manager.handle(40, Chunk(b"event: gone\ndata: x\n\n")))
    assert [type(effect) for effect in effects if isinstance(effect, SaveRecord | Release)] == [SaveRecord, Release]
    table = Table()
    function = Function(table, "r1")
    for effect in effects[:-1]:
        function.ask(effect)
    assert [key for key in table.written if key in ("connection#000000000003", "lease")] == ["connection#000000000003"]


def test_a_connection_is_released_only_once_the_ledger_has_its_record() -> None:
    """The record is written again before the release; if that fails, the lease is kept."""
    table = Table()
    function = opened(table)
    before, end = table.item(), row(1, 2_500, closed_ms=2_500)
    record = table.refuses = "connection#000000000001"
    for effect in (SaveRecord(end), Release("6", end)):
        with pytest.raises(StoreUnavailable):
            function.ask(effect)
    table.refuses = ""
    assert (table.item(), table.item(record)) == (before, {})
    function.ask(Release("6", end))
    assert (table.item(record)["closed_ms"], table.item()["released"]) == ({"N": "2500"}, {"N": "1"})
    requests = len(table.requests)
    function.ask(Release("6", end))
    assert len(table.requests) == requests + 1


def test_an_expired_cursor_stays_if_the_ledger_could_not_record_it() -> None:
    """If the record of an expired cursor fails, the cursor stays, so the next connection learns that it is expired."""
    table = Table()
    opened(table).ask(Release("41", row(1, 1_500, closed_ms=1_500, ended_by="reset")))
    expired = fresh(statuses={"410": "expired"}, resume={"header": "Last-Event-ID"})
    expired.start(2_000)
    second = Function(table, "r2")
    expired.handle(2_000, second.claim())
    effects = drain(expired, 2_050, expired.handle(2_040, Opened(410)))
    (gives_up,) = [effect for effect in effects if isinstance(effect, ReplaceCursor)]
    assert effects.index(gives_up) == 0
    record = "connection#000000000002"
    for refused, is_recorded, cursor in ((record, False, "41"), ("lease", True, "41"), ("", True, "")):
        table.refuses = refused
        with contextlib.suppress(StoreUnavailable):
            second.ask(gives_up)
        table.refuses = ""
        assert ("forgot_ms" in table.item(record), table.item()["cursor"]["S"]) == (is_recorded, cursor)


def test_opening_takes_a_claim_and_a_mark() -> None:
    """The claim returns cursor, back-off and the ledger's knowledge. A heartbeat is one write, and an end is two."""
    table = Table()
    function = opened(table)
    assert table.requests == ["update_item"] * 2
    assert function.ask(Heartbeat("5", row(1, 2_000), 9_500)).lease.expires_at_ms == 9_500
    assert table.requests == ["update_item"] * 3
    end = row(1, 2_500, closed_ms=2_500, ended_by="reset")
    function.ask(SaveRecord(end))
    released = function.ask(Release("6", end))
    assert (released.lease.released_token, table.requests) == (1, ["update_item"] * 5)
    again = Function(table, "r1", now_ms=2_600).claim()
    assert again.resumption == Resumption("6", 0, 2_500, 2_500, 2_500)
    assert table.requests == ["update_item"] * 6
    assert table.written == ["lease"] * 3 + ["connection#000000000001", "lease", "lease"]


def test_a_refused_write_returns_the_record() -> None:
    """An older connection finds in its refused heartbeat's answer that it is not the newest, and saves nothing."""
    table = Table()
    older, _ = overlapping(table)
    before, asked = table.item(), len(table.requests)
    answer = older.ask(Heartbeat("5", row(1, 3_000), 12_000))
    assert (answer.lease.connected_token, table.item()) == (2, before)
    assert len(table.requests) == asked + 1
    closed = row(1, 3_100, closed_ms=3_100, ended_by="taken_over")
    assert older.ask(Release("6", closed)).lease.released_token == 1
    after = table.item()
    assert {name for name in after if after[name] != before.get(name)} == {"released"}


def test_a_connection_that_knows_of_a_newer_one_only_marks_its_release() -> None:
    """A connection that knows of a newer one marks its release with one request; its cursor would be refused."""
    table = Table()
    older, _ = overlapping(table)
    before, asked = table.item(), len(table.requests)
    answer = older.ask(Release("6", row(1, 3_100, closed_ms=3_100, ended_by="taken_over"), is_relieved=True))
    assert (answer.lease.connected_token, answer.lease.released_token) == (2, 1)
    assert (table.item(), len(table.requests)) == (before | {"released": {"N": "1"}}, asked + 1)


@pytest.mark.parametrize("back_ms", [0, 1, 1_000])
def test_a_clock_that_is_set_back_loses_no_cursor(back_ms: int) -> None:
    """The first cursor is saved even if the clock is set back, which would renew the lease to an earlier time."""
    table = Table()
    function = Function(table, "r1")
    manager = fresh()
    manager.start(5_000)
    manager.handle(5_000, function.claim())
    (mark,) = manager.handle(5_030, Opened(200))
    function.ask(mark)
    now_ms = 5_030 - back_ms
    manager.handle(now_ms, Chunk(b"id: 41\ndata: x\n\n"))
    (heartbeat,) = manager.handle(now_ms, Written(1, 0))
    answer = function.ask(heartbeat)
    assert (table.item()["cursor"], answer.lease.connected_token) == ({"S": "41"}, 1)


def test_a_heartbeat_that_lands_after_the_release_changes_nothing() -> None:
    """A late heartbeat changes nothing; it would show a closed connection as open and move its cursor back."""
    table = Table()
    function = opened(table)
    function.ask(Release("6", row(1, 2_500, closed_ms=2_500, ended_by="reset")))
    before = table.item()
    function.ask(Heartbeat("5", row(1, 2_000), 19_000))
    function.ask(MarkConnected(1, 19_000, row(1, 1_010)))
    assert table.item() == before


def test_a_killed_connection_is_recorded_by_the_next_one() -> None:
    """The claim that finds a killed connection's last state in the control record writes it into the ledger."""
    table = Table()
    opened(table).ask(Heartbeat("5", row(1, 2_000, stored=4), 9_500))
    assert table.item("connection#000000000001") == {}
    next_one = Function(table, "r2", now_ms=3_000)
    assert next_one.claim().resumption == Resumption("5", 0, 2_000, 2_000, 2_000)
    record = table.item("connection#000000000001")
    # Counts of zero are not kept, because the ledger is kept for long.
    names = ("fence", "seen_ms", "stored", "frames", "lane", "request_id", "ended_by", "closed_ms")
    assert [record.get(name) for name in names] == [
        {"N": "1"}, {"N": "2000"}, {"N": "4"}, None, {"S": "A"}, {"S": "r1"}, None, None,
    ]  # fmt: skip


def test_a_predecessors_write_after_the_claim_is_recorded_too() -> None:
    """The mark of the next connection overwrites the predecessor's record, so it writes that into the ledger before."""
    table = Table()
    older, newer = opened(table), Function(table, "r2")
    newer.claim()
    older.ask(Heartbeat(None, row(1, 1_900), 9_500))
    newer.ask(MarkConnected(2, 9_900, row(2, 2_010)))
    assert table.item("connection#000000000001")["seen_ms"] == {"N": "1900"}
    asked = len(table.requests)
    newer.ask(Heartbeat(None, row(2, 2_100), 9_950))
    assert len(table.requests) == asked + 1


def test_a_turn_returns_the_cursor_that_the_release_saved() -> None:
    """If two connections are forbidden, the claim comes before the older one's last cursor, so the turn returns it."""
    table = Table()
    older, newer = opened(table, overlap="forbids"), Function(table, "r2", overlap="forbids")
    newer.claim()
    refused = newer.ask(TakeTurn(2, 9_500))
    assert (refused.lease.connected_token, refused.resumption) == (1, None)
    older.ask(Release("6", row(1, 2_500, closed_ms=2_500, ended_by="let_go")))
    asked = len(table.requests)
    taken = newer.ask(TakeTurn(2, 9_500))
    assert isinstance(taken, LeaseRead)
    assert taken.resumption is not None
    assert (taken.lease.connected_token, taken.resumption.cursor, len(table.requests)) == (2, "6", asked + 1)


def test_a_refused_turn_keeps_the_predecessors_evidence() -> None:
    """After a turn that the upstream refused, the next connection still learns until when all events are stored."""
    table = Table()
    opened(table, overlap="forbids").ask(Release("6", row(1, 2_500, closed_ms=2_500, ended_by="reset")))
    refused = Function(table, "r2", now_ms=2_600, overlap="forbids")
    refused.claim()
    refused.ask(TakeTurn(2, 9_500))
    refused.ask(Release(None, Progress(2, claimed_ms=2_600, opened_ms=None, seen_ms=2_600, ended_by="refused")))
    third = Function(table, "r3", now_ms=3_000, overlap="forbids")
    third.claim()
    assert third.ask(TakeTurn(3, 9_900)).resumption == Resumption("6", 0, 2_500, 2_500, 2_500)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"layout": {"N": "3"}}, "the control record has layout 3, and this version knows 2"),
        ({"rest_until_ms": {"S": "soon"}}, "the control record cannot be claimed"),
    ],
)
def test_a_record_that_cannot_be_claimed_is_store_unavailable(attributes: dict[str, Any], sentence: str) -> None:
    """A newer or damaged record owes no back-off, so without a pause the claim would be refused again and again."""
    table = Table()
    function = Function(table, "r1")
    function.claim()
    table.put("lease", **table.item() | attributes)
    with pytest.raises(StoreUnavailable, match=sentence):
        function.ask(Claim(after_fence=1))


def test_the_next_claim_returns_which_connection_last_searched_for_gaps() -> None:
    """The newest search for gaps is recorded, so that not every one of many dropped connections searches."""
    table = Table()
    function = opened(table)
    function.ask(RecordGaps(4_000))
    function.ask(Heartbeat(None, row(1, 2_000), 9_500))
    assert Function(table, "r2").claim().resumption.last_searched == 1


def answered(table: Table, fence: int, for_ms: int = 10) -> Function:
    """Return a connection that is answered ten milliseconds after its claim, and alive for `for_ms`."""
    function = Function(table, f"r{fence}", now_ms=fence * 1_000 + 500)
    function.claim()
    function.ask(MarkConnected(fence, 900_000, row(fence, fence * 1_000 + for_ms)))
    return function


def gaps(table: Table) -> list[str]:
    items = control_table.Table(table.tables, "control").records_after(STREAM, GAP, "", 1_000)
    return [item["SK"]["S"] for item in items]


@pytest.mark.parametrize(
    "tries", [SEARCHED_CONNECTIONS - 2, SEARCHED_CONNECTIONS - 1, SEARCHED_CONNECTIONS, 2 * SEARCHED_CONNECTIONS - 1]
)
def test_the_gap_before_a_killed_connection_is_recorded_after_any_number_of_tries(tries: int) -> None:
    """The next answered connection records the gaps before and after one that was killed before its search."""
    table = Table()
    for fence in (1, 2):
        answered(table, fence)
    for fence in range(3, 3 + tries):
        refused = Function(table, "r3")
        refused.claim()
        refused.ask(SaveRecord(Progress(fence, fence * 1_000, None, fence * 1_000, ended_by="refused")))
    answered(table, 3 + tries).ask(RecordGaps(400))
    assert gaps(table) == ["gap#000000000002", f"gap#{3 + tries:012d}"]


def test_gaps_are_recorded_back_to_the_last_search() -> None:
    """The search goes back to the last recorded one, past any number of killed connections; usually two queries do."""
    table, last = Table(), SEARCHED_CONNECTIONS + 10
    for fence in range(1, last):
        answered(table, fence)
    function = answered(table, last)
    function.ask(RecordGaps(400))
    assert gaps(table) == [f"gap#{fence:012d}" for fence in range(2, last + 1)]
    function.ask(Heartbeat(None, row(last, last * 1_000 + 10), 900_000))
    function = answered(table, last + 1)
    table.requests.clear()
    function.ask(RecordGaps(400))
    assert table.requests.count("query") == 2
    assert gaps(table)[-1] == f"gap#{last + 1:012d}"


@pytest.mark.parametrize(("for_ms", "queries"), [(810, 3), (811, 2)])
def test_a_connection_that_lasted_long_has_searched_for_gaps(for_ms: int, queries: int) -> None:
    """A connection that lasted long has searched, so a group, which records no search, reads few records a handover."""
    table, last = Table(), SEARCHED_CONNECTIONS + 10
    for fence in range(1, last):
        answered(table, fence, for_ms)
    function = answered(table, last)
    table.requests.clear()
    function.ask(RecordGaps(400))
    assert table.requests.count("query") == queries


def test_the_control_record_of_a_typical_stream_is_one_write_unit() -> None:
    """With AWS's longest names, a cursor of 36 characters and long numbers a control record stays under a kilobyte."""
    table = Table()
    now_ms = 1_900_000_000_000
    request_id, name = "8f5a0a1e-0d9b-4f0e-9a53-0e3d6f2b7c11", "2c1d7e6b4fb04a2e9e8f7a6b5c4d3e2f1a0b9c8d-1"
    who = Invocation(STREAM, "A", EXECUTION + name, request_id, now_ms + 900_000, 20_000, 2_000, 5_000, 28_000)
    started_at = {"S": "2026-01-01T00:00:00.000Z"}
    table.put("lease", execution={"S": who.execution}, generation={"N": "123456"}, started_at=started_at)
    requests = Requests(profile(), table.store(), who, lambda: now_ms)

    def ask(effect: Effect) -> Any:
        return [request() for request in requests.requests_of(effect)][-1]

    ask(Claim())
    progress = Progress(
        fence=1, claimed_ms=now_ms, opened_ms=now_ms + 123, seen_ms=now_ms + 600_000, frames=1_234_567,
        bytes=1_234_567_890, stored=1_234_567, duplicates=12_345, unterminated_bytes=0, resumed=True,
        since_ms=now_ms - 12_345, live_ms=now_ms + 23_456, saved_ms=now_ms + 600_000, deadline_ms=now_ms + 900_000,
        heard_ms=now_ms + 600_000,
    )  # fmt: skip
    ask(MarkConnected(1, now_ms + 20_000, progress))
    ask(RecordGaps(20_000))
    ask(Heartbeat("0190f3a2-7c1e-7d4b-9b1a-2f6d3c4e5a6b", progress, now_ms + 40_000))
    item = table.item() | {"known": {"L": [{"N": str(now_ms)}] * 7}}
    assert (item_bytes(item) < 1_024, {"live", "known", "looked", "cursor", "stop"} - set(item)) == (True, {"stop"})
