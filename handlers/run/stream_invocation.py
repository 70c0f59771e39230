"""Keeps a stream connected for one invocation, in real time: the performer carries out the steps of `reconnection`.

It only decides what the settings and the time that is left mean for an invocation. Invariant: `run_invocation` returns
before the deadline, whatever the store, the secrets and the upstream do, and leaves neither a socket nor a thread that
waits for one.
"""

import functools
import random
from dataclasses import dataclass

from handlers.aws.secret_values import SecretValues
from handlers.connection.lifetime import longest_overlap_ms
from handlers.connection.reconnection import Draw, attempts
from handlers.connection.steps import Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.run.performer import Performer
from handlers.run.ports import STORE, Clock, LogReport, Ports, open_upstream
from handlers.run.threads import Bell, Pool
from handlers.settings import Settings
from handlers.store.connection_store import Store
from handlers.store.requests import Requests
from handlers.upstream.standstill import Ticker


@dataclass(frozen=True, slots=True)
class Request:
    """The machine's request to a function; "" for the lane and the execution, 0 for numbers that it does not name.

    `died` is what Lambda said of the lane's last function where that proves that it is over, else "". `wait_s` is how
    long the lanes of its execution wait, `limit_s` how long the execution believes that a function lives.
    """

    stream_id: str
    lane: str
    execution: str
    cycles: int
    renew_after: int
    died: str = ""
    wait_s: int = 0
    limit_s: int = 0


def to_invocation(
    request: Request, settings: Settings, request_id: str, *, now_ms: int, remaining_ms: int
) -> Invocation:
    """The invocation that starts now under Lambda's `request_id` and is killed after `remaining_ms`.

    An execution keeps the wait that it began with when another is deployed, so its own decides how long an overlap may
    be. It keeps the limit too: a function that lived longer would count as lost, and another would start beside it.
    Where the two leave no overlap, and other numbers are deployed, a renewal is due.
    """
    wait_ms = request.wait_s * 1000 or settings.wait_ms
    life_ms = min(remaining_ms, request.limit_s * 1000 or remaining_ms)
    overlap_ms = longest_overlap_ms(life_ms, wait_ms, settings.margin_ms, settings.lease_every_ms)
    return Invocation(
        stream_id=request.stream_id,
        lane=request.lane,
        execution=request.execution,
        request_id=request_id,
        deadline_ms=now_ms + life_ms,
        margin_ms=settings.margin_ms,
        lease_every_ms=settings.lease_every_ms,
        progress_every_ms=settings.progress_every_ms,
        overlap_max_ms=max(0, overlap_ms),
        cycles=request.cycles,
        renew_after=request.renew_after,
        died=request.died,
        waits_too_long=overlap_ms < 0 and (wait_ms > settings.wait_ms or life_ms < remaining_ms),
    )


def run_invocation(
    profile: Profile,
    store: Store,
    secrets: SecretValues,
    invocation: Invocation,
    clock: Clock,
    log_report: LogReport,
) -> Report:
    """Returns how the last connection ended; `log_report` is called after each. Raises what `secrets` raises."""
    bell = Bell()
    with Ticker() as pulse:
        opens = functools.partial(open_upstream, pulse)
        ports = Ports(clock, bell, Pool(1, bell, STORE), opens, secrets, log_report)
        return perform_one(profile, store, invocation, ports, random.uniform)


def perform_one(profile: Profile, store: Store, invocation: Invocation, ports: Ports, draw: Draw) -> Report:
    """Returns how the last connection ended, of a stream that has the function to itself."""
    now_ms = ports.clock.now_ms
    performer: Performer[Report] = Performer(ports)
    try:
        steps = attempts(profile, invocation, now_ms(), draw)
        performer.begin(profile, invocation, steps, Requests(profile, store, invocation, now_ms))
        return performer.run()
    finally:
        performer.close(0)
