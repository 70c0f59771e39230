"""A line of states: StartAt and States, of a whole machine or of one branch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from local.asl.states.base import State


@dataclass(frozen=True)
class Line:
    """States by name, and the one to begin with."""

    start_at: str
    states: dict[str, State]


Compile = Callable[[Any, str], Line]
"""Compiles the definition of a branch, found at a JSON pointer; raises DefinitionError."""
