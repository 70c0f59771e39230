"""Writes a node of an expression, and the nodes below it, as one Python function. For `$n + 1 = $top` it is

    def run(bounds, input, frame):
        depth = bounds.depth
        if depth + bounds.nested >= bounds.reach and not bounds.reaches():
            return machine.on_new_stack(run, bounds, input, frame)
        if depth >= DEEPEST - 2:
            return general(bounds, input, frame)
        v1 = frame.lookup(c0)
        if type(v1) not in PLAIN and (type(v1) is not str or len(v1) >= SHORT):
            v1 = met(machine, bounds, c1, v1, input, frame)
        bounds.steps += 4
        if bounds.steps > bounds.most:
            raise bounds.spent()
        v2 = v1 + 1 if ... else machine.evaluate_numeric_expression(v1, 1, '+')
        ...

Invariants: no text of an expression becomes code, for whole numbers are written by their digits and all other constants
are values with names of ours. Steps, depth, values and failures are those of `general`, the library's evaluator; steps
are counted together up to the next place where something may fail.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from states_language.jsonata.library import Utils
from states_language.jsonata.reads import LITERALS, Run, literal
from states_language.jsonata.syntax import has_more, nodes

_LONG = 2**63
_LEVELS = 16
"""So many levels of a tree are written as one function; those below have functions of their own."""


def generates(node: Any) -> bool:
    """Return whether a node can be written: it is of a kind that `Writer` knows, and nothing else belongs to it."""
    if has_more(node) or node.type not in _KINDS:
        return False
    if node.type == "function":
        callee = node.procedure
        return bool(callee.type == "variable" and callee.value and not has_more(callee))
    if node.type == "binary":
        return node.value in ("and", "or", *_OPERATORS)
    return bool(node.type != "unary" or node.value == "[")


_HEAD = """\
def run(bounds, input, frame):
    depth = bounds.depth
    if depth + bounds.nested >= bounds.reach and not bounds.reaches():
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

    def function(self, node: Any) -> str:
        """Return the text of the function of a node."""
        value = self.value(node)
        self.count()
        self.line("bounds.depth = depth")
        self.line(f"return {value}")
        return _HEAD.format(deepest=self.deepest) + "".join(self.lines)

    def value(self, node: Any) -> str:
        """Write what evaluates a node, and return the name or the digits of its value."""
        self.level += 1
        self.deepest = max(self.deepest, self.level)
        if node.type in LITERALS and not has_more(node) and literal(node) is not None:
            self.step()
            name = self.constant(Utils.NULL_VALUE if node.value is None else node.value)
        elif node.type == "variable" and node.value not in ("", "states") and not has_more(node):
            self.step()
            name = self.set(f"{self.frame}.lookup({self.constant(str(node.value))})")
            self.check(name, f"met(machine, bounds, {self.constant(node)}, {name}, input, {self.frame})")
        elif self.level < _LEVELS and generates(node):
            self.step()
            name = _KINDS[node.type](self, node)
        else:
            run = self.run_of(node)
            self.count()
            self.line(f"bounds.depth = depth + {self.level}")
            # A node that can be written gets another function once it has been evaluated often.
            place = f"{self.constant(node)}.run" if generates(node) else self.constant(run)
            name = self.set(f"{place}(bounds, input, {self.frame})")
        self.level -= 1
        return name

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.append(f"{self._indent}{text}\n")

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a line, and indent those that are written in this context; their steps are counted within."""
        self.count()
        self.line(head)
        self._indent += "    "
        yield
        self.count()
        self._indent = self._indent[4:]

    def name(self) -> str:
        """Return a new name of a value."""
        self._names += 1
        return f"v{self._names}"

    def set(self, text: str) -> str:
        """Write that a new name has this value, and return the name."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def constant(self, value: Any) -> str:
        """Return the digits of a whole number, or the name of another constant."""
        if type(value) is int and abs(value) < _LONG:
            return str(value)
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def check(self, name: str, otherwise: str) -> None:
        """Write what a value becomes that is neither plain nor a short text."""
        self.line(f"if type({name}) not in PLAIN and (type({name}) is not str or len({name}) >= SHORT):")
        self.line(f"    {name} = {otherwise}")

    def settle(self, name: str, node: Any) -> str:
        """Write that the size of a node's value counts, unless it is a constant; return its name."""
        if name.startswith("v"):
            self.count()
            self.check(name, f"settled(bounds, {self.constant(node)}, {name})")
        return name

    def step(self) -> None:
        """Count a step."""
        self._steps += 1

    def count(self) -> None:
        """Write that the steps since the last count are counted."""
        if self._steps:
            self.line(f"bounds.steps += {self._steps}")
            self.line("if bounds.steps > bounds.most:")
            self.line("    raise bounds.spent()")
        self._steps = 0


