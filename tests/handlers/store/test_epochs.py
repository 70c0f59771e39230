"""Ids that start over: the store recognises them, reports them, and stores each event once if the profile says so."""

import json
import random
from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.connection.effects import Claim, Heartbeat, MarkConnected, Progress, Release, Write
from handlers.connection.epochs import SLACK_MS, Epoch, alternative_keys
from handlers.connection.inputs import IN_A_LOG, Claimed, Layout, Written
from handlers.connection.steps import Invocation
from handlers.framing.events import MAX_KEY_BYTES, StreamEvent
from handlers.group.group_lease import GroupHeartbeat, GroupLease
from handlers.redrive.letters import LetterReader, Message
from handlers.redrive.restore import Events, NotStored
from handlers.run.requests import Requests
from handlers.store import control_record
from handlers.store.connection_store import Store
from handlers.store.event_reader import EventReader
from handlers.store.grouped_store import GroupedStore
from handlers.store.known_streams import GroupFunction
from handlers.store.overflow import Objects
from handlers.store.typed_values import Item, item_key, typed_item
from local.simulation.tables import Listener, MemoryDynamoDB
from local.simulation.virtual_delivery import DELIVERY
from tests.examples import examples
from tests.handlers.connection.managers import profile
from tests.handlers.deliver.stage import Stage

STREAM = "demo"
GROUP = "#1"
# Where the events lie; with "group" the function keeps other streams too.
STORES = ("items", "log", "group")
START_MS = 1_700_000_000_000


class Refusing(MemoryDynamoDB):
    """Refuse chosen bodies for good, as DynamoDB refuses an invalid item."""

    def __init__(self, *tables: str, on_change: Listener) -> None:
        super().__init__(*tables, on_change=on_change)
        self.refused: set[str] = set()

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Put an item, as the table does."""
        if request["Item"].get("data", {}).get("S") in self.refused:
            raise _invalid("PutItem")
        return super().put_item(**request)

    def batch_execute_statement(self, **request: Any) -> dict[str, Any]:
        """Execute a batch, as the table does; one refused statement fails the whole batch."""
        if any(value.get("S") in self.refused for one in request["Statements"] for value in one["Parameters"]):
            raise _invalid("BatchExecuteStatement")
        return super().batch_execute_statement(**request)


def _invalid(operation: str) -> ClientError:
    return ClientError({"Error": {"Code": "ValidationException", "Message": "one value is invalid"}}, operation)


class World:
    """Tables, a clock, and the connections of one stream on them."""

    def __init__(self, store: str = "items", on_conflict: str = "epoch") -> None:
        self.writes: list[tuple[int, Item]] = []
        self.tables = Refusing("events", "control", DELIVERY, on_change=self._wrote)
        self.letters: list[str] = []
        self.is_grouped = store == "group"
        self.fields = {"store": "items" if self.is_grouped else store, "on_conflict": on_conflict, "key": "id"}
        self.now_ms = START_MS
        self.claims = 0
        if self.is_grouped:
            place = {"group": GROUP, "joined": "1", "started_at": "2026-01-01T00:00:00.000Z"}
            self.tables.put_item(TableName="control", Item=item_key(STREAM, "lease") | typed_item(place))

    def _wrote(self, table: str, _key: object, item: Item) -> None:
        if table == "events":
            self.writes.append((self.now_ms - START_MS, item))

    def send_message(self, *, MessageBody: str, **_queue: str) -> None:
        """Take a message, as the dead-letter queue."""
        self.letters.append(MessageBody)

    def redrive(self) -> list[str]:
        """Put back the queue's content, now that nothing is refused; return the result of each message."""
        self.tables.refused.clear()
        events = Events(self.tables, "events", Objects(dict, ""))
        read, outcomes = [LetterReader().read(Message(body, body, body)) for body in self.letters], []
        self.letters.clear()
        for letter in read:
            assert letter is not None
            assert letter.event is not None
            try:
                outcomes.append(events.outcome(STREAM, letter.fence, letter.event, Layout(), dry_run=False))
            except NotStored as problem:
                outcomes.append(str(problem))
        return outcomes

    def connection(self) -> "Connection":
        self.claims += 1
        return Connection(self)

    def store(self, request_id: str) -> Store:
        """Return the store of a function that begins now."""
        names: dict[str, Any] = {"events_table": "events", "control_table": "control", "dead_letter_queue_url": "queue"}
        if not self.is_grouped:
            return Store(self.tables, lambda: self, sleep=print, **names)
        limit_ms = self.now_ms + 900_000
        who = GroupFunction(GROUP, self.claims, request_id, "", limit_ms, 8_000)
        store = GroupedStore(self.tables, lambda: self, who, lambda: self.now_ms, sleep=print, **names)
        store.lease = GroupLease(heartbeats={request_id: GroupHeartbeat(self.claims, self.now_ms, limit_ms)})
        return store

    @property
    def epoch(self) -> Epoch:
        item = self.tables.get_item(TableName="control", Key={"PK": {"S": STREAM}, "SK": {"S": "lease"}})["Item"]
        assert control_record.damaged_attributes(item) == ()
        return control_record.epoch_of(item)

    def stored(self) -> list[tuple[str, str]]:
        """Return the key and body of each event, in order."""
        layout = IN_A_LOG if self.fields["store"] == "log" else Layout()
        read = EventReader(self.tables, "events", lambda _key: None).entries(STREAM, layout, self.now_ms, "", 1_000)
        return [(event.key, str(event.data)) for _, event in read if event is not None]


