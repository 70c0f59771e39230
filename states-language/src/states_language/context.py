"""Provides the values that an expression may read besides its data: variables and the Context Object ($$,
$states.context).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from states_language.timestamps import format_timestamp


@dataclass(frozen=True)
class Identity:
    """The names and ARNs of an execution and its machine."""

    name: str
    arn: str
    machine_name: str
    machine_arn: str
    role_arn: str

    @functools.cached_property
    def region(self) -> str:
        """Return the region that the ARN names."""
        return self.arn.split(":")[3] if self.arn.count(":") > 3 else "us-east-1"


def execution_context(
    identity: Identity, input_: Any, started_ms: int, redrives: int = 0, redriven_ms: int | None = None
) -> dict[str, Any]:
    """Return the part of the Context Object that does not change while the execution runs; RedriveTime if redriven."""
    redrive = {} if redriven_ms is None else {"RedriveTime": format_timestamp(redriven_ms)}
    return {
        "Execution": {
            "Id": identity.arn,
            "Input": input_,
            "StartTime": format_timestamp(started_ms),
            "Name": identity.name,
            "RoleArn": identity.role_arn,
            "RedriveCount": redrives,
            **redrive,
        },
        "StateMachine": {"Id": identity.machine_arn, "Name": identity.machine_name},
    }


def state_context(name: str, entered_ms: int, retries: int | None) -> dict[str, Any]:
    """Return the Context Object's member State; it has RetryCount only if the state can be retried."""
    context: dict[str, Any] = {"Name": name, "EnteredTime": format_timestamp(entered_ms)}
    if retries is not None:
        context["RetryCount"] = retries
    return context


class Environment(Protocol):
    """The Context Object, the variables, and what functions need."""

    def context(self) -> dict[str, Any]:
        """Return the Context Object."""

    def variable(self, name: str, /) -> Any:
        """Return the variable's value; MISSING if it is not assigned."""

    def functions(self) -> Any:
        """Return the frame with the functions that Step Functions adds to JSONata."""

    def random(self) -> float:
        """Return the next random number, 0 <= x < 1."""


class ComposedEnvironment(NamedTuple):
    """An environment that is made of four functions."""

    context: Callable[[], dict[str, Any]]
    variable: Callable[[str], Any]
    functions: Callable[[], Any]
    random: Callable[[], float]
