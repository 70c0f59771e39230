"""Requests an execution's status, definition and newest events from Step Functions, and paces these requests.

A token bucket paces callers that check many executions. Invariants: nothing is changed; for an execution that Step
Functions does not know, or has forgotten, the result is None.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from handlers.aws.error_translation import translate_errors

# Step Functions' codes for an execution that it does not know, or has forgotten.
UNKNOWN = ("ExecutionDoesNotExist", "InvalidArn")


def read_execution(
    states: Callable[[], Any], arn: str, most_events: int
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]] | None:
    """Returns DescribeExecution's answer, the definition, and at most `most_events` events, newest first.

    Raises StoreUnavailable if Step Functions does not answer.
    """
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
            if error.response.get("Error", {}).get("Code") in UNKNOWN:
                return None
            raise
    return description, json.loads(machine["definition"]), history["events"]


def is_running(states: Any, arn: str) -> bool:
    """Whether the execution runs; if Step Functions has forgotten it, it does not. `states` is boto3's client."""
    try:
        return bool(states.describe_execution(executionArn=arn)["status"] == "RUNNING")
    except states.exceptions.ExecutionDoesNotExist:
        return False


def find_first_execution(states: Any, machine_arn: str, stream_id: str) -> tuple[str, int] | None:
    """Returns a stream's execution that its first POST started, if it runs, and its start in epoch milliseconds.

    It has not claimed the stream yet, so no record names it. start.asl.yml derives its name from the stream's id only.
    """
    payload = json.dumps({"stream": stream_id}, ensure_ascii=False, separators=(",", ":"))
    name = hashlib.sha1(payload.encode(), usedforsecurity=False).hexdigest()
    arn = f"{machine_arn.replace(':stateMachine:', ':execution:')}:{name}-start"
    with translate_errors("DescribeExecution"):
        try:
            found = states.describe_execution(executionArn=arn)
        except states.exceptions.ExecutionDoesNotExist:
            return None
    return (arn, round(found["startDate"].timestamp() * 1000)) if found["status"] == "RUNNING" else None


class Pace:
    """A bucket that is full at first; `monotonic` is a clock in seconds, `sleep` waits for seconds."""

    def __init__(
        self, at_once: int, a_second: float, monotonic: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._at_once, self._a_second = at_once, a_second
        self._monotonic, self._sleep = monotonic, sleep
        self._tokens, self._at_s = float(at_once), monotonic()

    def take(self) -> None:
        """Waits until a request may be sent."""
        now_s = self._monotonic()
        self._tokens = min(self._at_once, self._tokens + (now_s - self._at_s) * self._a_second)
        self._at_s = now_s
        self._tokens -= 1
        if self._tokens < 0:
            self._sleep(-self._tokens / self._a_second)
