"""Compiles a JSONata expression and evaluates it within bounds, as Step Functions does.

    query = compile_query("{% $states.input.n + 1 %}", "/States/A/Output")
    query.value(Data({"input": {"n": 1}}), environment, "Output")  # 2

Invariants: every evaluation ends. Steps, depth and size bound it, never time, so two runs fail alike; only a regular
expression that backtracks is stopped by a clock. Where others wait (`here`), an evaluation takes at most HERE, and one
that needs more begins again in a process of its own, within WHOLE.
"""

import functools
import math
import re
from typing import Any

from states_language.context import Environment
from states_language.definition.fields import DefinitionError
from states_language.failures import QueryFailure
from states_language.jsonata.bounds import (
    HERE,
    TOO_DEEP,
    TOO_LARGE,
    TOO_LONG,
    WHOLE,
    Bounds,
    Exceeded,
    Limits,
    on_new_stack,
)
from states_language.jsonata.engine import Jsonata
from states_language.jsonata.library import Utils
from states_language.jsonata.numbers import NAMES, plain
from states_language.jsonata.patterns import pattern
from states_language.jsonata.syntax import direct, fault, message, nodes, reads_error_output, top_level
from states_language.scheduling.lanes import Costly, Job, Lane, here
from states_language.values import MISSING, exceeds, joined, well_formed

NULL = Utils.NULL_VALUE

PARTS_HERE = 2_000
"""The largest data that an expression may read where others wait, as `exceeds` counts."""


class Unsupported(Exception):
    """The value is a function, which JSON does not have."""


class Query:
    """A compiled expression; `text` is as AWS quotes it, `needs_context` whether it may read $states.context."""

    def __init__(self, text: str, ast: Any, machine: Any, every: list[Any]) -> None:
        self.text = text
        self.needs_context = _NEEDS_CONTEXT.search(text) is not None
        self._ast = ast
        self._machine = machine
        named = {node.value for node in every if node.type == "variable" and node.value}
        self._reads_states = "states" in named
        self._names = sorted(named - {"states"})
        self._read = direct(ast)
        self._read_steps = 1 + len(ast.steps or ()) if ast.type == "path" else 1

    def value(self, data: "Data", environment: Environment, location: str) -> Any:
        """Return the JSON value; raises QueryFailure, which names the field."""
        variables = {name: value for name in self._names if (value := environment.variable(name)) is not MISSING}
        host = here()
        if host is None:
            return self._value(data, variables, environment, location, WHOLE)
        host.turn()
        if not (self._reads_states and data.large) and not exceeds(variables, PARTS_HERE):
            try:
                return self._value(data, variables, environment, location, HERE)
            except Costly:
                pass
            finally:
                host.spend(self._machine.bounds.steps)
        return self._value_of_host(host, data, variables, location)

    def _value(
        self, data: "Data", variables: dict[str, Any], environment: Environment, location: str, limits: Limits
    ) -> Any:
        if self._read is not None:
            found = self._read(None, _Names(data, variables))
            if found is NULL or type(found) in _SCALARS or (type(found) is str and len(found) < _SHORT):
                self._machine.bounds = Bounds(limits, self._read_steps)
                return from_library(found)
        frame = self._machine.create_frame(environment.functions())
        if self._reads_states:
            frame.bind("states", data.library)
        for name, value in variables.items():
            frame.bind(name, to_library(value))
        self._machine.bounds = Bounds(limits)
        try:
            Jsonata.CURRENT.jsonata = self._machine  # else the last one made in this thread would evaluate
            result = self._machine.eval(self._ast, None, frame)
            if result is not None:
                self._machine.bounds.check(result)
                return from_library(result)
        except Costly:
            raise
        except Unsupported:
            raise self.failed("returned an unsupported result type.", location) from None
        except Exception as problem:
            if limits is not WHOLE and isinstance(problem, TimeoutError):
                raise Costly from None
            raise self._failure(problem, location) from None
        raise self.failed("returned nothing (undefined).", location)

    def _value_of_host(self, host: Lane, data: "Data", variables: dict[str, Any], location: str) -> Any:
        job: Job = {"expression": self.text, "states": data.states, "variables": variables, "location": location}
        answer = host.ask(job)
        if "failure" in answer:
            raise QueryFailure(answer["failure"], answer["location"])
        if "ended" in answer:
            raise self.bounded(TOO_LONG if answer["ended"] == "time" else TOO_LARGE, location)
        return answer["value"]

    def failed(self, what: str, location: str) -> QueryFailure:
        """Return the failure, with a sentence that names the expression and its field (recorded)."""
        return QueryFailure(
            f"The JSONata expression '{self.text}' specified for the field '{location}' {what}", location
        )

    def bounded(self, bound: str, location: str) -> QueryFailure:
        """Return the failure of an expression that exceeded a bound."""
        return self.failed(f"threw an error during evaluation: {bound}", location)

    def unexpected(self, expected: str, value: Any, location: str, shown: str) -> QueryFailure:
        """Return the failure for a value of another type than the field's (recorded for Items)."""
        return self.failed(
            f"returned an unexpected result type. Expected '{expected}', but was '{kind(value)}' for value: {shown}",
            location,
        )

    def _failure(self, problem: Exception, location: str) -> QueryFailure:
        # AWS ends the sentence before a coded message, and puts a colon before a bound's.
        if isinstance(problem, Exceeded | RecursionError | TimeoutError):
            return self.bounded(
                {RecursionError: TOO_DEEP, TimeoutError: TOO_LONG}.get(type(problem), str(problem)), location
            )
        # A few of the library's own errors have no code.
        coded = message(problem) or "D3137: The expression cannot be evaluated"
        return self.failed(f"threw an error during evaluation. {coded}", location)


