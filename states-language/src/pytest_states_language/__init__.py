"""The pytest plugin of states-language: the fixtures `run_machine` and `states_server`.

The interpreter is imported only when a test asks for a fixture, so the plugin does not slow pytest's start.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from states_language.server.threaded import Server
    from states_language.testing import RunMachine


@pytest.fixture
def run_machine() -> "RunMachine":
    """Run a state machine in virtual time: run_machine(definition, input, functions={...}) returns a MachineRun.

    states-language/docs/testing.md shows what a test can do with it.
    """
    from states_language.testing import run_machine

    return run_machine


@pytest.fixture
def states_server() -> "Iterator[Server]":
    """Serve Step Functions' API for boto3 at states_server.url, where Waits take no time. Needs the extra `server`.

    states_server.functions["Charge"] = {...} answers a state or a function; a call without an answer fails the test.
    """
    from states_language.server.threaded import Server

    with Server() as server:
        yield server
    if server.mistakes:
        raise server.mistakes[0]
