"""What all state types have in common.

Decides the fields that every state may have and that a state either goes on to another or ends; knows no state type.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields

Step = tuple[str | None, Any]
"""Where a state leads (None: nowhere, the line ends) and its output."""


class State:
    """One state of a machine, compiled. assigns: the variables that it may assign, with the pointers of the fields."""

    type: str

    def __init__(self, name: str, fields: Fields) -> None:
        self.name = name
        self.pointer = fields.pointer
        self.assigns: list[tuple[str, str]] = []
        fields.string("Type")
        fields.string("Comment")

    @property
    def ends(self) -> bool:
        """Return whether its line ends with it: it leads to no other state, unless an error is caught."""
        return not any(True for _ in self.targets())

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return the next state's name and the output; raises StateError, EvaluationError or Fatal."""
        raise TypeError(f"{type(self).__name__} has no way from {data} on ({branch})")  # each state type has its own

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the states that this one may lead to, each with the pointer of the field that says so."""
        return iter(())

    def inner(self) -> Iterator["Line"]:
        """Yield the lines of states within this one that see its variables."""
        return iter(())

    def apart(self) -> Iterator["Line"]:
        """Yield the lines of states within this one that see none of its variables."""
        return iter(())


class Flowing(State):
    """A state with Next or End."""

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        end = fields.boolean("End")
        self.next = fields.string("Next")
        if (self.next is None) == (end is not True):
            raise DefinitionError(fields.pointer, "exactly one of Next and End: true is required")

    @property
    def ends(self) -> bool:
        """Return whether it has End."""
        return self.next is None

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the state of Next."""
        if self.next is not None:
            yield self.next, f"{self.pointer}/Next"


@dataclass(frozen=True)
class Line:
    """A line of states, of a whole machine or of one branch: states by name, and the one to begin with."""

    start_at: str
    states: dict[str, State]


Compile = Callable[[Any, str, str], Line]
"""Compiles the definition at a JSON pointer, of a branch, say; raises DefinitionError."""
