"""Reads a stream from its tables so that the copy can continue as a stream.

The lease is read first, then the ledger, then the events. So the copy has every event that the cursor has passed, and
perhaps later ones; a stream that continues from it requests the rest, and recognizes what it has. Connections that
began after the lease was read are left out of the ledger, because their fencing tokens will be used again. Invariants:
every read is consistent; nothing is written.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from handlers.aws.error_translation import code_of
from handlers.connection.inputs import LOG
from handlers.errors import StoreUnavailable
from handlers.group import is_group
from handlers.store import control_record
from handlers.store.control_table import BY_RECORD, Table
from handlers.store.event_items import partition_keys
from handlers.store.group_store import live_of_member
from handlers.store.leases import LEASE, Leases
from handlers.store.ledger_records import live_record
from handlers.store.overflow import Objects
from handlers.store.segment_reader import log_key
from handlers.store.typed_values import Item, read_int, read_text
from local.stage_clients import connect_to_stage
from local.terminal import UserError

HERE = "local"
_PLACE = re.compile(
    r"(?P<stage>[^@:/]+)(?:@(?P<region>[a-z0-9-]+))?(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<events>[A-Za-z0-9_.-]+),(?P<control>[A-Za-z0-9_.-]+))?"
)
FORMS = "a stage, STAGE@REGION, STAGE/EVENTS,CONTROL for other tables of it, or local for the run on this machine"


@dataclass(frozen=True)
class Place:
    """The tables, the bucket, and the machine that starts streams ("" for named tables); `name` is as typed.

        prod                         the stage, in the region of the environment
        prod@eu-west-1               the stage in another region
        prod/EVENTS,CONTROL          its bucket with other tables, because a restored table has another name
        local, local:3100            the run on this machine, at its PORT

    Invariant: a place that cannot be reached, or lacks the tables, is one sentence before anything is read or written.
    """

    name: str
    dynamodb: Any
    control_table: str
    events_table: str
    objects: Objects
    states: Any
    start_machine: str

    @property
    def tables(self) -> tuple[str, str, str]:
        """Identifies the place: two names of the same place have the same value."""
        return self.dynamodb.meta.endpoint_url, self.control_table, self.events_table


def open_place(text: str) -> Place:
    """Returns the place of that name; raises UserError."""
    form = _PLACE.fullmatch(text)
    if form is None or (form["port"] and form["stage"] != HERE):
        raise UserError(f"{text!r} is not a place: write {FORMS}.")
    is_here = form["stage"] == HERE
    stage = connect_to_stage(None if is_here else form["stage"], form["region"] or "", int(form["port"] or 0))
    place = Place(
        text,
        stage.clients["dynamodb"],
        form["control"] or stage.names["control_table"],
        form["events"] or stage.names["events_table"],
        Objects(lambda: stage.clients["s3"], stage.bucket),
        stage.clients["stepfunctions"],
        "" if form["events"] else stage.machine_arn("start"),
    )
    for table in (place.control_table, place.events_table):
        _check(place, table)
    return place


def _check(place: Place, table: str) -> None:
    try:
        indexes = place.dynamodb.describe_table(TableName=table)["Table"].get("GlobalSecondaryIndexes", ())
    except (BotoCoreError, ClientError) as problem:
        code = getattr(problem, "response", {}).get("Error", {}).get("Code", type(problem).__name__)
        gone = code == "ResourceNotFoundException"
        why = "there is no such table; `sls deploy` creates those of a stage" if gone else code
        raise UserError(f"The table {table} of {place.name} cannot be read: {why}.") from None
    is_control = any(one["IndexName"] == BY_RECORD for one in indexes)
    if is_control != (table == place.control_table) or place.control_table == place.events_table:
        has = "has" if is_control else "lacks"
        words = f"The table {table} {has} the index {BY_RECORD} of control tables: write STAGE/EVENTS,CONTROL"
        raise UserError(f"{words}, and restore a table with its indexes.")


# The most items of a request; DynamoDB also ends a page at a megabyte.
PAGE_ITEMS = 2_000


class NotRestored(Exception):
    """The stream there stays unchanged; the message says why, and what to do."""


class Source(Protocol):
    """The place from which a stream is copied. Damaged data there raises NotRestored."""

    def stream_ids(self) -> list[str]:
        """All that were ever started or had a stop request; raises UserError."""

    def has_run(self, stream_id: str) -> bool:
        """Whether an execution kept the stream, and no stop was requested."""

    def control_records(self, stream_id: str) -> list[Item]:
        """The stream's control records, the lease first; [] if it was never started."""

    def events(self, stream_id: str, lease: Item, after: Item | None = None) -> Iterator[list[Item]]:
        """Pages of its items in the events table, behind the item `after`, in the order of their keys."""

    def read_body(self, stream_id: str, key: str) -> bytes | None:
        """The large body of a stream under a key of the bucket, None if it is gone; raises StoreUnavailable."""


