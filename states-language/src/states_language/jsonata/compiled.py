"""Compiles each node of an expression once into a Python function that evaluates it from then on.

    run = compiled(machine, node)
    run(bounds, input, frame)  # the node's value

Literals, variables, paths of names through objects, operators, conditions, blocks, bindings, arrays and calls of
built-in functions have functions of their own. The library's evaluator (`general`) evaluates the other nodes: of
another kind, with a predicate, a sort, a group or the like, a path that meets an array, a call of anything else.
Invariant: the value and the failure are the general evaluator's, and so is what `bounds` counts, but that a path takes
a step for each name even where an earlier one is missing. A function here does the same in the same order with the same
methods, and leaves out only what every node asks in vain.
"""

from collections.abc import Callable
from typing import Any, cast

from states_language.jsonata import library
from states_language.jsonata.bounds import DEEPEST, SHORT, Bounds, Exceeded
from states_language.jsonata.library import Functions, JException, Utils
from states_language.jsonata.syntax import has_more, nodes
from states_language.scheduling.lanes import Costly

Run = Callable[[Bounds, Any, Any], Any]
"""What a node evaluates to, of the bounds, the context and the frame of variables."""

_LEVELS = 32
"""So many levels of a tree are compiled at once; those below when they are first evaluated, on a stack of then."""
_PLAIN = frozenset({bool, int, float, type(None), Utils.NullValue})
"""The types of the values whose size is not counted."""
_LONG = 4_096
"""A text of the definition below is within all bounds."""
_THEMSELVES = (JException, Exceeded, Costly, RecursionError, TimeoutError)
"""The failures of a right side that are those of `and` and `or`; one of Python's own has no code."""
_SCALARS = frozenset({str, bool, int, float})
_NESTED = (dict, list)
_boolize = library.Jsonata.boolize
_JFunction, _JList = library.Jsonata.JFunction, Utils.JList


def compiled(machine: Any, node: Any, levels: int = _LEVELS) -> Run:
    """Return the function of a node, which the node keeps as `run`."""
    if node.run is not None:
        return cast("Run", node.run)
    if not levels:
        return _checked(machine, lambda _, input, frame: machine.eval(node, input, frame))
    make = None if has_more(node) else _KINDS.get(node.type)
    run = None if make is None else make(machine, node, lambda part: compiled(machine, part, levels - 1))
    node.run = run = run or _general(machine, node)
    return run


def truth(value: Any) -> bool:
    """Return whether a value counts as true; a function does, for it is an object with members, but to $boolean."""
    if value is True or value is False:
        return bool(value)
    if isinstance(value, float) and not Utils.is_numeric(value):  # raises D1001 for Infinity
        return False
    return Functions.is_lambda(value) or Utils.is_function(value) or bool(_boolize(value))


def _checked(machine: Any, work: Run) -> Run:
    """Return what evaluates on a new stack where this one may have too little room left."""

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        if bounds.depth + bounds.nested >= bounds.reach and not bounds.reaches():
            return machine.on_new_stack(work, bounds, input, frame)
        return work(bounds, input, frame)

    return run


