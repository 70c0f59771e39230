"""The Task of the state machines for a group: keeps its streams connected for one invocation, then returns or raises.

`handlers/connection_manager.py` imports it for the first group that a sandbox is asked for, so a stage that has none
pays nothing for it. It reads what only groups need of the environment. Invariant: as there, a log line and an error
hold ids and our own words alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from handlers import errors
from handlers.aws.secret_values import SecretValues
from handlers.connection.steps import Invocation
from handlers.group.fates import Delays
from handlers.run.driver import Clock
from handlers.run.group_invocation import run_group
from handlers.run.group_ports import GroupTables, ReadProfiles, reports_to
from handlers.run.ports import LogReport
from handlers.settings import load_delays

delays = Delays(*(delay_ms / 1000 for delay_ms in load_delays(os.environ)))


def keep(
    invocation: Invocation,
    tables: GroupTables,
    secrets: SecretValues,
    sqs: Callable[[], Any],
    queue_url: str,
    profiles: ReadProfiles,
    log_report: LogReport,
) -> dict[str, Any]:
    """How the function ended: `status` as of a stream; raises a class of `handlers.errors` for any other end."""
    if not invocation.execution:
        raise errors.InvalidRequest("the event must name the execution of a group as a text")

    reports = reports_to(sqs, queue_url)
    outcome = run_group(invocation, tables, secrets, delays, Clock(), profiles, log_report, reports)
    if outcome.error:
        error: type[errors.StreamkeeperError] = getattr(errors, outcome.error)
        raise error(outcome.message)
    return {"status": outcome.status}
