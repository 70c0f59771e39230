"""Settings of all tests: how many examples Hypothesis draws, and an environment without the shell's AWS_ variables."""

import gc
import os
import sys

import pytest

import examples

for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]


pytest_plugins = ["cpu_budget", "time_limit"]

# Some tests start processes. The first one stores the compiled modules for the others, whatever the shell sets.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so the garbage collector does not walk through them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    """If CI is set, draw the same examples each time, so a failure there comes from the change."""
    examples.choose(config.option.markexpr, os.environ.get("CI", "") not in ("", "0", "false"))
