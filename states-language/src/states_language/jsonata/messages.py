"""What a failed JSONata expression says.

Decides the words of a failure that has a code: those of the JavaScript library, which AWS has too. jsonata-python says
"Object" for "function", leaves out quotes and has no code for some of Python's own errors. Evaluates nothing.
"""

import math
import re
from typing import Any

from jsonata.jexception import JException

from states_language.jsonata.numbers import NAMES, json_text

_PLACE = re.compile(r"\{(\{\{?)(\w+)\}?\}\}")
_TYPES = {"a": "arrays", "b": "booleans", "f": "functions", "n": "numbers", "o": "objects", "s": "strings"}
_SINGLE = frozenset({"S0217", "D3133", "D3135", *(f"D{number}" for number in range(3081, 3094))})
"""The messages in which the JavaScript library quotes a word with ' and jsonata-python with "."""


def message(problem: Exception) -> str | None:
    """Return the code and message as the JavaScript library words them; None for a failure that has no code."""
    if not isinstance(problem, JException):
        return None
    given = [problem.current, problem.expected, problem.extra]
    if problem.error == "D1002":  # the library puts the operator before the value
        given = [problem.expected]
    template = JException.error_codes.get(problem.error, "{{{message}}}").replace(" Object ", " function ")
    if problem.error in _SINGLE:
        template = template.replace('"', "'")
    values = iter(given)

    def fill(found: re.Match[str]) -> str:
        value = next(values, None)
        if found.group(2) == "type":
            value = _TYPES.get(str(value), value)
        return str(value) if found.group(1) == "{{" else _json(value)

    told = _PLACE.sub(fill, template)
    return f"{problem.error}: {told}"


def _json(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'"{NAMES[str(value)]}"'
    return json_text(value)
