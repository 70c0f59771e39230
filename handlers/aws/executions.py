"""Asks Step Functions about one execution: how it stands, by which definition it runs, and what it did last.

Invariant: nothing is changed; of an execution that Step Functions does not know, or has forgotten, it says None.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.aws.error_translation import translate_errors

_UNKNOWN = ("ExecutionDoesNotExist", "InvalidArn")


@dataclass(frozen=True, slots=True)
class Execution:
    """DescribeExecution's answer, the definition, and the newest events of the history, newest first."""

    description: dict[str, Any]
    definition: dict[str, Any]
    newest: list[dict[str, Any]]


def read(states: Callable[[], Any], arn: str, most_events: int) -> Execution | None:
    """The execution with at most `most_events` events; raises StoreUnavailable where Step Functions does not answer."""
    from botocore.exceptions import ClientError

    client = states()
    with translate_errors("DescribeExecution"):
        try:
            description = client.describe_execution(executionArn=arn)
            machine = client.describe_state_machine_for_execution(executionArn=arn)
            history = client.get_execution_history(
                executionArn=arn, reverseOrder=True, maxResults=most_events, includeExecutionData=False
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _UNKNOWN:
                return None
            raise
    return Execution(description, json.loads(machine["definition"]), history["events"])