class Connection:
    """A connection that has claimed the stream and whose deliveries are stored."""

    def __init__(self, world: World) -> None:
        self.world = world
        who = Invocation(STREAM, "A", "", f"r{world.claims}", 900_000, 4_000, 1_000, 1_000, 0)
        self.requests = Requests(profile(**world.fields), world.store(who.request_id), who, lambda: world.now_ms)
        (claimed,) = [request() for request in self.requests.requests_of(Claim())]
        assert isinstance(claimed, Claimed)
        self.fence, self.count, self.after = claimed.lease.fence, 0, claimed.resumption.cursor

    def performs(self, step: type[MarkConnected | Heartbeat | Release], cursor: str | None = None) -> None:
        """Perform a step about the connection as it is now, and save the cursor."""
        now_ms, expires_ms = self.world.now_ms, self.world.now_ms + 60_000
        progress = Progress(self.fence, now_ms, now_ms)
        made = MarkConnected(self.fence, expires_ms, progress) if step is MarkConnected else (
            Heartbeat(cursor, progress, expires_ms) if step is Heartbeat else Release(cursor, progress)
        )  # fmt: skip
        for request in self.requests.requests_of(made):
            request()

    def sends(self, *bodies: tuple[object, str]) -> Written:
        """Deliver an event for each id and body."""
        self.world.now_ms += 100
        sent = tuple(StreamEvent(str(n), body, str(n), None, str(n), self.world.now_ms) for n, body in bodies)
        (written,) = [request() for request in self.requests.requests_of(Write(self.fence, self.count, sent))]
        self.count += len(sent)
        assert isinstance(written, Written)
        return written


def of(which: int, *ids: int) -> list[tuple[object, str]]:
    """Return the events with these ids from the server's life with the number `which`."""
    return [(one, f"{which}-{one}") for one in ids]


@pytest.mark.parametrize("store", STORES)
def test_three_known_keys_in_a_row_with_other_bodies_begin_an_epoch(store: str) -> None:
    """Three known keys in a row with other bodies begin an epoch, in which a body of a former epoch is another event.

    The events before the third are stored too. A number that was never reached before stays its own key. A handover and
    a kill store nothing twice.
    """
    world = World(store)
    assert world.connection().sends(*of(0, 1, 2, 3, 4, 5)) == Written(5, 0)
    world.now_ms += SLACK_MS + 1
    since_ms = world.now_ms + 100
    connection = world.connection()
    assert connection.sends(*of(1, 1, 2)) == Written(2, 0, 0, 2)
    assert world.epoch == Epoch()
    assert connection.sends(*of(1, 3), *of(0, 4), *of(1, 5, 6)) == Written(4, 0, 0, 1)
    assert world.epoch == Epoch(1, since_ms, since_ms + 100, True)
    assert world.connection().sends(*of(1, 1, 2, 3), *of(0, 4), *of(1, 5, 6, 7)) == Written(1, 6)
    keys = ["1#1", "2#1", "3#1", "4#1", "5#1", "6", "7"]
    assert [key for key, _ in world.stored()] == ["1", "2", "3", "4", "5", *keys]


