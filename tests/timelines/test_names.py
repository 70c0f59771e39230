"""The executions of a replay are named as AWS names them."""

from pathlib import Path
from typing import Any

import yaml

from tests.timelines.test_replay import run_table


def test_a_name_is_one_execution_for_ever(tmp_path: Path) -> None:
    """As at AWS: if it runs with the same input it is returned again; otherwise the name is taken."""
    start: dict[str, Any] = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution",
        "Parameters": {"StateMachineArn.$": "$$.StateMachine.Id", "Name": "one", "Input": {"child": 1}},
        "ResultPath": "$.answer",
    }
    other = {**start, "Parameters": {**start["Parameters"], "Input": {"child": 2}}}
    taken = {"ErrorEquals": ["StepFunctions.ExecutionAlreadyExistsException"], "ResultPath": "$.refused"}
    states: dict[str, Any] = {
        "Which": {"Type": "Choice", "Choices": [{"Variable": "$.child", "IsPresent": True, "Next": "Live"}]},
        "Live": {"Type": "Wait", "Seconds": 10, "Next": "Done"},
        "First": {**start, "Next": "Again"},
        "Again": {**start, "Next": "Other"},
        "Other": {**other, "Catch": [{**taken, "Next": "Rest"}], "Next": "Done"},
        "Rest": {"Type": "Wait", "Seconds": 20, "Next": "Late"},
        "Late": {**start, "Catch": [{**taken, "Next": "Good"}], "Next": "Done"},
        "Good": {"Type": "Pass", "Result": "taken", "End": True},
        "Done": {"Type": "Succeed"},
    }
    states["Which"]["Default"] = "First"
    (tmp_path / "names.asl.yml").write_text(yaml.safe_dump({"StartAt": "Which", "States": states}))
    upstream = {"policy": "tolerates"}
    result = run_table({"machine": "names.asl.yml", "run_for_s": 60, "upstream": upstream}, tmp_path)
    assert [run.output for run in result.runs] == ["taken", {"child": 1}]
