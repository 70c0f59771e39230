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
from states_language.jsonata.reads import COUNTED, LITERALS, PLAIN, Run, literal, path
from states_language.jsonata.syntax import has_more, nodes
from states_language.scheduling.lanes import Costly

_LEVELS = 32
"""So many levels of a tree are compiled at once; those below when they are first evaluated, on a stack of then."""
_THEMSELVES = (JException, Exceeded, Costly, RecursionError, TimeoutError)
"""The failures of a right side that are those of `and` and `or`; one of Python's own has no code."""
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
    if run is not None and _is_fixed(node):
        node.is_fixed = True
        run = run if node.type in LITERALS else _once(run)
    node.run = run = run or _general(machine, node)
    return run


def _is_fixed(node: Any) -> bool:
    """Return whether a compiled node has the same value each time: a literal, or an operator between such nodes."""
    if node.type == "block" and len(node.expressions) == 1:
        return bool(node.expressions[0].is_fixed)
    return node.type in LITERALS or (node.type == "binary" and node.lhs.is_fixed and node.rhs.is_fixed)


def _once(evaluate: Run) -> Run:
    """Return what evaluates a fixed node until that has given a number or a truth value, and only counts from then."""
    known: Any = None
    steps = 0

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        nonlocal known, steps
        if known is None or bounds.depth + _LEVELS >= DEEPEST:
            before = bounds.steps
            value = evaluate(bounds, input, frame)
            if type(value) in COUNTED:
                steps, known = bounds.steps - before, value
            return value
        bounds.steps += steps
        if bounds.steps > bounds.most:
            raise bounds.spent()
        return known

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
        return value if type(value) in PLAIN else bounds.measured(node, value)

    return _checked(machine, work)


Child = Callable[[Any], Run]
"""Returns the function of a node below."""


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
        if type(value) in PLAIN or (type(value) is str and len(value) < SHORT):
            return value
        return bounds.measured(node, value)

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
        return value if type(value) in PLAIN else bounds.measured(node, _single(value))

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
        return value if type(value) in PLAIN else bounds.measured(node, _single(value))

    return run


def _bind(_machine: Any, node: Any, child: Child) -> Run:
    name, bound = str(node.lhs.value), child(node.rhs)

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        value = bound(bounds, input, frame)
        frame.bind(name, value)
        bounds.depth -= 1
        return value if type(value) in PLAIN else bounds.measured(node, _single(value))

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

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        if bounds.depth + bounds.nested >= bounds.reach and not bounds.reaches():
            return machine.on_new_stack(run, bounds, input, frame)
        bounds.steps += 1
        if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
            raise bounds.spent()
        bounds.depth += 1
        function = frame.lookup(name)
        if isinstance(function, _JFunction):
            bounds.steps += 1  # for the node of the name
            if bounds.steps > bounds.most or bounds.depth >= DEEPEST:
                raise bounds.spent()
            values = []
            for argument in arguments:
                values.append(argument(bounds, input, frame))
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
        if type(value) in PLAIN or (type(value) is str and len(value) < SHORT):
            return value
        return bounds.measured(node, _single(value))

    return run


def _single(value: Any) -> Any:
    """Return the value of a sequence of one, which counts as that value, and of an empty one, which is undefined."""
    if type(value) is not _JList or not value.sequence or value.tuple_stream:
        return value
    return None if not value else value if len(value) > 1 or value.keep_singleton else value[0]


_KINDS: dict[str, Callable[[Any, Any, Child], Run | None]] = {
    **dict.fromkeys(LITERALS, lambda _machine, node, _child: literal(node)),
    **dict.fromkeys(("variable", "path"), lambda machine, node, _child: path(machine, node)),
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
