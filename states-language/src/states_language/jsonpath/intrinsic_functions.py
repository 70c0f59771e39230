"""Implements the intrinsic functions on the values of their arguments; a refused argument raises ValueError.

Random numbers come only from the generator `random`, so the same seed gives the same result.
Bounds: AWS Step Functions Developer Guide, "Intrinsic functions".
"""

import base64
import binascii
import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable
from typing import Any

from states_language.clock import uuid4
from states_language.values import MISSING, compact, is_equal, parse_json

Random = Callable[[], float]

LONGEST_TEXT = 10_000
LONGEST_RANGE = 1000


class Function:
    """One intrinsic function: its least and most number of arguments, and its implementation."""

    def __init__(self, apply: Callable[..., Any], *, needs_random: bool = False) -> None:
        parameters = list(inspect.signature(apply).parameters.values())[needs_random:]
        least = sum(each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty for each in parameters)
        is_open = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        self.arity: tuple[int, int | None] = (least, None if is_open else len(parameters))
        self._apply, self._needs_random = apply, needs_random

    def apply(self, arguments: list[Any], random: Random) -> Any:
        """Return the function's result; raises ValueError for arguments that it refuses."""
        return self._apply(random, *arguments) if self._needs_random else self._apply(*arguments)


_CANONICAL_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=True)

LARGEST_WHOLE = 2**63 - 1
"""The largest long of Java, in which AWS calculates."""


def _require_array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"an array is expected, not {compact(value)}")
    return value


def _require_text(value: Any, longest: int | None = None) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a string is expected, not {compact(value)}")
    if longest is not None and len(value) > longest:
        raise ValueError(f"the string is longer than {longest} characters")
    return value


def _round_to_whole(value: Any) -> int:
    """Round half up, as Java's Math.round: MathAdd(-1.5, 0) is -1 (recorded)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number is expected, not {compact(value)}")
    whole = value if isinstance(value, int) else math.floor(value + 0.5)
    if abs(whole) > LARGEST_WHOLE:
        raise ValueError(f"{compact(value)} is out of range")
    return whole


def _add(left: Any, right: Any) -> int:
    return _round_to_whole(_round_to_whole(left) + _round_to_whole(right))


_PLACE = re.compile(r"\\(.)|(\{\})|([{}])", re.DOTALL)


def _format(template: Any, *values: Any) -> str:
    used = 0

    def fill(place: re.Match[str]) -> str:
        nonlocal used
        if place.group(1) is not None:
            return place.group(1)
        if place.group(3) is not None:
            raise ValueError("a { or } that is not a placeholder is written \\{ or \\}")
        used += 1
        return _to_java_text(values[used - 1]) if used <= len(values) else ""

    text = _PLACE.sub(fill, _require_text(template))
    if used != len(values):
        raise ValueError(f"{used} placeholders for {len(values)} values")
    return text


def _to_java_text(value: Any) -> str:
    """Write a string without quotes, and an object as Java prints a map: {Arg1=1, Arg2=[]} (recorded)."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_to_java_text(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_to_java_text, value)) + "]"
    return compact(value)


def _string_to_json(value: Any) -> Any:
    text = _require_text(value)
    if not text.strip():
        return None
    try:
        return parse_json(text)
    except ValueError:
        raise ValueError(f"'{text}' is not JSON") from None


def _partition(array: Any, chunk: Any) -> list[Any]:
    elements, size = _require_array(array), _round_to_whole(chunk)
    if size < 1:
        raise ValueError("the size of a chunk is a positive integer")
    return [elements[at : at + size] for at in range(0, len(elements), size)]


def _range(start: Any, end: Any, by: Any) -> list[int]:
    first, last, step = map(_round_to_whole, (start, end, by))
    if step == 0:
        raise ValueError("the step is not zero")
    if (last - first) // step >= LONGEST_RANGE:
        raise ValueError(f"a range has at most {LONGEST_RANGE} elements")
    return list(range(first, last + (1 if step > 0 else -1), step))


