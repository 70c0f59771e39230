"""Warns of risky practices in a definition that loads.

There are four: a Task whose errors nobody catches, retries that can fill the history, a loop without a bound, and a
missing Comment. Only the definition is read, so inputs and the errors that functions raise are unknown.
Invariant: the same definition gives the same warnings, in the order of its states.
"""

import contextlib
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from states_language.definition.fields import child_pointer
from states_language.definition.load import load
from states_language.definition.pointers import Key, lines_in, lines_of, transitions
from states_language.definition.source import Source, read_definition
from states_language.definition.templates import Substitutions
from states_language.history import EVENT_LIMIT

EVENTS_OF_A_TASK = 3
"""Scheduled, started, and its end."""

MUCH = EVENT_LIMIT // 2
"""History events that no single visit of a state should add."""

ANY_ERROR = "States.ALL"

Definition = Mapping[str, Any]


@dataclass(frozen=True)
class Advice:
    """One warning: where, which practice, what can happen, and what to do about it."""

    pointer: str
    practice: str
    says: str
    hint: str


def warnings(source: Source, *, substitutions: Substitutions | None = None, machine: str | None = None) -> list[Advice]:
    """Return the warnings for a definition; the arguments are those of `load`.

    It accepts wrong values, such as a `${Name}` that is left; raises DefinitionError if the definition has no states.
    """
    definition = read_definition(source, substitutions, machine)
    try:
        return list(_find_advice(definition))
    except (AttributeError, KeyError, TypeError):
        load(definition)
        raise


def _find_advice(definition: Definition) -> Iterator[Advice]:
    if not definition.get("Comment"):
        yield Advice("/", "comment", "the machine has no Comment", "Say in one sentence what it is for.")
    covered: set[tuple[Key, ...]] = set()
    for path, line in lines_of(definition):
        caught = any(path[: len(outer)] == outer for outer in covered)
        for name, state in line["States"].items():
            where = (*path, "States", name)
            yield from _advise_state(where, name, state, caught)
            if _has_catch_all(state):
                covered.add(where)
        yield from (_endless_loop_advice(path, loop) for loop in _find_unbounded_loops(line))


def _advise_state(path: tuple[Key, ...], name: str, state: Definition, caught: bool) -> Iterator[Advice]:
    pointer = child_pointer("/", *path)
    if not state.get("Comment"):
        yield Advice(pointer, "comment", f"'{name}' has no Comment", "Say why it is there, not what it does.")
    if state["Type"] == "Task" and not caught and not _has_catch_all(state):
        which = (
            " that no Catcher names"
            if state.get("Catch")
            else " that outlasts its Retriers"
            if "Retry" in state
            else ""
        )
        yield Advice(
            pointer,
            "unhandled-error",
            f"an error of '{name}'{which} ends the execution",
            "Add a last Catcher with ErrorEquals: [States.ALL], here or at a Parallel or Map around it.",
        )
    events, index = _events_of_retries(state)
    if events > MUCH:
        yield Advice(
            child_pointer(pointer, "Retry", index),
            "history",
            f"the retries of '{name}' may add {events:,} history events, and an execution fails at {EVENT_LIMIT:,}",
            "Lower MaxAttempts, or leave the state by a Catcher and come back after a Wait in a new execution.",
        )


def _has_catch_all(state: Definition) -> bool:
    return any(ANY_ERROR in catcher.get("ErrorEquals", ()) for catcher in state.get("Catch", ()))


def _events_of_retries(state: Definition) -> tuple[int, int]:
    """Return the most history events that the retries of one visit add, and which Retrier adds the most."""
    shares = []
    for retrier in state.get("Retry", ()):
        most = retrier.get("MaxAttempts", 3)
        shares.append(most * len(retrier["ErrorEquals"]) * _events_of_an_attempt(state) if isinstance(most, int) else 0)
    return (sum(shares), shares.index(max(shares))) if shares else (0, 0)


def _events_of_an_attempt(state: Definition) -> int:
    """Return how many events one attempt adds, if each state of a Parallel's branches or of one Map item runs once."""
    inner = [line for _, line in lines_in(state)]
    if not inner or inner[0].get("ProcessorConfig", {}).get("Mode") == "DISTRIBUTED":
        return EVENTS_OF_A_TASK if state["Type"] in ("Task", "Map") else 0
    entered_and_exited = 2
    return 1 + sum(
        entered_and_exited + _events_of_an_attempt(below_it) for line in inner for below_it in line["States"].values()
    )


