"""Compiles a JSONata expression and evaluates it within bounds, as Step Functions does.

    query = compile_query("{% $states.input.n + 1 %}", "/States/A/Output")
    query.evaluate(ExpressionFrame({"input": {"n": 1}}, environment), "Output")  # 2

Invariants: every evaluation ends. Steps, depth and size bound it, never time, so two runs fail alike; only a regular
expression that backtracks is stopped by a clock. In a lane, an evaluation takes at most HERE; one that
needs more begins again in a process of its own, within WHOLE.
"""

import functools
import re
from typing import Any

from states_language.context import Environment
from states_language.definition.fields import DefinitionError
from states_language.failures import QueryFailure
from states_language.jsonata import syntax
from states_language.jsonata.bounds import (
    FULL_LIMITS,
    SHARED_LIMITS,
    TOO_DEEP,
    TOO_LARGE,
    TOO_LONG,
    Exceeded,
    Limits,
    on_new_stack,
)
from states_language.jsonata.engine import Frame, Jsonata, begin_evaluation
from states_language.jsonata.engine import current_bounds as used
from states_language.jsonata.leaf_nodes import path_names
from states_language.jsonata.node_functions import node_function
from states_language.jsonata.numbers import NESTED, Unsupported, from_library, to_library, type_of
from states_language.jsonata.patterns import compile_pattern
from states_language.scheduling.lanes import Costly, Job, Lane, current_lane
from states_language.values import MISSING, has_more_values, join_surrogates

PARTS_HERE = 2_000
"""The largest data that an expression may read while others wait, as `has_more_values` counts."""


class Query:
    """A compiled expression; `text` is AWS's quote of it, `needs_context` says if it may read $states.context.

    free_names: the names of the variables and functions that it does not define itself.
    """

    def __init__(self, text: str, machine: Any, all_nodes: list[Any]) -> None:
        self.text = text
        self.needs_context = _NEEDS_CONTEXT.search(text) is not None
        self._machine = machine
        bound = {name for node in all_nodes for name in syntax.bound_names(node)}
        machine.rebinds_states = "states" in bound
        node_function(machine, machine.ast)
        self._root = machine.ast
        variable, self._path_names = path_names(machine.ast) or (None, [])
        self._path_variable = variable or ""
        named = {node.value for node in all_nodes if node.type == "variable" and node.value}
        self._uses_states = "states" in named
        self._names = sorted(named - {"states"})
        self.free_names = named - bound - {"states", "$"}
        self._has_bindings = any(node.type == "bind" for node in all_nodes)
        # An expression of literals and operators alone always has the same value.
        self._is_fixed = all(node.type in _FIXED for node in all_nodes)
        self.fixed_value: Any = None

    def evaluate(self, data: "ExpressionFrame", location: str) -> Any:
        """Return the JSON value; raises QueryFailure, which names the field."""
        if self.fixed_value is not None:
            return self.fixed_value
        host = data.lane
        if host is None:
            value = self._read_path(data) if self._path_variable else None
            return self._evaluate_here(data, location, FULL_LIMITS) if value is None else value
        variables = {name: value for name in self._names if (value := data.variable(name)) is not MISSING}
        host.wait_for_turn()
        if not (self._uses_states and data.is_large) and not has_more_values(variables, PARTS_HERE):
            try:
                return self._evaluate_here(data, location, SHARED_LIMITS)
            except Costly:
                pass
            finally:
                host.spend(used().steps)
        return self._evaluate_in_process(host, data, variables, location)

    def _read_path(self, data: "ExpressionFrame") -> Any:
        """Return the text, whole number or truth value that a path of names leads to; None for all else."""
        value: Any = data.states if self._path_variable == "states" else data.variable(self._path_variable)
        for name in self._path_names:
            value = value.get(name) if type(value) is dict else None
        return value if type(value) in _UNCHANGED_TYPES or (type(value) is str and value.isascii()) else None

    def _evaluate_here(self, data: "ExpressionFrame", location: str, limits: Limits) -> Any:
        bounds = begin_evaluation(self._machine, limits, data.states)
        try:
            result = self._root.run(bounds, None, Frame(data) if self._has_bindings else data)
            if result is not None:
                if type(result) in _UNCHANGED_TYPES or (type(result) is str and result.isascii()):
                    value = result
                else:
                    if isinstance(result, NESTED):
                        bounds.check_value(result)
                    value = from_library(result)
                if self._is_fixed and isinstance(value, _SCALARS):
                    self.fixed_value = value
                return value
        except Costly:
            raise
        except Unsupported:
            raise self.failure("returned an unsupported result type.", location) from None
        except Exception as problem:
            if limits is not FULL_LIMITS and isinstance(problem, TimeoutError):
                raise Costly from None
            raise self._failure_of(problem, location) from None
        raise self.failure("returned nothing (undefined).", location)

    def _evaluate_in_process(
        self, host: Lane, data: "ExpressionFrame", variables: dict[str, Any], location: str
    ) -> Any:
        job: Job = {"expression": self.text, "states": data.states, "variables": variables, "location": location}
        answer = host.evaluate(job)
        if "failure" in answer:
            raise QueryFailure(answer["failure"], answer["location"])
        if "ended" in answer:
            raise self.bound_failure(TOO_LONG if answer["ended"] == "time" else TOO_LARGE, location)
        return answer["value"]

    def failure(self, what: str, location: str) -> QueryFailure:
        """Return the failure, with a sentence that names the expression and its field (recorded)."""
        return QueryFailure(
            f"The JSONata expression '{self.text}' specified for the field '{location}' {what}", location
        )

    def bound_failure(self, bound: str, location: str) -> QueryFailure:
        """Return the failure of an expression that exceeded a bound."""
        return self.failure(f"threw an error during evaluation: {bound}", location)

    def type_failure(self, expected: str, value: Any, location: str, shown: str) -> QueryFailure:
        """Return the failure for a value of another type than the field's (recorded for Items)."""
        return self.failure(
            f"returned an unexpected result type. Expected '{expected}', but was '{type_of(value)}' for value: {shown}",
            location,
        )

    def _failure_of(self, problem: Exception, location: str) -> QueryFailure:
        # AWS ends the sentence before a coded message, and puts a colon before a bound's.
        if isinstance(problem, Exceeded | RecursionError | TimeoutError):
            return self.bound_failure(
                {RecursionError: TOO_DEEP, TimeoutError: TOO_LONG}.get(type(problem), str(problem)), location
            )
        # A few of the library's own errors have no code.
        coded = syntax.coded_message(problem) or "D3137: The expression cannot be evaluated"
        return self.failure(f"threw an error during evaluation. {coded}", location)


