"""The functions that Step Functions adds to JSONata, and those that the library takes from a clock of its own.

Decides what each gives; time and chance are the execution's clock's. A whole number is what is left of an argument
after its fraction is cut off, and a sequence without elements is undefined, which AWS makes an error of its own.
Source: AWS Step Functions Developer Guide, "Transforming data with JSONata".
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from jsonata.functions import Functions
from jsonata.jexception import JException
from jsonata.utils import Utils

from local.asl.functions import ALGORITHMS, parse_json, scrambled
from local.asl.query import LARGEST_BYTES, TOO_LARGE, Exceeded, Jsonata, check_size, inward
from local.clock import uuid4

ADDED = ("hash", "parse", "partition", "random", "range", "uuid")
"""The functions that JSONata does not have, or not like that."""


def frame(now_ms: Callable[[], int], random: Callable[[], float]) -> Any:
    """Return the frame in which expressions find these functions; $eval is none (AWS)."""
    bound: dict[str, tuple[str, Callable[..., Any]]] = {
        "now": ("<s?s?:s>", lambda picture=None, zone=None: Functions.datetime_from_millis(now_ms(), picture, zone)),
        "millis": ("<:n>", now_ms),
        "random": ("<n?:n>", lambda seed=None: random() if seed is None else scrambled(int(seed))),
        "uuid": ("<:s>", lambda: uuid4(random)),
        "shuffle": ("<a:a>", lambda array: _shuffled(array, random)),
        **FUNCTIONS,
    }
    found = Jsonata.Frame(Jsonata.static_frame)
    for name, (signature, function) in bound.items():
        found.bind(name, Jsonata.JFunction(Jsonata.JLambda(function), signature))
    found.bind("eval", None)
    return found


def _partition(array: Any, size: Any) -> Any:
    if array is None or size is None:
        return None
    chunk = int(size)
    if chunk < 0:
        raise JException("D3137", 0, f"the size of a chunk is not negative: {chunk}")
    return [list(array[at : at + chunk]) for at in range(0, len(array), chunk)] if chunk and array else None


def _range(first: Any, last: Any, step: Any) -> Any:
    if first is None or last is None or step is None or int(step) == 0:
        return None
    numbers = range(int(first), int(last) + (1 if step > 0 else -1), int(step))
    if len(numbers) * 8 > LARGEST_BYTES:
        raise Exceeded(TOO_LARGE)
    return list(numbers) or None


def _hash(text: Any, algorithm: Any) -> Any:
    if text is None or algorithm is None:
        return None
    if algorithm not in ALGORITHMS:
        raise JException("D3137", 0, f"the algorithm is one of {', '.join(ALGORITHMS)}, not {algorithm}")
    data = str(text).encode("utf-8", "surrogatepass")
    return hashlib.new(ALGORITHMS[algorithm], data, usedforsecurity=False).hexdigest()


def _parse(text: Any) -> Any:
    if text is None:
        return None
    try:
        found = parse_json(text)
    except ValueError:
        raise JException("D3137", 0, f"'{text}' is not JSON") from None
    return inward(found)


def _string(value: Any, prettify: Any = None) -> Any:
    check_size(value)
    return Functions.string(value, prettify)


def _pad(text: Any, width: Any = None, character: Any = None) -> Any:
    if isinstance(width, int | float) and abs(width) > LARGEST_BYTES:
        raise Exceeded(TOO_LARGE)
    return Functions.pad(text, width, character)


def _distinct(values: Any) -> Any:
    """The library compares each with each, and takes 1 for true; here equal values have equal texts."""
    if not isinstance(values, list) or len(values) <= 1:
        return values
    kept: dict[Any, Any] = {}
    for value in values:
        plain = isinstance(value, str | int | float)
        kept.setdefault(
            (type(value) is bool, value) if plain else json.dumps(value, sort_keys=True, default=repr), value
        )
    return Utils.create_sequence_from_iter(kept.values()) if isinstance(values, Utils.JList) else list(kept.values())


def _shuffled(array: Any, random: Callable[[], float]) -> Any:
    if array is None:
        return None
    mixed = list(array)
    for at in range(len(mixed) - 1, 0, -1):
        other = int(random() * (at + 1))
        mixed[at], mixed[other] = mixed[other], mixed[at]
    return mixed


FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "partition": ("<an:a>", _partition),
    "range": ("<nnn:a>", _range),
    "hash": ("<ss:s>", _hash),
    "parse": ("<s-:x>", _parse),
    "string": ("<x-b?:s>", _string),
    "pad": ("<s-ns?:s>", _pad),
    "distinct": ("<x:x>", _distinct),
}
"""Functions that need no clock: name, signature (JSONata's own notation), what they do."""
