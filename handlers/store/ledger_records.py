"""Writes the ledger of a stream: a record for each connection, and the gaps that follow from them.

A connection's record is written at its end. While it is the newest that is connected, the control record shows it
(`control_record.py`); whoever comes after it writes the record of one that was killed. Every write may be sent twice
and may land late; each is made so that this changes nothing. Invariant: a record with an end is only replaced by one
with the same end, and no record by an earlier one.
"""

import contextlib
from typing import Any

from handlers.aws.error_translation import ConditionFailed, translate_errors
from handlers.connection.effects import RecordLoss
from handlers.connection.ledger import gaps
from handlers.store import control_items
from handlers.store.control_items import Item
from handlers.store.control_table import ControlTable
from handlers.store.expressions import placeholders, setting, values_of

# How many connections back a connection looks for gaps that are not recorded.
LOOK_BACK = 25
# And back to here, where none of those was answered or looked: 400 tries are three hours of an outage with two lanes.
FARTHEST = 400


class LedgerRecords:
    """Of all streams; records expire after `keep_days`, 0 for never."""

    def __init__(self, dynamodb: Any, table: str, keep_days: int) -> None:
        self._dynamodb = dynamodb
        self._name = table
        self._table = ControlTable(dynamodb, table)
        self._keep_days = keep_days

    def save(self, stream_id: str, record: Item) -> bool:
        """Whether the record of a connection was written: False where a later one of this connection is there."""
        seen_ms = control_items.count(record, "seen_ms") or 0
        record = control_items.lean(record) | control_items.expiry(seen_ms, self._keep_days)
        values = values_of(record)
        closed = {} if ":closed_ms" in values else {":closed_ms": control_items.number(-1)}
        # There is none, or it is no later than this; and one that is closed is only replaced by one closed as it is.
        condition = (
            "attribute_not_exists(#seen_ms) OR "
            "(#seen_ms <= :seen_ms AND (attribute_not_exists(#closed_ms) OR #closed_ms = :closed_ms))"
        )
        names = tuple(record)
        try:
            with translate_errors("UpdateItem"):
                self._dynamodb.update_item(
                    TableName=self._name,
                    Key=control_items.key(
                        stream_id, control_items.connection_key(control_items.count(record, "fence") or 0)
                    ),
                    UpdateExpression=setting(names),
                    ConditionExpression=condition,
                    ExpressionAttributeNames=placeholders(names if "closed_ms" in record else (*names, "closed_ms")),
                    ExpressionAttributeValues=values | closed,
                )
        except ConditionFailed:
            return False
        return True

    def record_gaps(self, stream_id: str, now_ms: int, dead_after_ms: int, own: Item, looked: int) -> None:
        """Records the gaps between the last connections, and whether each is closed by now.

        `own` is the record of the connection that asks, which the ledger need not have yet. A connection that is
        killed too soon records no gaps, so the next one looks back over those before it: to before connection `looked`,
        which recorded gaps last as far as the control record knows (0: it knows of none), or to one that surely has.
        """
        rows = self._back_to_who_looked(stream_id, looked, dead_after_ms)
        rows = [own, *(row for row in rows if row["fence"] != own["fence"])]
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
                self._put_gap(item | control_items.expiry(gap.to_ms, self._keep_days), before)

    def _back_to_who_looked(self, stream_id: str, looked: int, dead_after_ms: int) -> list[Item]:
        """The last connections, back to one that was answered, and before which all gaps are recorded.

        An outage has many tries, and a gap before them; and who was answered before it may have been killed too soon to
        record the gap before that. One looks after `dead_after_ms`, so whoever went on for twice as long after it had
        caught up has. The control record does not know of all who have: a function of a group writes it seldom.
        """

        def is_enough(oldest: Item) -> bool:
            return any(
                record.fence < looked or record.last_ms - max(record.opened_ms, record.live_ms or 0) > 2 * dead_after_ms
                for record in control_items.records(oldest)
            )

        most = LOOK_BACK
        rows = self._table.newest(stream_id, "connection#", most)
        while len(rows) == most < FARTHEST and not is_enough(rows[-1]):
            most *= 2
            rows = self._table.newest(stream_id, "connection#", most)
        return rows

    def _put_gap(self, item: Item, before: Item | None) -> None:
        """Writes the gap in place of `before`, unless another connection was first."""
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(PK)"}
        if before is not None:
            names = ("from_ms", "to_ms", "closed_by_cursor")
            condition = {
                "ConditionExpression": " AND ".join(f"#{name} = :{name}" for name in names),
                "ExpressionAttributeNames": placeholders(names),
                "ExpressionAttributeValues": {f":{name}": before[name] for name in names},
            }
        with contextlib.suppress(ConditionFailed), translate_errors("PutItem"):
            self._dynamodb.put_item(TableName=self._name, Item=item, **condition)

    def record_loss(self, stream_id: str, loss: RecordLoss) -> None:
        """Records a gap that the upstream announced; recorded twice it is the same."""
        with translate_errors("PutItem"):
            self._dynamodb.put_item(TableName=self._name, Item=control_items.loss(stream_id, loss))