# ---- loops ----


def _endless_loop_advice(path: tuple[Key, ...], loop: list[str]) -> Advice:
    return Advice(
        child_pointer("/", *path, "States", loop[0]),
        "endless-loop",
        f"nothing bounds the loop {' → '.join([*loop, loop[0]])}",
        "Count the rounds in a Pass state, and leave the loop by a Choice that compares the count or a time.",
    )


def _find_unbounded_loops(line: Definition) -> Iterator[list[str]]:
    """Yield one loop of each group of states that can go round for ever without a comparison of numbers or times."""
    states = line["States"]
    following: dict[str, list[str]] = {
        name: [target for target, _ in transitions(state) if target in states and not _can_end_loop(states[target])]
        for name, state in states.items()
        if not _can_end_loop(state)
    }
    # Drop the states that lead to no loop, then those that no loop leads to; a search from every state is slow.
    leading = _reverse(_drop_dead_ends(following))
    leading = _drop_dead_ends(leading)
    following = {name: [target for target in following[name] if target in leading] for name in following}
    seen: set[str] = set()
    for name in following:
        if name in leading and name not in seen and name in (before := _search_from(name, following)):
            loop = [name]
            while (previous := before[loop[-1]]) != name:
                loop.append(previous)
            yield [name, *reversed(loop[1:])]
            seen.update(before.keys() & _search_from(name, leading).keys())


def _drop_dead_ends(following: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the states from which a way can go round for ever, each with its targets of the same kind."""
    sorter, ends = TopologicalSorter(following), set[str]()
    with contextlib.suppress(CycleError):
        sorter.prepare()
    while ready := sorter.get_ready():
        ends.update(ready)
        sorter.done(*ready)
    return {
        name: [target for target in targets if target not in ends]
        for name, targets in following.items()
        if name not in ends
    }


def _reverse(following: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return for each state the states that lead to it."""
    leading: dict[str, list[str]] = {name: [] for name in following}
    for name, targets in following.items():
        for target in targets:
            leading[target].append(name)
    return leading


def _search_from(start: str, following: Mapping[str, list[str]]) -> dict[str, str]:
    """Return each state that `start` leads to (itself, if a loop does), with the one before it on a shortest way."""
    before: dict[str, str] = {}
    ahead = deque([start])
    while ahead:
        name = ahead.popleft()
        for target in following[name]:
            if target not in before:
                before[target] = name
                ahead.append(target)
    return before


_ORDER_OPERATOR = re.compile(r"^(Numeric|Timestamp)")
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|~>|/\*.*?\*/", re.DOTALL)
"""Parts of a JSONata expression that only look like a comparison: texts, ~> and comments."""
_COMPARISON = re.compile(r"[<>]|!?=\s*-?\d|\d\s*!?=")


def _can_end_loop(state: Definition) -> bool:
    """Return whether a state can end a loop by a count or a time.

    A Choice that compares numbers or times can. So can a Task whose Arguments compare them and raise an error, for a
    Catcher then leaves the loop.
    """
    if state["Type"] == "Task":
        return any(_can_raise_error(text) for text in _expressions(state.get("Arguments")))
    return state["Type"] == "Choice" and any(_has_comparison(rule) for rule in state.get("Choices", ()))


def _can_raise_error(expression: str) -> bool:
    outside_texts = _TEXT.sub(" ", expression)
    return "$error(" in outside_texts and bool(_COMPARISON.search(outside_texts))


def _expressions(value: Any) -> Iterator[str]:
    """Yield the JSONata expressions in a value, at any depth."""
    if isinstance(value, str) and value.startswith("{%"):
        yield value
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _expressions(member)


def _has_comparison(rule: Definition) -> bool:
    if isinstance(rule.get("Condition"), str):
        return bool(_COMPARISON.search(_TEXT.sub(" ", rule["Condition"])))
    inner = [*rule.get("And", ()), *rule.get("Or", ()), *([rule["Not"]] if "Not" in rule else [])]
    return any(map(_has_comparison, inner)) or any(_ORDER_OPERATOR.match(name) for name in rule)
