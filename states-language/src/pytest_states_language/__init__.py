"""The pytest plugin of states-language: the fixture `run_machine`.

The interpreter is imported when a test asks for the fixture, so that pytest starts as fast without it.
"""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from states_language.testing import RunMachine


@pytest.fixture
def run_machine() -> "RunMachine":
    """Run a state machine in virtual time: run_machine(definition, input, functions={...}) returns a MachineRun.

    states-language/docs/testing.md shows what one can do with it.
    """
    from states_language.testing import run_machine

    return run_machine
