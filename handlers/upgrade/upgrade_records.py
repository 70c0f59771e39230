"""Keeps an upgrade's records in the control table: its execution, its progress, and the version of each stream.

The record `upgrade` in the partition of the groups names the execution that upgrades; `upgrade_items.py` reads a
stream's lease. Invariants: a stream's version is changed only while the execution that was read holds it, and no stop
is requested; no attribute that a connection writes is changed; any refusal by AWS, except of a condition, raises
`StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from handlers.group import GROUP, is_group
from handlers.store import control_record, event_reader, ledger_records, typed_values
from handlers.store.control_table import Table
from handlers.store.group_store import MEMBER
from handlers.store.leases import Leases, batches
from handlers.store.typed_values import Item
from handlers.upgrade.upgrade_items import (
    CODE,
    MARK,
    Lost,
    Stretches,
    lease_of,
    loss_gap,
    lost_of,
    stretches,
    to_lost,
    upgrade_mark,
)
from handlers.values import dataclass

# The number of newest connections that are counted, and the number of a group's members whose connections are.
NEWEST, MEMBERS = 20, 10
# More than a group has.
ALL = 10_000
RECORD = "upgrade"
_KEY = typed_values.item_key(GROUP, RECORD)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The upgrade that runs, or ran last; `execution` is "" if there was none.

    `definition` is the machine's version (an ARN) of the last successful upgrade. `aside` is the version that an
    upgrade which went back replaced by `definition`; "" for none.
    """

    execution: str = ""
    progress: str = ""
    is_aborted: bool = False
    definition: str = ""
    aside: str = ""


