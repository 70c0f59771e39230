"""Writes a stream that was read elsewhere into the tables of a place, so that it can continue there.

Large bodies come first, then events, then the ledger, and the lease last: before that the stream counts as incomplete,
and a killed try can be repeated. Each written event has the attribute `restored`, so that sinks leave it out: it was
delivered where it came from.

The lease has no execution and a stop request, so that nothing starts the stream by itself. The request has `stop_since`
only if the stream was stopped: otherwise events may be missing until the next start, and the ledger treats that time
like any outage.

Invariants: an existing event is never replaced, and neither is a stream that runs. A stream whose record is newer or of
another stream is replaced only if the user asks for it. No fencing token is used twice.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from handlers.aws.error_translation import translate_errors
from handlers.aws.executions import is_running
from handlers.errors import StoreUnavailable
from handlers.group import is_group
from handlers.store import control_record
from handlers.store.control_table import IS_NEW, KEYS, STATEMENTS, Table
from handlers.store.leases import Leases
from handlers.store.ledger_records import live_record
from handlers.store.segment_reader import LOG_SUFFIX, find_segment, is_segment, segment_number
from handlers.store.typed_values import (
    MAX_ITEM_BYTES,
    Item,
    has_expired,
    instant_text,
    number_value,
    read_int,
    read_text,
    size_bytes,
)
from local.backup.backup_writer import count_events
from local.backup.stream_source import NotRestored, Place, Source, Tables, fencing_token_of

# Attributes of the execution, the group and the deployment that kept the stream, or of an earlier copy.
_PLACE_ATTRIBUTES = (
    *("execution", "holder", "expires_at_ms", "group", "group_fence", "joined", "code_version", "upgrade_mark"),
    *("moved_to", "restored_from"),
)
_MARK: Item = {"restored": {"BOOL": True}}
_MARK_BYTES = len("restored") + 1
# The attributes that two equal events with one key share.
_BODY = ("data", "encoding", "object", "dead_letter")
TRIES = 8


@dataclass
class RestoreCounts:
    """How many events are there now, and how many kept another body; `was_there` if there was nothing to do.

    The bodies of `gone` events were no longer at the source, where a reader gets none either.
    """

    events: int = 0
    kept: int = 0
    objects: int = 0
    gone: int = 0
    was_there: bool = False


class StreamRestore:
    """Writes into `place`; `label` says where the streams come from. `check` raises after Ctrl-C."""

    def __init__(self, place: Place, label: str, check: Callable[[], None], *, replace: bool = False) -> None:
        self.tables = Tables(place)
        self._place, self._label, self._check, self._replace = place, label, check, replace
        self._control, self._events = (
            Table(place.dynamodb, place.control_table),
            Table(place.dynamodb, place.events_table),
        )

    def restore(self, source: Source, stream_id: str, *, ran: bool, dry_run: bool = False) -> RestoreCounts:
        """Returns what was done; raises NotRestored, StoreUnavailable and UserError.

        `ran` says whether the stream was connected, or should have been: then the time since is a gap.
        """
        control = source.control_records(stream_id)
        there = self.tables.lease(stream_id)
        if there is not None and read_text(there, "restored_from") == self._label:
            # `--replace` sets back what has run since, and leaves alone what this command has started.
            has_run = bool(control) and read_int(control[0], "generation") != read_int(there, "generation")
            if not (self._replace and has_run) or running_execution(self._place, there):
                return RestoreCounts(was_there=True)
        if not control:
            raise NotRestored("it no longer exists at the source")
        self._check_target(control, there)
        restored = RestoreCounts()
        if dry_run:
            return restored
        newest = find_segment(self._events, stream_id)
        for page in source.events(stream_id, control[0]):
            self._check()
            self._put_events(source, stream_id, page, restored, -1 if newest is None else newest.number)
        fence = max(
            read_int(control[0], "fence") or 0, read_int(there or {}, "fence") or 0, newest.fence if newest else 0
        )
        self._put_control(control, there, fence, ran=ran)
        return restored

    # --- what is there ------------------------------------------------------------------------------------------------

    def _check_target(self, control: Sequence[Item], there: Item | None) -> None:
        if there is None:
            return
        control_record.check_lease(there)
        if holder := running_execution(self._place, there):
            raise NotRestored(f"it runs at {self._place.name} ({holder.rpartition(':')[2]}): stop it there first")
        fixed = control_record.fixed_partitions(there)
        if fixed not in (None, control_record.fixed_partitions(control[0])):
            raise NotRestored(
                "its events are stored in another form there (partitions, or a log): restore it into another stage"
            )
        if self._replace:
            return
        here, newer = read_int(control[0], "fence") or 0, read_int(there, "fence") or 0
        if newer > here:
            raise NotRestored(
                f"its record at {self._place.name} is newer (connection {newer}, here {here}): --replace "
                "overwrites it, and the time since becomes a gap that is requested again"
            )
        if newer and not _is_older_state(there, control):
            raise NotRestored(f"{self._place.name} has another stream with this id: --replace replaces it")

    # --- events -------------------------------------------------------------------------------------------------------

    def _put_events(
        self, source: Source, stream_id: str, page: Sequence[Item], restored: RestoreCounts, newest: int
    ) -> None:
        items = [item for item in page if not has_expired(item, time.time_ns() // 1_000_000)]
        for anchor in [item for item in items if _is_log(item) and not is_segment(item)]:
            condition, values = "attribute_not_exists(#number) OR #number < :number", {":number": anchor["number"]}
            self._retry(partial(self._events.put, anchor, condition, values))
        segments = [item for item in items if _is_log(item) and is_segment(item)]
        behind = [item for item in segments if segment_number(item) > newest]
        new = [item for item in items if not _is_log(item)] + behind
        for item in new:
            if key := read_text(item, "object"):
                if (body := source.read_body(stream_id, key)) is None:
                    restored.gone += 1
                    continue
                self._place.objects.put(key, body)
                restored.objects += 1
        # In an existing log, the numbers identify the segments; nothing may be written behind the end of another log.
        known = [item for item in segments if segment_number(item) <= newest]
        if self._count_other_bodies(known):
            raise NotRestored(f"{self._place.name} has another log with this id: restore it into another stage")
        for first in range(0, len(new), STATEMENTS):
            several = [_add_mark(item) for item in new[first : first + STATEMENTS]]
            is_new = self._retry(partial(self._events.insert, several))
            restored.kept += self._count_other_bodies(
                [one for one, put in zip(several, is_new, strict=True) if not put]
            )
        restored.events += count_events(items)

    def _count_other_bodies(self, items: Sequence[Item]) -> int:
        """Returns how many of the items have another body there; a missing item has expired."""
        different = 0
        for first in range(0, len(items), KEYS):
            wanted = {(one["PK"]["S"], one["SK"]["S"]): one for one in items[first : first + KEYS]}
            keys = [{name: one[name] for name in ("PK", "SK")} for one in wanted.values()]
            for found in self._retry(partial(self._read, keys)):
                one = wanted[found["PK"]["S"], found["SK"]["S"]]
                different += any(one.get(name) != found.get(name) for name in _BODY)
        return different

    def _read(self, keys: Sequence[Item]) -> list[Item]:
        return list(self._events.batch_get(keys, consistent=True))

    def _retry(self, request: Callable[[], Any]) -> Any:
        """Returns the answer to a request, which is repeated because a new table needs time to reach its throughput."""
        for tries in range(TRIES):
            try:
                return request()
            except StoreUnavailable:
                if tries == TRIES - 1:
                    raise
                self._check()
                time.sleep(random.uniform(0, min(5.0, 0.25 * 2**tries)))
        raise AssertionError

    # --- control records ----------------------------------------------------------------------------------------------

    def _put_control(self, control: Sequence[Item], there: Item | None, fence: int, *, ran: bool) -> None:
        lease, *records = control
        requests: list[Any] = [{"PutRequest": {"Item": item}} for item in records]
        if there is not None and self._replace:
            # Events of later connections may be gone, so the records of those connections prove nothing.
            fence_here, known = read_int(lease, "fence") or 0, {item["SK"]["S"] for item in records}
            since = [item for item in self.tables.records(lease["PK"]["S"]) if fencing_token_of(item) >= fence_here]
            since = [item for item in since if item["SK"]["S"] not in known]
            requests += [{"DeleteRequest": {"Key": {name: one[name] for name in ("PK", "SK")}}} for one in since]
        for first in range(0, len(requests), STATEMENTS):
            self._check()
            self._retry(partial(self._write, {self._place.control_table: requests[first : first + STATEMENTS]}))
        put = _restored_lease(lease, there, fence, ran=ran) | {"restored_from": {"S": self._label}}
        condition, values = IS_NEW, dict[str, Any]()
        if there is not None:
            # Unless it was started meanwhile.
            same = ("generation", "execution")
            condition = " AND ".join(
                f"#{name} = :{name}" if name in there else f"attribute_not_exists(#{name})" for name in same
            )
            values = {f":{name}": there[name] for name in same if name in there}
        if not self._control.put(put, condition, values):
            raise NotRestored(f"it was started or restored at {self._place.name} meanwhile: run the command again")

    def _write(self, unprocessed: dict[str, Any]) -> None:
        """Keeps in `unprocessed` the items that AWS left out, for the next try."""
        with translate_errors("BatchWriteItem"):
            answer = self._place.dynamodb.batch_write_item(RequestItems=dict(unprocessed))
        unprocessed.clear()
        unprocessed.update(answer.get("UnprocessedItems", {}))
        if unprocessed:
            raise StoreUnavailable("AWS repeatedly left out items of BatchWriteItem")


def running_execution(place: Place, lease: Item) -> str:
    """Returns the running execution that keeps the stream there; "" if there is none."""
    execution = read_text(lease, "execution") or ""
    if is_group(execution):
        execution = Leases(place.dynamodb, place.control_table).read_group(execution).execution
    if not execution:
        return ""
    try:
        return execution if is_running(place.states, execution) else ""
    except ClientError as refusal:
        if refusal.response.get("Error", {}).get("Code") == "InvalidArn":
            return ""
        raise NotRestored(f"Step Functions of {place.name} does not say whether it runs there") from None


def _restored_lease(lease: Item, there: Item | None, fence: int, *, ran: bool) -> Item:
    """Returns the lease of a copy: without a holder and, if the stream `ran`, stopped since it was last seen."""
    kept = {name: value for name, value in lease.items() if name not in _PLACE_ATTRIBUTES}
    kept["fence"] = number_value(fence)
    kept["released"] = number_value(max(read_int(lease, "connected") or 0, read_int(lease, "released") or 0))
    if read_text(there or {}, "order") == "none":
        kept["order"] = {"S": "none"}
    if ran:
        live = live_record(lease) or {}
        seen_ms = read_int(live, "closed_ms") or read_int(live, "seen_ms")
        last = read_text(lease, "stop_at") or (
            instant_text(seen_ms) if seen_ms else read_text(lease, "started_at") or instant_text(0)
        )
        kept |= {"stop": {"BOOL": True}, "stop_at": {"S": last}}
        kept.pop("stop_since", None)
    return kept


def _is_older_state(there: Item, control: Sequence[Item]) -> bool:
    """Returns whether the newest connection at the target, if there was one, is also one of the copied stream."""
    live = live_record(there)
    if live is None:
        return True
    known = [live_record(control[0]) or {}, *control[1:]]
    which = read_int(live, "fence"), read_text(live, "request_id")
    return any((read_int(one, "fence"), read_text(one, "request_id")) == which for one in known)


def _is_log(item: Item) -> bool:
    return bool(item["PK"]["S"].endswith(LOG_SUFFIX))


def _add_mark(item: Item) -> Item:
    """Returns the item with the mark if it fits into DynamoDB; without the mark a sink may get the event again."""
    bare = {name: value for name, value in item.items() if name not in _MARK}
    return bare | _MARK if size_bytes(bare) + _MARK_BYTES <= MAX_ITEM_BYTES else bare
