"""What AWS's TestState answered, asked of the local Step Functions."""

import asyncio
import json
from pathlib import Path
from typing import Any

from adapter import behave
from recorded import cases, equal
from states_language import TaskCall
from states_language.clock import RealClock
from states_language.server import StepFunctions

HERE, THERE = ":000000000000:", ":111111111111:"


def test_a_state_on_its_own_is_answered_for_as_on_aws(tmp_path: Path) -> None:
    """Status, output, next state, error and cause, and every step that an inspection shows."""

    async def answers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
        states = StepFunctions(tmp_path, RealClock())
        answered = []
        for case in cases("teststate.json"):

            async def perform(call: TaskCall, case: dict[str, Any] = case) -> Any:
                return await behave(case["lambdas"], call)

            states.executions.perform = perform
            answered.append((case, await states.call("TestState", case["request"])))
        states.executions.close()
        states.close()
        await states.executions.evaluators.wait_closed()
        return answered

    wrong = {}
    for case, answer in asyncio.run(answers()):
        told, expected = json.loads(json.dumps(answer).replace(HERE, THERE)), case["expected"]
        differing = [name for name in expected.keys() | told.keys() if not equal(expected.get(name), told.get(name))]
        if differing or told.keys() != expected.keys():
            wrong[case["id"]] = differing
    assert not wrong
