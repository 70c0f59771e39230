"""Keeps a stream connected for one invocation: connection after connection, with the rests that are owed between.

Decides when the function connects again by itself and when it leaves that to the machine. A rest is written into the
control table, so that it holds for both lanes and for every function that comes after, however the machine retries. It
is waited for before the claim: while nobody has claimed, the handover protocol knows nothing of it. Invariant: no
connection is opened before the rest is over, after a rest one at a time, and `keep` returns before the deadline.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace

from handlers.driver import Clock, Driver, Invocation, Report
from handlers.handover.lease import superseded
from handlers.secret_values import SecretValues
from handlers.store import Store
from handlers.stream.backoff import FailureKind, Rest, failed
from handlers.stream.profiles import Profile
from handlers.stream.signals import Outcome, Progress

# What a first failure to reconnect waits at most; each further one in a row about twice as long, up to a limit.
RECONNECT_REST_S = 0.1
RECONNECT_REST_MOST_S = 5
LIVED_MS = 1_000
# How long after it may connect an upstream has answered, or the next lane tries all the same.
TRY_MS = 5_000
UNAUTHORIZED = 401


def keep(
    profile: Profile,
    store: Store,
    secrets: SecretValues,
    invocation: Invocation,
    clock: Clock,
    tell: Callable[[Report], None],
) -> Report:
    """How the last connection ended; `tell` hears of each. Raises what `secrets` raises, and StoreUnavailable."""
    references = profile.secrets
    values = secrets.read(references) if references else {}
    rest = store.read_rest(invocation.stream_id)
    tries = profile.reconnect_tries
    may_renew = bool(references)
    while True:
        outcome, rest, held = _turn(profile, store, invocation, clock, rest)
        if outcome is not None:
            return Report(outcome, Progress(invocation.after_fence, clock.now_ms()), None, 0)
        report = Driver(profile, store, invocation, clock, values).run()
        tell(report)
        invocation = replace(invocation, after_fence=max(report.progress.fence, invocation.after_fence))
        rest = _rest_after(profile, rest, report, clock.now_ms())
        if rest != held:
            store.save_rest(invocation.stream_id, rest)
        if report.outcome.http_status == UNAUTHORIZED and may_renew:
            # A key that was changed a moment ago: the value that is kept is asked for anew, once.
            may_renew = False
            known, values = values, secrets.read(references, anew=True)
            if values != known:
                continue
        elif references:
            values = secrets.read(references)
        if not reconnects(profile, report, tries, invocation.deadline_ms - clock.now_ms(), invocation.margin_ms):
            return report
        # A connection that lived has used up nothing; only failures in a row count, each after a longer rest.
        tries = profile.reconnect_tries if lived(report.progress) else tries - 1
        failures = profile.reconnect_tries - tries
        if rest.until_ms <= clock.now_ms():
            time.sleep(random.uniform(0, min(RECONNECT_REST_S * (2**failures - 1), RECONNECT_REST_MOST_S)))


def lived(progress: Progress) -> bool:
    """Whether it was more than an answer: an upstream that closes at once must not be asked again without a rest."""
    closed_ms, opened_ms = progress.closed_ms, progress.opened_ms
    return closed_ms is not None and opened_ms is not None and closed_ms - opened_ms >= LIVED_MS


def failure_kind(outcome: Outcome) -> FailureKind | None:
    """Which pace a connection that ended so is a failure of; None where the upstream is owed no rest."""
    if outcome.error == "StreamThrottled":
        return "throttled"
    if outcome.error == "StreamDropped":
        return "http" if outcome.http_status else "network"
    return None


def reconnects(profile: Profile, report: Report, tries: int, remaining_ms: int, margin_ms: int) -> bool:
    """Whether the function connects again by itself: with a try left and time for more than leaving.

    After a drop always; after a refusal of too many requests only where the profile says how long to rest.
    """
    kind = failure_kind(report.outcome)
    is_ours = kind is not None and (kind != "throttled" or profile.pace("throttled") is not None)
    return is_ours and tries > 0 and remaining_ms > 3 * margin_ms


def _rest_after(profile: Profile, before: Rest, report: Report, now_ms: int) -> Rest:
    kind, outcome = failure_kind(report.outcome), report.outcome
    if kind is None:
        return Rest() if before.failures and lived(report.progress) else before
    if lived(report.progress):
        # "Once an established connection drops, attempt to reconnect immediately": only failures to connect are paced.
        return Rest()
    pace = profile.pace(kind)
    return failed(before, kind, now_ms, pace, outcome.retry_after_s) if pace or outcome.retry_after_s else before


def _turn(
    profile: Profile, store: Store, invocation: Invocation, clock: Clock, rest: Rest
) -> tuple[Outcome | None, Rest, Rest]:
    """Why no connection is made, as `_wait` tells, or None; what the rest was, and how it is written down meanwhile.

    Whoever rested beside this invocation wants to try at the same instant. One of them does: it puts the rest off until
    its try must have been answered, and the others see that and rest on, or for what the try has come to.
    """
    while rest.until_ms:
        outcome = _wait(store, invocation, clock, rest)
        if outcome is not None:
            return outcome, rest, rest
        held = replace(rest, until_ms=clock.now_ms() + profile.connect_timeout_ms + TRY_MS)
        if store.take_try(invocation.stream_id, rest, held):
            return None, rest, held
        rest = store.read_rest(invocation.stream_id)
    return None, rest, rest


def _wait(store: Store, invocation: Invocation, clock: Clock, rest: Rest) -> Outcome | None:
    """Why no connection is made after the rest, as the lease tells; None once it is over."""
    latest_ms = invocation.deadline_ms - 2 * invocation.margin_ms
    while (now_ms := clock.now_ms()) < rest.until_ms:
        if now_ms >= latest_ms:
            error = "StreamThrottled" if rest.kind == "throttled" else "StreamDropped"
            left_s = (rest.until_ms - now_ms) / 1000
            return Outcome(error, "", f"the upstream is left in peace for {left_s:.0f} s more")
        pause_ms = min(invocation.lease_every_ms, rest.until_ms - now_ms, latest_ms - now_ms)
        time.sleep(pause_ms / 1000)
        lease = store.read_lease(invocation.stream_id)
        if lease.stop:
            return Outcome("", "stopped", "the stream is to be stopped")
        if superseded(lease, invocation.execution):
            return Outcome("", "superseded", "another execution keeps the stream connected")
        if 0 < invocation.after_fence < lease.connected:
            return Outcome("StreamTakenOver", "", f"connection {lease.connected} has taken over")
    return None