@pytest.mark.parametrize("store", STORES)
def test_events_from_before_a_restart_begin_no_second_epoch(store: str) -> None:
    """Known keys from just before the newest epoch begin no other one, or its first events would be stored twice."""
    world = World(store)
    world.connection().sends(*of(0, *range(1, 10)))
    world.now_ms += 5_000
    connection, since_ms = world.connection(), world.now_ms + 100
    connection.sends(*of(1, 1, 2, 3))
    world.now_ms += 20_000
    connection.sends(*of(1, *range(4, 10)))
    assert world.epoch == Epoch(1, since_ms, since_ms, True)
    assert world.connection().sends(*of(1, *range(1, 10))) == Written(0, 9)


@pytest.mark.parametrize(("store", "on_conflict"), [("items", "first"), ("log", "first"), ("items", "both")])
def test_ids_that_start_over_are_reported_if_no_epoch_may_begin(store: str, on_conflict: str) -> None:
    """If no epoch may begin, the control record reports the restart, at most once a minute while it lasts."""
    world = World(store, on_conflict)
    world.connection().sends(*of(0, *range(1, 9)))
    connection = world.connection()
    connection.sends(*of(1, 1, 2))
    assert world.epoch == Epoch()
    written = connection.sends(*of(1, 3))
    seen_ms, is_stored = world.now_ms, on_conflict == "both"
    since_ms = seen_ms - 100
    assert written == (Written(1, 0, 0, 1) if is_stored else Written(0, 1, 0, 1, lost=3, lost_from_ms=since_ms))
    assert world.epoch == Epoch(0, since_ms, seen_ms, is_stored)
    assert connection.sends(*of(1, 4)).lost == 1 - is_stored
    assert world.epoch.seen_ms == seen_ms
    world.now_ms += 60_000
    connection.sends(*of(1, 5))
    assert world.epoch == Epoch(0, seen_ms - 100, world.now_ms, is_stored)
    assert len(world.stored()) == (13 if is_stored else 8)


@pytest.mark.parametrize("store", STORES)
def test_known_keys_in_a_row_are_counted_across_connections(store: str) -> None:
    """A restart is found although each connection brings one event.

    Repeats count once; a new or known event ends the row.
    """
    world = World(store, "first")
    world.connection().sends(*of(0, *range(1, 9)))

    def lost(*bodies: tuple[object, str]) -> tuple[int, int]:
        connection = world.connection()
        connection.performs(MarkConnected)
        written = connection.sends(*bodies)
        connection.performs(Heartbeat)
        connection.performs(Release, "8")
        world.now_ms += SLACK_MS
        return written.lost, written.lost_from_ms - START_MS if written.lost else 0

    assert [lost(*of(1, one)) for one in (1, 2, 2, 2)] == [(0, 0)] * 4
    assert [lost(*of(0, one)) for one in (3, 9)] == [lost(*of(1, 1)), lost(*of(1, 2))] == [(0, 0)] * 2
    began_ms = world.now_ms - START_MS - 2 * SLACK_MS - 100
    assert lost(*of(1, 3)) == (3, began_ms)
    assert lost(*of(1, 4), *of(0, 5)) == (1, world.now_ms - START_MS - SLACK_MS)


