"""Defines the functions that Step Functions adds to JSONata, and replaces those of the library that differ.

It replaces functions that the library does not bound, that fail without a code, or whose result differs from JSONata's.
Time and chance come from the execution's clock. An argument that must be a whole number loses its fraction.
Source: AWS Step Functions Developer Guide, "Transforming data with JSONata".
"""

import functools
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from states_language.clock import uuid4
from states_language.jsonata import library, numbers, pictures, texts_and_dates
from states_language.jsonata.engine import Frame, Jsonata, current_bounds
from states_language.jsonata.library import Functions, JException, Utils
from states_language.jsonata.numbers import to_library
from states_language.jsonata.patterns import Matcher
from states_language.jsonpath.intrinsic_functions import ALGORITHMS, java_random
from states_language.values import count_values, parse_json, to_utf16_units, unique_members_hook


def functions_frame(now_ms: Callable[[], int], random: Callable[[], float]) -> Any:
    """Return the frame that binds these functions for expressions; AWS has no $eval."""
    clocked: dict[str, tuple[str, Callable[..., Any]]] = {
        "now": ("<s?s?:s>", lambda picture=None, zone=None: texts_and_dates.from_millis(now_ms(), picture, zone)),
        "millis": ("<:n>", now_ms),
        "random": ("<n?:n>", lambda seed=None: random() if seed is None else java_random(int(seed))),
        "uuid": ("<:s>", lambda: uuid4(random)),
    }
    others: dict[str, tuple[str, Callable[..., Any]]] = {
        "toMillis": ("<s-s?:n>", lambda text, picture=None: texts_and_dates.to_millis(now_ms, text, picture)),
        "shuffle": ("<a:a>", lambda array: _shuffle(array, random)),
    }
    functions = Frame(None)
    functions.bindings |= _shared_frame().bindings
    _bind(functions, _DirectFunction, clocked)
    _bind(functions, _FunctionOfDefined, others)
    return functions


@functools.cache
def _shared_frame() -> Any:
    """Return a frame of the functions that are the same for every execution."""
    shared = Frame(None)
    shared.bindings |= Jsonata.static_frame.bindings
    _bind(shared, _FunctionOfDefined, FUNCTIONS)
    shared.bind("eval", None)
    return shared


def _bind(frame: Any, kind: Any, functions: Mapping[str, tuple[str, Callable[..., Any]]]) -> None:
    for name, (signature, function) in functions.items():
        bound = kind(Jsonata.JLambda(function), None)
        bound.signature = _signature(signature, name)
        frame.bind(name, bound)


_signature = functools.cache(library.Signature)


class _DirectFunction(library.Jsonata.JFunction):  # type: ignore[misc]  # the library has no types
    """A function of Python that is called as it is."""

    def call(self, input: Any, args: Any) -> Any:  # noqa: ARG002  # as the library calls it
        return self.function.function(*args)


class _FunctionOfDefined(_DirectFunction):
    """A function that is undefined if its first argument is."""

    def call(self, input: Any, args: Any) -> Any:  # noqa: ARG002  # as the library calls it
        return None if args and args[0] is None else self.function.function(*args)


def _partition(array: Any, size: Any = None) -> Any:
    chunk = len(array) if size is None else int(size)
    if chunk < 0:
        raise JException("D3137", 0, "Second argument must be zero or greater")
    return [list(array[at : at + chunk]) for at in range(0, len(array), chunk)] if chunk and array else None


def _range(first: Any, last: Any, step: Any = None) -> Any:
    if last is None or step is None or int(step) == 0:
        return None
    members = range(int(first), int(last) + (1 if step > 0 else -1), int(step))
    current_bounds().check_bytes(8 * len(members))
    return Utils.create_sequence_from_iter(members)


def _hash(text: Any, algorithm: Any = None) -> Any:
    if algorithm is None:
        return None
    if algorithm not in ALGORITHMS:
        raise JException("D3137", 0, f"the algorithm is one of {', '.join(ALGORITHMS)}, not {algorithm}")
    data = str(text).encode("utf-8", "surrogatepass")
    return hashlib.new(ALGORITHMS[algorithm], data, usedforsecurity=False).hexdigest()


def _parse(text: Any) -> Any:
    try:
        value = parse_json(text, members=unique_members_hook())
    except ValueError:
        raise JException("D3137", 0, "Invalid JSON") from None
    return to_library(value)


def _string(value: Any, prettify: Any = None) -> Any:
    if isinstance(value, Utils.JList) and value.outer_wrapper:
        value = value[0]
    current_bounds().check_value(value)
    if isinstance(value, dict | list):
        current_bounds().spend(count_values(value, {}))
    return numbers.to_text(value, pretty=prettify is True)


def _pad(text: Any, width: Any = None, character: Any = None) -> Any:
    if isinstance(width, int | float):
        current_bounds().check_bytes(abs(width))
    if isinstance(width, float) and not width.is_integer() and abs(width) > len(text or ""):
        # 2.0.6 makes an array of the missing characters, and JavaScript has none of such a length.
        raise ValueError("the width must be a whole number")
    return Functions.pad(text, width, character)


