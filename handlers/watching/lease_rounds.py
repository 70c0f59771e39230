"""Checks the leases of all streams that executions hold, as many as a run has time for.

When a run is late, the next run continues after the stream where it stopped, so every stream is checked, however many
there are. The run that reaches the last stream ends the round: with the runs before it, it knows all streams that are
away. Until then the numbers are those of the last round, or of the unfinished round if they are worse. Otherwise an
alarm would see a better minute only because the worst stream was not checked in it.

A group costs one read: if its functions report that all its streams are connected (`is_all_connected`), only the
group's lease is read. The ids of groups sort before those of streams, so a round begins with the groups.

Invariants: nothing is written. A lease that cannot be read whole is named, and hides no other lease. A check keeps only
the groups, the ids of streams that are not well, and at most `Turn.most` leases. A stream in a group is a suspect only
if it was stopped before a function claimed it; otherwise its group may be a suspect.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from itertools import islice

from handlers.connection import epochs
from handlers.connection.lease import Lease, unconnected_ms
from handlers.connection.orphans import is_suspect
from handlers.group import is_group
from handlers.group.group_lease import GroupLease, is_all_connected
from handlers.store import control_record, typed_values
from handlers.store.control_record import ATTRIBUTES, damaged_attributes, epoch_of
from handlers.store.control_table import KEYS
from handlers.store.group_store import group_lease, lease_of_group, member_lease
from handlers.store.leases import Leases, batches, budget_alert, quiet_alert
from handlers.values import dataclass
from handlers.watching.alerts import KINDS
from handlers.watching.orphan_recovery import is_release_overdue

# The number of concurrent requests. With this many, waiting for answers takes less time than reading them, on Lambda's
# share of a processor.
AT_ONCE = 8


@dataclass
class Findings:
    """The findings of one check; `is_whole` is whether it reached the last stream.

    `wanted` counts the streams that should be connected, `missing` those of them that are not; `longest_ms` is the
    longest time without a connection. `away_ms` has the streams that have been away for too long, `damage` the
    attributes of leases that cannot be read. `quiet`, `restarted` and `budgets` have words about streams without new
    events, with ids that start over, or with a budget that is mostly used. `groups` has each group's streams that are
    not connected.
    """

    wanted: int = 0
    missing: int = 0
    longest_ms: int = 0
    is_whole: bool = False
    away_ms: dict[str, int] = field(default_factory=dict)
    damage: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quiet: dict[str, str] = field(default_factory=dict)
    restarted: dict[str, str] = field(default_factory=dict)
    budgets: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: "Findings") -> None:
        """Adds the findings about other streams."""
        self.wanted += other.wanted
        self.missing += other.missing
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        for kind in KINDS:
            getattr(self, kind).update(getattr(other, kind))
        for group_id, stream_ids in other.groups.items():
            self.groups.setdefault(group_id, []).extend(stream_ids)


@dataclass
class Turn:
    """Chooses the streams that are checked next: `most` at a time, in the order of their ids, and round again.

    The stream `after` had the last turn. Streams must be offered in the order of their ids.
    """

    most: int
    after: str = ""
    _later: dict[str, Lease] = field(default_factory=dict)
    _earlier: dict[str, Lease] = field(default_factory=dict)

    def offer(self, stream_id: str, lease: Lease) -> None:
        """Adds the stream if it may get a turn."""
        those = self._later if stream_id > self.after else self._earlier
        if len(those) < self.most:
            those[stream_id] = lease

    def take(self) -> Iterator[tuple[str, Lease]]:
        """Yields the streams whose turn it is; a stream's turn is over once the next one is taken."""
        those = list(islice((self._later | self._earlier).items(), self.most))
        self._later, self._earlier = {}, {}
        for stream_id, lease in those:
            yield stream_id, lease
            self.after = stream_id


