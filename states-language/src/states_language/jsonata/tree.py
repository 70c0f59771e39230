"""Searches the syntax tree of a JSONata expression for references that Step Functions does not allow.

A Step Functions expression has no data at the top level, so `phone` there refers to nothing, and `$states.input.phone`
is meant. The tree is jsonata-python's.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jsonata.parser import Parser

_PARTS = (list, tuple, Parser.Symbol)


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
            # Of the fifty members of a node nearly all are None.
            waiting.extend([part for part in vars(node).values() if part is not None and isinstance(part, _PARTS)])


_INSIDE = {
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


def top_level(node: Any) -> Iterator[str]:
    """Yield each name, $ and $$ at the top level; AWS refuses a definition that has one.

    Of a path only the first step is at the top level; of a function it is the body where its expression is.
    """
    if isinstance(node, list | tuple):
        for part in node:
            yield from top_level(part)
    elif isinstance(node, Parser.Symbol):
        if node.type == "path" and node.steps:
            yield from top_level(node.steps[0])
        elif node.type == "name":
            yield str(node.value)
        elif node.type == "variable" and node.value in ("", "$"):
            yield f"${node.value}"
        else:
            for part in _INSIDE.get(node.type, ()):
                yield from top_level(getattr(node, part, None))


def reads_error_output(every: Iterable[Any]) -> bool:
    """Return whether an expression of these nodes reads $states.errorOutput, which exists in a Catcher alone."""
    paths = (node.steps[:2] for node in every if node.type == "path" and len(node.steps or ()) > 1)
    return any(
        (first.type, first.value, second.type, second.value) == ("variable", "states", "name", "errorOutput")
        for first, second in paths
    )
