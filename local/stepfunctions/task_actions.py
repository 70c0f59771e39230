"""What the holder of a task token may say.

Decides the errors of AWS for a token that is none, or whose Task is over. It does not know who waits.
"""

from local.stepfunctions.json_messages import told
from local.stepfunctions.parameters import INPUT_LIMIT_BYTES, Action, Answer, Parameters, Refusal, parsed
from states_language import TokenClosed, Tokens, TokenUnknown


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
        try:
            too_long, output = len(text.encode()) > INPUT_LIMIT_BYTES, parsed(text)
        except ValueError as problem:
            raise Refusal("InvalidOutput", f"Invalid Output: '{told(text, problem)[0]}'") from None
        if too_long:
            raise Refusal("InvalidOutput", "Invalid Output: 'It is longer than 262144 bytes of UTF-8.'")
        with _Told():
            self._tokens.succeed(parameters["taskToken"], output)
        return {}

    def _fail(self, parameters: Parameters) -> Answer:
        with _Told():
            self._tokens.fail(parameters["taskToken"], parameters.get("error"), parameters.get("cause"))
        return {}

    def _beat(self, parameters: Parameters) -> Answer:
        with _Told():
            self._tokens.beat(parameters["taskToken"])
        return {}


class _Told:
    """Turns what the tokens say into AWS's errors."""

    def __enter__(self) -> None:
        """Return nothing."""

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if isinstance(problem, TokenClosed):
            raise Refusal("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'") from None
        if isinstance(problem, TokenUnknown):
            raise Refusal("InvalidToken", "Invalid Token: 'Invalid token'") from None