@pytest.mark.parametrize("store", ["items", "group"])
def test_a_server_that_fails_after_each_first_event_is_recognized(store: str) -> None:
    """A connection without a cursor gets no event again, so the same key with another body is another event."""
    world, lost = World(store, "first"), []
    world.connection().sends((1, "first life"))
    for life in range(4):
        world.now_ms += SLACK_MS
        connection = world.connection()
        connection.performs(MarkConnected)
        lost.append(connection.sends((1, f"life {life}")).lost)
        connection.performs(Release)
    assert lost == [0, 0, 3, 1]


@pytest.mark.parametrize("store", ["items", "log"])
def test_two_open_connections_may_bring_one_event_with_two_bodies(store: str) -> None:
    """Other bodies are no restart while two connections are open, but are if they go on after the older one closes."""
    world = World(store, "first")
    older = world.connection()
    older.performs(MarkConnected)
    older.sends(*of(0, *range(1, 9)))
    newer = world.connection()
    newer.performs(MarkConnected)
    assert newer.sends(*of(1, 1, 2, 3, 4)) == Written(0, 4, 0, 4, is_beside=True)
    older.performs(Release)
    assert newer.sends(*of(1, 5)) == Written(0, 1, 0, 1, is_beside=True)
    assert world.epoch == Epoch()
    newer.performs(Heartbeat)
    written = newer.sends(*of(1, 6))
    assert (written.lost, written.is_beside) == (6, False)
    assert world.epoch.seen_ms == world.now_ms
    newer.sends(*of(1, 9))
    assert world.connection().sends(*of(2, 9)) == Written(0, 1, 0, 1, is_beside=True)
    # If two are forbidden, the older one is over when the newer one opens, even if that is not known yet.
    world.fields["overlap"] = "forbids"
    written = world.connection().sends(*of(2, 9))
    assert (written.lost, written.is_beside) == (1, False)


def test_a_logs_cursor_passes_a_dropped_event_only_once_its_loss_can_be_recorded() -> None:
    """After a kill before the record, the upstream sends the dropped event again and the next connection counts it."""
    world = World("log", "first")
    world.connection().sends(*of(0, *range(1, 9)))
    killed = world.connection()
    assert killed.sends(*of(1, 9, 1, 2, 10)) == Written(2, 2, 0, 2)
    assert world.connection().after == "9"
    # A loss is recorded between two writes, and a heartbeat may save a row and the cursor after it.
    killed.sends(*of(1, 11))
    assert world.connection().after == "11"


@pytest.mark.parametrize("store", STORES)
def test_a_restart_is_found_at_once_if_the_known_events_are_older_than_both_connections(store: str) -> None:
    """A restart is found at once if the known events came before the older connection opened, whose lease lasts."""
    world = World(store, "first")
    world.connection().sends(*of(0, *range(1, 9)))
    world.now_ms += 1
    older = world.connection()
    older.performs(MarkConnected)
    newer = world.connection()
    newer.performs(MarkConnected)
    written = newer.sends(*of(1, 1, 2, 3))
    assert (written.lost, written.is_beside) == (3, False)
    assert world.epoch.seen_ms == world.now_ms


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("on_conflict", ["first", "epoch"])
def test_an_event_that_a_newer_connection_stored_first_is_no_conflict(store: str, on_conflict: str) -> None:
    """An older connection that brings an event with another body after a newer one stored it counts no conflict."""
    world = World(store, on_conflict)
    older = world.connection()
    assert older.sends(*of(0, 1)) == Written(1, 0)
    assert world.connection().sends(*of(1, 2, 3, 4, 5, 6)) == Written(5, 0)
    assert (written := older.sends(*of(0, 2, 3, 4, 5, 6, 7))).conflicts == written.lost == 0
    assert world.epoch == Epoch()


@pytest.mark.parametrize("store", STORES)
def test_corrections_and_repetitions_begin_no_epoch(store: str) -> None:
    """Two other bodies in a row begin no epoch, nor do many with new or known events between them."""
    world = World(store)
    world.connection().sends(*of(0, 1, 2, 3, 4, 5, 6))
    world.connection().sends(*of(1, 1, 2), *of(0, 3), *of(1, 4, 5), *of(0, 7), *of(1, 6))
    assert world.epoch == Epoch()
    world.connection().sends(*of(0, 1, 2, 3, 4, 5, 6, 7))
    assert world.epoch == Epoch()
    assert [body for _, body in world.stored()[6:]] == ["1-1", "1-2", "1-4", "1-5", "0-7", "1-6"]


