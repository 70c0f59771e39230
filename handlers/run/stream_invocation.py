"""Keeps a stream connected for one invocation, in real time: the steps of `reconnection`, performed by a `Driver`.

It decides nothing but what the settings and the time that is left mean to an invocation. Invariant: `run_invocation`
returns before the deadline, whatever the store and the upstream do, unless reading a secret takes longer, and leaves
neither a socket nor a thread that waits for one.
"""

import random
from dataclasses import dataclass

from handlers.aws.secret_values import SecretValues
from handlers.connection.lifetime import longest_overlap_ms
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Invocation, Report
from handlers.profile.behaviour import Profile
from handlers.run.driver import Clock, Driver, LogReport
from handlers.settings import Settings
from handlers.store.connection_store import Store


@dataclass(frozen=True, slots=True)
class Request:
    """What the machine asks a function for; "" for the lane and the execution, 0 for numbers that it does not name.

    `died` is what Lambda said of the lane's last function where that proves that it is over, else "". `wait_s` is how
    long the lanes of its execution wait, `limit_s` for how long a function lives as far as that knows, `waits_less`
    whether they wait for less after a function that was taken over late.
    """

    stream_id: str
    lane: str
    execution: str
    cycles: int
    renew_after: int
    died: str = ""
    wait_s: int = 0
    limit_s: int = 0
    waits_less: bool = False


def to_invocation(
    request: Request, settings: Settings, request_id: str, *, now_ms: int, remaining_ms: int
) -> Invocation:
    """The invocation that starts now under Lambda's `request_id` and is killed after `remaining_ms`.

    An execution keeps the wait that it began with when another is deployed, so its own decides how long an overlap may
    be. It keeps the limit as well: a function that lived on would count as lost, and have another beside it. Where no
    overlap is left between them, and the deployed ones are others, a renewal is due.
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
        waits_less=request.waits_less,
    )


def run_invocation(
    profile: Profile,
    store: Store,
    secrets: SecretValues,
    invocation: Invocation,
    clock: Clock,
    log_report: LogReport,
) -> Report:
    """How the last connection ended; `log_report` hears of each. Raises what `secrets` raises."""
    steps = attempts(profile, invocation, clock.now_ms(), random.uniform)
    driver = Driver(profile, store, secrets, invocation, clock, log_report)
    answer: Answer | None = None
    try:
        while True:
            # A generator takes its first answer as None, which mypy cannot know.
            answer = driver.perform(steps.send(answer))  # type: ignore[arg-type]
    except StopIteration as ended:
        report: Report = ended.value
        return report
    finally:
        driver.close()
