"""Carries out one step of an upgrade; the machine of `statemachines/upgrade.asl.yml` calls it.

`handlers/upgrade/upgrade_steps.py` has the steps. Invariants: a refusal by AWS is raised, and the machine tries again;
a reason in an answer contains streams, our own words, and Lambda's message about a version that does not start.
"""

import os
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger

from handlers.aws.executions import Pace
from handlers.aws.lambda_environment import TimedContext, boto3_client, dynamodb, now_ms, plain_aws
from handlers.settings import UpgradeSettings
from handlers.upgrade.deployed_versions import Clients
from handlers.upgrade.upgrade_records import UpgradeRecords
from handlers.upgrade.upgrade_steps import Work, step

TRIES = 4
# StartExecution has a bucket of its own, 1,300 in small regions and 300 a second, most of which is left to POSTs.
AT_ONCE, A_SECOND = 50, 25.0
# A step ends this long before Lambda would end it.
MARGIN_MS = 20_000


logger = Logger()
settings = UpgradeSettings.load(os.environ)
pace = Pace(AT_ONCE, A_SECOND, time.monotonic, time.sleep)


@cache
def records() -> UpgradeRecords:
    """Returns the upgrade's records, which the first step makes."""
    client = dynamodb(plain_aws(os.environ), tries=TRIES)
    return UpgradeRecords(client, settings.control_table, settings.events_table)


def handler(event: Mapping[str, Any], lambda_context: TimedContext) -> dict[str, Any]:
    """Returns the step's answer (`handlers/upgrade/upgrade_steps.py`); raises UpgradeRefused if nothing may begin."""
    logger.append_keys(request_id=lambda_context.aws_request_id, upgrade=event["execution"])
    functions, states = boto3_client("lambda", TRIES), boto3_client("stepfunctions", TRIES)
    clients = Clients(functions, states, settings.function, settings.state_machine_arn, pace.take)
    is_late = lambda: lambda_context.get_remaining_time_in_millis() < MARGIN_MS  # noqa: E731
    answer = step(Work(records(), clients, event["execution"], now_ms, is_late), event)
    logger.info(event["step"], extra={"answer": answer})
    return answer
