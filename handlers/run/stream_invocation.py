"""Keeps a stream connected for one invocation, in real time: the performer carries out the steps of `reconnection`.

It decides only what the event, the settings and the remaining time mean for an invocation. Invariant: `run_invocation`
returns before the deadline, whatever the store, the secrets and the upstream do, and leaves neither a socket nor a
thread that waits for one.
"""

import functools
import random
from collections.abc import Mapping

from handlers.aws.secret_values import SecretValues
from handlers.connection.lifetime import longest_overlap_ms
from handlers.connection.reconnection import Draw, attempts
from handlers.connection.steps import Invocation, Report
from handlers.errors import InvalidRequest
from handlers.group import is_group
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.run.performer import Performer
from handlers.run.ports import Clock, LogReport, Ports, open_upstream
from handlers.run.requests import Requests
from handlers.run.threads import Bell, Pool
from handlers.settings import Settings
from handlers.store.connection_store import Store
from handlers.upstream.standstill import Ticker


def read_invocation(
    event: object, settings: Settings, request_id: str, *, now_ms: int, remaining_ms: int
) -> Invocation:
    """Returns the invocation that `event` requests, which starts now under Lambda's `request_id`.

    It is killed after `remaining_ms`. The event has the stream as `pathParameters.streamId`, and optionally `lane`,
    `execution`, `cycles` and `renew_after` ("" or 0 if absent). `died` is Lambda's message about the lane's last
    function if that proves that it is over, `wait_s` how long the lanes of its execution wait, `limit_s` how long the
    execution believes that a function lives. Raises InvalidRequest.
    """
    fields = event if isinstance(event, Mapping) else {}
    parameters = fields.get("pathParameters")
    stream_id = parameters.get("streamId") if isinstance(parameters, Mapping) else None
    if not isinstance(stream_id, str):
        raise InvalidRequest("the event must name the stream as a text in pathParameters.streamId")
    lane, execution, died = (fields.get(name, "") for name in ("lane", "execution", "died"))
    if not isinstance(lane, str) or not isinstance(execution, str):
        raise InvalidRequest("lane and execution in the event must be texts")
    try:
        if not is_group(stream_id):
            check_stream_id(stream_id)
    except ProfileError as error:
        raise InvalidRequest(str(error)) from None
    numbers = [fields.get(name, 0) for name in ("cycles", "renew_after", "wait_s", "limit_s")]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise InvalidRequest("cycles, renew_after, wait_s and limit_s in the event must be whole numbers of at least 0")
    if not isinstance(died, str):
        raise InvalidRequest("died in the event must be a text")
    cycles, renew_after, wait_s, limit_s = numbers
    # An execution keeps the wait that it began with even if another is deployed, so its own wait decides how long an
    # overlap may be. It keeps the limit too: a function that lived longer would count as lost, and another would start
    # beside it. If the two leave no overlap, and other numbers are deployed, a renewal is due.
    wait_ms, life_ms = wait_s * 1000 or settings.wait_ms, min(remaining_ms, limit_s * 1000 or remaining_ms)
    overlap_ms = longest_overlap_ms(life_ms, wait_ms, settings.margin_ms, settings.lease_every_ms)
    return Invocation(
        stream_id,
        lane,
        execution,
        request_id,
        deadline_ms=now_ms + life_ms,
        margin_ms=settings.margin_ms,
        lease_every_ms=settings.lease_every_ms,
        progress_every_ms=settings.progress_every_ms,
        overlap_max_ms=max(0, overlap_ms),
        cycles=cycles,
        renew_after=renew_after,
        died=died,
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
    """Returns how the last connection ended; `log_report` is called after each one. Raises what `secrets` raises."""
    bell = Bell()
    with Ticker() as pulse:
        opens = functools.partial(open_upstream, pulse)
        ports = Ports(clock, bell, functools.partial(Pool, bell), opens, secrets, log_report)
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
