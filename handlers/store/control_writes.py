"""Spells the conditional writes of a stream's control record: the attributes that each sets, and its condition.

Any write may be sent twice (the client retries when an answer is lost) and may arrive late; each is made so that this
changes nothing. Pure. Invariants: the counters `fence`, `connected` and `released` only grow; an older connection never
moves a cursor back.
"""

from typing import NamedTuple

from handlers.connection.backoff import Backoff
from handlers.connection.inputs import LOG, Order
from handlers.connection.lease import FINAL_ENDINGS
from handlers.store import control_record, typed_values
from handlers.store.control_record import LAYOUT, ControlRecord
from handlers.store.control_table import set_clause, values_of
from handlers.store.typed_values import Item, number_value

# The token was claimed (so no mark ever passes it), no newer connection is connected, and this one is not closed.
_MAY_CONNECT = (
    "#fence >= :fence AND (attribute_not_exists(#connected) OR #connected <= :fence) "
    "AND (attribute_not_exists(#released) OR #released < :fence)"
)
# This connection is the newest connected one and is not closed; a late renewal by an older one changes nothing.
_HOLDS = (
    "#connected = :fence AND (attribute_not_exists(#released) OR #released < :fence) "
    "AND #expires_at_ms <= :expires_at_ms"
)
# No connection has claimed since, and all that were connected are closed: the turn is free.
NO_CLAIM_SINCE = "#fence = :after AND (attribute_not_exists(#connected) OR #connected <= #released)"
# After a back-off: no execution has let go of the stream meanwhile, and no newer connection was connected.
_NOT_LET_GO = "(attribute_exists(#execution) OR attribute_not_exists(#ended_at) OR #ended_at < :began)"
_NOT_RELIEVED = "(attribute_not_exists(#connected) OR #connected <= :after)"
# The partitions are fixed for good: with another number an event would not meet its duplicate. They change only to a
# log, when a budget is used up (`switch_to_log`).
_CLAIM = (
    "SET #fence = if_not_exists(#fence, :zero) + :one, #holder = :holder, #layout = :layout, "
    "#partitions = if_not_exists(#partitions, :partitions)"
)
_TURN = "SET #connected = :fence, #marked = :marked, #expires_at_ms = :expires_at_ms"


class Change(NamedTuple):
    """Attributes that are set if a condition holds; `read` are further values that the condition names."""

    condition: str
    attributes: Item
    read: Item


class Write(NamedTuple):
    """A conditional write of the control record: its expressions, and their values."""

    update: str
    condition: str
    values: Item

    def with_condition(self, condition: str, values: Item) -> "Write":
        """Returns the same write with a further condition."""
        return Write(self.update, f"{self.condition} AND {condition}", self.values | values)

    def with_update(self, update: str, values: Item) -> "Write":
        """Returns the same write with a further `update`."""
        return Write(f"{self.update}, {update.removeprefix('SET ')}", self.condition, self.values | values)

    def with_attributes(self, attributes: Item) -> "Write":
        """Returns the same write, which also sets these attributes."""
        return self.with_update(set_clause(tuple(attributes)), values_of(attributes)) if attributes else self

    def with_change(self, change: Change) -> "Write":
        """Returns the same write with this change and its condition."""
        return self.with_attributes(change.attributes).with_condition(f"({change.condition})", change.read)


# --- claiming ---------------------------------------------------------------------------------------------------------


