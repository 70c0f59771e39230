"""Stores what one connection needs kept: its lease, cursor and rest in the control record, its events by the writer.

Each method is one conditional write of the control record, and its reply says whether the condition held and what the
record is: so a connection that writes need not read. Every write may be sent twice (the client retries when an answer
is lost) and may land late; each is made so that this changes nothing. For example a heartbeat that lands after the
release of its connection, or after a newer one is connected, is refused.

Invariants: the counters `fence`, `connected` and `released` only grow; an older connection never moves a cursor back.
Any other answer of AWS raises `StoreUnavailable`, after the client's own retries.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from handlers.aws.error_translation import ConditionFailed, translate_errors
from handlers.connection.backoff import Rest
from handlers.connection.inputs import Order, Written
from handlers.connection.lease import FINAL_ENDINGS, Lease
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.store import control_record, typed_values
from handlers.store.control_record import LAYOUT, ControlRecord, to_record
from handlers.store.control_table import ControlTable, placeholders, setting, values_of
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy
from handlers.store.event_writer import EventWriter
from handlers.store.ledger_records import LedgerRecords
from handlers.store.overflow import DeadLetterQueue, Objects, no_client
from handlers.store.typed_values import Item, number

if TYPE_CHECKING:
    from handlers.store.segment_writer import SegmentWriter

# The token was claimed (so no mark ever passes it), and no newer connection is connected, nor is this one closed.
_MAY_CONNECT = (
    "#fence >= :fence AND (attribute_not_exists(#connected) OR #connected <= :fence) "
    "AND (attribute_not_exists(#released) OR #released < :fence)"
)
# This connection is the newest that is connected and is not closed; an older renewal that comes late changes nothing.
_HOLDS = (
    "#connected = :fence AND (attribute_not_exists(#released) OR #released < :fence) "
    "AND #expires_at_ms <= :expires_at_ms"
)
# Nobody has claimed since, and all that were connected are closed: the turn is free.
_NOBODY_CAME = "#fence = :after AND (attribute_not_exists(#connected) OR #connected <= #released)"
# Of one that rested: no execution has let go of the stream meanwhile, and no newer connection was connected.
_NOT_LET_GO = "(attribute_exists(#execution) OR attribute_not_exists(#ended_at) OR #ended_at < :began)"
_NOT_RELIEVED = "(attribute_not_exists(#connected) OR #connected <= :after)"
# No stop is requested, for nobody may connect then. The rest is as it was read. And the record is of this layout, or
# nobody has claimed yet.
_MAY_CLAIM = (
    "(attribute_not_exists(#stop) OR #stop = :no) AND {rest} AND (#layout = :layout OR attribute_not_exists(#fence))"
)


class Reply(NamedTuple):
    """Whether the condition held, and the control record: after the write, or as it was where it was refused."""

    is_done: bool
    record: ControlRecord


class Change(NamedTuple):
    """Attributes that are set where a condition holds; `read` are the values beside theirs that it names."""

    condition: str
    attributes: Item
    read: Item


class _Words(NamedTuple):
    """A conditional write of the control record: its expressions, the attributes they name, and their values."""

    update: str
    condition: str
    names: tuple[str, ...]
    values: Item

    def where(self, condition: str, names: tuple[str, ...], values: Item) -> "_Words":
        """The same on that condition as well."""
        return _Words(self.update, f"{self.condition} AND {condition}", (*self.names, *names), self.values | values)

    def sets(self, update: str, names: tuple[str, ...], values: Item) -> "_Words":
        """The same, which makes that `update` as well."""
        both = f"{self.update}, {update.removeprefix('SET ')}"
        return _Words(both, self.condition, (*self.names, *names), self.values | values)


class Store:
    """The tables and the queue; the clients are made once and shared by all invocations of a sandbox.

    `sleep` waits for a number of seconds: the back-off of a throttled write. Records of connections and gaps expire
    after `ledger_keep_days`, 0 for never; those of connections say what `memory_mb` returns, None for nothing.
    """

    def __init__(
        self,
        dynamodb: Any,
        sqs: Callable[[], Any],
        *,
        events_table: str,
        control_table: str,
        dead_letter_queue_url: str,
        events_bucket: str = "",
        s3: Callable[[], Any] = no_client,
        ledger_keep_days: int = 0,
        memory_mb: Callable[[], int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.memory_mb = memory_mb
        self._dynamodb = dynamodb
        self._control_table = control_table
        self._table = ControlTable(dynamodb, control_table)
        self.ledger = LedgerRecords(dynamodb, control_table, ledger_keep_days)
        self._events_table = events_table
        self._objects, self._dead_letters = Objects(s3, events_bucket), DeadLetterQueue(sqs, dead_letter_queue_url)
        self._writer = EventWriter(dynamodb, events_table, self._objects, self._dead_letters, sleep)

    def write(
        self,
        stream_id: str,
        fence: int,
        first: int,
        events: Sequence[StreamEvent],
        policy: StoragePolicy = DEFAULT_POLICY,
    ) -> Written:
        """How many of `events` were new, known already, or dead-lettered; `first` is the number of the first."""
        return self._writer.write(stream_id, fence, first, events, policy)

    def log(
        self, stream_id: str, fence: int, now_ms: Callable[[], int], *, window_ms: int, keep_days: int
    ) -> "SegmentWriter":
        """The log of a stream whose events lie in one, for one connection whose clock is `now_ms`."""
        # Few streams have one, and what is imported lengthens each cold start.
        from handlers.store.segment_writer import SegmentWriter

        places = self._dynamodb, self._events_table, self._objects, self._dead_letters
        return SegmentWriter(
            *places, now_ms, stream_id=stream_id, fence=fence, window_ms=window_ms, keep_days=keep_days
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, stream_id: str) -> ControlRecord:
        """The control record as it stands now, read consistently; an empty one where there is none."""
        return self._to_record(self._table.get(stream_id, "lease"))

    def read_lease(self, stream_id: str) -> Lease:
        """The lease as it stands now, read consistently; an empty one where there is none."""
        return self.read(stream_id).lease

    # --- claiming -----------------------------------------------------------------------------------------------------

    def claim(
        self,
        stream_id: str,
        *,
        execution: str,
        holder: str,
        after_fence: int = 0,
        partitions: int = 1,
        order: Order = "index",
        now_ms: int = 0,
        rest_until_ms: int = 0,
        turn: Item | None = None,
        try_until_ms: int = 0,
        rested_from_ms: int | None = None,
        place: Change | None = None,
    ) -> Reply:
        """The reply to the claim; `execution` "" asks for no execution's right.

        `holder` names this invocation alone. `after_fence` is the last fencing token that it claimed already.
        `partitions` is what the stream's events are spread over from its first claim on. Whoever claims with the
        `order` "none" takes it from the stream for good. `rest_until_ms` is until when the upstream is owed a rest as
        far as is known; 0 for none. `turn` is the `mark` of a turn that is taken with it where nobody has claimed since
        `after_fence` and nobody is connected. Where `try_until_ms` is not 0, the try after that rest is taken until
        then. Of an invocation that rested, since it began at `rested_from_ms`, it is refused as well where a connection
        newer than `after_fence` was connected, or where an execution has let go of the stream since. `place` is what a
        function that keeps other streams as well asks of the record, and writes.
        """
        words = _claim_words(execution, holder, partitions, rest_until_ms)
        if rested_from_ms is not None:
            began = {":began": {"S": typed_values.instant(rested_from_ms)}}
            words = words.where(_NOT_LET_GO, ("ended_at", "execution"), began)
            if after_fence:
                words = words.where(_NOT_RELIEVED, ("connected",), {":after": number(after_fence)})
        if place is not None:
            words = words.where(place.condition, ("group",), place.read)
            words = words.sets(setting(tuple(place.attributes)), tuple(place.attributes), values_of(place.attributes))
        if order == "none":
            # Before any item is written that the index lacks, and never taken back: a reader would miss that item.
            words = words.sets("SET #order = :order", ("order",), {":order": {"S": order}})
        if try_until_ms:
            # The condition says that the rest is as it was known: so one alone takes the try.
            tries = {":try_until_ms": number(try_until_ms), ":tried_ms": number(now_ms)}
            update = "SET #rest_until_ms = :try_until_ms, #rest_tried_ms = :tried_ms, #rest_holder = :holder"
            words = words.sets(update, ("rest_tried_ms", "rest_holder"), tries)
        try:
            return self._claims(stream_id, words, holder, after_fence, turn, try_until_ms)
        except StoreUnavailable as lost:
            # The answer may be lost and the claim made. The holder's name shows it: no other invocation has it.
            with contextlib.suppress(StoreUnavailable):
                record = self.read(stream_id)
                if _is_claimed_by(record.lease, holder, after_fence):
                    return Reply(True, record)
            raise lost

    def _claims(
        self, stream_id: str, words: _Words, holder: str, after_fence: int, turn: Item | None, try_until_ms: int
    ) -> Reply:
        """The reply to the claim, with the turn where that is free."""
        if turn is not None:
            update = "SET #connected = :fence, #marked = :marked, #expires_at_ms = :expires_at_ms"
            both = words.where(_NOBODY_CAME, ("released",), {":after": number(after_fence)})
            both = both.sets(update, ("connected", "marked", "expires_at_ms"), turn)
            reply = self._change(stream_id, *both)
            # Refused, it may have been made by a request before, whose answer was lost.
            if reply.is_done or _is_claimed_by(reply.record.lease, holder, after_fence):
                return Reply(True, reply.record)
        reply = self._change(stream_id, *words)
        has_tried = 0 < try_until_ms == reply.record.rest.until_ms
        if has_tried and _is_claimed_by(reply.record.lease, holder, after_fence):
            return Reply(True, reply.record)  # by a request before, which took the try
        return reply

    # --- connecting ---------------------------------------------------------------------------------------------------

    def take_turn(
        self,
        stream_id: str,
        fence: int,
        expires_at_ms: int,
        now_ms: int,
        *,
        request_id: str = "",
        over: int = 0,
    ) -> Reply:
        """The reply; its connected token is `fence` where the turn was taken; for "forbids".

        Connection `over` is known to be over, 0 for none.
        """
        # And nobody's turn lasts: nobody was ever connected, or the last that was is closed or over, or it stopped
        # renewing; or the turn is this one's, by a request that came before.
        condition = (
            f"{_MAY_CONNECT} AND (attribute_not_exists(#connected) OR #connected <= #released OR #connected = :fence "
            "OR #connected = :over OR #expires_at_ms <= :now_ms)"
        )
        values = mark(fence, expires_at_ms, request_id)
        values |= {":now_ms": number(now_ms), ":over": number(over)}
        update = "SET #connected = :fence, #marked = :marked, #expires_at_ms = :expires_at_ms"
        names = ("fence", "connected", "released", "marked", "expires_at_ms")
        return self._change(stream_id, update, condition, names, values)

    def renew(self, stream_id: str, fence: int, expires_at_ms: int) -> Reply:
        """The reply to a renewal that writes nothing else: of a turn whose upstream has not answered yet."""
        values = {":fence": number(fence), ":expires_at_ms": number(expires_at_ms)}
        names = ("connected", "released", "expires_at_ms")
        return self._change(stream_id, "SET #expires_at_ms = :expires_at_ms", _HOLDS, names, values)

    def mark_connected(
        self,
        stream_id: str,
        fence: int,
        expires_at_ms: int,
        *,
        request_id: str = "",
        shown: Item | None = None,
        rest: Change | None = None,
    ) -> Reply:
        """The reply; refused where a newer connection is connected already, or the lease is gone.

        `shown` are the attributes that change with the newest connection. The record is that from before the mark.
        `rest` is written where its condition holds, and the mark all the same.
        """
        attributes, values = shown or {}, mark(fence, expires_at_ms, request_id)
        update = f"{setting(tuple(attributes))}, " if attributes else "SET "
        update += "#connected = :fence, #marked = :marked, #expires_at_ms = :expires_at_ms"
        names = ("fence", "connected", "released", "marked", "expires_at_ms", *attributes)
        values |= values_of(attributes)
        if rest is not None:
            reply = self._with_rest(stream_id, update, _MAY_CONNECT, names, values, rest, answer="ALL_OLD")
            if reply.is_done:
                return reply
        return self._change(stream_id, update, _MAY_CONNECT, names, values, answer="ALL_OLD")

    # --- while it is connected, and after -----------------------------------------------------------------------------

    def heartbeat(
        self, stream_id: str, fence: int, expires_at_ms: int, shown: Item, rest: Change | None = None
    ) -> Reply:
        """The reply; refused where a newer connection is connected, or this one is closed.

        `shown` are the attributes that change: the connection's record, and the cursor where it has moved. `rest` is
        written where its condition holds, and all else either way.
        """
        values = values_of(shown)
        values |= {":fence": number(fence), ":expires_at_ms": number(expires_at_ms)}
        names = ("connected", "released", "expires_at_ms", *shown)
        update = f"{setting(tuple(shown))}, #expires_at_ms = :expires_at_ms"
        if rest is not None:
            reply = self._with_rest(stream_id, update, _HOLDS, names, values, rest)
            if reply.is_done:
                return reply
        return self._change(stream_id, update, _HOLDS, names, values)

    def release(self, stream_id: str, fence: int, shown: Item, rest: Change | None = None) -> Reply:
        """The reply; `shown` as for a heartbeat is written where no newer connection is connected, the mark always.

        Without any to be shown it is one request: of a connection that knows of a newer one the other would be refused.

        `rest` is written where its condition holds, nobody has claimed since, and no stop is requested.
        """
        values = {":fence": number(fence)}
        if shown:
            condition = "#connected = :fence AND (attribute_not_exists(#released) OR #released <= :fence)"
            update = f"{setting(tuple(shown))}, #released = :fence"
            names = ("connected", "released", *shown)
            every = values | values_of(shown)
            if rest is not None:
                nobody = f"{condition} AND #fence = :fence AND (attribute_not_exists(#stop) OR #stop = :no)"
                asked = (*names, "fence", "stop"), every | {":no": {"BOOL": False}}
                reply = self._with_rest(stream_id, update, nobody, *asked, rest)
                if reply.is_done:
                    return reply
            reply = self._change(stream_id, update, condition, names, every)
            if reply.is_done:
                return reply
        # The token was claimed, and `released` never decreases.
        condition = "#fence >= :fence AND (attribute_not_exists(#released) OR #released <= :fence)"
        return self._change(stream_id, "SET #released = :fence", condition, ("fence", "released"), values)

    def replace_cursor(self, stream_id: str, read: ControlRecord, cursor: str, fence: int, now_ms: int) -> bool:
        """Whether `cursor` stands in place of one that connection `fence` saved and the upstream no longer knows.

        For one that never was connected: whoever is goes on with its own. So it stays the other connection's, and is
        written only where the cursor is still as it was `read`.
        """
        attributes = control_record.cursor(cursor, fence, now_ms)
        names, values = tuple(attributes), values_of(attributes)
        condition = "attribute_not_exists(#cursor)"
        if read.cursor is not None:
            condition = "#cursor = :old_cursor AND #cursor_fence = :old_fence"
            values |= {":old_cursor": {"S": read.cursor}, ":old_fence": number(read.cursor_fence)}
        return self._change(stream_id, setting(names), condition, names, values).is_done

    def change_rest(self, stream_id: str, before: Rest, after: Rest, holder: str) -> bool:
        """Whether the rest was `before` and is `after` now; `holder` names this invocation alone."""
        condition, attributes, read = to_change(before, after, holder)
        values = values_of(attributes) | read
        return self._change(stream_id, setting(tuple(attributes)), condition, tuple(attributes), values).is_done

    # --- requests -----------------------------------------------------------------------------------------------------

    def _with_rest(
        self,
        stream_id: str,
        update: str,
        condition: str,
        names: Sequence[str],
        values: Item,
        rest: Change,
        answer: str = "ALL_NEW",
    ) -> Reply:
        """The reply to a write that changes the rest as well, where both conditions hold."""
        update = f"{update}, {setting(tuple(rest.attributes)).removeprefix('SET ')}"
        values = values | values_of(rest.attributes) | rest.read
        return self._change(
            stream_id, update, f"{condition} AND ({rest.condition})", (*names, *rest.attributes), values, answer
        )

    def _change(
        self, stream_id: str, update: str, condition: str, names: Sequence[str], values: Any, answer: str = "ALL_NEW"
    ) -> Reply:
        """The reply to one conditional write of the control record."""
        try:
            with translate_errors("UpdateItem"):
                response = self._dynamodb.update_item(
                    TableName=self._control_table,
                    Key=typed_values.key(stream_id, "lease"),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeNames=placeholders(tuple(names)),
                    ExpressionAttributeValues=values,
                    ReturnValues=answer,
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
        except ConditionFailed as refused:
            # Not every emulator says what is there.
            item = self._table.get(stream_id, "lease") if refused.item is None else refused.item
            if problem := control_record.layout_problem(item):
                raise StoreUnavailable(problem) from None
            return Reply(False, self._to_record(item))
        return Reply(True, self._to_record(response.get("Attributes")))

    def _to_record(self, item: Item | None) -> ControlRecord:
        """What the item says; a stream of a group has part of that elsewhere."""
        return to_record(item)


def to_change(before: Rest, after: Rest, holder: str) -> Change:
    """The change of the rest from `before` to `after`; `holder` names the invocation alone."""
    # As it was read: nobody else tries since, and nobody failed. Or it is this one's, by a request before.
    read = ("rest_kind", "rest_failures", "rest_until_ms")
    condition = f"({' AND '.join(f'#{name} = :old_{name}' for name in read)})"
    if not before.until_ms:
        condition = f"attribute_not_exists(#rest_until_ms) OR {condition}"
    condition += " OR (#rest_until_ms = :rest_until_ms AND #rest_holder = :rest_holder)"
    old = control_record.rest(before)
    attributes = control_record.rest(after) | {"rest_holder": {"S": holder}}
    return Change(condition, attributes, {f":old_{name}": old[name] for name in read})


def _claim_words(execution: str, holder: str, partitions: int, rest_until_ms: int) -> _Words:
    """What each claim writes, and on which condition; `execution` "" asks for no execution's right."""
    rest = "#rest_until_ms = :rest_until_ms"
    words = _Words(
        # Fixed once and for all: with another number an event would not meet the item that it duplicates.
        "SET #fence = if_not_exists(#fence, :zero) + :one, #holder = :holder, #layout = :layout, "
        "#partitions = if_not_exists(#partitions, :partitions)",
        _MAY_CLAIM.format(rest=rest if rest_until_ms else f"(attribute_not_exists(#rest_until_ms) OR {rest})"),
        ("fence", "holder", "stop", "partitions", "layout", "rest_until_ms"),
        {
            ":zero": {"N": "0"},
            ":one": {"N": "1"},
            ":holder": {"S": holder},
            ":partitions": number(partitions),
            ":no": {"BOOL": False},
            ":layout": number(LAYOUT),
            ":rest_until_ms": number(rest_until_ms),
        },
    )
    if not execution:
        return words
    # The execution that this function works for has claimed the stream. Or none holds it: then no successor of
    # that execution has learned that the stream is over, for what is over is not to be connected again.
    finals = {f":final{number}": {"S": ending} for number, ending in enumerate(FINAL_ENDINGS)}
    right = (
        "(#execution = :execution OR (attribute_not_exists(#execution)"
        f" AND (attribute_not_exists(#ending) OR ({' AND '.join(f'#ending <> {final}' for final in finals)}))))"
    )
    return words.where(right, ("execution", "ending"), {":execution": {"S": execution}} | finals)


def _is_claimed_by(lease: Lease, holder: str, after_fence: int) -> bool:
    """Whether the last claim is one that `holder` made after it had claimed `after_fence`."""
    return lease.holder == holder and lease.fence > after_fence


def mark(fence: int, expires_at_ms: int, request_id: str) -> Item:
    """The values of a mark as connected."""
    marked = control_record.mark(fence, request_id)
    return {":fence": number(fence), ":marked": marked, ":expires_at_ms": number(expires_at_ms)}
