"""The syntax tree of a JSONata expression, as jsonata-python makes it.

Decides which names an expression looks for where there is nothing to look in. Evaluates nothing.
"""

from collections.abc import Iterator
from typing import Any

from jsonata.parser import Parser


def nodes(tree: Any) -> Iterator[Any]:
    """Yield each node of a syntax tree."""
    waiting: list[Any] = [tree]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(node)
        elif isinstance(node, Parser.Symbol) and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(part for part in vars(node).values() if isinstance(part, list | tuple | Parser.Symbol))


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
    """Yield each name that is looked for where there is nothing to look in, $ and $$; AWS refuses such a definition.

    Only the first step of a path looks there; a function looks where the expression stands that defines it.
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


def reads_error_output(tree: Any) -> bool:
    """Return whether an expression reads $states.errorOutput, which there is in a Catcher alone."""
    paths = (node.steps[:2] for node in nodes(tree) if node.type == "path" and len(node.steps or ()) > 1)
    return any(
        (first.type, first.value, second.type, second.value) == ("variable", "states", "name", "errorOutput")
        for first, second in paths
    )