def claim(
    execution: str,
    holder: str,
    *,
    after_fence: int = 0,
    partitions: int = 1,
    order: Order = "index",
    now_ms: int = 0,
    rest_until_ms: int = 0,
    try_until_ms: int = 0,
    rested_from_ms: int | None = None,
    place: Change | None = None,
) -> Write:
    """Returns the write of a claim and its condition; with `execution` "" no execution's right is required.

    `holder` is unique to this invocation. `after_fence` is the last fencing token that it has claimed. `partitions` is
    how many partition keys the stream's events are spread over from its first claim on. A claim with the `order` "none"
    ends the stream's order for good. `rest_until_ms` is the end of the back-off as far as is known; 0 for none. If
    `try_until_ms` is not 0, the try after that back-off is taken until then. `rested_from_ms` is when an invocation
    began that claims after a back-off. Its claim is also refused if a connection newer than `after_fence` was
    connected, or if an execution has let go of the stream since. `place` is the condition and the attributes of a
    function that keeps other streams too.
    """
    rest = "#rest_until_ms = :rest_until_ms"
    if not rest_until_ms:
        rest = f"(attribute_not_exists(#rest_until_ms) OR {rest})"
    words = Write(
        _CLAIM,
        # No stop is requested: during one, no connection may be made. The back-off is as it was read. And the record
        # has this layout, which the first claim writes.
        f"(attribute_not_exists(#stop) OR #stop = :no) AND {rest} "
        "AND (#layout = :layout OR attribute_not_exists(#layout))",
        {
            ":zero": {"N": "0"},
            ":one": {"N": "1"},
            ":holder": {"S": holder},
            ":partitions": number_value(partitions),
            ":no": {"BOOL": False},
            ":layout": number_value(LAYOUT),
            ":rest_until_ms": number_value(rest_until_ms),
        },
    )
    if execution:
        words = _with_execution_right(words, execution)
    if rested_from_ms is not None:
        began = {":began": {"S": typed_values.instant_text(rested_from_ms)}}
        words = words.with_condition(_NOT_LET_GO, began)
        if after_fence:
            words = words.with_condition(_NOT_RELIEVED, {":after": number_value(after_fence)})
    if place is not None:
        words = words.with_change(place)
    if order == "none":
        # This is written before any item that the index lacks, and stays: otherwise a reader would miss that item.
        words = words.with_attributes({"order": {"S": order}})
    if try_until_ms:
        # The condition is that the back-off is as it was known, so only one claim takes the try.
        tries = {":try_until_ms": number_value(try_until_ms), ":tried_ms": number_value(now_ms)}
        update = "SET #rest_until_ms = :try_until_ms, #rest_tried_ms = :tried_ms, #rest_holder = :holder"
        words = words.with_update(update, tries)
    return words


def _with_execution_right(words: Write, execution: str) -> Write:
    """Returns the same write on condition that the execution has the right to claim."""
    # The function's own execution holds the stream, or no execution does. In the second case no successor of that
    # execution may have ended the stream for good, because a stream that is over is not connected again.
    finals = {f":final{number}": {"S": ending} for number, ending in enumerate(FINAL_ENDINGS)}
    right = (
        "(#execution = :execution OR (attribute_not_exists(#execution)"
        f" AND (attribute_not_exists(#ending) OR ({' AND '.join(f'#ending <> {final}' for final in finals)}))))"
    )
    return words.with_condition(right, {":execution": {"S": execution}} | finals)


def with_turn(words: Write, turn: Item, after_fence: int) -> Write:
    """Returns a claim that also takes the turn marked by `turn`, if no connection has claimed since `after_fence`."""
    both = words.with_condition(NO_CLAIM_SINCE, {":after": number_value(after_fence)})
    return both.with_update(_TURN, turn)


# --- connecting -------------------------------------------------------------------------------------------------------


def mark_values(fence: int, expires_at_ms: int, request_id: str) -> Item:
    """Returns the values of a mark as connected."""
    marked = control_record.mark_value(fence, request_id)
    return {":fence": number_value(fence), ":marked": marked, ":expires_at_ms": number_value(expires_at_ms)}


