"""Loads a copy of jsonata-python for this package alone, so that corrections do not change the host's `jsonata`.

The copy's modules are executed in namespaces of their own, whose import statements find the copy. `jsonata` itself is
not imported. Invariant: neither the host's `jsonata` nor its recursion limit changes.
"""

import builtins
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
