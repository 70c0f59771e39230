"""Decides what a group's function does from its claim to its end: its tasks, when it opens which stream, how it ends.

It combines the decisions of `handlers/group`: the function claims the group, sends heartbeats, reads the members,
begins and ends streams, and at its end marks its heartbeat as ended, so that its successor need not wait until that
runs out. It is a generator of what it needs (`Ask`, `Wait`), performed by threads (`group_invocation.py`) or by a world
of faults in virtual time (`local/simulation/slots.py`).

Invariants: it ends before the deadline, if its requests are answered by then; a heartbeat waits for no request of a
stream.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Outcome, Progress
from handlers.connection.ends import EXPIRED, STOPPED, SUPERSEDED, outcome_of_late_takeover, with_renewal_due
from handlers.connection.steps import Invocation, Report
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.framing.oversize import BufferBudget
from handlers.group.group_lease import GroupLease
from handlers.group.group_tasks import GroupTasks
from handlers.group.next_step import Delays, NextStep, ShouldKeep, StreamEnd, error_outcome
from handlers.group.pacing import Pacing
from handlers.group.roster import Roster
from handlers.profile.behaviour import MAX_FRAME_BYTES, Profile
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, Needs, Wait
from handlers.run.group_profiles import PROFILES, GroupProfiles
from handlers.run.group_requests import GroupRequests
from handlers.run.performer import Performer
from handlers.run.ports import hard_stop_ms
from handlers.run.requests import Requests
from handlers.run.threads import Answered
from handlers.store.known_streams import GroupFunction

# How many openings may be young at a time: each is a TLS handshake, which takes the smallest function 40 ms.
AT_ONCE, YOUNG_MS = 8, 1_000
# The next heartbeat shows a stream that joined or left; it should be connected, or closed, within 5 s of the request.
HEARTBEAT_EVERY_MS = 4_000
# The bytes of unfinished frames and unstored events of all streams together: as many as a stream alone may hold. 128 MB
# have room for three times as much, which decoding and compressing need.
BUDGET_BYTES = MAX_FRAME_BYTES
# How long a function that ends waits for requests under way.
END_S = 0.5
GROUP_TASK = "the group"
# The names of the threads whose answers the group tasks need.
OWN = frozenset({GROUP_TASK, PROFILES})


def group_steps(invocation: Invocation, tables: GroupTables, delays: Delays, ports: GroupPorts) -> Needs:
    """Returns the function's outcome; `invocation.stream_id` is the group. Raises StoreUnavailable."""
    groups = tables.group_store(invocation.stream_id)
    granted, lease = yield Ask(functools.partial(groups.claim, invocation.execution))
    if not granted:
        return STOPPED if lease.stop and lease.execution == invocation.execution else SUPERSEDED
    function = _Function(invocation, tables, lease, delays, ports)
    is_ours, function.store.lease = yield Ask(function.requests.first_heartbeat)
    if not is_ours:
        return SUPERSEDED
    defect: Exception | None = None
    try:
        outcome = yield from function.run()
    except Exception as error:
        defect = error
    with contextlib.suppress(StoreUnavailable):  # then its heartbeat runs out
        yield Ask(function.requests.mark_ended)
    if defect is not None:
        raise defect
    late_s = function.late_s(outcome)
    if late_s:
        outcome = outcome_of_late_takeover(outcome, late_s)
    return with_renewal_due(outcome) if invocation.is_renewal_due else outcome


