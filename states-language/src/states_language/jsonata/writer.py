"""Writes a node of an expression, and the nodes below it, as one Python function. For `$n + 1 = $top` it is

    def run(bounds, input, frame):
        depth = bounds.depth
        if depth + bounds.nested >= bounds.reach and not bounds.has_stack_room():
            return machine.on_new_stack(run, bounds, input, frame)
        if depth >= DEEPEST - 2:
            return general(bounds, input, frame)
        v1 = frame.lookup(c0)
        if type(v1) not in PLAIN and (type(v1) is not str or len(v1) >= SHORT):
            v1 = count_variable(machine, bounds, c1, v1, input, frame)
        bounds.steps += 4
        if bounds.steps > bounds.most_steps:
            raise bounds.overrun_error()
        v2 = v1 + 1 if ... else machine.evaluate_numeric_expression(v1, 1, '+')
        ...

Invariants: no text of an expression becomes code, for whole numbers are written by their digits and all other constants
are values with names of ours. Steps, depth, values and failures are those of `general`, the library's evaluator; steps
are counted together up to the next place where something may fail.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from states_language.jsonata.leaf_nodes import LITERALS, Run, literal_function
from states_language.jsonata.library import Utils
from states_language.jsonata.syntax import has_modifiers, nodes

_LONG = 2**63
_LEVELS = 16
"""So many levels of a tree are written as one function; those below have functions of their own."""


def can_write(node: Any) -> bool:
    """Return whether a node can be written: it is of a kind that `Writer` knows, and nothing else belongs to it."""
    if has_modifiers(node) or node.type not in _WRITERS:
        return False
    if node.type == "function":
        callee = node.procedure
        return bool(callee.type == "variable" and callee.value and not has_modifiers(callee))
    if node.type == "binary":
        return node.value in ("and", "or", *_OPERATORS)
    return bool(node.type != "unary" or node.value == "[")


_HEAD = """\
def run(bounds, input, frame):
    depth = bounds.depth
    if depth + bounds.nested >= bounds.reach and not bounds.has_stack_room():
        return machine.on_new_stack(run, bounds, input, frame)
    if depth >= DEEPEST - {deepest}:
        return general(bounds, input, frame)
"""


class Writer:
    """Writes lines and collects constants.

    run_of: returns the function of a node that is not written. deepest: how many levels are below the first.
    """

    def __init__(self, run_of: Callable[[Any], Run]) -> None:
        self.run_of = run_of
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.deepest = 0
        self.level = -1
        self.frame = "frame"
        self._indent = "    "
        self._steps = 0
        self._names = 0

    def write_function(self, node: Any) -> str:
        value = self.write_value(node)
        self.write_step_count()
        self.write_line("bounds.depth = depth")
        self.write_line(f"return {value}")
        return _HEAD.format(deepest=self.deepest) + "".join(self.lines)

    def write_value(self, node: Any) -> str:
        """Write what evaluates a node, and return the name or the digits of its value."""
        self.level += 1
        self.deepest = max(self.deepest, self.level)
        if node.type in LITERALS and not has_modifiers(node) and literal_function(node) is not None:
            self.count_step()
            name = self.constant(Utils.NULL_VALUE if node.value is None else node.value)
        elif node.type == "variable" and node.value not in ("", "states") and not has_modifiers(node):
            self.count_step()
            name = self.write_assignment(f"{self.frame}.lookup({self.constant(str(node.value))})")
            self.write_size_check(
                name, f"count_variable(machine, bounds, {self.constant(node)}, {name}, input, {self.frame})"
            )
        elif self.level < _LEVELS and can_write(node):
            self.count_step()
            name = _WRITERS[node.type](self, node)
        else:
            run = self.run_of(node)
            self.write_step_count()
            self.write_line(f"bounds.depth = depth + {self.level}")
            # A node that can be written gets another function once it has been evaluated often.
            place = f"{self.constant(node)}.run" if can_write(node) else self.constant(run)
            name = self.write_assignment(f"{place}(bounds, input, {self.frame})")
        self.level -= 1
        return name

    def write_line(self, text: str) -> None:
        self.lines.append(f"{self._indent}{text}\n")

    @contextlib.contextmanager
    def write_block(self, head: str) -> Iterator[None]:
        """Write a line, and indent those that are written in this context; their steps are counted within."""
        self.write_step_count()
        self.write_line(head)
        self._indent += "    "
        yield
        self.write_step_count()
        self._indent = self._indent[4:]

    def new_name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def write_assignment(self, text: str) -> str:
        """Write that a new name has this value, and return the name."""
        name = self.new_name()
        self.write_line(f"{name} = {text}")
        return name

    def constant(self, value: Any) -> str:
        """Return the digits of a whole number, or the name of another constant."""
        if type(value) is int and abs(value) < _LONG:
            return str(value)
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def write_size_check(self, name: str, otherwise: str) -> None:
        """Write what a value becomes that is neither plain nor a short text."""
        self.write_line(f"if type({name}) not in PLAIN and (type({name}) is not str or len({name}) >= SHORT):")
        self.write_line(f"    {name} = {otherwise}")

    def write_sequence_check(self, name: str, node: Any) -> str:
        """Write that the size of a node's value counts, unless it is a constant; return its name."""
        if name.startswith("v"):
            self.write_step_count()
            self.write_size_check(name, f"settle_sequence(bounds, {self.constant(node)}, {name})")
        return name

    def count_step(self) -> None:
        self._steps += 1

    def write_step_count(self) -> None:
        """Write that the steps since the last count are counted."""
        if self._steps:
            self.write_line(f"bounds.steps += {self._steps}")
            self.write_line("if bounds.steps > bounds.most_steps:")
            self.write_line("    raise bounds.overrun_error()")
        self._steps = 0