def _binary(writer: Writer, node: Any) -> str:
    if node.value in ("and", "or"):
        return _logical(writer, node)
    left, right = writer.value(node.lhs), writer.value(node.rhs)
    writer.count()
    operated = f"machine.{_OPERATORS[node.value]}({left}, {right}, {node.value!r})"
    if node.value in _QUICK:
        kind, sign = _QUICK[node.value]
        quick = f"type({left}) is {kind} is type({right})"
        if node.value in ("+", "-"):
            quick += f" and -SMALL < {left} < SMALL and -SMALL < {right} < SMALL"
        operated = f"{left} {sign} {right} if {quick} else {operated}"
    value = writer.set(operated)
    if node.value in ("&", ".."):
        writer.check(value, f"bounds.measured({writer.constant(node)}, {value})")
    return value


def _truth(value: str) -> str:
    if value[0] != "v":
        return f"truth({value})"
    return f"{value} if {value} is True or {value} is False else truth({value})"


def _logical(writer: Writer, node: Any) -> str:
    left = writer.value(node.lhs)
    writer.count()
    value = writer.set(_truth(left))
    with writer.block(f"if {value} is not {node.value == 'or'}:"):
        with writer.block("try:"):
            right = writer.value(node.rhs)
            writer.count()
            writer.line(f"{value} = {_truth(right)}")
        with writer.block("except THEMSELVES:"):
            writer.line("raise")
        with writer.block("except Exception:"):
            writer.line(f"raise JException('Unexpected', {writer.constant(node.position)}) from None")
    return value


def _condition(writer: Writer, node: Any) -> str:
    condition, value = writer.value(node.condition), writer.name()
    for head, part in ((f"if {_truth(condition)}:", node.then), ("else:", node._else)):
        with writer.block(head):
            writer.line(f"{value} = {'None' if part is None else writer.value(part)}")
    return writer.settle(value, node)


def _block(writer: Writer, node: Any) -> str:
    outer, value = writer.frame, "None"
    if any(part.type == "bind" for part in nodes(node.expressions)):
        writer.frame = writer.set(f"machine.create_frame({outer})")
    for part in node.expressions:
        value = writer.value(part)
    writer.frame = outer
    return writer.settle(value, node)


def _bind(writer: Writer, node: Any) -> str:
    value = writer.value(node.rhs)
    writer.line(f"{writer.frame}.bind({writer.constant(str(node.lhs.value))}, {value})")
    return writer.settle(value, node)


def _array(writer: Writer, node: Any) -> str:
    array = writer.set("JList()")
    for part in node.expressions:
        element = writer.value(part)
        if element[0] != "v" or str(part.value) == "[":
            writer.line(f"{array}.append({element})")
        else:
            writer.line(f"if isinstance({element}, list):")
            writer.line(f"    {array}.extend({element})")
            writer.line(f"elif {element} is not None:")
            writer.line(f"    {array}.append({element})")
    writer.count()
    writer.line(f"if len({array}) >= 8:")
    writer.line(f"    bounds.measured({writer.constant(node)}, {array})")
    return array


def _call(writer: Writer, node: Any) -> str:
    function = writer.set(f"{writer.frame}.lookup({writer.constant(str(node.procedure.value))})")
    value, called = writer.name(), writer.constant(node)
    writer.deepest = max(writer.deepest, writer.level + 1)
    with writer.block(f"if isinstance({function}, JFunction):"):
        writer.step()  # for the node of the name
        arguments = ", ".join([writer.value(part) for part in node.arguments or ()])
        with writer.block("try:"):
            writer.line(f"bounds.depth = depth + {writer.level + 1}")
            writer.line(f"{value} = machine.call(bounds, {function}, [{arguments}], input)")
        with writer.block("except JException as problem:"):
            writer.line(f"raise located(problem, {called})")
    with writer.block("else:"):
        writer.line(f"bounds.depth = depth + {writer.level + 1}")
        writer.line(f"{value} = machine.general({called}, input, {writer.frame})")
    return writer.settle(value, node)


_KINDS: dict[str, Callable[[Writer, Any], str]] = {
    "binary": _binary,
    "condition": _condition,
    "block": _block,
    "bind": _bind,
    "unary": _array,
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
_QUICK = {
    "=": ("str", "=="),
    "!=": ("str", "!="),
    "&": ("str", "+"),
    **{sign: ("int", sign) for sign in ("<", "<=", ">", ">=", "+", "-")},
}
"""Python's own sign, which does the same for two values of this type; a sum only of small numbers."""
