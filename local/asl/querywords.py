"""What a failed JSONata expression says.

Decides the words of a failure that has a code: those of the JavaScript library, which AWS has too. jsonata-python says
"Object" for "function", leaves out quotes and has no code for some of Python's own errors. Evaluates nothing.
"""

import re
from typing import Any

from jsonata.functions import Functions
from jsonata.jexception import JException
from jsonata.utils import Utils

_PLACE = re.compile(r"\{(\{\{?)(\w+)\}?\}\}")
_TYPES = {"a": "arrays", "b": "booleans", "f": "functions", "n": "numbers", "o": "objects", "s": "strings"}
_CAST = "could not convert string to float: "


def message(problem: Exception) -> str | None:
    """Return the code and message as the JavaScript library words them; None for a failure that has no code."""
    if isinstance(problem, ValueError) and str(problem).startswith(_CAST):
        problem = JException("D3030", 0, str(problem).removeprefix(_CAST).strip("'"))
    if isinstance(problem, ZeroDivisionError | OverflowError):
        problem = JException("D1001", 0, "Infinity")
    if not isinstance(problem, JException):
        return None
    given = [problem.current, problem.expected, problem.extra]
    if problem.error == "D1002":  # the library puts the operator before the value
        given = [problem.expected]
    template = JException.error_codes.get(problem.error, "{{{message}}}").replace(" Object ", " function ")
    values = iter(given)

    def fill(found: re.Match[str]) -> str:
        value = next(values, None)
        if found.group(2) == "type":
            value = _TYPES.get(str(value), value)
        return str(value) if found.group(1) == "{{" else _json(value)

    told = _PLACE.sub(fill, template)
    return told if problem.error == "D3137" else f"{problem.error}: {told}"


def _json(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(Functions.string(Utils.NULL_VALUE if value is None else value, None))
