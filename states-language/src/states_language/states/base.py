"""Defines what all state types have in common: a name, a type, common fields, and where they lead."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields

Step = tuple[str | None, Any]
"""Where a state leads (None: nowhere, the line ends) and its output."""


class State:
    """A compiled state. assigns: the variables that it may assign, each with the pointer of its field."""

    type: str

    def __init__(self, name: str, fields: Fields) -> None:
        self.name = name
        self.pointer = fields.pointer
        self.assigns: list[tuple[str, str]] = []
        fields.string("Type")
        fields.string("Comment")

    @property
    def ends(self) -> bool:
        """Return whether its line ends with it: it leads to no other state, caught errors aside."""
        return not any(True for _ in self.targets())

    async def run(self, branch: Branch, data: Any) -> Step:
        """Run the state; return the next state's name and the output. Raises StateError, EvaluationError or Fatal."""
        raise NotImplementedError(f"{type(self).__name__}.run({branch}, {data})")

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the states that this one may lead to, each with the pointer of its field."""
        return iter(())

    def inner(self) -> Iterator["Line"]:
        """Yield the lines of states within this one that read its variables."""
        return iter(())

    def apart(self) -> Iterator["Line"]:
        """Yield the lines of states within this one that read none of its variables."""
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