def turn(marked: Item, now_ms: int, over: int) -> Write:
    """Takes the turn for a connection with the `mark_values` `marked`; connection `over` is known to be over."""
    # The turn is free if no connection was ever open, or the last one is closed or over or has stopped renewing. It is
    # also taken if an earlier request of this connection has taken it.
    condition = (
        f"{_MAY_CONNECT} AND (attribute_not_exists(#connected) OR #connected <= #released OR #connected = :fence "
        "OR #connected = :over OR #expires_at_ms <= :now_ms)"
    )
    return Write(_TURN, condition, marked | {":now_ms": number_value(now_ms), ":over": number_value(over)})


def connect(marked: Item, shown: Item) -> Write:
    """Marks a connection as connected, and shows it."""
    return Write(_TURN, _MAY_CONNECT, marked).with_attributes(shown)


def renewal(fence: int, expires_at_ms: int, shown: Item) -> Write:
    """Renews the lease of its holder, and shows the holder's record."""
    values = {":fence": number_value(fence), ":expires_at_ms": number_value(expires_at_ms)}
    return Write("SET #expires_at_ms = :expires_at_ms", _HOLDS, values).with_attributes(shown)


# --- after that -------------------------------------------------------------------------------------------------------


def final_release(fence: int, shown: Item) -> Write:
    """Releases a connection and shows how it ended, if no newer one is connected."""
    condition = "#connected = :fence AND (attribute_not_exists(#released) OR #released <= :fence)"
    return Write("SET #released = :fence", condition, {":fence": number_value(fence)}).with_attributes(shown)


def with_rest_change(words: Write, rest: Change) -> Write:
    """Returns the same write with a change of the back-off, if none has claimed since and no stop is requested."""
    nobody = "#fence = :fence AND (attribute_not_exists(#stop) OR #stop = :no)"
    return words.with_condition(nobody, {":no": {"BOOL": False}}).with_change(rest)


def release(fence: int) -> Write:
    """Releases a connection, whichever is connected."""
    # The token was claimed, and `released` never decreases.
    condition = "#fence >= :fence AND (attribute_not_exists(#released) OR #released <= :fence)"
    return Write("SET #released = :fence", condition, {":fence": number_value(fence)})


def cursor_replacement(read: ControlRecord, cursor: str, fence: int, now_ms: int) -> Write:
    """Sets another cursor in the name of connection `fence`, if the cursor is still as it was `read`."""
    attributes = control_record.cursor_attributes(cursor, fence, now_ms)
    values, condition = values_of(attributes), "attribute_not_exists(#cursor)"
    if read.cursor is not None:
        condition = "#cursor = :old_cursor AND #cursor_fence = :old_fence"
        values |= {":old_cursor": {"S": read.cursor}, ":old_fence": number_value(read.cursor_fence)}
    return Write(set_clause(tuple(attributes)), condition, values)


def switch_to_log(items: int, since_ms: int) -> Write:
    """Sends the events of a stream with `items` partitions of ordered items to a log, from `since_ms` on for good."""
    condition = "attribute_exists(#fence) AND attribute_not_exists(#order) AND #partitions = :item_partitions"
    attributes = {
        "partitions": number_value(LOG),
        "item_partitions": number_value(items),
        "log_since_ms": number_value(since_ms),
    }
    return Write(set_clause(tuple(attributes)), condition, values_of(attributes))


def rest_change(before: Backoff, after: Backoff, holder: str) -> Change:
    """Returns the change of the back-off from `before` to `after`; `holder` is unique to the invocation."""
    # The back-off is as it was read, so no other connection has tried or failed since; or an earlier request has made
    # this change.
    read = ("rest_kind", "rest_failures", "rest_until_ms")
    condition = f"({' AND '.join(f'#{name} = :old_{name}' for name in read)})"
    if not before.until_ms:
        condition = f"attribute_not_exists(#rest_until_ms) OR {condition}"
    condition += " OR (#rest_until_ms = :rest_until_ms AND #rest_holder = :rest_holder)"
    old = control_record.rest_attributes(before)
    attributes = control_record.rest_attributes(after) | {"rest_holder": {"S": holder}}
    return Change(condition, attributes, {f":old_{name}": old[name] for name in read})
