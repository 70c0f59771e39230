"""Stores what one connection needs kept: its lease, cursor and ledger in DynamoDB, its events by the event writer.

Each effect of the manager becomes one conditional write, and the result says whether the condition held. Every write
may be sent twice (the client retries when an answer is lost) and may land late; each is made so that this changes
nothing. For example a cursor is saved only over an older fencing token, or over the same one and not later.

Invariants: the counters `fence`, `connected` and `released` only grow; an older connection never moves a cursor back.
Any other answer of AWS raises `StoreUnavailable`, after the client's own retries.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from handlers.aws.error_translation import ConditionFailed, translate_errors
from handlers.connection.backoff import Rest
from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.inputs import Claimed, ClaimRefused, CursorRead, Written
from handlers.connection.lease import Lease
from handlers.connection.ledger import behind_ms, gaps, known_ms
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.store import control_items
from handlers.store.control_table import ControlTable
from handlers.store.dead_letters import DeadLetterQueue
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy
from handlers.store.event_writer import EventWriter
from handlers.store.objects import Objects, no_client

# How many connections back a connection looks for gaps that are not recorded.
LOOK_BACK = 25
# And back to here, where nobody answered those: 400 tries are three hours of an outage with two lanes.
FARTHEST = 400


class Store:
    """The tables and the queue; the clients are made once and shared by all invocations of a sandbox.

    `sleep` waits for a number of seconds: the back-off of a throttled write. Records of connections and gaps expire
    after `ledger_keep_days`, 0 for never.
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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._dynamodb = dynamodb
        self._control_table = control_table
        self._table = ControlTable(dynamodb, control_table)
        self._ledger_keep_days = ledger_keep_days
        objects, dead_letters = Objects(s3, events_bucket), DeadLetterQueue(sqs, dead_letter_queue_url)
        self._writer = EventWriter(dynamodb, events_table, objects, dead_letters, sleep)

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

    # --- the lease ----------------------------------------------------------------------------------------------------

    def claim(
        self, stream_id: str, *, execution: str, holder: str, after_fence: int = 0, partitions: int = 1
    ) -> Claimed | ClaimRefused:
        """The claim, or its refusal with the lease as it stands; `execution` "" asks for no execution's right.

        `holder` names this invocation alone. `after_fence` is the last fencing token that it claimed already.
        `partitions` is what the stream's events are spread over from its first claim on.
        """
        # No stop is requested: while one is, nobody may connect.
        condition = "(attribute_not_exists(#stop) OR #stop = :no)"
        values = {":zero": {"N": "0"}, ":one": {"N": "1"}, ":no": {"BOOL": False}, ":holder": {"S": holder}}
        values[":partitions"] = control_items.number(partitions)
        names: tuple[str, ...] = ("fence", "holder", "stop", "partitions")
        if execution:
            # The stream is claimed by no execution, or by the one that this function works for.
            condition += " AND (attribute_not_exists(#execution) OR #execution = :execution)"
            values[":execution"] = {"S": execution}
            names += ("execution",)
        # Fixed once and for all: with another number an event would not meet the item that it duplicates.
        update = (
            "SET #fence = if_not_exists(#fence, :zero) + :one, #holder = :holder, "
            "#partitions = if_not_exists(#partitions, :partitions)"
        )
        try:
            answer = self._update(stream_id, "lease", update, condition, names, values, answer="ALL_NEW")
        except ConditionFailed:
            return ClaimRefused(self.read_lease(stream_id))
        except StoreUnavailable as lost:
            # The answer may be lost and the claim made. The holder's name shows it: no other invocation has it.
            with contextlib.suppress(StoreUnavailable):
                item = self._table.get(stream_id, "lease") or {}
                lease = control_items.lease(item)
                if lease.holder == holder and lease.fence > after_fence:
                    return Claimed(lease, control_items.partitions(item))
            raise lost
        return Claimed(control_items.lease(answer), control_items.partitions(answer))

    def read_lease(self, stream_id: str) -> Lease:
        """The lease as it stands now, read consistently; an empty one where there is none."""
        return control_items.lease(self._table.get(stream_id, "lease") or {})

    def mark_connected(self, stream_id: str, fence: int, expires_at_ms: int) -> bool:
        """Whether it was marked: False where a newer connection is connected already, or the lease is gone."""
        # The token was claimed (so `connected` never passes it), and no newer one is connected.
        condition = "#fence >= :fence AND (attribute_not_exists(#connected) OR #connected <= :fence)"
        update = "SET #connected = :fence, #expires_at_ms = :expires_at_ms"
        values = {":fence": control_items.number(fence), ":expires_at_ms": control_items.number(expires_at_ms)}
        return self._applied(stream_id, "lease", update, condition, ("fence", "connected", "expires_at_ms"), values)

    def take_turn(self, stream_id: str, fence: int, expires_at_ms: int, now_ms: int) -> Lease:
        """The lease afterwards; its connected token is `fence` where the turn was taken; for "forbids"."""
        # The token was claimed, and no newer one took its turn. And nobody's turn lasts: nobody was ever connected, or
        # the last that was is closed, or it stopped renewing; or the turn is this one's, by a request that came before.
        condition = (
            "#fence >= :fence AND (attribute_not_exists(#connected) OR (#connected <= :fence AND "
            "(#connected <= #released OR #connected = :fence OR #expires_at_ms <= :now_ms)))"
        )
        update = "SET #connected = :fence, #expires_at_ms = :expires_at_ms"
        values = {":fence": control_items.number(fence), ":expires_at_ms": control_items.number(expires_at_ms)}
        values[":now_ms"] = control_items.number(now_ms)
        names = ("fence", "connected", "released", "expires_at_ms")
        self._applied(stream_id, "lease", update, condition, names, values)
        return self.read_lease(stream_id)

    def renew(self, stream_id: str, fence: int, expires_at_ms: int) -> bool:
        """Whether the lease was renewed: False where a newer connection is connected."""
        # This connection is the one that was connected last, and an older renewal that comes late changes nothing.
        condition = "#connected = :fence AND #expires_at_ms <= :expires_at_ms"
        values = {":fence": control_items.number(fence), ":expires_at_ms": control_items.number(expires_at_ms)}
        names = ("connected", "expires_at_ms")
        return self._applied(stream_id, "lease", "SET #expires_at_ms = :expires_at_ms", condition, names, values)

    def mark_released(self, stream_id: str, fence: int) -> bool:
        """Whether it was marked: False where a newer connection is released already, or the lease is gone."""
        # The token was claimed, and `released` never decreases.
        condition = "#fence >= :fence AND (attribute_not_exists(#released) OR #released <= :fence)"
        values = {":fence": control_items.number(fence)}
        return self._applied(stream_id, "lease", "SET #released = :fence", condition, ("fence", "released"), values)

    # --- cursor and ledger --------------------------------------------------------------------------------------------

    def read_cursor(self, stream_id: str) -> str | None:
        """The saved cursor, read consistently; None where nothing was saved."""
        return self.read_saved_cursor(stream_id).cursor

    def read_saved_cursor(self, stream_id: str) -> CursorRead:
        """The saved cursor and when it was saved, read consistently, without what the ledger says."""
        item = self._table.get(stream_id, "cursor") or {}
        return CursorRead(control_items.text(item, "cursor"), control_items.count(item, "saved_at_ms"))

    def resumption(self, stream_id: str, now_ms: int) -> CursorRead:
        """The saved cursor and what the ledger says of what came since, read consistently."""
        item = self._table.get(stream_id, "cursor") or {}
        # The ledger after the cursor: that more was stored meanwhile is no harm, the other way round it would be.
        rows = self._table.newest(stream_id, "connection#", LOOK_BACK)
        records = [record for row in rows for record in control_items.records(row)]
        # In a long outage no connection that was answered is in sight: then the newest try has what was known before.
        tried = [since_ms for row in rows if (since_ms := control_items.count(row, "since_ms")) is not None]
        return CursorRead(
            control_items.text(item, "cursor"),
            control_items.count(item, "saved_at_ms"),
            known_ms(records) if records or not tried else tried[0],
            behind_ms(records, control_items.count(item, "fence") or 0, now_ms),
        )

    def save_cursor(self, stream_id: str, cursor: str, fence: int, now_ms: int) -> bool:
        """Whether it was saved: False where a newer connection has saved one."""
        # None was saved, or an older connection saved it, or this one did and not later: a request that lands late
        # after a retry changes nothing.
        condition = "attribute_not_exists(#fence) OR #fence < :fence OR (#fence = :fence AND #saved_at_ms <= :now_ms)"
        update = "SET #cursor = :cursor, #fence = :fence, #saved_at_ms = :now_ms"
        values = {
            ":cursor": {"S": cursor},
            ":fence": control_items.number(fence),
            ":now_ms": control_items.number(now_ms),
        }
        return self._applied(stream_id, "cursor", update, condition, ("cursor", "fence", "saved_at_ms"), values)

    def save_connection(
        self, stream_id: str, progress: Progress, *, lane: str, execution: str, request_id: str
    ) -> bool:
        """Whether the ledger's record was written: False where a later one of this connection is there."""
        record = control_items.connection(progress, lane=lane, execution=execution, request_id=request_id)
        record |= control_items.expiry(progress.seen_ms, self._ledger_keep_days)
        values = {f":{name}": value for name, value in record.items()}
        closed = {} if ":closed_ms" in values else {":closed_ms": control_items.number(-1)}
        # There is none, or it is no later than this; and one that is closed is only replaced by one closed as it is.
        condition = (
            "attribute_not_exists(#seen_ms) OR "
            "(#seen_ms <= :seen_ms AND (attribute_not_exists(#closed_ms) OR #closed_ms = :closed_ms))"
        )
        names = tuple(record)
        update = _setting(names)
        names = names if "closed_ms" in record else (*names, "closed_ms")
        return self._applied(
            stream_id, control_items.connection_key(progress.fence), update, condition, names, values | closed
        )

    def record_gaps(self, stream_id: str, now_ms: int, dead_after_ms: int) -> None:
        """Records the gaps between the last connections, and whether each is closed by now.

        A connection that is killed records none, so the next one looks back over those before it.
        """
        rows = self._back_to_an_answer(stream_id)
        records = [record for row in rows for record in control_items.records(row)]
        shown = gaps(records, now_ms, dead_after_ms)
        # A put for each that is known already would be refused, one after the other, while the stream is down.
        known = {item["SK"]["S"]: item for item in self._table.newest(stream_id, "gap#", LOOK_BACK)} if shown else {}
        for gap in shown:
            item = control_items.gap(stream_id, gap)
            key = item["SK"]["S"]
            # Losses that the upstream announced may lie between, so many that the gap is out of sight.
            before = known.get(key) or self._table.get(stream_id, key)
            if before is None or any(before[name] != value for name, value in item.items()):
                self._put_gap(item | control_items.expiry(gap.to_ms, self._ledger_keep_days), before)

    def _back_to_an_answer(self, stream_id: str) -> list[control_items.Item]:
        """The last connections, back to one that was answered: an outage has many tries, and a gap before them."""
        most = LOOK_BACK
        rows = self._table.newest(stream_id, "connection#", most)
        while len(rows) == most < FARTHEST and not control_items.records(rows[-1]):
            most *= 2
            rows = self._table.newest(stream_id, "connection#", most)
        return rows

    def _put_gap(self, item: control_items.Item, before: control_items.Item | None) -> None:
        """Writes the gap in place of `before`, unless another connection was first."""
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(PK)"}
        if before is not None:
            names = ("from_ms", "to_ms", "closed_by_cursor")
            condition = {
                "ConditionExpression": " AND ".join(f"#{name} = :{name}" for name in names),
                "ExpressionAttributeNames": _placeholders(names),
                "ExpressionAttributeValues": {f":{name}": before[name] for name in names},
            }
        with contextlib.suppress(ConditionFailed), translate_errors("PutItem"):
            self._dynamodb.put_item(TableName=self._control_table, Item=item, **condition)

    def read_rest(self, stream_id: str) -> Rest:
        """What is known of the upstream's failures, read consistently."""
        return control_items.rest_of(self._table.get(stream_id, "rest") or {})

    def change_rest(self, stream_id: str, before: Rest, after: Rest, holder: str) -> bool:
        """Whether the rest was `before` and is `after` now; `holder` names this invocation alone."""
        # As it was read: nobody else tries since, and nobody failed. Or it is this one's, by a request before.
        read = ("kind", "failures", "until_ms")
        condition = f"({' AND '.join(f'#{name} = :{name}' for name in read)})"
        if not before.until_ms:
            condition = f"attribute_not_exists(#until_ms) OR {condition}"
        condition += " OR (#until_ms = :new_until_ms AND #holder = :holder)"
        old, new = control_items.rest(before), control_items.rest(after)
        update = f"SET {', '.join(f'#{name} = :new_{name}' for name in new)}, #holder = :holder"
        values = {f":{name}": old[name] for name in read} | {f":new_{name}": value for name, value in new.items()}
        return self._applied(
            stream_id, "rest", update, condition, (*new, "holder"), values | {":holder": {"S": holder}}
        )

    def record_loss(self, stream_id: str, loss: RecordLoss) -> None:
        """Records a gap that the upstream announced; recorded twice it is the same."""
        with translate_errors("PutItem"):
            self._dynamodb.put_item(TableName=self._control_table, Item=control_items.loss(stream_id, loss))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _applied(
        self, stream_id: str, key: str, update: str, condition: str, names: Sequence[str], values: Any
    ) -> bool:
        try:
            self._update(stream_id, key, update, condition, names, values)
        except ConditionFailed:
            return False
        return True

    def _update(
        self,
        stream_id: str,
        key: str,
        update: str,
        condition: str,
        names: Sequence[str],
        values: Any,
        answer: str = "NONE",
    ) -> control_items.Item:
        with translate_errors("UpdateItem"):
            response = self._dynamodb.update_item(
                TableName=self._control_table,
                Key=control_items.key(stream_id, key),
                UpdateExpression=update,
                ConditionExpression=condition,
                ExpressionAttributeNames=_placeholders(tuple(names)),
                ExpressionAttributeValues=values,
                ReturnValues=answer,
            )
        attributes: control_items.Item = response.get("Attributes", {})
        return attributes


@lru_cache(maxsize=64)
def _placeholders(names: tuple[str, ...]) -> dict[str, str]:
    """The names of attributes as an expression refers to them; to be read only, for the next request has it too."""
    return {f"#{name}": name for name in names}


@lru_cache(maxsize=64)
def _setting(names: tuple[str, ...]) -> str:
    """The update that sets each of the attributes."""
    return "SET " + ", ".join(f"#{name} = :{name}" for name in names)
