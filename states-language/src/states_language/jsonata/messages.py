"""Words the failure of a JSONata expression as the JavaScript library, and so AWS, does.

    D3030: Unable to cast value to a number: "x"

jsonata-python has the same codes, but says "Object" for "function", leaves out quotes, and has no code for some errors
of Python's own.
"""

import math
import re
import sys
from typing import Any

from jsonata.jexception import JException

from states_language.jsonata.numbers import NAMES, json_text

_PLACE = re.compile(r"\{(\{\{?)(\w+)\}?\}\}")
_TYPES = {"a": "arrays", "b": "booleans", "f": "functions", "n": "numbers", "o": "objects", "s": "strings"}
_SINGLE = frozenset({"S0217", "D3133", "D3135", *(f"D{number}" for number in range(3081, 3094))})
"""The messages in which the JavaScript library quotes a word with ' and jsonata-python with "."""


def message(problem: Exception) -> str | None:
    """Return the code and message of a failure; None where it has no code."""
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
        return str(value) if place.group(1) == "{{" else _json(value)

    return f"{problem.error}: {_PLACE.sub(fill, template)}"


def _json(value: Any) -> str:
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        value = math.inf if value > 0 else -math.inf
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{NAMES[str(value)]}"'
    return json_text(value)
