"""Decides what an answer of AWS means, in one place for all who ask it something.

It does not know what was asked. Invariant: a sentence holds AWS's code alone, for AWS's message may quote the data.
"""

import contextlib
from collections.abc import Iterator

from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable


class ConditionFailed(Exception):
    """The write's condition did not hold; `retries` is how often the client had sent it before."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.retries = retries


class Refused(Exception):
    """DynamoDB refuses this item for what it is; the message is its error code."""


@contextlib.contextmanager
def answering(action: str, *, refusals: bool = False) -> Iterator[None]:
    """Maps what the client raises: ConditionFailed, Refused where `refusals` are expected, StoreUnavailable else."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "Unknown")
        if code == "ConditionalCheckFailedException":
            retries = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)
            raise ConditionFailed(retries) from None
        if code == "ValidationException" and refusals:
            raise Refused(code) from None
        raise StoreUnavailable(f"AWS refused {action} after its retries: {code}") from error
    except BotoCoreError as error:
        raise StoreUnavailable(f"AWS did not answer {action}: {type(error).__name__}") from error
