"""Performs a function that keeps a group's streams in virtual time, so that each of its requests is made and counted.

As `counted_invocation.py` does for a stream alone; what is asked for, by whom and in which order is the product's
(`handlers/group`). No request takes time. Invariant: after `kill` nothing of it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from handlers.connection.effects import CloseUpstream, MarkConnected, Open, Outcome
from handlers.connection.ends import SUPERSEDED, renewal_due
from handlers.connection.inputs import Arrival, Closed, LeaseRead
from handlers.connection.manager import LEASE_TTL_READS
from handlers.connection.steps import Answer, Ended, Invocation, ReadSecrets, Report, Step, Steps
from handlers.group.duties import Duties, EndGroup, ReadMembers, ReadRecords, Remove, SendBeat
from handlers.group.fates import Delays, Fate
from handlers.group.keeping import Kept, kept
from handlers.group.lease import Beat
from handlers.group.pacing import Pacing
from handlers.group.roster import Roster
from handlers.group.rounds import Rounds
from handlers.group_function import AT_ONCE, BEAT_EVERY_MS, YOUNG_MS
from handlers.profile.behaviour import Profile
from handlers.store import control_items
from handlers.store.batch_get import BatchGet
from handlers.store.control_items import Item
from handlers.store.group_items import member_key
from handlers.store.group_store import GroupStore
from handlers.store.grouped_store import GroupedStore, GroupFunction
from handlers.store.requests import Requests
from local.costs.steady_upstream import Client
from local.replay.virtual_invocation import VirtualConnection
from states_language.clock import Clock, Timer

GROUP = "#1"


class Upstream(Protocol):
    """What a stream of the group is read from."""

    def open(self, client: Client, cursor: str | None) -> Any:
        """A link that brings what came after the cursor, or from now on where there is none."""

    def close(self, link: Any) -> None:
        """Closes a link from the client's side; the client hears nothing more."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a stage's functions keep together: a profile for all, and each stream's upstream, by its id."""

    profile: Profile
    upstreams: Mapping[str, Upstream]
    settings: Mapping[str, Any]
    names: Mapping[str, str]
    client: Any

    def joins(self) -> None:
        """Writes down that the streams have joined, as their POSTs do."""
        for stream_id in self.upstreams:
            place: Item = {"joined": {"S": "2026-01-01T00:00:00.000Z"}, "group": {"S": GROUP}}
            lease = control_items.key(stream_id, "lease") | place | {"generation": control_items.number(1)}
            self.client.put_item(TableName=self.names["control_table"], Item=lease)
            item = member_key(GROUP, stream_id) | {"joined": place["joined"]}
            self.client.put_item(TableName=self.names["control_table"], Item=item)
        self.client.update_item(
            TableName=self.names["control_table"],
            Key=control_items.key(GROUP, "lease"),
            UpdateExpression="SET #size = :size",
            ExpressionAttributeNames={"#size": "size"},
            ExpressionAttributeValues={":size": control_items.number(len(self.upstreams))},
        )


@dataclass(slots=True)
class _Member:
    """A stream's connection in a function."""

    requests: Requests
    arrived_at: Callable[[], None]
    inbox: deque[Arrival] = field(default_factory=deque)
    link: Any = None

    def arrived(self, arrival: Arrival) -> None:
        """Takes what the upstream sends."""
        self.inbox.append(arrival)
        self.arrived_at()