def _general(machine: Any, node: Any) -> Run:
    def work(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        value = machine.general(node, input, frame)
        bounds.depth -= 1
        return value if type(value) in _PLAIN else bounds.measured(node, value)

    return _checked(machine, work)


Child = Callable[[Any], Run]
"""Returns the function of a node below."""


# ---- nodes without others below them ----


def _literal(_machine: Any, node: Any, _child: Child) -> Run | None:
    value = Utils.NULL_VALUE if node.value is None else node.value
    if isinstance(value, str) and len(value) >= _LONG:
        return None

    def run(bounds: Bounds, _input: Any, _frame: Any) -> Any:
        bounds.steps += 1
        if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
            raise bounds.spent()
        return value

    return run


def _variable(machine: Any, node: Any, _child: Child) -> Run | None:
    return _path_of(machine, node, str(node.value), []) if node.value else None


def _path(machine: Any, node: Any, _child: Child) -> Run | None:
    first, *others = node.steps
    starts_at_variable = first.type == "variable" and bool(first.value)
    named = others if starts_at_variable else node.steps
    if any(has_more(step) for step in node.steps) or any(step.type != "name" for step in named):
        return None
    return _path_of(machine, node, str(first.value) if starts_at_variable else None, [str(s.value) for s in named])


def _path_of(machine: Any, node: Any, variable: str | None, names: list[str]) -> Run:
    steps = len(node.steps) if node.type == "path" else 0

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.steps += 1
        if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
            raise bounds.spent()
        value = input if variable is None else frame.lookup(variable)
        for name in names:
            if type(value) is dict and (member := value.get(name)) is not None:
                value = member
            elif isinstance(value, _NESTED) and (type(value) is not dict or name in value):
                return general(bounds, input, frame)
            else:  # a text, a number or null has no members, and this object has no such one
                value = None
                break
        if isinstance(value, list):
            return general(bounds, input, frame)
        bounds.steps += steps
        if bounds.steps > bounds.most:
            raise bounds.spent()
        if type(value) in _PLAIN or (type(value) is str and len(value) < SHORT):
            return value
        return bounds.measured(node, value)

    def general(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.depth += 1
        value = machine.general(node, input, frame)
        bounds.depth -= 1
        return bounds.measured(node, value)

    return run if variable != "states" or machine.rebinds_states else _of_states(node, names, run)


def _of_states(node: Any, names: list[str], otherwise: Run) -> Run:
    """Return what reads a text, a number or a truth value from $states before it is represented for the library."""
    steps = len(names) + 2

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        value: Any = bounds.states
        for name in names:
            if type(value) is not dict:
                return otherwise(bounds, input, frame)
            value = value.get(name)
        if type(value) not in _SCALARS:
            return otherwise(bounds, input, frame)
        bounds.steps += steps
        if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
            raise bounds.spent()
        return bounds.measured(node, value) if type(value) is str and len(value) >= SHORT else value

    return run


# ---- nodes with others below them ----


def _binary(machine: Any, node: Any, child: Child) -> Run | None:
    op = node.value
    lhs, rhs = child(node.lhs), child(node.rhs)
    if op in ("and", "or"):
        return _logical(node, lhs, rhs)
    if op not in _OPERATORS:
        return None
    method = getattr(machine, _OPERATORS[op])

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.steps += 1
        if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
            raise bounds.spent()
        bounds.depth += 1
        left = lhs(bounds, input, frame)
        value = method(left, rhs(bounds, input, frame), op)
        bounds.depth -= 1
        return value if type(value) in _PLAIN else bounds.measured(node, value)

    return run


def _logical(node: Any, lhs: Run, rhs: Run) -> Run:
    decides = node.value == "or"

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        value = truth(lhs(bounds, input, frame))
        if value is not decides:
            try:
                value = truth(rhs(bounds, input, frame))
            except _THEMSELVES:
                raise
            except Exception:
                raise JException("Unexpected", node.position) from None
        bounds.depth -= 1
        return value

    return run


def _condition(_machine: Any, node: Any, child: Child) -> Run:
    condition, then = child(node.condition), child(node.then)
    otherwise = None if node._else is None else child(node._else)

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        chosen = then if truth(condition(bounds, input, frame)) else otherwise
        value = None if chosen is None else chosen(bounds, input, frame)
        bounds.depth -= 1
        return value if type(value) in _PLAIN else bounds.measured(node, _single(value))

    return run


def _block(machine: Any, node: Any, child: Child) -> Run:
    expressions = [child(part) for part in node.expressions]
    binds = any(part.type == "bind" for part in nodes(node.expressions))

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        value, inner = None, machine.create_frame(frame) if binds else frame
        for expression in expressions:
            value = expression(bounds, input, inner)
        bounds.depth -= 1
        return value if type(value) in _PLAIN else bounds.measured(node, _single(value))

    return run


def _bind(_machine: Any, node: Any, child: Child) -> Run:
    name, bound = str(node.lhs.value), child(node.rhs)

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        value = bound(bounds, input, frame)
        frame.bind(name, value)
        bounds.depth -= 1
        return value if type(value) in _PLAIN else bounds.measured(node, _single(value))

    return run


def _unary(_machine: Any, node: Any, child: Child) -> Run | None:
    if node.value != "[":
        return None
    elements = [(child(part), str(part.value) == "[") for part in node.expressions]

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        array = _JList()
        for element, nests in elements:
            value = element(bounds, input, frame)
            if nests or not isinstance(value, list):
                if value is not None:
                    array.append(value)
            else:
                array.extend(value)
        bounds.depth -= 1
        return bounds.measured(node, array)

    return run


def _call(machine: Any, node: Any, child: Child) -> Run | None:
    callee = node.procedure
    if callee.type != "variable" or not callee.value or has_more(callee):
        return None
    name, arguments = str(callee.value), [child(part) for part in node.arguments or ()]

    def work(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.steps += 1
        if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
            raise bounds.spent()
        bounds.depth += 1
        function = frame.lookup(name)
        if isinstance(function, _JFunction):
            bounds.steps += 1  # for the node of the name
            if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
                raise bounds.spent()
            values = [argument(bounds, input, frame) for argument in arguments]
            try:
                value = machine.call(bounds, function, values, input)
            except JException as problem:
                if problem.location < 0:
                    problem.location = node.position
                if problem.current is None:
                    problem.current = node.token
                raise
        else:
            value = machine.general(node, input, frame)
        bounds.depth -= 1
        if type(value) in _PLAIN or (type(value) is str and len(value) < SHORT):
            return value
        return bounds.measured(node, _single(value))

    return _checked(machine, work)


def _single(value: Any) -> Any:
    """Return the value of a sequence of one, which counts as that value, and of an empty one, which is undefined."""
    if type(value) is not _JList or not value.sequence or value.tuple_stream:
        return value
    return None if not value else value if len(value) > 1 or value.keep_singleton else value[0]


_KINDS: dict[str, Callable[[Any, Any, Child], Run | None]] = {
    **dict.fromkeys(("string", "number", "value"), _literal),
    "variable": _variable,
    "path": _path,
    "binary": _binary,
    "condition": _condition,
    "block": _block,
    "bind": _bind,
    "unary": _unary,
    "function": _call,
}
_OPERATORS = {
    **dict.fromkeys(("+", "-", "*", "/", "%"), "evaluate_numeric_expression"),
    **dict.fromkeys(("=", "!="), "evaluate_equality_expression"),
    **dict.fromkeys(("<", "<=", ">", ">="), "evaluate_comparison_expression"),
    "&": "evaluate_string_concat",
    "..": "evaluate_range_expression",
    "in": "evaluate_includes_expression",
}
"""The method of each operator that evaluates both sides."""
library.Jsonata.boolize = staticmethod(truth)
