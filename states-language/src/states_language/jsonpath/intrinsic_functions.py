"""Implements the intrinsic functions on the values of their arguments.

    FUNCTIONS["States.ArrayRange"].apply([1, 9, 2], random)  # [1, 3, 5, 7, 9]

A function raises ValueError for an argument that it refuses. Chance comes from the generator `random` alone, so the
same seed gives the same result. Bounds: AWS Step Functions Developer Guide, "Intrinsic functions".
"""

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from states_language.clock import uuid4
from states_language.values import compact, parse_json, same

Arity = tuple[int, int | None]
Random = Callable[[], float]

LONGEST_TEXT = 10_000
LONGEST_RANGE = 1000


@dataclass(frozen=True)
class Function:
    """One intrinsic function: its least and most number of arguments, and its implementation."""

    arity: Arity
    apply: Callable[[list[Any], Random], Any]


_SORTED = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=True)

LARGEST_WHOLE = 2**63 - 1
"""The largest long of Java, in which AWS calculates."""


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"an array is expected, not {compact(value)}")
    return value


def _text(value: Any, longest: int | None = None) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a string is expected, not {compact(value)}")
    if longest is not None and len(value) > longest:
        raise ValueError(f"the string is longer than {longest} characters")
    return value


def _whole(value: Any) -> int:
    """Round half up, as Java's Math.round: MathAdd(-1.5, 0) is -1 (recorded)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a number is expected, not {compact(value)}")
    whole = value if isinstance(value, int) else math.floor(value + 0.5)
    if abs(whole) > LARGEST_WHOLE:
        raise ValueError(f"{value:g} is out of range")
    return whole


def _add(arguments: list[Any], _random: Random) -> int:
    return _whole(_whole(arguments[0]) + _whole(arguments[1]))


_PLACE = re.compile(r"\\(.)|(\{\})|([{}])", re.DOTALL)


def _format(arguments: list[Any], _random: Random) -> str:
    values = iter(arguments[1:])
    used = 0

    def fill(place: re.Match[str]) -> str:
        nonlocal used
        if place.group(1) is not None:
            return place.group(1)
        if place.group(3) is not None:
            raise ValueError("a { or } that is not a placeholder is written \\{ or \\}")
        used += 1
        return _shown(next(values, None)) if used < len(arguments) else ""

    text = _PLACE.sub(fill, _text(arguments[0]))
    if used != len(arguments) - 1:
        raise ValueError(f"{used} placeholders for {len(arguments) - 1} values")
    return text


def _shown(value: Any) -> str:
    """Write a string without quotes, and an object as Java prints a map: {Arg1=1, Arg2=[]} (recorded)."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_shown(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return compact(value)


def _string_to_json(arguments: list[Any], _random: Random) -> Any:
    text = _text(arguments[0])
    if not text.strip():
        return None
    try:
        return parse_json(text)
    except ValueError:
        raise ValueError(f"'{text}' is not JSON") from None


def _partition(arguments: list[Any], _random: Random) -> list[Any]:
    elements, size = _array(arguments[0]), _whole(arguments[1])
    if size < 1:
        raise ValueError("the size of a chunk is a positive integer")
    return [elements[at : at + size] for at in range(0, len(elements), size)]


def _range(arguments: list[Any], _random: Random) -> list[int]:
    first, last, step = map(_whole, arguments)
    if step == 0:
        raise ValueError("the step is not zero")
    numbers = range(first, last + (1 if step > 0 else -1), step)
    if len(numbers) > LONGEST_RANGE:
        raise ValueError(f"a range has at most {LONGEST_RANGE} elements")
    return list(numbers)


def _item(arguments: list[Any], _random: Random) -> Any:
    elements, index = _array(arguments[0]), _whole(arguments[1])
    if not 0 <= index < len(elements):
        raise ValueError(f"index {index} is out of bounds for an array of {len(elements)}")
    return elements[index]


def _unique(arguments: list[Any], _random: Random) -> list[Any]:
    kept: dict[str, Any] = {}
    for element in _array(arguments[0]):
        kept.setdefault(_SORTED.encode(_plain(element)), element)
    return list(kept.values())


def _plain(value: Any) -> Any:
    """Return the value with whole numbers written alike: 1 and 1.0 are the same."""
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _contains(arguments: list[Any], _random: Random) -> bool:
    return any(same(element, arguments[1]) for element in _array(arguments[0]))


def _encode(arguments: list[Any], _random: Random) -> str:
    return base64.b64encode(_text(arguments[0], LONGEST_TEXT).encode()).decode("ascii")


def _decode(arguments: list[Any], _random: Random) -> str:
    try:
        return base64.b64decode(_text(arguments[0], LONGEST_TEXT), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"'{arguments[0]}' is not Base64 of UTF-8") from None


ALGORITHMS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


def _hash(arguments: list[Any], _random: Random) -> str:
    data, algorithm = arguments
    if algorithm not in ALGORITHMS:
        raise ValueError(f"the algorithm is one of {', '.join(ALGORITHMS)}, not {compact(algorithm)}")
    text = _text(data if isinstance(data, str) else compact(data), LONGEST_TEXT)
    return hashlib.new(ALGORITHMS[algorithm], text.encode(), usedforsecurity=False).hexdigest()


def _merge(arguments: list[Any], _random: Random) -> dict[str, Any]:
    left, right, deep = arguments
    if not isinstance(left, dict) or not isinstance(right, dict):
        raise ValueError("two JSON objects are expected")
    if deep is not False:
        raise ValueError("only the shallow merge exists; the third argument is false")
    return {**left, **right}


def _random_number(arguments: list[Any], random: Random) -> int:
    first, end = _whole(arguments[0]), _whole(arguments[1])
    if end <= first:
        raise ValueError("the end is greater than the start")
    chance = scrambled(_whole(arguments[2])) if len(arguments) == 3 else random()
    return first + int(chance * (end - first))


def scrambled(seed: int) -> float:
    """Return the first double of java.util.Random for this seed: the same seed always gives the same number."""
    state, bits = (seed ^ 0x5DEECE66D) & (1 << 48) - 1, 0
    for width in (26, 27):
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        bits = (bits << 27) + (state >> 48 - width)
    return bits / (1 << 53)


def _split(arguments: list[Any], _random: Random) -> list[str]:
    text, separators = map(_text, arguments)
    if not separators:
        return [text]
    return [part for part in re.split("[" + re.escape(separators) + "]", text) if part]


FUNCTIONS: dict[str, Function] = {
    "States.Format": Function((1, None), _format),
    "States.StringToJson": Function((1, 1), _string_to_json),
    "States.JsonToString": Function((1, 1), lambda arguments, _: compact(arguments[0])),
    "States.Array": Function((0, None), lambda arguments, _: arguments),
    "States.ArrayPartition": Function((2, 2), _partition),
    "States.ArrayContains": Function((2, 2), _contains),
    "States.ArrayRange": Function((3, 3), _range),
    "States.ArrayGetItem": Function((2, 2), _item),
    "States.ArrayLength": Function((1, 1), lambda arguments, _: len(_array(arguments[0]))),
    "States.ArrayUnique": Function((1, 1), _unique),
    "States.Base64Encode": Function((1, 1), _encode),
    "States.Base64Decode": Function((1, 1), _decode),
    "States.Hash": Function((2, 2), _hash),
    "States.JsonMerge": Function((3, 3), _merge),
    "States.MathRandom": Function((2, 3), _random_number),
    "States.MathAdd": Function((2, 2), _add),
    "States.StringSplit": Function((2, 2), _split),
    "States.UUID": Function((0, 0), lambda _, random: uuid4(random)),
}
