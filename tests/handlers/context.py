"""A function as Lambda has it: a cold start, and the context object where a function needs no time of it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Context:
    """Of one invocation."""

    aws_request_id: str = "invocation-1"


@contextmanager
def cold_start(name: str) -> Iterator[ModuleType]:
    """The module as a new sandbox imports it; afterwards the next import is a cold start again."""
    sys.modules.pop(name, None)
    try:
        yield importlib.import_module(name)
    finally:
        sys.modules.pop(name, None)