class UpgradeRecords:
    """The upgrade's records in the control table, and the instants of the newest events."""

    def __init__(self, dynamodb: Any, control_table: str, events_table: str) -> None:
        self._events = Table(dynamodb, events_table)
        self._table = Table(dynamodb, control_table)
        self._leases = Leases(dynamodb, control_table)

    # --- the upgrade --------------------------------------------------------------------------------------------------

    def read(self) -> Upgrade:
        """Returns the upgrade that runs, or ran last."""
        item = self._table.get(GROUP, RECORD) or {}
        return typed_values.read_as(Upgrade, item, is_aborted=typed_values.read_flag(item, "abort"))

    def begin(self, execution: str, before: str) -> bool:
        """Records that `execution` upgrades, in place of `before`, which is over ("" for none).

        Returns False if another execution upgrades. It may be repeated, because the first answer may be lost.
        """
        is_free = "#execution = :before" if before else "attribute_not_exists(#execution)"
        condition = f"{is_free} OR #execution = :execution"
        begun, read = {"execution": execution, "progress": "it begins"}, {"before": before} if before else {}
        return self._table.set_attributes(_KEY, begun, condition, remove=["abort"], **read)

    def save_progress(self, execution: str, progress: str) -> None:
        """Saves the upgrade's progress, unless another upgrade runs by now."""
        self._update(execution, {"progress": progress})

    def abort(self, execution: str) -> bool:
        """Requests that the upgrade goes back; returns False if another upgrade runs by now."""
        return self._update(execution, {"abort": True})

    def promote(self, execution: str, definition: str) -> None:
        """Records that streams run this version of the machine, unless another upgrade runs by now."""
        self._update(execution, {"definition": definition}, removes=["aside"])

    def put_aside(self, execution: str, definition: str) -> None:
        """Records that another version is deployed in place of this one, unless another upgrade runs by now."""
        self._update(execution, {"aside": definition})

    def _update(self, execution: str, attributes: Mapping[str, Any], removes: Sequence[str] = ()) -> bool:
        """Writes to the upgrade's record; returns False, without writing, if another upgrade runs by now."""
        return self._table.set_attributes(_KEY, attributes, "#execution = :me", remove=removes, me=execution)

    # --- its streams --------------------------------------------------------------------------------------------------

    def held_ids(self) -> list[str]:
        """Returns the ids of the groups, and of the streams in no group, that executions keep connected."""
        executions = {stream_id: arn for page, _ in self._leases.held_pages("") for stream_id, arn in page.items()}
        of_groups = {arn for stream_id, arn in executions.items() if is_group(stream_id)}
        return [
            stream_id
            for stream_id, arn in executions.items()
            if is_group(stream_id) or not (arn in of_groups or is_group(arn))
        ]

    def marked(self, wanted: Callable[[str], bool]) -> Iterator[Item]:
        """Yields the leases with marks of the upgrade, held or not, whose ids are wanted."""
        ids = [stream_id for stream_id in self._leases.ids() if wanted(stream_id)]
        for some in batches(ids):
            yield from (item for item in self._leases.read_items(some).values() if CODE in item or MARK in item)

    def read_leases(self, stream_ids: Sequence[str]) -> dict[str, Item]:
        """Returns the leases of these streams, by their ids."""
        return self._leases.read_items(stream_ids)

    def request_version(self, item: Item, version: str, now_ms: int, lost: Mapping[str, Lost]) -> bool:
        """Makes the stream's executions call `version`, "" for the alias; False if `item` is no longer its lease.

        `lost` has the losses of the stream or of its members.
        """
        execution = lease_of(item).execution
        marked = item | {MARK: upgrade_mark(item, now_ms, lost)}
        held = "#execution = :execution" if execution else "attribute_not_exists(#execution)"
        is_asked = self._table.set_attributes(
            typed_values.item_key(item["PK"]["S"], "lease"),
            {MARK: marked[MARK]} | ({CODE: version} if version else {}),
            f"{held} AND (attribute_not_exists(#stop) OR #stop = :no)",
            remove=() if version else [CODE],
            no=False,
            **({"execution": execution} if execution else {}),
        )
        if is_asked:
            self.write_losses(marked, now_ms)
        return is_asked

    def remove_marks(self, item: Item) -> None:
        """Removes the upgrade's marks from a lease, unless it was marked again since; then the alias decides."""
        condition = f"#{MARK} = :mark" if MARK in item else f"attribute_not_exists(#{MARK})"
        key, read = typed_values.item_key(item["PK"]["S"], "lease"), {"mark": item[MARK]} if MARK in item else {}
        self._table.set_attributes(key, {}, condition, remove=[CODE, MARK], **read)

    def find_losses(self, item: Item, now_ms: int) -> dict[str, Lost]:
        """Returns the losses of a stream, or of each stream of a group, on its connection so far, by stream id."""
        found = {}
        for stream_id, lease in self._member_leases(item, ALL).items():
            lost = to_lost(lease, self._newest_ms(stream_id, lease), now_ms)
            if lost is not None:
                found[stream_id] = lost
        return found

    def loss_gaps(self, item: Item, now_ms: int) -> list[tuple[Item, bool]]:
        """Returns the items of the gaps of lost events, each with whether the gap has ended."""
        lost = lost_of(item)
        leases = {item["PK"]["S"]: item} if item["PK"]["S"] in lost else self.read_leases(list(lost))
        return [loss_gap(item, leases[one], lost[one], now_ms) for one in lost if one in leases]

    def write_losses(self, item: Item, now_ms: int) -> None:
        """Writes the gaps of lost events, each to its end or until now, over the gaps written before."""
        for gap, _ in self.loss_gaps(item, now_ms):
            self._table.put(gap)

    def stretches(self, item: Item, now_ms: int, answer_ms: int) -> Stretches:
        """Returns the numbers of the stream's newest connections before it was asked, and since it handed over."""
        leases = self._member_leases(item)
        ledgers = (
            ledger_records.with_live_record(
                self._table.newest_records(one, "connection#", NEWEST), ledger_records.live_record(leases[one])
            )
            for one in leases
        )
        return stretches(item, ledgers, now_ms, answer_ms)

    def newest_ms(self, item: Item) -> int | None:
        """Returns the instant of the newest stored event of a stream or a group; None if unknown."""
        instants = [self._newest_ms(stream_id, lease) for stream_id, lease in self._member_leases(item).items()]
        return max((instant for instant in instants if instant is not None), default=None)

    def _newest_ms(self, stream_id: str, lease: Item) -> int | None:
        return event_reader.newest_ms(self._events, stream_id, control_record.layout_of(lease))

    def _member_leases(self, item: Item, most: int = MEMBERS) -> dict[str, Item]:
        """Returns the lease of a stream, or those of a group's members, by the streams' ids."""
        stream_id = item["PK"]["S"]
        if not is_group(stream_id):
            return {stream_id: item}
        members = self._table.records_after(stream_id, MEMBER, "", most)
        return self.read_leases([member["SK"]["S"].removeprefix(MEMBER) for member in members])
