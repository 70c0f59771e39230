"""Provides the values that an expression may read besides its data: variables and the Context Object ($$,
$states.context).

Invariant: an inner scope of variables (a branch of a Parallel, an iteration of a Map) reads the outer ones and never
writes to them.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from states_language.definition.fields import DefinitionError, child_pointer
from states_language.failures import Fatal
from states_language.history import PAYLOAD_LIMIT_BYTES, utf8_bytes
from states_language.timestamps import format_timestamp
from states_language.values import MISSING, compact


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


LONGEST_NAME = 80
LARGEST_ASSIGN_BYTES = PAYLOAD_LIMIT_BYTES
LARGEST_STORE_BYTES = 10 * 1024 * 1024
"""Most characters of a name, bytes of a variable or an Assign, bytes of all variables (Developer Guide)."""

RESERVED = "states"
_NAME = re.compile(r"[^\W\d]\w*")


class Store:
    """The size of all variables of an execution."""

    def __init__(self) -> None:
        self.used_bytes = 0


class Scope:
    """The variables of one line of states, and the scope around it."""

    __slots__ = ("_sizes", "_store", "_values", "outer")

    def __init__(self, store: Store, outer: "Scope | None" = None) -> None:
        self.outer = outer
        self._store = store
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}

    def get(self, name: str) -> Any:
        """Return the value in the innermost scope that has one; MISSING if the variable is not assigned."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope.outer
        return MISSING

    def assign(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Store the values and return each as JSON text; raises Fatal if they exceed AWS's limits."""
        texts, sizes, grown = {}, {}, 0
        for name, value in values.items():
            texts[name] = text = compact(value)
            sizes[name] = size = utf8_bytes(text)
            grown += size - self._sizes.get(name, 0)
        if sum(sizes.values()) > LARGEST_ASSIGN_BYTES:
            raise Fatal(
                "States.DataLimitExceeded",
                f"The variables {', '.join(sizes)} exceed {LARGEST_ASSIGN_BYTES} bytes, the limit of one Assign.",
            )
        if self._store.used_bytes + grown > LARGEST_STORE_BYTES:
            raise Fatal(
                "States.DataLimitExceeded",
                f"The variables of this execution exceed {LARGEST_STORE_BYTES} bytes, the limit of all of them.",
            )
        self._store.used_bytes += grown
        self._sizes.update(sizes)
        self._values.update(values)
        return texts

    def values(self) -> dict[str, Any]:
        """Return the variables of this scope only."""
        return dict(self._values)

    def restore(self, values: Mapping[str, Any]) -> None:
        """Store the variables that a scope held before."""
        for name, value in values.items():
            self.assign({name: value})

    def close(self) -> None:
        """Free what this scope holds."""
        self._store.used_bytes -= sum(self._sizes.values())
        self._sizes, self._values = {}, {}


def check_variable_names(assign: Any, pointer: str, *, template: bool) -> Iterator[tuple[str, str]]:
    """Yield each variable that an Assign sets, with its JSON pointer; raises DefinitionError for a bad name.

    template: whether a key may end in .$, as in JSONPath; the .$ is not part of the name.
    """
    if not isinstance(assign, dict):
        raise DefinitionError(pointer, "must be a JSON object whose keys are variables")
    for key in assign:
        where = child_pointer(pointer, key)
        name = key.removesuffix(".$") if template else key
        if len(name) > LONGEST_NAME:
            raise DefinitionError(where, f"a variable's name has at most {LONGEST_NAME} characters")
        if not _NAME.fullmatch(name):
            raise DefinitionError(where, f"'{name}' is not a variable name: letters, digits and _, no digit first")
        if name == RESERVED:
            raise DefinitionError(where, f"'{RESERVED}' is reserved")
        yield name, where