class ExpressionFrame(Frame):
    """What the expressions of one template read: $states, and the variables, which do not change meanwhile.

    It is the frame of all of them, and represents a variable as the library does when an expression first names it.
    lane: the lane in which they are evaluated, None if nobody else waits.
    """

    def __init__(self, states: dict[str, Any], environment: Environment) -> None:
        self.bindings = {"__evaluate_entry": None, "__evaluate_exit": None}  # as each frame has them
        self.states, self.variable, self._functions = states, environment.variable, environment.functions
        self.lane = current_lane()

    @functools.cached_property
    def is_large(self) -> bool:
        """Return whether the members are too large to be read while others wait."""
        return has_more_values(self.states, PARTS_HERE)

    def lookup(self, name: str) -> Any:
        """Return $states, a variable or a function."""
        if name in self.bindings:
            return self.bindings[name]
        if name == "states":
            value: Any = {member: to_library(each) for member, each in self.states.items()}
        elif (value := self.variable(name)) is MISSING:
            value = self._functions().lookup(name)
        elif not isinstance(value, _SCALARS):
            value = to_library(value)
        self.bindings[name] = value
        return value


_FIXED = ("string", "number", "value", "binary", "condition")
_SCALARS = (str, int, float)
_UNCHANGED_TYPES = frozenset({int, bool})
_NEEDS_CONTEXT = re.compile(r"\$states\b(?!\s*\.\s*(?:input|result|errorOutput)\b)")


def is_query(value: Any) -> bool:
    """Return whether a value is an expression: a text that begins with {% and ends with %} (recorded)."""
    return isinstance(value, str) and value.startswith("{%") and value.endswith("%}") and len(value) >= 4


def is_valid_query(text: str) -> bool:
    """Return whether the expression between {% and %} is valid outside of a Catcher."""
    return not isinstance(_compile_cached(text[2:-2].strip(), False), str)


def compile_query(text: str, pointer: str, *, in_catcher: bool = False) -> Query:
    """Return the expression between {% and %}; raises DefinitionError naming the field.

    `in_catcher` is true in a Catcher, the only place that has $states.errorOutput.
    """
    query = _compile_cached(text[2:-2].strip(), in_catcher)
    if isinstance(query, str):
        raise DefinitionError(pointer, query)
    return query


@functools.lru_cache(maxsize=4096)
def _compile_cached(inner: str, in_catcher: bool) -> Query | str:
    """Return the expression, or the rule that it breaks; a long one takes minutes, so the latest ones are kept."""
    try:
        try:
            machine = Jsonata(inner, compile_pattern)
        except RecursionError:
            machine = on_new_stack(lambda: Jsonata(inner, compile_pattern))
        if machine.errors:
            raise ValueError(str(machine.errors[0]))
    except RecursionError:
        return "the JSONata expression is nested too deeply"
    except Exception as problem:
        return f"'{inner}' is not a valid JSONata expression: {syntax.error_text(problem)}"
    for name in syntax.top_level_names(machine.ast):
        if name == "$$":
            return "a reference to '$$' is not supported; begin with $states"
        return f"a reference to '{name}' at the top level is not supported; begin with $states"
    every = list(syntax.nodes(machine.ast))
    if not in_catcher and syntax.has_error_output(every):
        return "there is no $states.errorOutput but in a Catcher"
    for node in every:
        # The library reads "\\uD834\\uDD1E" as two characters.
        if node.type in ("string", "name") and isinstance(node.value, str):
            node.value = join_surrogates(node.value)
    return Query(inner, machine, every)
