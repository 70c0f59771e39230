"""Deliberate defects of a group's protocol, which its model must catch (`model_group.py`).

Each says what is wrong in one sentence and where it is looked for. It decides nothing else. Invariant: without the
defect the same exploration finds nothing (`test_model_group.py` holds both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from handlers.connection.effects import Outcome
from handlers.connection.lease import Lease
from handlers.group.fates import Fate
from handlers.group.lease import Beat, GroupLease
from handlers.group.roster import Roster
from tests.chaos.model_group_rules import Rules
from tests.chaos.model_group_search import Search
from tests.chaos.model_group_world import Record


class _RaisesTheVersionFirst(Rules):
    join_order = ("record", "version", "member")


class _RaisesNoVersion(Rules):
    def changed(self, group: GroupLease) -> GroupLease:
        return group


class _EndsWhateverJoined(Rules):
    def ends_group(self, group: GroupLease, _version: int) -> GroupLease | None:
        return replace(group, stop=True)


class _BuriesNobody(Rules):
    def to_bury(self, _own: Lease, _group: GroupLease, _fence: int, _died: str) -> str:
        return ""

    def over(self, own: Lease, _group: GroupLease) -> int:
        return own.connected_token


class _BuriesWhoHasBeaten(Rules):
    def bury(self, group: GroupLease, request: str, known: Beat) -> GroupLease | None:
        return super().bury(replace(group, beats={**group.beats, request: known}), request, known)


class _TakesItsBeatAway(Rules):
    def over_with(self, group: GroupLease, request: str) -> GroupLease:
        return replace(group, beats={name: beat for name, beat in group.beats.items() if name != request})


class _LetsTheOlderClaim(Rules):
    def claim(self, record: Record, token: int) -> Record | None:
        return super().claim(replace(record, token=0), token)


class _ClaimsDespiteTheStop(Rules):
    def claim(self, record: Record, token: int) -> Record | None:
        claimed = super().claim(replace(record, lease=replace(record.lease, stop=False)), token)
        return claimed and replace(claimed, lease=replace(claimed.lease, stop=record.lease.stop))


class _ReadsAnothersRecord(Rules):
    def record_of(self, records: Mapping[str, Record], stream: str) -> Record:
        return next(record for name, record in records.items() if name != stream)


class _LooksAtNoStop(Rules):
    looks_at_members = False


class _LooksAtNoNewer(Rules):
    looks_at_newer = False


class _LeavesWithoutLooking(Rules):
    looks_again = False


class _RemovesWhoJoinedAnew(Rules):
    def remove(self, members: Mapping[str, int], stream: str, _joined: int) -> dict[str, int]:
        return {name: stamp for name, stamp in members.items() if name != stream}


class _ClearsAYoungerStop(Rules):
    def join(self, record: Record, stamp: int) -> Record | None:
        return super().join(replace(record, stop_at=0), stamp)


class _ForgetsWhoIsOver(Roster):
    def removes(self, _stream: str) -> str | None:
        return None


class _WaitsForNobody(Roster):
    def outcome(self, now_ms: int) -> Outcome | None:
        outcome = super().outcome(now_ms)
        is_expired = outcome is not None and outcome.error == "ConnectionExpired"
        return Outcome("StreamTakenOver", "", "") if is_expired else outcome


class _NeverReadsAgain(Roster):
    def listed(self, version: int, members: Mapping[str, str]) -> None:
        super().listed(version, members)
        self._lease = replace(self._lease, version=version)

    def sees(self, lease: GroupLease, now_ms: int) -> None:
        super().sees(lease if self._listed is None else replace(lease, version=self._listed), now_ms)


class _OneEndEndsAll(Roster):
    def ended(self, stream: str, fate: Fate) -> None:
        super().ended(stream, fate)
        if fate is Fate.OVER:
            self._members.clear()


def _with(roster: type[Roster]) -> Rules:
    rules = Rules()
    rules.roster = roster
    return rules


@dataclass(frozen=True)
class Defect:
    """One defect, where it is looked for, and the invariants of which one must name it."""

    what: str
    search: Search
    caught_by: frozenset[str]


def _defect(what: str, rules: Rules, caught_by: str, policies: str, joined: int = 1, **budget: int) -> Defect:
    return Defect(what, Search(tuple(policies.split()), budget, joined, rules), frozenset(caught_by.split(", ")))


REST = "comes to rest"
DEFECTS = (
    _defect("a join raises the version before it is a member", _RaisesTheVersionFirst(), REST, "evicts evicts", join=1),
    _defect("a join raises no version", _RaisesNoVersion(), REST, "evicts evicts", join=1),
    _defect("an empty group is ended whoever joined", _EndsWhateverJoined(), REST, "evicts", join=1, leave=1),
    _defect("a turn is taken of one that may beat", _BuriesNobody(), "connections allowed", "forbids", handover=1),
    _defect(
        "one is buried that has beaten meanwhile",
        _BuriesWhoHasBeaten(),
        "who is said to be over is over",
        "forbids",
        handover=1,
        slow=1,
    ),
    _defect("a function that ends leaves no trace", _TakesItsBeatAway(), REST, "forbids", handover=1, slow=1),
    _defect("an older function claims after a newer", _LetsTheOlderClaim(), "only forward", "tolerates", handover=1),
    _defect("a claim ignores the stop", _ClaimsDespiteTheStop(), "a stop is final", "evicts", leave=1),
    _defect("one stream's record is read as another's", _ReadsAnothersRecord(), REST, "evicts evicts", 2, leave=1),
    _defect("who was asked to stop is not looked at", _LooksAtNoStop(), REST, "evicts", leave=1),
    _defect("nobody looks whether he is relieved", _LooksAtNoNewer(), REST, "tolerates", handover=1),
    _defect(
        "an older connection leaves without looking again",
        _LeavesWithoutLooking(),
        "who leaves is relieved",
        "tolerates",
        handover=1,
        drop=1,
    ),
    _defect("a member is removed that has joined anew", _RemovesWhoJoinedAnew(), REST, "evicts", leave=1, join=1),
    _defect("a POST clears a younger stop", _ClearsAYoungerStop(), "a stop is final", "evicts", leave=1, join=1),
    _defect("who is over stays a member", _with(_ForgetsWhoIsOver), REST, "evicts", leave=1),
    _defect("a lane waits for nobody", _with(_WaitsForNobody), "who waits is relieved", "evicts", deadline=1),
    _defect("the members are read but once", _with(_NeverReadsAgain), REST, "evicts evicts", join=1),
    _defect("a stream that leaves takes others with it", _with(_OneEndEndsAll), REST, "evicts evicts", 2, leave=1),
)
