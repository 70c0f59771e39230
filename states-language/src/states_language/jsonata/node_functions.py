"""Returns the function by which a node of an expression is evaluated.

    run = node_function(machine, node)
    run(bounds, input, frame)  # the node's value

Literals, variables and paths of names through objects have one each (`leaf_nodes`). The library's evaluator (`general`)
evaluates all other nodes at first. For one that is evaluated often a Python function is written (`writer`), but not for
a predicate, a sort, a group or the like, a path that meets an array, a call of anything else than a named function.
Invariant: the value and the failure are the general evaluator's, and so is what `bounds` counts, but that a path takes
a step for each name even where an earlier one is missing.
"""

import math
from collections.abc import Callable
from typing import Any, cast

from states_language.jsonata import library
from states_language.jsonata.bounds import DEEPEST, SHORT, Bounds, Exceeded
from states_language.jsonata.leaf_nodes import LITERALS, PLAIN, Run, literal_function, path_function
from states_language.jsonata.library import Functions, JException, Utils
from states_language.jsonata.syntax import has_modifiers
from states_language.jsonata.writer import Writer, can_write
from states_language.scheduling.lanes import Costly

_OFTEN = 8
"""After so many evaluations the next is worth a function; to write one costs about as much as to parse the node."""


def node_function(machine: Any, node: Any) -> Run:
    """Return the function of a node, which the node keeps as `run`; it may be another one later."""
    if node.run is None:
        read = None if has_modifiers(node) else _LEAVES.get(node.type)
        node.run = (None if read is None else read(machine, node)) or _general_function(machine, node)
    return cast("Run", node.run)


_LEAVES: dict[str, Callable[[Any, Any], Run | None]] = {
    **dict.fromkeys(LITERALS, lambda _machine, node: literal_function(node)),
    **dict.fromkeys(("variable", "path"), path_function),
}


def _general_function(machine: Any, node: Any) -> Run:
    """Return the function by which the library evaluates a node, until the node has been evaluated often."""
    seen, often = 0, _OFTEN if can_write(node) else math.inf

    def work(bounds: Bounds, input: Any, frame: Any) -> Any:
        bounds.enter()
        value = machine.general(node, input, frame)
        bounds.depth -= 1
        return value if type(value) in PLAIN else bounds.count_result(node, value)

    def run(bounds: Bounds, input: Any, frame: Any) -> Any:
        nonlocal seen
        if seen >= often:
            writer = Writer(lambda part: node_function(machine, part))
            code = compile(writer.write_function(node), "<JSONata>", "exec")
            names = {**_NAMES, **writer.constants, "machine": machine, "general": work}
            exec(code, names)
            node.run = cast("Run", names["run"])
            return node.run(bounds, input, frame)
        seen += 1
        # If this stack may have too little room left, a new one takes over.
        if bounds.depth + bounds.nested >= bounds.reach and not bounds.has_stack_room():
            return machine.on_new_stack(work, bounds, input, frame)
        return work(bounds, input, frame)

    return run


# ---- what such a function refers to ----


_boolize = library.Jsonata.boolize


def truth(value: Any) -> bool:
    """Return whether a value counts as true. A function does, as an object with members, except to $boolean."""
    if value is True or value is False:
        return bool(value)
    if isinstance(value, float) and not Utils.is_numeric(value):  # raises D1001 for Infinity
        return False
    return bool(Functions.is_lambda(value) or Utils.is_function(value) or _boolize(value))


library.Jsonata.boolize = staticmethod(truth)


def _count_variable(machine: Any, bounds: Bounds, node: Any, value: Any, input: Any, frame: Any) -> Any:
    """Return a variable's value that is not plain: the general evaluator's of an array, and its size counts."""
    return bounds.count_result(node, machine.general(node, input, frame) if isinstance(value, list) else value)


def _settle_sequence(bounds: Bounds, node: Any, value: Any) -> Any:
    """Return a node's value, whose size counts: of a sequence of one that value, of an empty one undefined."""
    if type(value) is _JList and value.sequence and not value.tuple_stream and len(value) < 2:
        value = None if not value else value if value.keep_singleton else value[0]
    return bounds.count_result(node, value)


def _with_location(problem: Any, node: Any) -> Any:
    """Return the failure of a function, with the place of its call if it has none."""
    if problem.location < 0:
        problem.location = node.position
    if problem.current is None:
        problem.current = node.token
    return problem


UNCHANGED_ERRORS = (JException, Exceeded, Costly, RecursionError, TimeoutError)
"""The failures of a right side that are those of `and` and `or`; one of Python's own has no code."""
_JList = Utils.JList
_NAMES = {
    "DEEPEST": DEEPEST,
    "SHORT": SHORT,
    "SMALL": 2**31,
    "PLAIN": PLAIN,
    "JList": _JList,
    "JException": JException,
    "JFunction": library.Jsonata.JFunction,
    "truth": truth,
    "count_variable": _count_variable,
    "settle_sequence": _settle_sequence,
    "with_location": _with_location,
    "UNCHANGED_ERRORS": UNCHANGED_ERRORS,
}
