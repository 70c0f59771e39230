"""The local Step Functions answers TestState as AWS did."""

import asyncio
import json
from pathlib import Path
from typing import Any

from adapter import answer_function
from endpoint import stepfunctions
from recorded import is_equal, load_cases
from states_language import TaskCall

HERE, THERE = ":000000000000:", ":111111111111:"


def test_teststate_answers_as_aws_did(tmp_path: Path) -> None:
    """TestState returns AWS's status, output, next state, error, cause and every step of an inspection."""

    async def answers() -> list[tuple[dict[str, Any], dict[str, Any]]]:
        async def perform(call: TaskCall) -> Any:
            return await answer_function(case["lambdas"], call)

        answered = []
        async with stepfunctions(tmp_path, perform=perform) as states:
            for case in load_cases("teststate.json"):
                answered.append((case, await states.call("TestState", case["request"])))
        return answered

    wrong = {}
    for case, answer in asyncio.run(answers()):
        told, expected = json.loads(json.dumps(answer).replace(HERE, THERE)), case["expected"]
        differing = [name for name in expected.keys() | told.keys() if not is_equal(expected.get(name), told.get(name))]
        if differing or told.keys() != expected.keys():
            wrong[case["id"]] = differing
    assert not wrong
