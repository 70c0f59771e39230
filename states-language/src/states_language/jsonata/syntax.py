"""Corrects the library's parser, and gives the faults of an expression the codes that JSONata 2.0.6 gives.

fault(KeyError("!"))  # 'S0204: Unknown operator: "!"'
"""

import math
import re
import sys
from typing import Any

from jsonata.jexception import JException
from jsonata.parser import Parser
from jsonata.tokenizer import Tokenizer

from states_language.jsonata.numbers import NAMES, json_text

_BEHIND = " " * 8
"""What the tokenizer looks at behind the end of a text, where JavaScript has nothing."""
_SIGNATURES = {"Type parameters": "S0401", "Choice groups": "S0402"}
"""The beginnings of the library's messages of a function's signature, which have no codes."""


def fault(problem: Exception) -> str:
    """Return the code and message of what is wrong with an expression's text."""
    if isinstance(problem, JException) and problem.error == "S0301" and problem.current is not None:
        problem = JException("S0103", problem.location, problem.current)
    elif isinstance(problem, KeyError):
        problem = JException("S0204", -1, problem.args[0])
    elif isinstance(problem, RuntimeError):
        code = next((code for begin, code in _SIGNATURES.items() if str(problem).startswith(begin)), None)
        problem = problem if code is None else JException(code, -1)
    # A regular expression's fault has no code; what the library did not expect is an error of Python's own.
    return message(problem) or (str(problem) if isinstance(problem, ValueError) else "S0201: Syntax error")


def _refused(token: str) -> Any:
    def led(symbol: Any, _left: Any) -> Any:
        raise JException("S0211", symbol.position, token)

    return led


def _read(tokenizer: Any, path: str, *arguments: Any) -> None:
    _begin(tokenizer, path, *arguments)
    tokenizer.path += _BEHIND


_begin = Tokenizer.__init__
Tokenizer.__init__ = _read
# AWS has JSONata 2.0.6, which reads a ? and then a sign that stands before nothing; the library has what came later.
Parser.InfixCoalesce.led = _refused("?")
Parser.InfixDefault.led = _refused(":")
# The library writes a value into the text of each error, and fails at the node of a function.
Parser.Symbol.__repr__ = lambda symbol: str(symbol.type)


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
