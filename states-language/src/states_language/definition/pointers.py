"""Finds what a JSON pointer into a definition names: a line of states, a state, a Choice Rule, a Retrier, a Catcher.

A line is a `StartAt` with its `States`: the machine's own, a branch's, or a Map's. Invariant: any definition is
accepted, however broken; a pointer that leads nowhere belongs to the last object on its way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from states_language.scheduling.lanes import give_way

Key = str | int
Found = tuple[tuple[Key, ...], Any]
"""The path of a state or a line, whose end is its name, and its value."""
_ELEMENTS = {"Choices": "rule", "Retry": "retrier", "Catch": "catcher", "Branches": "line"}
LINES = ("ItemProcessor", "Iterator")
"""The fields of a Map that hold a line."""


@dataclass(frozen=True)
class Place:
    """The innermost object that a pointer leads into; `rest` is the way from there to the value that it names."""

    kind: str
    path: tuple[Key, ...]
    rest: tuple[Key, ...]

    @property
    def line(self) -> "Place":
        """Return the innermost line around the object; the object itself if it is a line."""
        return self if self.kind == "line" else self.parent().line

    def parent(self) -> "Place":
        """Return the object around this one; for the whole definition, itself."""
        return locate(self.path[:-1]) if self.path else self


def keys(pointer: str) -> tuple[str, ...]:
    """Return the parts of a JSON pointer (RFC 6901)."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:] if pointer != "/")


def locate(path: Sequence[Key]) -> Place:
    """Return the innermost object on a path."""
    kind, at = "line", 0
    for end in range(1, len(path) + 1):
        inner = _child_kind(kind, path[at:end])
        if inner:
            kind, at = inner, end
    return Place(kind, tuple(path[:at]), tuple(path[at:]))


def _child_kind(kind: str, rest: Sequence[Key]) -> str | None:
    first = str(rest[0])
    if kind == "line":
        return "state" if first == "States" and len(rest) == 2 else None
    if kind == "state":
        if len(rest) == 1:
            return "line" if first in LINES else None
        return _ELEMENTS.get(first) if len(rest) == 2 else None
    if kind == "rule":
        return "rule" if (first == "Not" and len(rest) == 1) or (first in ("And", "Or") and len(rest) == 2) else None
    return None


def value_at(definition: Any, path: Sequence[Key]) -> Any:
    """Return the value at a path; None if there is none."""
    for key in path:
        if isinstance(definition, list) and str(key).isdecimal() and int(key) < len(definition):
            definition = definition[int(key)]
        elif isinstance(definition, dict):
            definition = definition.get(key)
        else:
            return None
    return definition


def transitions(state: Any) -> Iterator[tuple[str, tuple[Key, ...]]]:
    """Yield the name of each state that may follow a state, with the path of the field that names it."""
    if not isinstance(state, dict):
        return
    for field in ("Choices", "Catch"):
        elements = state.get(field)
        for index, element in enumerate(elements if isinstance(elements, list) else ()):
            if isinstance(element, dict) and isinstance(element.get("Next"), str):
                yield element["Next"], (field, index, "Next")
    for field in ("Default", "Next"):
        if isinstance(state.get(field), str):
            yield state[field], (field,)


def lines_of(definition: Any, path: tuple[Key, ...] = ()) -> Iterator[tuple[tuple[Key, ...], dict[str, Any]]]:
    """Yield the definition and every line below it, each with its path, outer lines first."""
    if not isinstance(definition, dict) or not isinstance(definition.get("States"), dict):
        return
    yield path, definition
    for name, state in definition["States"].items():
        give_way()
        for place, line in lines_in(state):
            yield from lines_of(line, (*path, "States", name, *place))


def states_of(definition: Any) -> Iterator[Found]:
    """Yield every state of the definition and of the lines below it."""
    for path, line in lines_of(definition):
        for name, state in line["States"].items():
            give_way()
            yield (*path, "States", name), state


def lines_in(state: Any) -> Iterator[Found]:
    """Yield the values where a state holds lines: a Parallel's branches, a Map's processor, each with its path."""
    if isinstance(state, dict):
        branches = state.get("Branches")
        for index, branch in enumerate(branches if isinstance(branches, list) else ()):
            yield ("Branches", index), branch
        yield from (((field,), state[field]) for field in LINES if field in state)
