"""What holds for all tests: how generated tests are made, and that nothing the shell says of AWS reaches a test."""

import gc
import os
import sys

import pytest

import examples

for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]


pytest_plugins = ["cpu_budget", "time_limit"]

# Some tests start processes: each module is compiled for the first of them, whatever the shell says of that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Keeps what was collected from being walked again at each collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    """Where CI is set the same examples are drawn each time, so that a failure there is the change's own."""
    examples.choose(config.option.markexpr, os.environ.get("CI", "") not in ("", "0", "false"))
