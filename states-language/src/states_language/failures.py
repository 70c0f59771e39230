"""Defines the failures of states, tasks and expressions, with their Error Names.

Invariants: only a StateError can be retried or caught; Error and Cause are well-formed texts.
"""

from states_language.values import well_formed


class _NamedFailure(Exception):
    def __init__(self, error: str | None, cause: str | None = None, *, terminal: bool = False) -> None:
        self.error = None if error is None else well_formed(error)
        self.cause = None if cause is None else well_formed(cause)
        self.terminal = terminal

    def __str__(self) -> str:
        return f"{self.error}: {self.cause}"


class StateError(_NamedFailure):
    """A state failed, and its Retriers and Catchers are tried. `error` and `cause` may be absent, as in a bare Fail.

    terminal: whether only Retriers and Catchers that name the error match, not States.ALL or States.TaskFailed.
    """

    @property
    def names(self) -> tuple[str | None, ...]:
        """Return the Error Names by which Retriers and Catchers match it."""
        return (self.error,)

    def output(self) -> dict[str, str | None]:
        """Return the error output, as a Catcher passes it on.

        AWS gives an absent cause as an empty text; a failure with neither part, as the holder of a task token may send
        it, is null and null (both recorded).
        """
        if self.error is None and self.cause is None:
            return {"Error": None, "Cause": None}
        return {"Error": self.error or "", "Cause": self.cause or ""}


class HeartbeatMissed(StateError):
    """No heartbeat came in time: States.Timeout in the history (recorded), States.HeartbeatTimeout to a Catcher too.

    Source: AWS Step Functions Developer Guide, "Handling errors in Step Functions workflows".
    """

    def __init__(self) -> None:
        super().__init__("States.Timeout", None)

    @property
    def names(self) -> tuple[str | None, ...]:
        return ("States.HeartbeatTimeout", "States.Timeout")


class Fatal(Exception):
    """The execution fails at once: `States.Runtime` cannot be caught, even by name, nor can an oversized output."""

    def __init__(self, error: str, cause: str) -> None:
        super().__init__(f"{error}: {cause}")
        self.error, self.cause = well_formed(error), well_formed(cause)


class Halted(Exception):
    """The execution has ended while this branch was running; nothing more is recorded."""


class TaskFailure(_NamedFailure):
    """A Task's work failed. `error` and `cause` may be absent, as SendTaskFailure allows."""

    def of_state(self) -> StateError:
        """Return the failure as the state's own, and drop this one's traceback, whose frames refer to it."""
        self.__traceback__ = None
        return StateError(self.error, self.cause, terminal=self.terminal)


class EvaluationError(ValueError):
    """A path, a template or an intrinsic function has no value for this data: States.Runtime, or a subclass's name.

    The message is AWS's cause without the first sentence, which names the state.
    """

    name = "States.Runtime"


class Oversized(EvaluationError):
    """A value of a template or function, or the outputs of all branches, are far larger than any state's data."""

    name = "States.DataLimitExceeded"


class IntrinsicFailure(EvaluationError):
    """An intrinsic function refused its arguments."""

    name = "States.IntrinsicFailure"


class ResultPathFailure(EvaluationError):
    """A ResultPath cannot be applied to the state's input."""

    name = "States.ResultPathMatchFailure"


class QueryFailure(EvaluationError):
    """A JSONata expression has no value, or one of the wrong type. location: the field, None if AWS names none.

    after_entry: whether the state refused the value, which AWS records after the state's entry.
    """

    name = "States.QueryEvaluationError"

    def __init__(self, message: str, location: str | None, *, after_entry: bool = False) -> None:
        super().__init__(message)
        self.location = location
        self.after_entry = after_entry
