"""Finds the variables that each state reads, as DescribeStateMachine lists them (recorded)."""

from collections.abc import Iterator
from typing import Any

from states_language.definition.fields import JSONATA
from states_language.definition.pointers import LINES, states_of
from states_language.jsonata.evaluation import compile_query, is_query
from states_language.jsonata.functions import functions_frame
from states_language.jsonpath.expressions import Call, Expression, compile_expression
from states_language.jsonpath.selection import Path

_TEMPLATES = ("Parameters", "ResultSelector", "ItemSelector", "BatchInput", "Assign", "Credentials")
_OTHERS = (*LINES, "Branches", "Result", "ResultPath")


def variable_references(definition: dict[str, Any]) -> dict[str, list[str]]:
    """Returns the names of the variables by the name of the state that reads them; both in their order."""
    functions, found = functions_frame(lambda: 0, lambda: 0.0), {}
    for path, state in states_of(definition):
        fields = {name: value for name, value in state.items() if name not in _OTHERS}
        is_jsonata = state.get("QueryLanguage", definition.get("QueryLanguage")) == JSONATA
        names = set(_names_in_queries(fields) if is_jsonata else _names_in_paths(fields, template=False))
        if read := sorted(name for name in names if not is_jsonata or functions.lookup(name) is None):
            found[str(path[-1])] = read
    return found


def _names_in_paths(value: Any, *, template: bool) -> Iterator[str]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        name = str(key)
        if isinstance(member, str) and (name.endswith(".$") if template else name.endswith(("Path", "Variable"))):
            yield from _names_read(compile_expression(member))
        else:
            yield from _names_in_paths(member, template=template or name in _TEMPLATES)


def _names_read(expression: Expression) -> Iterator[str]:
    if isinstance(expression, Path) and expression.variable is not None:
        yield expression.variable
    for argument in expression.arguments if isinstance(expression, Call) else ():
        yield from _names_read(argument)


def _names_in_queries(value: Any) -> Iterator[str]:
    if is_query(value):
        yield from compile_query(value, "/", in_catcher=True).free_names
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names_in_queries(part)
