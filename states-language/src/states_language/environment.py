"""What an expression may look at besides its data, in either query language.

Whoever evaluates an expression answers: the branch that runs the state, or an item of a Map.
"""

from typing import Any, Protocol


class Environment(Protocol):
    """The Context Object, the variables, and what functions need."""

    def context(self) -> dict[str, Any]:
        """Return the Context Object."""
        ...

    def variable(self, name: str) -> Any:
        """Return the variable's value; MISSING when nobody has assigned it."""
        ...

    def functions(self) -> Any:
        """Return the frame with the functions that Step Functions adds to JSONata."""
        ...

    def random(self) -> float:
        """Return the next random number, 0 <= x < 1."""
        ...


class StateEnvironment(Environment, Protocol):
    """That of a whole state. staged: what its Assign stores when the state is left, None where it assigns nothing."""

    staged: dict[str, Any] | None
