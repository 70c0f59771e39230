"""Answers the actions on task tokens: a Task's success, failure and heartbeat.

Invariant: an unknown token, and one whose Task is over, are the errors that AWS has for them.
"""

import contextlib
from collections.abc import Iterator

from states_language import TokenClosed, Tokens, TokenUnknown
from states_language.server.json_messages import message_and_place
from states_language.server.parameters import INPUT_LIMIT_BYTES, Action, Answer, Parameters, Refusal
from states_language.values import parsed


class TaskActions:
    """The actions on task tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def actions(self) -> dict[str, Action]:
        """Returns the actions by name."""
        return {
            "SendTaskSuccess": self._succeed,
            "SendTaskFailure": self._fail,
            "SendTaskHeartbeat": self._beat,
        }

    def _succeed(self, parameters: Parameters) -> Answer:
        text = parameters["output"]
        with _translated_errors():
            self._tokens.check(parameters["taskToken"])
        try:
            too_long, output = len(text.encode()) > INPUT_LIMIT_BYTES, parsed(text)
        except ValueError as problem:
            raise Refusal("InvalidOutput", f"Invalid Output: '{message_and_place(text, problem)[0]}'") from None
        if too_long:
            raise Refusal("InvalidOutput", "Invalid Output: 'It is longer than 262144 bytes of UTF-8.'")
        with _translated_errors():
            self._tokens.succeed(parameters["taskToken"], output)
        return {}

    def _fail(self, parameters: Parameters) -> Answer:
        with _translated_errors():
            self._tokens.fail(parameters["taskToken"], parameters.get("error"), parameters.get("cause"))
        return {}

    def _beat(self, parameters: Parameters) -> Answer:
        with _translated_errors():
            self._tokens.beat(parameters["taskToken"])
        return {}


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """Raises AWS's errors for a token that is unknown, or whose Task is over."""
    try:
        yield
    except TokenClosed:
        raise Refusal("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'") from None
    except TokenUnknown:
        raise Refusal("InvalidToken", "Invalid Token: 'Invalid token'") from None