class CountedGroup:
    """`on_end` is called once with the outcome, unless it is killed; `reports` are those of its connections."""

    def __init__(self, clock: Clock, group: Group, who: Invocation, on_end: Callable[[Outcome], None]) -> None:
        self._clock, self._group, self._who, self._on_end = clock, group, who, on_end
        settings, table = group.settings, group.names["control_table"]
        self._groups = GroupStore(group.client, table, who.stream_id)
        self._batches = BatchGet(group.client, table)
        self._ttl_ms = LEASE_TTL_READS * max(who.progress_every_ms, who.lease_every_ms)
        self._delays = Delays(*(settings[name] for name in Delays.__slots__))
        self._members: dict[str, _Member] = {}
        self._rounds: Rounds[Kept] = Rounds()
        self._pacing = Pacing(AT_ONCE, YOUNG_MS)
        self._causes: dict[str, Outcome] = {}
        self._timer: Timer | None = None
        self._is_alive, self._is_awake = True, False
        self.reports: list[Report] = []
        self.connections: list[VirtualConnection] = []  # a counted run draws no picture

    def advance(self) -> None:
        """Begins: claims the group, and ends at once where that is refused."""
        who, now_ms, names = self._who, self._clock.now_ms(), self._group.names
        granted, lease = self._groups.claim(who.execution)
        if not granted:
            self._ends(SUPERSEDED)
            return
        function = GroupFunction(
            who.stream_id, lease.token, who.request_id, who.execution, who.deadline_ms, self._ttl_ms, who.died
        )
        self._store = GroupedStore(
            self._group.client,
            _none,
            function,
            self._clock.now_ms,
            events_table=names["events_table"],
            control_table=names["control_table"],
            dead_letter_queue_url="",
            ledger_keep_days=self._group.settings["ledger_keep_days"],
        )
        self._roster = Roster(lease.token, who.execution, who.deadline_ms - 3 * who.margin_ms)
        self._duties = Duties(
            self._roster,
            lease.token,
            min(who.progress_every_ms, BEAT_EVERY_MS),
            min(who.lease_every_ms, BEAT_EVERY_MS),
        )
        self._token = lease.token
        _, self._store.lease = self._groups.first_beat(who.request_id, who.execution, self._beat())
        self._duties.claimed(self._store.lease, now_ms)
        self._wake()

    def kill(self) -> None:
        """Ends it as SIGKILL does."""
        self.freeze()
        for stream_id in self._members:
            self._leave(stream_id)

    def freeze(self) -> None:
        """Halts it as SIGSTOP does."""
        self._is_alive = False
        if self._timer is not None:
            self._timer.cancel()

    def lease_changed(self) -> None:
        """Nothing: it hears of changes in the answers to its beats."""

    # --- in turns -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Does all that is due now, and wakes again when more is."""
        if not self._is_alive or self._is_awake:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_awake = True
        while self._is_alive and self._turn():
            pass
        self._is_awake = False
        if self._is_alive:
            now_ms = self._clock.now_ms()
            instants = (self._rounds.due_ms, self._duties.due_ms, self._pacing.due_ms(now_ms))
            self._timer = self._clock.call_at(min(at_ms for at_ms in instants if at_ms), self._wake)

    def _turn(self) -> bool:
        """Whether there was anything to do."""
        now_ms = self._clock.now_ms()
        done = False
        while self._performs_duty(now_ms):
            done = True
        for stream_id in self._roster.to_open(now_ms):
            if not self._pacing.may_begin(now_ms):
                break
            self._begins(stream_id, now_ms)
            done = True
        for stream_id, step in self._rounds.asked():
            self._rounds.answer(stream_id, Answer(now_ms, self._perform(stream_id, step)))
            done = True
        for stream_id, value in self._rounds.ended():
            assert isinstance(value, Kept), value
            self._has_ended(stream_id, value)
            done = True
        done = self._serve(now_ms) or done
        outcome = self._roster.outcome(now_ms)
        if outcome is not None:
            self._groups.bury(self._who.request_id, self._store.lease.beats[self._who.request_id])
            self._ends(outcome)
        return done

    def _serve(self, now_ms: int) -> bool:
        members, awaiting = self._members, self._rounds.awaiting()
        due = [one for one, step in awaiting if members[one].inbox or step.until_ms <= now_ms]
        for stream_id in due:
            inbox = members[stream_id].inbox
            self._rounds.answer(stream_id, Answer(now_ms, inbox.popleft() if inbox else None))
        rested = self._rounds.rested(now_ms)
        for stream_id in rested:
            self._rounds.answer(stream_id, Answer(now_ms))
        return bool(due or rested)

    def _ends(self, outcome: Outcome) -> None:
        self.freeze()
        self._on_end(renewal_due(outcome) if self._who.is_renewal_due else outcome)

    # --- for the group ------------------------------------------------------------------------------------------------

    def _beat(self) -> Beat:
        now_ms = self._clock.now_ms()
        return Beat(self._token, self._store.beat_at_ms(), now_ms + self._ttl_ms, self._store.turns)

    def _performs_duty(self, now_ms: int) -> bool:
        duty = self._duties.next(now_ms)
        match duty:
            case None:
                return False
            case SendBeat():
                _, self._store.lease = self._groups.beat(self._who.request_id, self._beat(), self._store.lease)
                self._duties.answered(now_ms, self._store.lease)
            case ReadMembers():
                self._duties.answered(now_ms, self._groups.members())
            case ReadRecords():
                self._read_records(now_ms)
            case Remove(stream_id, joined):
                outcome = self._causes[stream_id]
                self._store.lets_go(stream_id, joined, outcome.error or "StreamEnded", outcome.message)
                self._groups.leaves(stream_id, joined, now_ms)
                self._duties.removed(stream_id)
            case EndGroup(version):
                _, self._store.lease = self._groups.ends(self._who.execution, version)
                self._duties.answered(now_ms, self._store.lease)
        return True

    def _read_records(self, now_ms: int) -> None:
        keys = [control_items.key(stream_id, "lease") for stream_id in self._members if stream_id in self._rounds]
        changed = self._store.refreshed(self._batches.items(keys, consistent=True))
        self._duties.read()
        waiting = dict(self._rounds.awaiting())
        for stream_id in changed:
            if stream_id in waiting:
                self._rounds.answer(stream_id, Answer(now_ms, LeaseRead(self._store.known(stream_id))))

    # --- for a stream -------------------------------------------------------------------------------------------------

    def _begins(self, stream_id: str, now_ms: int) -> None:
        self._roster.begins(stream_id)
        self._pacing.begins(stream_id, now_ms)
        profile = self._group.profile
        self._store.lags[stream_id] = profile.flush_ms if profile.store == "log" else 0
        self._store.stalls[stream_id] = round(1000 * profile.stall_after_s)
        # What a renewal follows from is the group's.
        who = replace(self._who, stream_id=stream_id, cycles=0, renew_after=0)
        requests = Requests(profile, self._store, who, self._clock.now_ms)
        self._members[stream_id] = _Member(requests, self._wake)
        self._rounds.begin(stream_id, self._steps(who, now_ms), now_ms)

    def _steps(self, who: Invocation, now_ms: int) -> Steps[Kept]:
        """The steps of one stream."""
        keeps = self._roster.keeps
        profile, stream_id = self._group.profile, who.stream_id
        return kept(profile, who, now_ms, self._draw, self._delays, lambda _now_ms: keeps(stream_id))

    def _has_ended(self, stream_id: str, value: Kept) -> None:
        self._store.forget(stream_id)
        self._causes[stream_id] = value.report.outcome
        self._roster.ended(stream_id, value.fate)
        if value.fate is Fate.OVER:
            self._duties.over(stream_id)

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._clock.random()

    def _perform(self, stream_id: str, step: Step) -> Any:
        """What the step is answered by."""
        member = self._members[stream_id]
        if isinstance(step, MarkConnected | Ended):
            self._pacing.done(stream_id)
        match step:
            case Open(cursor):
                self._leave(stream_id)
                member.inbox.clear()
                member.link = self._group.upstreams[stream_id].open(member, cursor)
            case CloseUpstream():
                if member.link is not None:
                    self._leave(stream_id)
                    member.inbox.append(Closed("closed_here"))
            case Ended(report):
                self._leave(stream_id)
                member.inbox.clear()
                self.reports.append(report)
            case ReadSecrets():
                return {}
            case _:
                return [request() for request in member.requests.of(step)][-1]
        return None

    def _leave(self, stream_id: str) -> None:
        member = self._members[stream_id]
        if member.link is not None:
            self._group.upstreams[stream_id].close(member.link)
            member.link = None


def _none() -> Any:
    raise RuntimeError("a counted stream has no event that is too large for an item")