@pytest.mark.parametrize("store", STORES)
@settings(max_examples=examples(150))
@given(
    lives=st.lists(st.tuples(st.integers(1, 7), st.sets(st.integers(4, 7))), min_size=2, max_size=4),
    deliveries=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(1, 7)), max_size=24),
)
def test_each_event_of_each_epoch_is_stored_once(
    store: str, lives: Sequence[tuple[int, set[int]]], deliveries: Sequence[tuple[int, int, int]]
) -> None:
    """Each event of each epoch is stored once, whatever connections deliver and whichever epoch they know.

    A life of the server counts from 1; some of its bodies are those of the life before. Connections overlap, are killed
    and begin again at an earlier place. One in three was open before the server was restarted.
    """
    world, body_of, expected = World(store), dict[int, str](), list[str]()
    older = world.connection()
    for which, (length, same) in enumerate(lives):
        world.now_ms += SLACK_MS + 1
        is_recognized = min(length, max(body_of, default=0)) >= 3
        for one in range(1, length + 1):
            if one not in body_of or one not in same or not is_recognized:
                body_of[one] = f"{which}-{one}"
            expected.append(body_of[one])
        open_ = [older, world.connection(), world.connection()]
        for who, first, count in deliveries[which :: len(lives)]:
            events = [(one, body_of[one]) for one in range(1 + first, min(length, first + count) + 1)]
            if events:
                open_[who].sends(*events)
        older = world.connection()
        for _ in range(2):  # the last connection requests everything, twice
            world.connection().sends(*[(one, body_of[one]) for one in range(1, length + 1)])
    assert sorted(body for _, body in world.stored()) == sorted(expected)


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_a_refused_event_of_a_new_epoch_is_put_back_under_its_key_and_delivered_once(seed: int) -> None:
    """A refused event is in the queue once. A redrive before or after the next restart of the ids stores it once."""
    draw, world, expected = random.Random(seed), World(), dict[str, str]()
    lengths: list[int] = []
    redriven = 0
    for life in range(draw.randint(2, 4)):
        world.now_ms += SLACK_MS + 1
        lengths.append(draw.randint(3, 8))
        for one in range(1, lengths[-1] + 1):
            taken = sum(one <= length for length in lengths[:-1])
            expected[f"{life}-{one}"] = f"{one}#{taken}" if taken else f"{one}"
        refused = {f"{life}-{one}" for one in range(1, lengths[-1] + 1) if draw.random() < 0.5}
        world.tables.refused |= refused
        for _ in range(draw.randint(2, 4)):
            connection, at = world.connection(), 1
            while at <= lengths[-1]:
                count = draw.randint(1, 4)
                connection.sends(*of(life, *range(at, min(at + count, lengths[-1] + 1))))
                at += count
        redriven += len(refused)
        assert len(world.letters) == redriven
        if draw.random() < 0.5:
            assert world.redrive() == ["stored"] * redriven
            redriven = 0
    assert world.redrive() == ["stored"] * redriven
    world.connection().sends(*of(life, *range(1, lengths[-1] + 1)))
    assert sorted((body, key) for key, body in world.stored()) == sorted(expected.items())
    stage = Stage(client=world.tables)
    stage.bring(world.writes)
    stage.run(3600)
    at_sink = [(json.loads(one.text)["data"], one.key) for _, one in stage.taken]
    assert sorted(at_sink) == sorted(expected.items())


def test_another_key_ends_with_a_number() -> None:
    """Another key is the key, a number sign and a number; a long key is hashed first."""
    assert list(islice(alternative_keys("7"), 3)) == ["7#1", "7#2", "7#3"]
    assert len(next(alternative_keys("é" * (MAX_KEY_BYTES // 2)))) == 64 + 2