def _get_item(array: Any, place: Any) -> Any:
    elements, index = _require_array(array), _round_to_whole(place)
    if not 0 <= index < len(elements):
        raise ValueError(f"index {index} is out of bounds for an array of {len(elements)}")
    return elements[index]


def _unique(array: Any) -> list[Any]:
    kept: dict[str, Any] = {}
    for element in _require_array(array):
        kept.setdefault(_CANONICAL_ENCODER.encode(_normalize_numbers(element)), element)
    return list(kept.values())


def _normalize_numbers(value: Any) -> Any:
    """Return the value so that equal whole numbers have the same form: 1.0 becomes 1."""
    if isinstance(value, dict):
        return {key: _normalize_numbers(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(element) for element in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _contains(array: Any, value: Any) -> bool:
    return any(is_equal(element, value) for element in _require_array(array))


def _encode(text: Any) -> str:
    return base64.b64encode(_require_text(text, LONGEST_TEXT).encode()).decode("ascii")


def _decode(text: Any) -> str:
    try:
        return base64.b64decode(_require_text(text, LONGEST_TEXT), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"'{text}' is not Base64 of UTF-8") from None


ALGORITHMS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


def _hash(data: Any, algorithm: Any) -> str:
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise ValueError(f"the algorithm is one of {', '.join(ALGORITHMS)}, not {compact(algorithm)}")
    text = _require_text(data if isinstance(data, str) else compact(data), LONGEST_TEXT)
    return hashlib.new(ALGORITHMS[algorithm], text.encode(), usedforsecurity=False).hexdigest()


def _merge(left: Any, right: Any, deep: Any) -> dict[str, Any]:
    if not isinstance(left, dict) or not isinstance(right, dict):
        raise ValueError("two JSON objects are expected")
    if deep is not False:
        raise ValueError("only the shallow merge exists; the third argument is false")
    return {**left, **right}


def _random_number(random: Random, start: Any, stop: Any, seed: Any = MISSING) -> int:
    first, end = _round_to_whole(start), _round_to_whole(stop)
    if end <= first:
        raise ValueError("the end is greater than the start")
    chance = random() if seed is MISSING else java_random(_round_to_whole(seed))
    return first + int(chance * (end - first))


def java_random(seed: int) -> float:
    """Return the first double of java.util.Random for this seed: the same seed always gives the same number."""
    state, bits = (seed ^ 0x5DEECE66D) & (1 << 48) - 1, 0
    for width in (26, 27):
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        bits = (bits << 27) + (state >> 48 - width)
    return bits / (1 << 53)


def _split(value: Any, signs: Any) -> list[str]:
    text, separators = _require_text(value), _require_text(signs)
    if not separators:
        return [text]
    return [part for part in re.split("[" + re.escape(separators) + "]", text) if part]


FUNCTIONS: dict[str, Function] = {
    "States.Format": Function(_format),
    "States.StringToJson": Function(_string_to_json),
    "States.JsonToString": Function(lambda value: compact(value)),
    "States.Array": Function(lambda *elements: list(elements)),
    "States.ArrayPartition": Function(_partition),
    "States.ArrayContains": Function(_contains),
    "States.ArrayRange": Function(_range),
    "States.ArrayGetItem": Function(_get_item),
    "States.ArrayLength": Function(lambda array: len(_require_array(array))),
    "States.ArrayUnique": Function(_unique),
    "States.Base64Encode": Function(_encode),
    "States.Base64Decode": Function(_decode),
    "States.Hash": Function(_hash),
    "States.JsonMerge": Function(_merge),
    "States.MathRandom": Function(_random_number, needs_random=True),
    "States.MathAdd": Function(_add),
    "States.StringSplit": Function(_split),
    "States.UUID": Function(uuid4, needs_random=True),
}