def _join(strings: Any, between: Any = None) -> Any:
    if isinstance(strings, list):
        current_bounds().check_bytes(sum(map(len, strings)) + len(between or "") * len(strings))
    return Functions.join(strings, between)


def _sort(values: Any, comparator: Any = None) -> Any:
    """Sort the values; the library's own $sort compares values that have no order, and fails without a code."""
    if len(values) <= 1:
        return values
    plain = Utils.is_array_of_numbers(values) or Utils.is_array_of_strings(values)
    if comparator is None and not plain:
        raise JException("D3070", -1)
    if comparator is None:
        return sorted(values, key=lambda value: to_utf16_units(value) if isinstance(value, str) else value)

    def compare(left: Any, right: Any) -> int:
        """Compare two values: the comparator says whether they change places; equal values keep their order."""
        return -1 if Functions.to_boolean(Functions.func_apply(comparator, [right, left])) else 0

    return sorted(values, key=functools.cmp_to_key(compare))


def _boolean(value: Any) -> Any:
    return False if isinstance(value, float) and not Utils.is_numeric(value) else _to_boolean(value)


def _clone(value: Any) -> Any:
    """Copy a value by way of its JSON text, as a transform does; the library turns null into undefined."""
    return None if value is None else to_library(parse_json(_string(value)))


_to_boolean = Functions.to_boolean
Functions.to_boolean = staticmethod(_boolean)
Functions.function_clone = staticmethod(_clone)


def _type(value: Any) -> Any:
    return "function" if Functions.is_regex(value) else Functions.type(value)


def _distinct(values: Any) -> Any:
    """Remove duplicates by their JSON text; the library compares each with each, and takes 1 and true as equal."""
    if not isinstance(values, list) or len(values) <= 1:
        return values
    kept: dict[Any, Any] = {}
    current_bounds().spend(sum(count_values(value, {}) for value in values if isinstance(value, dict | list)))
    for value in values:
        plain = isinstance(value, str | int | float)
        kept.setdefault(
            (type(value) is bool, value) if plain else json.dumps(value, sort_keys=True, default=repr), value
        )
    return Utils.create_sequence_from_iter(kept.values()) if Utils.is_sequence(values) else list(kept.values())


def _shuffle(array: Any, random: Callable[[], float]) -> Any:
    mixed = list(array)
    for at in range(len(mixed) - 1, 0, -1):
        other = int(random() * (at + 1))
        mixed[at], mixed[other] = mixed[other], mixed[at]
    return mixed


def _accept_matcher(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function so that its second argument may be a function that finds matches."""

    def searched(text: Any, pattern: Any = None, *others: Any) -> Any:
        own = Utils.is_function(pattern) or Functions.is_lambda(pattern)
        return function(text, Matcher(pattern, name) if own else pattern, *others)

    return searched


FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "partition": ("<an?:a>", _partition),
    "range": ("<nnn?:a>", _range),
    "hash": ("<ss?:s>", _hash),
    "parse": ("<s-:x>", _parse),
    "boolean": ("<x-:b>", _boolean),
    "string": ("<x-b?:s>", _string),
    "pad": ("<s-ns?:s>", _pad),
    "distinct": ("<x:x>", _distinct),
    "sort": ("<af?:a>", _sort),
    "join": ("<a<s>s?:s>", _join),
    "type": ("<x:s>", _type),
    "number": ("<(nsb)-:n>", numbers.to_number),
    "round": ("<n-n?:n>", numbers.round_half_even),
    "floor": ("<n-:n>", numbers.make_rounder(math.floor)),
    "ceil": ("<n-:n>", numbers.make_rounder(math.ceil)),
    "power": ("<n-n:n>", numbers.power),
    "formatBase": ("<n-n?:s>", numbers.format_base),
    "formatNumber": ("<n-so?:s>", pictures.format_number),
    "formatInteger": ("<n-s:s>", texts_and_dates.format_integer),
    "parseInteger": ("<s-s:n>", texts_and_dates.parse_integer),
    "fromMillis": ("<n-s?s?:s>", texts_and_dates.from_millis),
    "replace": ("<s-(sf)(sf)n?:s>", _accept_matcher("replace", texts_and_dates.replace)),
    "substring": ("<s-nn?:s>", texts_and_dates.substring),
    "split": ("<s-(sf)n?:a<s>>", _accept_matcher("split", texts_and_dates.split)),
    "match": ("<s-f<s:o>n?:a<o>>", _accept_matcher("match", Functions.match_)),
    "contains": ("<s-(sf):b>", _accept_matcher("contains", Functions.contains)),
    "base64encode": ("<s-:s>", texts_and_dates.base64_encode),
    "base64decode": ("<s-:s>", texts_and_dates.base64_decode),
    **{
        name: ("<s-:s>", texts_and_dates.url_coder(name))
        for name in ("encodeUrl", "encodeUrlComponent", "decodeUrl", "decodeUrlComponent")
    },
}
"""The functions that need no clock, by name: the signature in JSONata's notation, and the function."""
