"""Loads a copy of jsonata-python for this package alone, so that corrections do not change the host's `jsonata`.

The copy's modules are executed in namespaces of their own, whose import statements find the copy. `jsonata` itself is
not imported. Invariant: neither the host's `jsonata` nor its recursion limit changes.
"""

import builtins
import functools
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_NAME = "jsonata"


class _System:
    """The module `sys` as the copy sees it: the copy cannot change the host's recursion limit."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def setrecursionlimit(self, _limit: int) -> None:
        """Do nothing; the library sets 10,000 when it is imported."""


_modules: dict[str, ModuleType] = {}


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> Any:
    """Return the module for an import statement of the copy."""
    if name == "sys":
        return _System()
    if name.partition(".")[0] != _NAME:
        return builtins.__import__(name, globals, locals, fromlist, level)
    module = _load_module(name)
    for member in fromlist or ():
        if not hasattr(module, member):
            setattr(module, member, _load_module(f"{name}.{member}"))
    return module


_BUILTINS = {**vars(builtins), "__import__": _import}


def _load_module(name: str) -> ModuleType:
    """Return a module of the copy; only the first call executes it."""
    if name not in _modules:
        module = _modules[name] = ModuleType(f"{__name__}.{name}")
        vars(module)["__builtins__"] = _BUILTINS
        if name != _NAME:
            loader: Any = _require_spec(PathFinder.find_spec(name, _FOLDERS)).loader
            exec(loader.get_code(name), vars(module))
    return _modules[name]


def _require_spec(found: ModuleSpec | None) -> ModuleSpec:
    if found is None:
        raise ModuleNotFoundError(f"states-language needs jsonata-python, and finds no package '{_NAME}'")
    return found


_FOLDERS = _require_spec(find_spec(_NAME)).submodule_search_locations
_library = _load_module(f"{_NAME}.jsonata")
Jsonata: Any = _library.Jsonata
Functions: Any = _load_module(f"{_NAME}.functions").Functions
JException: Any = _load_module(f"{_NAME}.jexception").JException
Signature: Any = _load_module(f"{_NAME}.signature").Signature
Parser: Any = _load_module(f"{_NAME}.parser").Parser
Tokenizer: Any = _load_module(f"{_NAME}.tokenizer").Tokenizer
Utils: Any = _load_module(f"{_NAME}.utils").Utils


def check_arguments(signature: Any, arguments: list[Any], context: Any) -> list[Any]:
    """Return the arguments as the function gets them; raises JException T0410, T0411 or T0412.

    This replaces the library's check, which takes null for undefined and names the wrong argument. Source: the JSONata
    documentation, "Function signature syntax".
    """
    missing, arrays = _missing_arguments(signature, *map(type, arguments))
    if missing is not None:
        for place, good in arrays:
            if not good.issuperset(map(type, arguments[place])):
                break
        else:
            return arguments + missing if missing else arguments
    types = "".join(map(_type_letter, arguments))
    groups = _match_parameters(signature, types)
    if groups is None:
        raise JException("T0410", -1, _first_wrong_argument(signature, types), signature.function_name)
    seen: list[Any] = []
    at = 0
    for param, matched in zip(signature._params, groups, strict=True):
        if not matched and param.context:
            if not re.fullmatch(param.regex, _type_letter(context)):
                raise JException("T0411", -1, at + 1, signature.function_name)
            seen.append(context)
        else:
            for type_ in matched or "m":
                value = arguments[at] if at < len(arguments) else None
                seen.append(_as_array(signature, param, matched, type_, value, at) if param.type == "a" else value)
                at += 1
    return seen


@functools.lru_cache(maxsize=4096)
def _missing_arguments(signature: Any, *kinds: type) -> tuple[list[None] | None, list[tuple[int, frozenset[type]]]]:
    """Return what a function gets besides arguments of these types, which it gets as they are: the undefined ones.

    None for any other call. The second part has the places of arrays, and the types that their elements must have.
    """
    groups = _match_parameters(signature, "".join(_TYPES.get(kind, "?") for kind in kinds))
    taken = list(zip(signature._params, groups or (), strict=groups is not None))
    arrays: list[tuple[int, frozenset[type]]] = []
    at = 0
    for param, matched in taken:
        if (param.context and not matched) or (param.type == "a" and matched not in ("", "a")):
            return None, []
        if param.type == "a" and matched and param.subtype is not None:
            arrays.append((at, _ELEMENTS.get(param.subtype[0], frozenset())))
        at += len(matched) or 1
    return (None if groups is None else [None] * (at - len(kinds))), arrays


@functools.lru_cache(maxsize=4096)
def _match_parameters(signature: Any, types: str) -> tuple[Any, ...] | None:
    """Return which of the arguments' types each parameter takes; None if they do not match."""
    match = re.fullmatch("".join(f"({param.regex})" for param in signature._params), types)
    return None if match is None else match.groups()


_TYPES = {str: "s", bool: "b", int: "n", float: "n", list: "a", Utils.JList: "a", Utils.RangeList: "a", dict: "o"}
_TYPES |= {type(None): "m", Utils.NullValue: "l"}
_ELEMENTS = {"n": frozenset({int, float}), "s": frozenset({str})}


def _type_letter(value: Any) -> str:
    """Return a value's type as a signature writes it: l for null, m for a missing value, f for a function."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    callable_ = Utils.is_function(value) or Functions.is_lambda(value) or Functions.is_regex(value)
    return "f" if callable_ else "m"


def _first_wrong_argument(signature: Any, types: str) -> int:
    """Return the number of the first argument that the signature does not allow."""
    pattern, good = "", 0
    for param in signature._params:
        pattern += param.regex
        match = re.match(pattern, types)
        if match is None:
            break
        good = match.end()
    return good + 1


def _as_array(signature: Any, param: Any, matched: str, type_: str, value: Any, at: int) -> Any:
    """Return the array, or a single value as an array; raises JException T0412 for elements of another type."""
    if type_ == "m":
        return None
    if param.subtype is not None:
        if type_ == "a":
            good = not value or {_type_letter(element) for element in value} == {param.subtype[0]}
        else:
            good = matched == param.subtype
        if not good:
            raise JException("T0412", -1, at + 1, signature.function_name, param.subtype)
    return value if type_ == "a" else [value]
