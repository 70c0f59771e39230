"""Corrects the library's parser and searches its syntax trees.

error_text(KeyError("!"))  # 'S0204: Unknown operator: "!"'
"""

import math
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from states_language.jsonata.library import JException, Parser, Tokenizer
from states_language.jsonata.numbers import NON_FINITE_NAMES, json_text

_PADDING = " " * 8
"""What the tokenizer finds after the end of a text; JavaScript finds nothing there."""
_SIGNATURES = {"Type parameters": "S0401", "Choice groups": "S0402"}
"""The beginnings of the library's messages about a function's signature, which have no codes."""


def error_text(problem: Exception) -> str:
    """Return the code and the message of the error in an expression's text."""
    if isinstance(problem, JException) and problem.error == "S0301" and problem.current is not None:
        problem = JException("S0103", problem.location, problem.current)
    elif isinstance(problem, KeyError):
        problem = JException("S0204", -1, problem.args[0])
    elif isinstance(problem, RuntimeError):
        code = next((code for begin, code in _SIGNATURES.items() if str(problem).startswith(begin)), None)
        problem = problem if code is None else JException(code, -1)
    # An error in a regular expression has no code; a text that the library did not expect raises an error of Python's.
    return coded_message(problem) or (str(problem) if isinstance(problem, ValueError) else "S0201: Syntax error")


def _refuse_operator(token: str) -> Any:
    def led(symbol: Any, _left: Any) -> Any:
        raise JException("S0211", symbol.position, token)

    return led


def _init_tokenizer(tokenizer: Any, path: str, *arguments: Any) -> None:
    _library_init(tokenizer, path, *arguments)
    tokenizer.path += _PADDING


_library_init = Tokenizer.__init__
Tokenizer.__init__ = _init_tokenizer
# AWS has JSONata 2.0.6, where ?? is an error: a ? and a sign that nothing follows. The library has a later version.
Parser.InfixCoalesce.led = _refuse_operator("?")
Parser.InfixDefault.led = _refuse_operator(":")
# The library writes a value into the text of each error; for the node of a function that fails.
Parser.Symbol.__repr__ = lambda symbol: str(symbol.type)


def _share_defaults(symbol: Any) -> None:
    """Have a node keep what it was given alone: the fifty members that nearly all nodes lack stay with the class."""
    absent = vars(symbol(None))

    def make(node: Any, parser: Any, id: str | None = None, bp: int = 0) -> None:
        node._outer_instance, node.id, node.value, node.bp = parser, id, id, bp

    def clone(node: Any) -> Any:
        twin = object.__new__(type(node))
        vars(twin).update(vars(node))
        return twin

    for name, value in absent.items():
        setattr(symbol, name, value)
    symbol.run = None  # see `node_functions`
    symbol.__init__, symbol.clone = make, clone


_share_defaults(Parser.Symbol)


_PLACE = re.compile(r"\{(\{\{?)(\w+)\}?\}\}")
_TYPES = {"a": "arrays", "b": "booleans", "f": "functions", "n": "numbers", "o": "objects", "s": "strings"}
_SINGLE = frozenset({"S0217", "D3133", "D3135", *(f"D{number}" for number in range(3081, 3094))})
"""The messages in which the JavaScript library quotes a word with ' and jsonata-python with "."""


def coded_message(problem: Exception) -> str | None:
    """Return the code and message of a failure; None if it has no code."""
    if not isinstance(problem, JException):
        return None
    arguments = [problem.current, problem.expected, problem.extra]
    if problem.error == "D1002":  # the library puts the operator before the value
        arguments = [problem.expected]
    template = JException.error_codes.get(problem.error, "{{{message}}}").replace(" Object ", " function ")
    if problem.error in _SINGLE:
        template = template.replace('"', "'")
    values = iter(arguments)

    def fill(place: re.Match[str]) -> str:
        value = next(values, None)
        if place.group(2) == "type":
            value = _TYPES.get(str(value), value)
        return str(value) if place.group(1) == "{{" else _to_message_text(value)

    return f"{problem.error}: {_PLACE.sub(fill, template)}"


def _to_message_text(value: Any) -> str:
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        value = math.inf if value > 0 else -math.inf
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{NON_FINITE_NAMES[str(value)]}"'
    return json_text(value)


# ---- what an expression refers to ----

_NODES = (list, tuple, Parser.Symbol)


def nodes(tree: Any) -> Iterator[Any]:
    """Yield every node of a syntax tree."""
    waiting: list[Any] = [tree]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif isinstance(node, Parser.Symbol) and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend([part for part in vars(node).values() if isinstance(part, _NODES)])


_CHILD_FIELDS = {
    "binary": ("lhs", "rhs"),
    "unary": ("expression", "expressions", "lhs", "lhs_object"),
    "condition": ("condition", "then", "_else"),
    "block": ("expressions",),
    "bind": ("rhs",),
    "function": ("procedure", "arguments"),
    "partial": ("procedure", "arguments"),
    "lambda": ("body",),
    "apply": ("lhs", "rhs"),
}


def top_level_names(node: Any) -> Iterator[str]:
    """Yield each name, $ and $$ at the top level; AWS refuses a definition that has one.

    Only the first step of a path is at the top level; a function's body is, if the function itself is.
    """
    if isinstance(node, list | tuple):
        for part in node:
            yield from top_level_names(part)
    elif isinstance(node, Parser.Symbol):
        if node.type == "path" and node.steps:
            yield from top_level_names(node.steps[0])
        elif node.type == "name":
            yield str(node.value)
        elif node.type == "variable" and node.value in ("", "$"):
            yield f"${node.value}"
        else:
            for part in _CHILD_FIELDS.get(node.type, ()):
                yield from top_level_names(getattr(node, part, None))


_MODIFIERS = frozenset({
    "predicate", "group", "stages", "tuple", "focus", "index", "ancestor", "keep_singleton_array", "keep_array",
    "consarray",
})  # fmt: skip


def has_modifiers(node: Any) -> bool:
    """Return whether a node has a predicate, a sort, a binding, a group or the like besides."""
    given = vars(node)
    return not _MODIFIERS.isdisjoint(given) and any(given.get(name) not in (None, False) for name in _MODIFIERS)


def bound_names(node: Any) -> list[Any]:
    """Return the variables that a node gives a value: by :=, as a parameter of a function, by @ or #."""
    parameters = node.arguments if node.type == "lambda" else [node.lhs] if node.type == "bind" else ()
    return [node.focus, node.index, *(parameter.value for parameter in parameters)]


def has_error_output(every: Iterable[Any]) -> bool:
    """Return whether an expression of these nodes reads $states.errorOutput, which only a Catcher has."""
    paths = (node.steps[:2] for node in every if node.type == "path" and len(node.steps or ()) > 1)
    return any(
        (first.type, first.value, second.type, second.value) == ("variable", "states", "name", "errorOutput")
        for first, second in paths
    )
