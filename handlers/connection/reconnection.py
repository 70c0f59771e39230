"""The steps of one invocation: it connects, waits for the back-off, and connects again.

The back-off is recorded in the control table, so that both lanes and all later functions keep it. An invocation waits
for it before it claims, so that the handover protocol need not know of it.

    Claim() -> BackoffOwed(until 9 s)   Pause(…) … until 9 s
    Claim(…) -> Claimed              it takes the try, so no other tries: one connection (`loop.py`)
    Ended(report)                    after a failure that no Release has noted: ChangeBackoff(…), Pause(…), and again

Invariants: no connection is opened before the recorded back-off is over; after it one connection at a time tries; a
write replaces only the back-off that was read.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from handlers.connection import failures
from handlers.connection.backoff import (
    NO_BACKOFF,
    REFUSAL_PACE,
    Backoff,
    backoff_after_failure,
    backoff_after_refusal,
    without_refusals,
)
from handlers.connection.effects import Outcome, Progress
from handlers.connection.ends import end_for_pause, repeated_request, with_renewal_due, without_retry
from handlers.connection.failures import failure_kind, has_lasted, should_reconnect, was_accepted
from handlers.connection.inputs import BackoffOwed, StoreFailed
from handlers.connection.lease import is_connected, is_superseded
from handlers.connection.loop import BackoffChanges, connect
from handlers.connection.spending import DAY_MS, OVER_BUDGET, is_pause, pause_kind
from handlers.connection.steps import (
    BackoffRead,
    ChangeBackoff,
    Ended,
    Invocation,
    Pause,
    ReadBackoff,
    ReadSecrets,
    Report,
    Step,
    Steps,
)
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets

# The longest pause after the second failure in a row; it about doubles with each further one, up to the limit.
RECONNECT_PAUSE_S = 0.1
RECONNECT_PAUSE_MOST_S = 5
UNAUTHORIZED = 401
# For how many readings of the lease no connection is made after a rejection.
REJECTION_PAUSE_READS = 3
# A successor caused these ends; if such a connection was never opened, no request was made.
MADE_ROOM = frozenset({"let_go", "claimed_by_successor"})

Draw = Callable[[float, float], float]


def attempts(profile: Profile, invocation: Invocation, now_ms: int, draw: Draw) -> Steps[Report]:
    """Returns how the invocation's last connection ended; `draw` returns a random number between two others.

    If the store refuses between two connections, the report says so.
    """
    try:
        report = yield from _Attempts(profile, invocation, now_ms, draw).run()
    except _StoreRefused as refused:
        report = Report(Outcome("StoreUnavailable", "", str(refused)), Progress(0, now_ms))
        yield Ended(report)
    if not profile.again:
        report = replace(report, outcome=without_retry(report.outcome, report.progress))
    if not invocation.is_renewal_due:
        return report
    return replace(report, outcome=with_renewal_due(report.outcome))


class _StoreRefused(Exception):
    """The store refused a request between two connections."""


class _Attempts:
    """One invocation; `run` is called once. Each method that yields leaves the time of its last answer in `_now_ms`."""

    def __init__(self, profile: Profile, invocation: Invocation, now_ms: int, draw: Draw) -> None:
        self._profile = profile
        self._invocation = invocation
        self._began_ms = self._now_ms = now_ms
        self._draw = draw
        self._fence = 0  # of the last connection that claimed
        self._backoff = NO_BACKOFF  # as it was last read or written
        self._has_backed_off = False  # since the last claim

    def run(self) -> Steps[Report]:
        """Returns how the last connection ended."""
        profile, invocation = self._profile, self._invocation
        references = profile.secrets
        values: Secrets = (yield from self._perform(ReadSecrets())) if references else {}
        may_renew, may_replace = bool(references), profile.again
        tries = profile.reconnect_tries
        outcome: Outcome | None = None
        if not profile.again and is_connected((yield from self._read_backoff()).lease, self._now_ms, invocation.died):
            # A claim would make the connection that reads now let go.
            outcome = repeated_request(is_alive=True)
        while True:
            outcome = outcome or (yield from self._wait_for_turn())
            if outcome is not None:
                report = Report(outcome, Progress(self._fence, self._now_ms))
                yield Ended(report)
                return report
            connected = yield from self._connect(values)
            if connected is None:
                continue
            report, changes = connected
            is_replaced = yield from self._perform(Ended(report))
            self._fence = max(report.progress.fence, self._fence)
            may_replace = may_replace or (profile.again and has_lasted(report.progress))
            if is_replaced and may_replace:
                # A new token is tried at once, as after a 401, and once in a row of connections that fail soon.
                may_replace = False
                yield from self._replace(changes.held, self._backoff)
                continue
            is_renewal = report.outcome.http_status == UNAUTHORIZED and may_renew
            if is_renewal:
                # The key may just have been changed: the secret is read anew, once.
                may_renew = False
                known, values = values, (yield from self._perform(ReadSecrets(anew=True)))
                if values != known:
                    yield from self._replace(changes.held, self._backoff)  # another key, another request: no back-off
                    continue
            if changes.is_noted:
                self._backoff = changes.held
            elif changes.found is not None:
                yield from self._record_backoff(changes.held, report)
            if references and not is_renewal:
                values = yield from self._perform(ReadSecrets())
            if not profile.again and without_retry(report.outcome, report.progress) != report.outcome:
                return report
            if not should_reconnect(
                profile, report, tries, invocation.deadline_ms - self._now_ms, invocation.margin_ms
            ):
                return report
            # Only failures in a row use up tries, each with a longer pause; a connection that lived begins a new row.
            # The first failure is retried at once: a connection may be dropped in its first second by chance, as in a
            # handover.
            tries = profile.reconnect_tries if was_accepted(report.progress) else tries - 1
            yield from self._pause(max(0, profile.reconnect_tries - tries - 1))

    def _connect(self, values: Secrets) -> Steps[tuple[Report, BackoffChanges] | None]:
        """Returns how a connection ended, and its changes of the back-off; None if another back-off is recorded."""
        connected = yield from connect(
            self._profile,
            self._invocation,
            self._now_ms,
            self._backoff_at_release,
            after_fence=self._fence,
            backoff=self._backoff,
            has_backed_off=self._has_backed_off,
            secrets=values,
        )
        if isinstance(connected, BackoffOwed):
            self._backoff = connected.backoff
            return None
        self._has_backed_off = False
        report, changes = connected
        if changes.found is not None:
            self._backoff = self._before_try(changes.found)
        return replace(report, same_ends=failures.count_same_ends(self._backoff, report)[0]), changes

    def _pause(self, failures: int) -> Steps[None]:
        """Waits before the next try, longer after more failures in a row, unless a back-off is recorded anyway."""
        if self._backoff.until_ms <= self._now_ms:
            most_s = min(RECONNECT_PAUSE_S * (2**failures - 1), RECONNECT_PAUSE_MOST_S)
            yield from self._perform(Pause(round(1000 * self._draw(0, most_s))))

    def _perform(self, step: Step) -> Steps[Any]:
        """Returns the answer to the step; raises _StoreRefused."""
        answer = yield step
        self._now_ms = answer.now_ms
        if isinstance(answer.value, StoreFailed):
            raise _StoreRefused(answer.value.detail)
        return answer.value

    def _read_backoff(self) -> Steps[BackoffRead]:
        read: BackoffRead = yield from self._perform(ReadBackoff())
        return read

    # --- after a connection -------------------------------------------------------------------------------------------

    def _before_try(self, found: Backoff) -> Backoff:
        """Returns the record as it was before the claim took its try; the claim found `found`."""
        return replace(found, until_ms=self._backoff.until_ms, tried_ms=0)

    def _backoff_at_release(self, now_ms: int, report: Report, found: Backoff) -> Backoff | None:
        """Returns the back-off that the release records; None if nothing failed, or a key or token may be renewed."""
        is_lost = failure_kind(report) is not None and report.progress.ended_by not in MADE_ROOM
        is_of_token = report.refusal is not None and self._profile.is_socket and self._profile.token is not None
        if not is_lost or is_of_token or report.outcome.http_status == UNAUTHORIZED:
            return None
        self._now_ms = now_ms
        return self._counted_backoff_after(self._before_try(found), report)

    def _replace(self, held: Backoff, after: Backoff) -> Steps[None]:
        """Writes `after` in place of `held`, unless another back-off was recorded since."""
        is_ours = after == held or (yield from self._perform(ChangeBackoff(held, after)))
        self._backoff = after if is_ours else (yield from self._read_backoff()).backoff

    def _record_backoff(self, held: Backoff, report: Report) -> Steps[None]:
        """Records the back-off after the connection in place of `held`, or combined with what was recorded since."""
        after = self._counted_backoff_after(self._backoff, report)
        while after != held and not (yield from self._perform(ChangeBackoff(held, after))):
            held = (yield from self._read_backoff()).backoff
            after = self._counted_backoff_after(held, report)
            # If this connection lived, that ends its own row of failures, but neither the row nor the back-off of
            # others.
            ours = replace(after, kind=held.kind, failures=held.failures)
            after = after if after.failures else ours
            if held.until_ms >= after.until_ms:
                after = replace(after, until_ms=held.until_ms, tried_ms=held.tried_ms)
        self._backoff = after

    def _counted_backoff_after(self, before: Backoff, report: Report) -> Backoff:
        before = replace(before, tried_ms=0)  # that try is over
        return failures.with_end_counted(before, self._backoff_after(before, report), report, self._now_ms)

    def _backoff_after(self, before: Backoff, report: Report) -> Backoff:
        outcome = report.outcome
        if report.progress.ended_by == OVER_BUDGET and (budget := self._profile.budget) is not None:
            until_ms = self._now_ms + round(1000 * (outcome.retry_after_s or 0))
            # The pause ends exactly with the day, although a moment has passed since it was computed.
            return Backoff(pause_kind(budget), 1, until_ms - until_ms % DAY_MS)
        kind = failure_kind(report)
        was_lost = kind is not None and report.progress.ended_by not in MADE_ROOM
        if was_lost and report.reconnection_ms is not None:
            before = replace(before, reconnection_ms=report.reconnection_ms)
        asked_ms = before.reconnection_ms
        if was_accepted(report.progress):
            # "Once an established connection drops, attempt to reconnect immediately": only failures to connect are
            # paced. But WHATWG, "reestablish the connection": "Wait a delay equal to the reconnection time of the event
            # source." That does not apply to a handover, where no connection is lost.
            return Backoff(until_ms=self._now_ms + asked_ms if was_lost and asked_ms else 0, reconnection_ms=asked_ms)
        if outcome.error == "StreamRejected" and report.refusal is not None and before.refused_since_ms:
            # Until then, other connections that back off read in the lease that the stream is over.
            until_ms = self._now_ms + REJECTION_PAUSE_READS * self._invocation.lease_every_ms
            return replace(before, failures=0, until_ms=until_ms)  # after a POST the back-off begins anew
        if kind is None or not was_lost:
            return before
        pace, asked_s = self._profile.pace(kind), outcome.retry_after_s
        if report.refusal is not None:
            return backoff_after_refusal(
                before, report.refusal, self._now_ms, pace or REFUSAL_PACE, self._draw(0, 1), asked_s
            )
        if before.refused_since_ms:
            before = without_refusals(before)
        return (
            backoff_after_failure(before, kind, self._now_ms, pace, asked_s) if pace or asked_s or asked_ms else before
        )

    def _must_still_pause(self, backoff: Backoff) -> bool:
        """Whether the profile's budget still demands this pause: a budget that was raised or removed ends it."""
        budget = self._profile.budget
        return budget is not None and budget.then == "pause" and pause_kind(budget) == backoff.kind

    # --- before a connection ------------------------------------------------------------------------------------------

    def _wait_for_turn(self) -> Steps[Outcome | None]:
        """Waits until no back-off is left, as far as is known; returns why no connection is made, or None.

        If the recorded back-off has not changed, the claim then takes the try, and extends the back-off until the try
        must have been answered. The others read that and wait on, or wait for the back-off that the try leads to. An
        answered connection ends it (`loop.py`), so that a successor that comes in time need not wait.
        """
        invocation = self._invocation
        latest_ms = invocation.deadline_ms - 2 * invocation.margin_ms
        while (now_ms := self._now_ms) < (backoff := self._backoff).until_ms:
            if is_pause(backoff.kind) and not self._must_still_pause(backoff):
                break
            if now_ms >= latest_ms:
                error = "StreamThrottled" if backoff.kind == "throttled" else "StreamDropped"
                left_s = (backoff.until_ms - now_ms) / 1000
                if is_pause(backoff.kind):
                    return end_for_pause(left_s).outcome
                return Outcome(error, "", f"the upstream's back-off lasts {left_s:.0f} s more")
            self._has_backed_off = True
            yield from self._perform(
                Pause(min(invocation.lease_every_ms, backoff.until_ms - now_ms, latest_ms - now_ms))
            )
            if self._now_ms >= backoff.until_ms:
                break  # no further reading is needed: a claim would be refused for the same reasons
            read = yield from self._read_backoff()
            self._backoff, lease = read.backoff, read.lease
            if lease.stop:
                return Outcome("", "stopped", "a stop was requested")
            if lease.ending and not lease.execution and lease.ended_at_ms >= self._began_ms:
                return Outcome("", "superseded", "its execution has let go of the stream")
            if is_superseded(lease, invocation.execution):
                return Outcome("", "superseded", "another execution keeps the stream connected")
            if 0 < self._fence < lease.connected_token:
                return Outcome("StreamTakenOver", "", f"connection {lease.connected_token} has taken over")
        return None
