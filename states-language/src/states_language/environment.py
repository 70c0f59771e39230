"""Defines what an expression may read besides its data, in either query language.

The branch that runs the state implements it, and an item of a Map.
"""

from typing import Any, Protocol


class Environment(Protocol):
    """The Context Object, the variables, and what functions need."""

    def context(self) -> dict[str, Any]:
        """Return the Context Object."""
        ...

    def variable(self, name: str) -> Any:
        """Return the variable's value; MISSING where it is not assigned."""
        ...

    def functions(self) -> Any:
        """Return the frame with the functions that Step Functions adds to JSONata."""
        ...

    def random(self) -> float:
        """Return the next random number, 0 <= x < 1."""
        ...


class StateEnvironment(Environment, Protocol):
    """The environment of a state; `staged` has the variables that its Assign sets when the state is left, or None."""

    staged: dict[str, Any] | None
