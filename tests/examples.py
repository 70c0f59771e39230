"""What a test makes in the default run, and what where the long tests run too: examples, and parameters.

`tests/conftest.py` decides which before it imports a test. Invariant: a test names one number, that of `make test-all`;
the default run draws a twentieth of it.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

from examples import ALL, examples

__all__ = ["ALL", "IS_CI", "SOME", "examples", "one_in"]

IS_CI = os.environ.get("CI", "") not in ("", "0", "false")
"""Whether continuous integration runs the tests (`.ci/run`)."""
SOME = 5


def one_in(number: int, parameters: Iterable[Any]) -> list[Any]:
    """Returns the parameters of a test, a tuple each where it has several; all but one in `number` are long."""
    found = []
    for at, values in enumerate(parameters):
        each = values if isinstance(values, tuple) else (values,)
        found.append(pytest.param(*each, marks=[pytest.mark.long] if at % number else []))
    return found
