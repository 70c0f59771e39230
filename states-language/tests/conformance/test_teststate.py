"""What AWS's TestState answered, asked of the local Step Functions."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from adapter import behave
from recorded import cases, equal
from states_language import TaskCall
from states_language.clock import RealClock
from states_language.server import StepFunctions

HERE, THERE = ":000000000000:", ":111111111111:"


def answered(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """The local service's answer, its account's number as in the recordings."""

    async def perform(call: TaskCall) -> Any:
        return await behave(case["lambdas"], call)

    async def ask() -> dict[str, Any]:
        states = StepFunctions(folder, RealClock())
        states.executions.perform = perform
        try:
            return await states.call("TestState", case["request"])
        finally:
            states.executions.close()
            await states.executions.evaluators.wait_closed()

    answer: dict[str, Any] = json.loads(json.dumps(asyncio.run(ask())).replace(HERE, THERE))
    return answer


@pytest.mark.parametrize("case", cases("teststate.json"), ids=lambda case: case["id"])
def test_a_state_on_its_own_is_answered_for_as_on_aws(case: dict[str, Any], tmp_path: Path) -> None:
    """Status, output, next state, error and cause, and every step that an inspection shows."""
    answer, expected = answered(tmp_path, case), case["expected"]
    assert answer.keys() == expected.keys()
    for name, value in expected.items():
        assert equal(value, answer[name]), (name, value, answer[name])
