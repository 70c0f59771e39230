"""Lambda's limits of events and responses, and its message for a larger response. Source: AWS Lambda quotas."""

import json

REQUEST_LIMIT_BYTES = 6_291_456
EVENT_LIMIT_BYTES = 1_048_576
"""The longest payload of an Invoke that is waited for, and of one that is not."""
RESPONSE_LIMIT_BYTES = 6_291_556
TOO_LARGE = "Function.ResponseSizeTooLarge"


def too_large() -> str:
    """Return the error payload of a function whose answer is longer than Lambda takes, as JSON text."""
    message = f"Response payload size exceeded maximum allowed payload size ({RESPONSE_LIMIT_BYTES} bytes)."
    return json.dumps({"errorType": TOO_LARGE, "errorMessage": message}, separators=(",", ":"))
