"""Decides how an invocation keeps a stream connected: connection after connection, with the rests owed in between.

Whether the function connects again by itself or leaves that to the machine, and what the upstream is owed first. A rest
is written into the control table, so that it holds for both lanes and for every function that comes after, however the
machine retries. It is waited for before the claim: while nobody has claimed, the handover protocol knows nothing of it.

It is a generator: wishes out, what came of them in. handlers/invocation.py performs them in real time, local/ in
virtual
time. It knows no thread, no socket and no table. Invariants: no connection is opened before the rest is over that was
written down when it looked; after a rest one at a time; what is written replaces what was read, and nothing else.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from handlers.connection.backoff import FailureKind, Rest, failed
from handlers.connection.effects import Outcome, Progress
from handlers.connection.ends import renewal_due
from handlers.connection.lease import Lease, superseded
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.store.requests import Invocation, Report, answered

# What a second failure in a row waits at most; each further one in a row about twice as long, up to a limit.
RECONNECT_REST_S = 0.1
RECONNECT_REST_MOST_S = 5
LIVED_MS = 1_000
# How long after it may connect an upstream has answered, or the next lane tries all the same.
TRY_MS = 5_000
UNAUTHORIZED = 401
# Connections that ended for their successor's sake; where they were never opened, nobody was asked anything.
MADE_ROOM = frozenset({"let_go", "claimed_by_successor"})


@dataclass(frozen=True, slots=True)
class ReadSecrets:
    """Answered by the values of the profile's secrets; `anew` takes none that was kept."""

    anew: bool = False


@dataclass(frozen=True, slots=True)
class ReadRest:
    """Answered by the rest as it is written down."""


@dataclass(frozen=True, slots=True)
class ChangeRest:
    """Write `after` in place of `before`; answered by False where something else stands there by now."""

    before: Rest
    after: Rest


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Answered by the lease."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Answered by nothing, so many milliseconds later."""

    for_ms: int


@dataclass(frozen=True, slots=True)
class Connect:
    """Make one connection; answered by its Report when it has ended."""

    invocation: Invocation
    secrets: Secrets


Wish = ReadSecrets | ReadRest | ChangeRest | ReadLease | Pause | Connect
Wishes = Generator[Wish, Any, Report]
Draw = Callable[[float, float], float]


def attempts(profile: Profile, invocation: Invocation, now_ms: Callable[[], int], draw: Draw) -> Wishes:
    """Returns how the last connection ended, once it has. `draw` gives a number between two."""
    report: Report = yield from _connections(profile, invocation, now_ms, draw)
    if not invocation.is_renewal_due:
        return report
    return replace(report, outcome=renewal_due(report.outcome))


def _connections(profile: Profile, invocation: Invocation, now_ms: Callable[[], int], draw: Draw) -> Wishes:
    references = profile.secrets
    values: Secrets = (yield ReadSecrets()) if references else {}
    rest: Rest = yield ReadRest()
    tries = profile.reconnect_tries
    may_renew = bool(references)
    while True:
        outcome, rest, held = yield from _turn(profile, invocation, now_ms, rest)
        if outcome is not None:
            return Report(outcome, Progress(invocation.after_fence, now_ms()), None, 0)
        report: Report = yield Connect(replace(invocation, held=held), values)
        invocation = replace(invocation, after_fence=max(report.progress.fence, invocation.after_fence))
        rest = yield from _note(profile, rest, answered(held, report.progress), report, now_ms)
        if report.outcome.http_status == UNAUTHORIZED and may_renew:
            # A key that was changed a moment ago: the value that is kept is asked for anew, once.
            may_renew = False
            known, values = values, (yield ReadSecrets(anew=True))
            if values != known:
                continue
        elif references:
            values = yield ReadSecrets()
        if not reconnects(profile, report, tries, invocation.deadline_ms - now_ms(), invocation.margin_ms):
            return report
        # A connection that lived has used up nothing; only failures in a row count, each after a longer rest. The first
        # is followed by a try at once: a connection may be dropped in its first second by chance, as in a handover.
        tries = profile.reconnect_tries if lived(report.progress) else tries - 1
        failures = max(0, profile.reconnect_tries - tries - 1)
        if rest.until_ms <= now_ms():
            yield Pause(round(1000 * draw(0, min(RECONNECT_REST_S * (2**failures - 1), RECONNECT_REST_MOST_S))))


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