class Data:
    """The members of $states that expressions of one template read."""

    def __init__(self, states: dict[str, Any]) -> None:
        self.states = states

    @functools.cached_property
    def library(self) -> dict[str, Any]:
        """Return them as the library represents them."""
        return {name: to_library(value) for name, value in self.states.items()}

    @functools.cached_property
    def large(self) -> bool:
        """Return whether they are too much to be read where others wait."""
        return exceeds(self.states, PARTS_HERE)


class _Names:
    """What an expression reads that needs no other frame of variables; None for null, which is read elsewhere."""

    __slots__ = ("_data", "_variables")

    def __init__(self, data: Data, variables: dict[str, Any]) -> None:
        self._data, self._variables = data, variables

    def lookup(self, name: str) -> Any:
        """Return a variable as the library represents it."""
        return self._data.library if name == "states" else self._variables.get(name)


_SHORT = 4_096
"""A text below is within all bounds."""
_SCALARS = (bool, int, float)

_NEEDS_CONTEXT = re.compile(r"\$states\b(?!\s*\.\s*(?:input|result|errorOutput)\b)")


def is_query(value: Any) -> bool:
    """Return whether a value is an expression: a text that begins with {% and ends with %} (recorded)."""
    return isinstance(value, str) and value.startswith("{%") and value.endswith("%}") and len(value) >= 4


def compile_query(text: str, pointer: str, *, caught: bool = False) -> Query:
    """Return the expression between {% and %}; raises DefinitionError naming the field.

    `caught` is true in a Catcher, the only place that has $states.errorOutput.
    """
    query = _compiled(text[2:-2].strip(), caught)
    if isinstance(query, str):
        raise DefinitionError(pointer, query)
    return query


@functools.lru_cache(maxsize=4096)
def _compiled(inner: str, caught: bool) -> Query | str:
    """Return the expression, or the rule that it breaks; a long one takes minutes, so the latest are kept."""
    try:
        try:
            machine = Jsonata(inner, pattern)
        except RecursionError:
            machine = on_new_stack(lambda: Jsonata(inner, pattern))
        if machine.errors:
            raise ValueError(str(machine.errors[0]))
    except RecursionError:
        return "the JSONata expression is nested too deeply"
    except Exception as problem:
        return f"'{inner}' is not a valid JSONata expression: {fault(problem)}"
    for name in top_level(machine.ast):
        if name == "$$":
            return "a reference to '$$' is not supported; begin with $states"
        return f"a reference to '{name}' at the top level is not supported; begin with $states"
    every = list(nodes(machine.ast))
    if not caught and reads_error_output(every):
        return "there is no $states.errorOutput but in a Catcher"
    for node in every:
        # The library reads "\\uD834\\uDD1E" as two characters.
        if node.type in ("string", "name") and isinstance(node.value, str):
            node.value = joined(node.value)
    return Query(inner, machine.ast, machine, every)


def kind(value: Any) -> str:
    """Return the JSON name of the value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string"}
    return next((name for known, name in names.items() if isinstance(value, known)), "number")


# ---- null: None is the library's undefined; for null it has an object of its own ----


_NESTED = (dict, list)


def to_library(value: Any) -> Any:
    """Return a JSON value as the library represents it; the value itself where it holds no null."""
    if value is None:
        return NULL
    if isinstance(value, dict):
        members = None
        for key, member in value.items():
            if (member is None or isinstance(member, _NESTED)) and (inner := to_library(member)) is not member:
                members = members or {}
                members[key] = inner
        return {**value, **members} if members else value
    if isinstance(value, list):
        if not any(element is None or isinstance(element, _NESTED) for element in value):
            return value
        elements = []
        for element in value:
            elements.append(to_library(element))
        return elements if any(new is not old for new, old in zip(elements, value, strict=True)) else value
    return value


def from_library(value: Any) -> Any:
    """Return the library's value as JSON; raises Unsupported for a function."""
    if value is NULL or value is None:
        return None
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON has no Infinity and no NaN; AWS returns JavaScript's names for them.
        return plain(value) if math.isfinite(value) else NAMES[str(value)]
    if isinstance(value, dict):
        members = {}
        for key, member in value.items():
            members[well_formed(key)] = from_library(member)
        return members
    if isinstance(value, Utils.RangeList):
        return list(value)
    if isinstance(value, list):
        elements = []
        for element in value:
            elements.append(from_library(element))
        return elements
    raise Unsupported
