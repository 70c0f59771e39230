"""Whether a JSONata function takes the arguments that it is given.

Decides which value is of which type, what stands in for an argument that is left out and which argument a refusal
names. Knows no function. The library's own check takes null for undefined and names the wrong argument.
Source: the JSONata documentation, "Function signature syntax".
"""

import re
from typing import Any

from jsonata.functions import Functions
from jsonata.jexception import JException
from jsonata.utils import Utils


def checked(signature: Any, given: list[Any], context: Any) -> list[Any]:
    """Return the arguments as the function sees them; raises JException T0410, T0411 or T0412."""
    letters = "".join(map(_letter, given))
    found = re.fullmatch("".join(f"({param.regex})" for param in signature._params), letters)
    if found is None:
        raise JException("T0410", -1, _first_bad(signature, letters), signature.function_name)
    seen: list[Any] = []
    at = 0
    for param, matched in zip(signature._params, found.groups(), strict=True):
        if not matched and param.context:
            if not re.fullmatch(param.regex, _letter(context)):
                raise JException("T0411", -1, at + 1, signature.function_name)
            seen.append(context)
        else:
            for letter in matched or "m":
                value = given[at] if at < len(given) else None
                seen.append(_array(signature, param, matched, letter, value, at) if param.type == "a" else value)
                at += 1
    return seen


_LETTERS = {str: "s", bool: "b", int: "n", float: "n", list: "a", Utils.JList: "a", Utils.RangeList: "a", dict: "o"}


def _letter(value: Any) -> str:
    """Return the type as a signature writes it: l is null, m is missing, f is a function."""
    if value is None:
        return "m"
    if value is Utils.NULL_VALUE:
        return "l"
    known = _LETTERS.get(type(value))
    if known is not None:
        return known
    callable_ = Utils.is_function(value) or Functions.is_lambda(value) or Functions.is_regex(value)
    return "f" if callable_ else "m"


def _first_bad(signature: Any, letters: str) -> int:
    pattern, good = "", 0
    for param in signature._params:
        pattern += param.regex
        found = re.match(pattern, letters)
        if found is None:
            break
        good = found.end()
    return good + 1


def _array(signature: Any, param: Any, matched: str, letter: str, value: Any, at: int) -> Any:
    """Return the array, or the array of the one value; each element is of the type that the signature names."""
    if letter == "m":
        return None
    if param.subtype is not None:
        if letter == "a":
            good = not value or {_letter(element) for element in value} == {param.subtype[0]}
        else:
            good = matched == param.subtype
        if not good:
            raise JException("T0412", -1, at + 1, signature.function_name, param.subtype)
    return value if letter == "a" else [value]