# --- what is written down ---------------------------------------------------------------------------------------------


def _note(
    profile: Profile, before: Rest, held: Rest, report: Report, now_ms: Callable[[], int]
) -> Generator[Wish, Any, Rest]:
    """What is known after the connection, and written down: in place of `held`, or added to what others wrote since."""
    after = _rest_after(profile, before, report, now_ms())
    while after != held and not (yield ChangeRest(held, after)):
        held = yield ReadRest()
        after = _rest_after(profile, held, report, now_ms())
        # That this one lived ends its own failures, not those that others met meanwhile; nor does its rest end theirs.
        after = held if not after.failures else replace(after, until_ms=max(after.until_ms, held.until_ms))
    return after


def _rest_after(profile: Profile, before: Rest, report: Report, now_ms: int) -> Rest:
    outcome, has_lived = report.outcome, lived(report.progress)
    kind = failure_kind(outcome)
    if has_lived:
        # "Once an established connection drops, attempt to reconnect immediately": only failures to connect are paced.
        return Rest()
    if kind is None or report.progress.ended_by in MADE_ROOM:
        return before
    pace = profile.pace(kind)
    return failed(before, kind, now_ms, pace, outcome.retry_after_s) if pace or outcome.retry_after_s else before


# --- before a connection ----------------------------------------------------------------------------------------------


def _turn(
    profile: Profile, invocation: Invocation, now_ms: Callable[[], int], rest: Rest
) -> Generator[Wish, Any, tuple[Outcome | None, Rest, Rest]]:
    """Why no connection is made, as `_wait` tells, or None; what the rest was, and how it is written down meanwhile.

    Whoever rested beside this invocation wants to try at the same instant. One of them does: it puts the rest off until
    its try must have been answered, and the others see that and rest on, or for what the try has come to. Whoever is
    answered ends it (handlers/store/requests.py), so that a successor that comes in time need not wait.
    """
    while rest.until_ms:
        if now_ms() < rest.until_ms:
            outcome = yield from _wait(invocation, now_ms(), rest)
            if outcome is not None:
                return outcome, rest, rest
        else:
            held = replace(rest, until_ms=now_ms() + profile.connect_timeout_ms + TRY_MS)
            if (yield ChangeRest(rest, held)):
                return None, rest, held
        rest = yield ReadRest()
    return None, rest, rest


def _wait(invocation: Invocation, now_ms: int, rest: Rest) -> Generator[Wish, Any, Outcome | None]:
    """Why no connection is made after the rest, as the lease tells, or None; after one pause."""
    latest_ms = invocation.deadline_ms - 2 * invocation.margin_ms
    if now_ms >= latest_ms:
        error = "StreamThrottled" if rest.kind == "throttled" else "StreamDropped"
        left_s = (rest.until_ms - now_ms) / 1000
        return Outcome(error, "", f"the upstream is left in peace for {left_s:.0f} s more")
    yield Pause(min(invocation.lease_every_ms, rest.until_ms - now_ms, latest_ms - now_ms))
    lease: Lease = yield ReadLease()
    if lease.stop:
        return Outcome("", "stopped", "the stream is to be stopped")
    if superseded(lease, invocation.execution):
        return Outcome("", "superseded", "another execution keeps the stream connected")
    if 0 < invocation.after_fence < lease.connected_token:
        return Outcome("StreamTakenOver", "", f"connection {lease.connected_token} has taken over")
    return None