class Rounds:
    """The checks of one sandbox, in rounds. `away_after_ms` is how long a stream may be away."""

    def __init__(self, leases: Leases, away_after_ms: int, suspects: Turn) -> None:
        self._leases = leases
        self._away_after_ms = away_after_ms
        self._suspects = suspects
        self._after = ""
        self._groups: dict[str, GroupLease] = {}
        self._round = Findings()
        # The findings of the last finished round; None until a round has finished.
        self.last: Findings | None = None

    def check(self, now_ms: int, is_late: Callable[[], bool]) -> Findings:
        """Checks the leases from where the last check stopped until it `is_late`, but at least one part."""
        findings = Findings(is_whole=True)
        after = ""
        if not self._after:
            self._groups.clear()
        # The groups that are known from earlier checks were read at least a minute ago.
        known, well = sorted(self._groups), set[str | None]()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for held, after in self._parts():
                group_ids = known + [one for one in held if is_group(one)]
                for items in pool.map(self._leases.read_groups, batches(group_ids)):
                    well |= {self._check_group(group_id, items[group_id], now_ms) for group_id in sorted(items)}
                known = []
                stream_ids = [one for one in held if not is_group(one) and held[one] not in well]
                findings.wanted += sum(1 for one in held if held[one] in well and not is_group(one))
                # These reads may be slightly old: a lease stays valid for several of its holder's renewals.
                for items in pool.map(self._leases.read_for_watch, batches(stream_ids)):
                    for stream_id in sorted(items):
                        self._check_lease(findings, stream_id, items[stream_id], now_ms)
                if after and is_late():
                    findings.is_whole = False
                    break
        # The round changes only here, so a check that AWS refuses half-way is repeated from its beginning.
        self._round.add(findings)
        self._after = after
        if findings.is_whole:
            self._after, self.last, self._round = "", self._round, Findings()
        return findings

    def numbers(self) -> tuple[int, int, int]:
        """Returns how many streams should be connected, how many are not, and the longest such time in ms."""
        last, now = self.last or Findings(), self._round
        return (max(last.wanted, now.wanted), max(last.missing, now.missing), max(last.longest_ms, now.longest_ms))

    def _parts(self) -> Iterable[tuple[Mapping[str, str], str]]:
        """Yields the held ids in parts, each with its execution, and the id after which the next part begins, or "".

        A part is empty if no stream of a whole page is held.
        """
        for page, after in self._leases.held_pages(self._after):
            ids = list(page)
            for first in range(0, max(1, len(ids)), KEYS * AT_ONCE):
                part = ids[first : first + KEYS * AT_ONCE]
                is_last = first + KEYS * AT_ONCE >= len(ids)
                yield {one: page[one] for one in part}, after if is_last else part[-1]

    def _check_group(self, group_id: str, item: typed_values.Item, now_ms: int) -> str | None:
        """Returns the execution of a group if it is well, so that its streams need not be read; else None."""
        self._groups[group_id], lease = group_lease(item), lease_of_group(item)
        if is_suspect(lease, now_ms):
            self._suspects.offer(group_id, lease)
        return lease.execution if is_all_connected(self._groups[group_id], now_ms) else None

    def _check_lease(self, findings: Findings, stream_id: str, item: typed_values.Item, now_ms: int) -> None:
        # Damage of other attributes is in the cursor and the ledger, which do not matter here.
        lease = own = control_record.lease_of(item)
        broken = tuple(name for name in damaged_attributes(item) if name in ATTRIBUTES)
        group_id = typed_values.read_text(item, "group")
        if group_id is not None:
            lease = member_lease(item, self._groups.get(group_id, GroupLease()))
        findings.wanted += bool(lease.execution) and not lease.stop
        length_ms = unconnected_ms(lease, now_ms)
        if broken:
            findings.damage[stream_id] = broken
        # If neither instant can be read, the time without a connection is unknown.
        if length_ms and (lease.started_at_ms or lease.expires_at_ms):
            findings.missing += 1
            if group_id is not None:
                findings.groups.setdefault(group_id, []).append(stream_id)
            findings.longest_ms = max(findings.longest_ms, length_ms)
            if length_ms >= self._away_after_ms:
                findings.away_ms[stream_id] = length_ms
        elif lease.execution and not lease.stop:
            if words := budget_alert(item, now_ms):
                findings.budgets[stream_id] = words
            if words := quiet_alert(item, now_ms):
                findings.quiet[stream_id] = words
            if words := epochs.describe_restart(epoch_of(item), now_ms):
                findings.restarted[stream_id] = words
        is_left = is_release_overdue(own, now_ms) and (group_id is None or is_group(own.execution))
        if is_left or (group_id is None and is_suspect(lease, now_ms)):
            self._suspects.offer(stream_id, own)
