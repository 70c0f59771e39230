"""Words the answers and failures of Lambda functions as AWS's runtime and service do, and applies Lambda's limits."""

import json
import traceback
from collections.abc import Awaitable
from typing import Any

from states_language.failures import TaskFailure
from states_language.tasks.calls import TaskCall
from states_language.values import compact

REQUEST_LIMIT_BYTES = 6_291_456
EVENT_LIMIT_BYTES = 1_048_576
"""The longest payload of a synchronous Invoke, and of an asynchronous one."""
RESPONSE_LIMIT_BYTES = 6_291_556
TOO_LARGE = "Function.ResponseSizeTooLarge"


def marshal_result(result: Any, request_id: str) -> Any:
    """Return a function's result as read from its JSON, or the TaskFailure of one that is too large or not JSON."""
    try:
        text = json.dumps(result, allow_nan=False)
        if len(text) > RESPONSE_LIMIT_BYTES:
            return TaskFailure(TOO_LARGE, too_large_payload())
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as problem:
        error = {"errorType": "Runtime.MarshalError", "errorMessage": f"Unable to marshal response: {problem}"}
        payload = {**error, "requestId": request_id, "stackTrace": []}
        return TaskFailure("Runtime.MarshalError", compact(payload))


async def await_result(result: Awaitable[Any]) -> Any:
    """Return what an asynchronous function returns; this frame is left out of stack traces."""
    return await result


def raised_failure(raised: Exception, request_id: str) -> TaskFailure:
    """Return the failure of a function that raised: Error is the class's name, Cause the payload as JSON."""
    payload = {
        "errorMessage": str(raised),
        "errorType": type(raised).__name__,
        "requestId": request_id,
        "stackTrace": _stack_trace(raised),
    }
    return TaskFailure(type(raised).__name__, compact(payload))


_FORMATTED: dict[tuple[Any, int], str] = {}
"""The text of a frame by its code and place, kept because a function usually raises at the same few places."""


def _stack_trace(raised: Exception) -> list[str]:
    """Return the frames of the function, as AWS's runtime formats them."""
    frames = raised.__traceback__.tb_next if raised.__traceback__ is not None else None  # the first is ours
    lines: list[str] = []
    while frames is not None:
        code = frames.tb_frame.f_code
        if code.co_name != await_result.__name__:
            key = code, frames.tb_lasti
            if key not in _FORMATTED:
                if len(_FORMATTED) > 1000:
                    _FORMATTED.clear()
                _FORMATTED[key] = traceback.format_list(traceback.extract_tb(frames, limit=1))[0]
            lines.append(_FORMATTED[key])
        frames = frames.tb_next
    # The runtime says how often a line of a recursion is repeated.
    return lines if len(lines) < 2 or len(set(lines)) == len(lines) else _folded_trace(raised)


def _folded_trace(raised: Exception) -> list[str]:
    frames = traceback.extract_tb(raised.__traceback__)[1:]
    return traceback.format_list([frame for frame in frames if frame.name != await_result.__name__])


def throttled_failure(request_id: str) -> TaskFailure:
    """Return the failure of a call for a function that has reached its reserved concurrency.

    Source: the AWS Lambda API reference, Invoke: TooManyRequestsException, 429. We assume that Step Functions words it
    like Lambda's other errors.
    """
    return TaskFailure(
        "Lambda.TooManyRequestsException",
        "Rate Exceeded. (Service: AWSLambda; Status Code: 429; Error Code: TooManyRequestsException; "
        f"Request ID: {request_id}; Proxy: null)",
    )


def missing_function_failure(call: TaskCall, request_id: str) -> TaskFailure:
    """Return the failure of a call for a function that does not exist (recorded)."""
    region, account = call.execution_arn.split(":")[3:5]
    return TaskFailure(
        "Lambda.ResourceNotFoundException",
        f"Function not found: arn:aws:lambda:{region}:{account}:function:{call.function}:$LATEST "
        "(Service: AWSLambda; Status Code: 404; Error Code: ResourceNotFoundException; "
        f"Request ID: {request_id}; Proxy: null)",
    )


def too_large_payload() -> str:
    """Return the error payload, as JSON text, of a function whose answer exceeds Lambda's limit."""
    message = f"Response payload size exceeded maximum allowed payload size ({RESPONSE_LIMIT_BYTES} bytes)."
    return compact({"errorType": TOO_LARGE, "errorMessage": message})
