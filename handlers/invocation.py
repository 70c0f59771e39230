"""Keeps a stream connected for one invocation, in real time: the steps of `reconnection`, performed by a `Driver`.

It decides nothing. Invariant: `run_invocation` returns before the deadline, whatever the store and the upstream do,
unless reading a secret takes longer, and leaves neither a socket nor a thread that waits for one.
"""

import random

from handlers.aws.secret_values import SecretValues
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Invocation, Report
from handlers.driver import Clock, Driver, LogReport
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store


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
