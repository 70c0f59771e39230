"""Starts a stream as a POST does: by an execution of the machine that answers a POST."""

from __future__ import annotations

import json
import re
from typing import Any

from handlers.fleet.request_pacing import Outcome

_MANY = re.compile(r"Throttl|TooManyRequests|LimitExceeded|QuotaExceeded")


def start_stream(states: Any, machine_arn: str, stream_id: str) -> tuple[Outcome, str]:
    """Returns the outcome, and the stream's execution, or why the start failed.

    `states` is boto3's client of Step Functions.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    # As packaging/start-request.yml has it.
    text = json.dumps({"pathParameters": {"streamId": stream_id}})
    try:
        answer = states.start_sync_execution(stateMachineArn=machine_arn, input=text)
    except ClientError as refusal:
        error = refusal.response.get("Error", {})
        if error.get("Code") == "ExecutionLimitExceeded":
            return Outcome.FAILED, "no more executions may run here"
        is_server = refusal.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500
        may_pass = is_server or _MANY.search(error.get("Code", ""))
        why = f"Step Functions refused the start: {error.get('Code', 'unknown')}"
        return (Outcome.REFUSED if may_pass else Outcome.FAILED), why
    except BotoCoreError as problem:
        return Outcome.REFUSED, f"Step Functions did not answer the start: {type(problem).__name__}"
    if answer["status"] == "SUCCEEDED":
        output = json.loads(answer.get("output", "{}"))
        # packaging/profiles-bucket.cjs has this output.
        if output == "UnknownStream":
            return Outcome.FAILED, "no profile has its name"
        return Outcome.DONE, output.get("executionArn", "")
    error = answer.get("error") or answer["status"]
    return Outcome.REFUSED, "AWS accepts no more starts now" if error == "Throttled" else "the start was not answered"