def _write_binary(writer: Writer, node: Any) -> str:
    if node.value in ("and", "or"):
        return _write_logical(writer, node)
    left, right = writer.write_value(node.lhs), writer.write_value(node.rhs)
    writer.write_step_count()
    operated = f"machine.{_OPERATORS[node.value]}({left}, {right}, {node.value!r})"
    if node.value in _NATIVE_OPERATORS:
        kind, sign = _NATIVE_OPERATORS[node.value]
        quick = f"type({left}) is {kind} is type({right})"
        if node.value in ("+", "-"):
            quick += f" and -SMALL < {left} < SMALL and -SMALL < {right} < SMALL"
        operated = f"{left} {sign} {right} if {quick} else {operated}"
    value = writer.write_assignment(operated)
    if node.value in ("&", ".."):
        writer.write_size_check(value, f"bounds.count_result({writer.constant(node)}, {value})")
    return value


def _truth_expression(value: str) -> str:
    if value[0] != "v":
        return f"truth({value})"
    return f"{value} if {value} is True or {value} is False else truth({value})"


def _write_logical(writer: Writer, node: Any) -> str:
    left = writer.write_value(node.lhs)
    writer.write_step_count()
    value = writer.write_assignment(_truth_expression(left))
    with writer.write_block(f"if {value} is not {node.value == 'or'}:"):
        with writer.write_block("try:"):
            right = writer.write_value(node.rhs)
            writer.write_step_count()
            writer.write_line(f"{value} = {_truth_expression(right)}")
        with writer.write_block("except UNCHANGED_ERRORS:"):
            writer.write_line("raise")
        with writer.write_block("except Exception:"):
            writer.write_line(f"raise JException('Unexpected', {writer.constant(node.position)}) from None")
    return value


def _write_condition(writer: Writer, node: Any) -> str:
    condition, value = writer.write_value(node.condition), writer.new_name()
    for head, part in ((f"if {_truth_expression(condition)}:", node.then), ("else:", node._else)):
        with writer.write_block(head):
            writer.write_line(f"{value} = {'None' if part is None else writer.write_value(part)}")
    return writer.write_sequence_check(value, node)


def _write_block(writer: Writer, node: Any) -> str:
    outer, value = writer.frame, "None"
    if any(part.type == "bind" for part in nodes(node.expressions)):
        writer.frame = writer.write_assignment(f"machine.create_frame({outer})")
    for part in node.expressions:
        value = writer.write_value(part)
    writer.frame = outer
    return writer.write_sequence_check(value, node)


def _write_bind(writer: Writer, node: Any) -> str:
    value = writer.write_value(node.rhs)
    writer.write_line(f"{writer.frame}.bind({writer.constant(str(node.lhs.value))}, {value})")
    return writer.write_sequence_check(value, node)


def _write_array(writer: Writer, node: Any) -> str:
    array = writer.write_assignment("JList()")
    for part in node.expressions:
        element = writer.write_value(part)
        if element[0] != "v" or str(part.value) == "[":
            writer.write_line(f"{array}.append({element})")
        else:
            writer.write_line(f"if isinstance({element}, list):")
            writer.write_line(f"    {array}.extend({element})")
            writer.write_line(f"elif {element} is not None:")
            writer.write_line(f"    {array}.append({element})")
    writer.write_step_count()
    writer.write_line(f"if len({array}) >= 8:")
    writer.write_line(f"    bounds.count_result({writer.constant(node)}, {array})")
    return array


def _write_call(writer: Writer, node: Any) -> str:
    function = writer.write_assignment(f"{writer.frame}.lookup({writer.constant(str(node.procedure.value))})")
    value, called = writer.new_name(), writer.constant(node)
    writer.deepest = max(writer.deepest, writer.level + 1)
    with writer.write_block(f"if isinstance({function}, JFunction):"):
        writer.count_step()  # for the node of the name
        arguments = ", ".join([writer.write_value(part) for part in node.arguments or ()])
        with writer.write_block("try:"):
            writer.write_line(f"bounds.depth = depth + {writer.level + 1}")
            writer.write_line(f"{value} = machine.call(bounds, {function}, [{arguments}], input)")
        with writer.write_block("except JException as problem:"):
            writer.write_line(f"raise with_location(problem, {called})")
    with writer.write_block("else:"):
        writer.write_line(f"bounds.depth = depth + {writer.level + 1}")
        writer.write_line(f"{value} = machine.general({called}, input, {writer.frame})")
    return writer.write_sequence_check(value, node)


_WRITERS: dict[str, Callable[[Writer, Any], str]] = {
    "binary": _write_binary,
    "condition": _write_condition,
    "block": _write_block,
    "bind": _write_bind,
    "unary": _write_array,
    "function": _write_call,
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
_NATIVE_OPERATORS = {
    "=": ("str", "=="),
    "!=": ("str", "!="),
    "&": ("str", "+"),
    **{sign: ("int", sign) for sign in ("<", "<=", ">", ">=", "+", "-")},
}
"""Python's own sign, which does the same for two values of this type; a sum only of small numbers."""
