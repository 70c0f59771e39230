"""A function as Lambda runs it: a cold start, and a context object for tests in which time does not matter."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Context:
    """The context of one invocation."""

    aws_request_id: str = "invocation-1"


class Killed(BaseException):
    """Ends a function or a command as SIGKILL does: nothing that would follow is done."""


@contextmanager
def cold_start(name: str) -> Iterator[ModuleType]:
    """Import the module as a new sandbox does; afterwards the next import is a cold start again."""
    sys.modules.pop(name, None)
    try:
        yield importlib.import_module(name)
    finally:
        sys.modules.pop(name, None)
