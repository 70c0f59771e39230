"""Translates the errors of AWS's clients into the few that callers act on.

Invariant: a message has only AWS's error code and the id of the request, because AWS's own message may quote the data.
"""

import re
from typing import TYPE_CHECKING, Any

from handlers.dynamodb.client import THROTTLED
from handlers.errors import StoreUnavailable

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError


# The services behind the actions that are not DynamoDB's.
_SERVICES = {
    **dict.fromkeys(("GetObject", "PutObject", "ListObjectsV2", "ListObjectVersions"), "S3"),
    **dict.fromkeys(("ReceiveMessage", "SendMessage"), "the dead-letter queue"),
    **dict.fromkeys(("DescribeExecution", "StartExecution"), "Step Functions"),
    "Invoke": "Lambda",
}
# The codes with which DynamoDB, Lambda, SQS and S3 refuse too many requests; Step Functions uses DynamoDB's.
_TOO_MANY = THROTTLED | {"TooManyRequestsException", "SlowDown"}
_ID = re.compile(r"[A-Za-z0-9+/=-]{1,128}")


class ConditionFailed(Exception):
    """The write's condition did not hold; `retries` is how often the client had sent it before.

    `item` is the existing item, if the request asked for it and the service returned it; else None.
    """

    def __init__(self, retries: int, item: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.retries = retries
        self.item = item


class Refused(Exception):
    """DynamoDB refuses the item itself; the message is its error code."""


class translate_errors:
    """Maps the client's errors: ConditionFailed, Refused if `refusals` are expected, otherwise StoreUnavailable.

    It is a class because a generator of `contextlib` costs as much as writing a small request.
    """

    __slots__ = ("_action", "_refusals")

    def __init__(self, action: str, *, refusals: bool = False) -> None:
        self._action = action
        self._refusals = refusals

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if not isinstance(error, Exception):
            return
        # Imported at the first error: a cold start has none, and the import would be a tenth of it.
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError):
            problem = _refusal(self._action, error, self._refusals)
        elif isinstance(error, BotoCoreError):
            problem = StoreUnavailable(f"AWS did not answer {self._action}: {type(error).__name__}")
        else:
            return
        if isinstance(problem, StoreUnavailable) and self._action in _SERVICES:
            problem.service = _SERVICES[self._action]
        raise problem from error


def _refusal(action: str, error: "ClientError", refusals: bool) -> Exception:
    """Returns the error that AWS's error code means."""
    code = error.response.get("Error", {}).get("Code", "Unknown")
    if code == "ConditionalCheckFailedException":
        fields: Any = error.response
        return ConditionFailed(fields.get("ResponseMetadata", {}).get("RetryAttempts", 0), fields.get("Item"))
    if code == "ValidationException" and refusals:
        return Refused(code)
    unavailable = StoreUnavailable(f"AWS refused {action} after its retries: {code}{quoted_id(error.response)}")
    unavailable.is_throttle = code in _TOO_MANY
    return unavailable


def quoted_id(response: object) -> str:
    """Returns ", request <id>", by which AWS finds the request of this answer; "" if it has none."""
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    request_id = metadata.get("RequestId") if isinstance(metadata, dict) else None
    # S3's ids are Base64; any other text from a service does not belong in a log.
    is_id = isinstance(request_id, str) and _ID.fullmatch(request_id) is not None
    return f", request {request_id}" if is_id else ""


def describe_error(error: "BotoCoreError | ClientError | StoreUnavailable") -> str:
    """Returns the kind of an error for a log; for a refusal by AWS also its code and the request's id."""
    if isinstance(error, StoreUnavailable):
        return str(error)
    code = code_of(error)
    return f"{type(error).__name__}{f' {code}' if code else ''}{quoted_id(getattr(error, 'response', None))}"


def code_of(error: BaseException | None) -> str:
    """Returns AWS's code of an error; "" if AWS did not answer, when botocore's errors have no response, or None."""
    code: str = (getattr(error, "response", None) or {}).get("Error", {}).get("Code", "")
    return code