class _Function:
    """One function of the group, which has claimed it with `lease`."""

    def __init__(
        self, invocation: Invocation, tables: GroupTables, lease: GroupLease, delays: Delays, ports: GroupPorts
    ) -> None:
        self._invocation, self._delays, self._ports = invocation, delays, ports
        self._clock = clock = ports.clock
        every_ms, often_ms = invocation.progress_every_ms, invocation.lease_every_ms
        who = GroupFunction(
            invocation.stream_id,
            lease.token,
            invocation.request_id,
            invocation.execution,
            invocation.deadline_ms,
            invocation.lease_ttl_ms,
            invocation.died,
        )
        self.store = tables.stream_store(who, clock.now_ms)
        self.requests = GroupRequests(who, tables, self.store, ports)
        self._roster = Roster(lease.token, invocation.execution, invocation.deadline_ms - 3 * invocation.margin_ms)
        self._group_tasks = GroupTasks(
            self._roster, lease.token, min(every_ms, HEARTBEAT_EVERY_MS), min(often_ms, HEARTBEAT_EVERY_MS)
        )
        self._pacing = Pacing(AT_ONCE, YOUNG_MS)
        self._profiles = GroupProfiles(ports.profiles, ports.pool)
        self._causes: dict[str, Outcome] = {}
        self._keep_checks: dict[str, ShouldKeep] = {}
        self._budget = BufferBudget(BUDGET_BYTES, self._roster.__len__)
        self._group_task: Any = None
        self._due_ms = self._changes_ms = 0

    def late_s(self, outcome: Outcome) -> int:
        """Returns how many seconds too late it was taken over, because a stream kept it beside a newer function.

        It is 0 if that was no longer than the longest overlap, or if the settings leave none. Otherwise its lane would
        come back only when the newer function's time is over, and all streams would be without a connection for a
        moment. So the lane waits that much less, and comes back as if it had been taken over at once.
        """
        longest_ms, beside_ms = self._invocation.overlap_max_ms, self._roster.overlap_ms(self._clock.now_ms())
        is_late = outcome.error == "StreamTakenOver" and 0 < longest_ms < beside_ms
        return -(-beside_ms // 1000) if is_late else 0

    def run(self) -> Generator[Wait, set[str], Outcome]:
        """Returns its outcome, once none of its streams runs any more, or no time is left."""
        of_streams = replace(self._ports, log_report=self._log)
        self._performer = performer = Performer[StreamEnd](of_streams, self._roster.__len__)
        self._pool = self._ports.pool(1, GROUP_TASK)
        self._group_tasks.record_claim(self.store.lease, self._clock.now_ms())
        stop_ms = hard_stop_ms(self._invocation.deadline_ms, self._invocation.margin_ms)
        try:
            rung: set[str] = set()
            while (now_ms := self._clock.now_ms()) < stop_ms:
                # Only an answer, an opening or a stream that has ended, or an instant that it has named changes what
                # the group does besides its streams' steps. Most turns are just an event of a stream.
                is_due = now_ms >= self._changes_ms or self._roster.is_ended or bool(performer.openings_over)
                is_busy = False
                if is_due := is_due or not rung.isdisjoint(OWN):
                    is_busy = self._perform_group_tasks(now_ms)
                    self._take_profiles(now_ms)
                    is_busy = self._open_streams(now_ms) or is_busy
                is_busy = performer.turn(rung) or is_busy
                if has_ended := bool(performer.finished):
                    self._take_ends()
                    is_busy = is_due = True
                if is_due:
                    outcome = self._roster.outcome(self._clock.now_ms())
                    if outcome is not None:
                        return outcome
                    self._set_instants(stop_ms)
                    # The next turn frees the place of a stream that is over, without waiting for a heartbeat.
                    self._changes_ms = now_ms if has_ended else self._changes_ms
                rung = yield Wait(0 if is_busy else self._wait_s())
            return EXPIRED
        finally:
            wait_s = min(END_S, max(0, stop_ms - self._clock.now_ms()) / 1000)
            performer.close(wait_s)
            self._pool.stop(wait_s)
            self._profiles.stop()

    def _log(self, profile: Profile, who: Invocation, report: Report, blocked_ms: int) -> None:
        self.store.record_connection_end(who.stream_id)
        self._ports.log_report(profile, who, report, blocked_ms)

    def _wait_s(self) -> float:
        due_ms = self._performer.due_ms
        return max(0, min(self._due_ms, due_ms or self._due_ms) - self._clock.now_ms()) / 1000

    def _set_instants(self, stop_ms: int) -> None:
        """Computes until when it may wait, and until when only an answer or an end can change what it does."""
        now_ms = self._clock.now_ms()
        instants = [stop_ms if now_ms >= self._roster.last_ms else self._roster.last_ms]
        if self._group_task is None:
            instants.append(self._group_tasks.due_ms)
        if self._roster.streams_to_open(now_ms):
            instants.append(self._pacing.due_ms(now_ms) or now_ms)
        if (again_ms := self._profiles.due_ms) is not None:
            instants.append(again_ms)
        self._due_ms = self._changes_ms = min(instants)
        # A request that the store refused is repeated when anything next wakes the function.
        if self._group_tasks.retry_at_ms > now_ms:
            self._changes_ms = min(self._changes_ms, self._group_tasks.retry_at_ms)

    # --- streams ------------------------------------------------------------------------------------------------------

    def _open_streams(self, now_ms: int) -> bool:
        for stream in self._performer.openings_over:
            self._pacing.record_done(stream)
        self._performer.openings_over.clear()
        began = False
        for stream in self._roster.streams_to_open(now_ms):
            if not self._pacing.may_begin(now_ms):
                break
            self._begin_stream(stream, now_ms)
            began = True
        return began

    def _begin_stream(self, stream: str, now_ms: int) -> None:
        roster = self._roster
        roster.mark_begun(stream)
        try:
            profile = self._profiles.read(stream, roster.join_time(stream))
        except InvalidRequest as error:
            next_step = NextStep.UNREAD if self._profiles.must_wait(stream, roster.join_time(stream)) else NextStep.OVER
            self._end_stream(stream, StreamEnd(next_step, Report(error_outcome(error), Progress(0, now_ms))))
            return
        self._pacing.record_begin(stream, now_ms)
        self.store.lags[stream] = profile.flush_ms if profile.store == "log" or profile.may_go_to_log else 0
        self.store.stalls[stream] = round(1000 * profile.stall_after_s)
        (self.store.hot.add if profile.standby == "hot" else self.store.hot.discard)(stream)
        is_evicting = profile.overlap == "evicts" and profile.resume is not None
        (self.store.evicting.add if is_evicting else self.store.evicting.discard)(stream)
        # Renewals are decided for the whole group.
        who = replace(
            self._invocation, stream_id=stream, cycles=0, renew_after=0, waits_too_long=False, budget=self._budget
        )
        self._keep_checks[stream] = self._keep_check(stream)
        steps = self._ports.keep_connected(profile, who, now_ms, self._delays, self._keep_checks[stream])
        self._performer.begin(profile, who, steps, Requests(profile, self.store, who, self._clock.now_ms))

    def _keep_check(self, stream: str) -> ShouldKeep:
        """Returns a check: should the stream that begins now still back off and connect again as it began?

        Not once a stop was requested or it has joined anew: it then begins anew at once, as a back-off may last long.
        """
        roster, store = self._roster, self.store
        time, stop = roster.join_time(stream), store.is_stopping(stream)

        def should_keep(_now_ms: int) -> bool:
            return (
                roster.is_kept(stream) and roster.join_time(stream) == time and (stop or not store.is_stopping(stream))
            )

        return should_keep

    def _apply_requests(self, now_ms: int) -> None:
        """Wakes streams in back-off that must stop or joined anew; ends those that must stop and await a profile."""
        for stream in self._roster.running if self._roster.can_reconnect else ():
            if not self._keep_checks[stream](now_ms):
                self._performer.wake(stream)
        for stream in self._roster.awaiting_profile:
            if self.store.is_stopping(stream):
                self._end_stream(stream, StreamEnd(NextStep.OVER, Report(STOPPED, Progress(0, now_ms))))

    def _take_profiles(self, now_ms: int) -> None:
        """Begins the streams whose profile has come, and ends those without one."""
        for stream, problem in self._profiles.take_answers(now_ms):
            if stream not in self._roster.awaiting_profile:
                continue
            if problem is None:
                self._roster.mark_ended(stream, NextStep.AGAIN)
            else:
                self._end_stream(stream, StreamEnd(NextStep.OVER, Report(error_outcome(problem), Progress(0, now_ms))))

    def _take_ends(self) -> None:
        for stream, what in self._performer.take_ended():
            self._pacing.record_done(stream)
            if isinstance(what, Exception):  # a defect outside its steps
                what = StreamEnd(NextStep.AGAIN, Report(error_outcome(what), Progress(0, self._clock.now_ms())))
            if what.report.outcome.error == "StreamRejected":
                self._profiles.record_rejection(stream)
            self._end_stream(stream, what)

    def _end_stream(self, stream: str, what: StreamEnd) -> None:
        if what.next_step is NextStep.RELIEVED:
            self.store.forget(stream)
        self._causes[stream] = what.report.outcome
        self._budget.set_held(stream, 0)
        self._roster.mark_ended(stream, what.next_step)
        if what.next_step is NextStep.OVER:
            self._group_tasks.add_over(stream)

    # --- group tasks --------------------------------------------------------------------------------------------------

    def _perform_group_tasks(self, now_ms: int) -> bool:
        answers = list(self._pool.take_answers())
        for _, answer in answers:
            self._take_answer(answer, now_ms)
        if self._roster.is_ended:
            self._performer.fail_waiting("the function counts as dead")
        if (task := self._group_tasks.next_task(now_ms)) is not None:
            self._group_task = task
            self._pool.ask(GROUP_TASK, self.requests.make(task, self._roster, self._performer.connected, self._causes))
        return bool(answers)

    def _take_answer(self, answer: Answered, now_ms: int) -> None:
        task, self._group_task = self._group_task, None
        value = answer.value
        if answer.error is not None and not isinstance(answer.error, StoreUnavailable):
            raise answer.error
        if answer.error is None and task.kind in ("heartbeat", "end"):
            _, self.store.lease = answer.value
            value = self.store.lease
        self._group_tasks.record_answer(now_ms, value)
        if answer.error is not None:
            return
        if task.kind == "remove":
            self.store.forget(task.stream)
        elif task.kind == "records":
            for stream in self.store.refresh(value):
                self._performer.notify(stream, functools.partial(self.store.known_lease, stream))
            self._apply_requests(now_ms)