class Tables:
    """The streams of a place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._control = Table(place.dynamodb, place.control_table)
        self._events = Table(place.dynamodb, place.events_table)

    def stream_ids(self) -> list[str]:
        """As `Source`."""
        try:
            ids = list(Leases(self._place.dynamodb, self._place.control_table).ids())
        except StoreUnavailable as refusal:
            raise UserError(f"The streams of {self._place.name} cannot be listed: {refusal}.") from None
        return [one for one in ids if not is_group(one)]

    def has_run(self, stream_id: str) -> bool:
        """As `Source`."""
        return should_be_connected(self.lease(stream_id) or {})

    def lease(self, stream_id: str) -> Item | None:
        """The lease as it is; None if there is none."""
        return self._control.get(stream_id, LEASE)

    def control_records(self, stream_id: str) -> list[Item]:
        """As `Source`; the lease gets what a group's function has recorded about the newest connection."""
        lease = self.lease(stream_id)
        if lease is None:
            return []
        control_record.check_lease(lease)
        group, live = read_text(lease, "group"), live_record(lease)
        if group is not None and live is not None:
            leases = Leases(self._place.dynamodb, self._place.control_table)
            lease = lease | {"live": {"M": live_of_member(live, leases.read_group(group))}}
        fence = read_int(lease, "fence") or 0
        return [lease, *(item for item in self.records(stream_id) if fencing_token_of(item) <= fence)]

    def records(self, stream_id: str) -> Iterator[Item]:
        """The stream's control records except the lease."""
        pages = self._pages(self._control, stream_id, None)
        return (item for page in pages for item in page if item["SK"]["S"] != LEASE)

    def events(self, stream_id: str, lease: Item, after: Item | None = None) -> Iterator[list[Item]]:
        """As `Source`."""
        layout = control_record.layout_of(lease)
        items = layout.items or layout.partitions
        keys = [] if items == LOG else partition_keys(stream_id, items)
        if layout.partitions == LOG:
            keys.append(log_key(stream_id))
        if after is not None:
            keys = keys[keys.index(after["PK"]["S"]) :]
        for key in keys:
            is_first = after is not None and after["PK"]["S"] == key
            yield from self._pages(self._events, key, after if is_first else None)

    def read_body(self, stream_id: str, key: str) -> bytes | None:
        """As `Source`. Not `Objects.find`: a command that may not read bodies must not call them gone."""
        del stream_id
        try:
            return self._place.objects.get(key)
        except StoreUnavailable as refusal:
            if code_of(refusal.__cause__) == "NoSuchKey":
                return None
            raise

    @staticmethod
    def _pages(table: Table, partition: str, after: Item | None) -> Iterator[list[Item]]:
        place = {} if after is None else {"ExclusiveStartKey": {name: after[name] for name in ("PK", "SK")}}
        values = {":partition": partition}
        return table.query_pages("PK = :partition", values, ConsistentRead=True, Limit=PAGE_ITEMS, **place)


def should_be_connected(lease: Item) -> bool:
    """Whether an execution kept the stream of this lease, and no stop was requested."""
    held = control_record.lease_of(lease)
    return bool(held.execution) and not held.stop


def fencing_token_of(item: Item) -> int:
    """Returns the fencing token in the sort key of a ledger's record; 0 for another record."""
    kind, _, rest = item["SK"]["S"].partition("#")
    return int(rest.partition("#")[0]) if kind in ("connection", "gap") else 0
