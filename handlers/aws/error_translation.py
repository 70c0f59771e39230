"""Translates the errors of AWS's clients into the few that the callers act on.

    ConditionFailed    the condition of a write did not hold
    Refused            the item itself is not valid, where the caller expects that
    StoreUnavailable   anything else, after the client's own retries

Invariant: a message holds AWS's error code alone, for AWS's message may quote the data.
"""

from typing import TYPE_CHECKING

from handlers.errors import StoreUnavailable

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


class ConditionFailed(Exception):
    """The write's condition did not hold; `retries` is how often the client had sent it before."""

    def __init__(self, retries: int) -> None:
        super().__init__()
        self.retries = retries


class Refused(Exception):
    """DynamoDB refuses this item for what it is; the message is its error code."""


class translate_errors:
    """Maps what the client raises: ConditionFailed, Refused where `refusals` are expected, StoreUnavailable else.

    A class, for what `contextlib` makes of a generator costs as much as a small request's own words.
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
        # Not before there is an error: a cold start has none, and the import is a tenth of it.
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError):
            raise _refusal(self._action, error, self._refusals) from error
        if isinstance(error, BotoCoreError):
            raise StoreUnavailable(f"AWS did not answer {self._action}: {type(error).__name__}") from error


def _refusal(action: str, error: "ClientError", refusals: bool) -> Exception:
    """What AWS's error code means."""
    code = error.response.get("Error", {}).get("Code", "Unknown")
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0))
    if code == "ValidationException" and refusals:
        return Refused(code)
    return StoreUnavailable(f"AWS refused {action} after its retries: {code}")
