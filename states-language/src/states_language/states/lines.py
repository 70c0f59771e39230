"""A line of states: StartAt and States, of a whole machine or of one branch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from states_language.states.base import State


@dataclass(frozen=True)
class Line:
    """States by name, and the one to begin with."""

    start_at: str
    states: dict[str, State]


Compile = Callable[[Any, str, str], Line]
"""Compiles the definition found at a JSON pointer, of a branch, say; raises DefinitionError."""
