"""A server in which Waits take no time, in a thread of the test's process and as a command."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from endpoint import PREFIX, calling, created, over, states_client
from server.test_command import ended, started
from states_language import Behaviour, TaskFailure
from states_language.server.threaded import Server

DAY_S = 86_400


def _wait(seconds: int, **more: Any) -> dict[str, Any]:
    return {"Type": "Wait", "Seconds": seconds, **more}


def _line(**states: Any) -> dict[str, Any]:
    return {"StartAt": next(iter(states)), "States": states}


def _run(states: Any, definition: dict[str, Any], name: str = "m") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    execution = states.start_execution(stateMachineArn=created(states, name, definition))["executionArn"]
    done = over(states, execution)
    return done, states.get_execution_history(executionArn=execution)["events"]


def test_waits_of_branches_end_in_their_order_and_take_no_time() -> None:
    """Two branches of two days, one of seconds: each state leaves at its own millisecond, or soon after it."""
    slow = _line(A=_wait(DAY_S, Next="B"), B=_wait(DAY_S, End=True))
    quick = _line(C=_wait(3, Next="D"), D=_wait(7, End=True))
    definition = _line(P={"Type": "Parallel", "Branches": [slow, quick], "End": True})
    begun = time.monotonic()
    with Server() as server:
        done, events = _run(server.client(), definition)
        assert done["status"] == "SUCCEEDED"
    left = [(one["stateExitedEventDetails"]["name"], one["timestamp"]) for one in events if "stateExited" in str(one)]
    first = events[0]["timestamp"]
    assert [name for name, _ in left] == ["C", "D", "A", "B", "P"]
    assert [round((at - first).total_seconds() / 60) for _, at in left] == [0, 0, 1440, 2880, 2880]
    assert time.monotonic() - begun < 60


def test_a_function_that_works_and_a_token_that_is_held_hold_time() -> None:
    """A time-out is as long as it says while somebody is asked; retries are at once."""
    task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}}
    retry = [{"ErrorEquals": ["Busy"], "IntervalSeconds": 3600, "MaxAttempts": 2}]
    definition = _line(A={**task, "TimeoutSeconds": 60, "Retry": retry, "Next": "T"}, T=_token())
    with Server() as server:
        states, attempts = server.client(), list[int]()
        server.functions["A"] = lambda _payload, context: attempts.append(context.attempt)
        server.functions["T"] = Behaviour(answer={"token": 1}, delay_ms=200)
        done, events = _run(states, definition)
        assert (done["status"], attempts) == ("SUCCEEDED", [1])
        server.functions["A"] = TaskFailure("Busy")
        done, events = _run(states, definition, "busy")
    assert (done["status"], done["error"]) == ("FAILED", "Busy")
    assert (done["stopDate"] - done["startDate"]).total_seconds() == pytest.approx(3 * 3600, abs=5)
    assert [one["type"] for one in events].count("TaskFailed") == 3


def _token() -> dict[str, Any]:
    resource = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
    return {"Type": "Task", "Resource": resource, "Parameters": {"QueueUrl": "q"}, "HeartbeatSeconds": 30, "End": True}


def test_a_nested_execution_and_an_express_machine_have_times_of_their_own() -> None:
    with Server() as server:
        states = server.client()
        waits = created(states, "waits", _line(W=_wait(DAY_S, End=True)))
        nested = {"StateMachineArn": waits}
        outer = calling("arn:aws:states:::states:startExecution.sync:2", nested, End=True)
        done, _ = _run(states, outer)
        assert done["status"] == "SUCCEEDED"
        express = created(states, "express", _line(W=_wait(200, End=True)), type="EXPRESS")
        answer = states.start_sync_execution(stateMachineArn=express)
        assert (answer["status"], (answer["stopDate"] - answer["startDate"]).total_seconds() >= 200) == (
            "SUCCEEDED",
            True,
        )


def test_a_call_without_an_answer_is_a_mistake() -> None:
    with Server() as server:
        done, _ = _run(server.client(), calling("arn:aws:states:::dynamodb:getItem", {"TableName": "t"}, End=True))
        assert done["status"] == "FAILED"
        (mistake,) = server.mistakes
    assert "'S' calls 'dynamodb:getItem', which has no answer" in str(mistake)


TEMPLATE = """
Resources:
  Charge: {Type: AWS::Serverless::Function, Properties: {FunctionName: greet}}
  Order:
    Type: AWS::Serverless::StateMachine
    Properties:
      Type: STANDARD
      DefinitionSubstitutions: {ChargeArn: !GetAtt Charge.Arn}
      Definition:
        StartAt: Rest
        States:
          Rest: {Type: Wait, Seconds: 86400, Next: Charge}
          Charge: {Type: Task, Resource: "${ChargeArn}", End: true}
"""


def test_the_command_serves_a_template_in_virtual_time(tmp_path: Path) -> None:
    """Its functions have the ARNs of their names; what ended first is forgotten as --keep says."""
    (tmp_path / "template.yaml").write_text(TEMPLATE, encoding="utf-8")
    (tmp_path / "f.yml").write_text("greet: {answer: {hello: world}}\n", encoding="utf-8")
    options = ("--virtual-time", "--template", str(tmp_path / "template.yaml"), "--keep", "2")
    process, address = started(tmp_path / "data", "--functions", str(tmp_path / "f.yml"), *options)
    states = states_client(address)
    executions = [states.start_execution(stateMachineArn=PREFIX + "Order")["executionArn"] for _ in range(3)]
    done = [over(states, execution) for execution in executions[1:]]
    assert [json.loads(one["output"]) for one in done] == [{"hello": "world"}] * 2
    assert len(states.list_executions(stateMachineArn=PREFIX + "Order")["executions"]) == 2
    assert "Traceback" not in ended(process, signal.SIGTERM)


def test_a_template_that_cannot_be_deployed_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from states_language.server.__main__ import main

    path = tmp_path / "template.yaml"
    path.write_text(TEMPLATE.replace("!GetAtt Charge.Arn", "!ImportValue charge"), encoding="utf-8")
    assert main(["--port", "0", "--data", str(tmp_path / "d"), "--template", str(path)]) == 2
    assert "${Fn::ImportValue.charge} is not recognized" in capsys.readouterr().err


def test_the_containers_command_is_one_that_the_server_takes() -> None:
    """No container is built here: its file's entry point is parsed, and what it copies is there."""
    from states_language.server.__main__ import parser

    file = (Path(__file__).parents[2] / "Containerfile").read_text(encoding="utf-8")
    entry = json.loads(next(line for line in file.splitlines() if line.startswith("ENTRYPOINT")).partition(" ")[2])
    assert entry[:3] == ["python", "-m", "states_language.server"]
    arguments = parser().parse_args([*entry[3:], "--virtual-time"])
    assert (arguments.host, arguments.port, str(arguments.data), arguments.virtual_time) == (
        "0.0.0.0",
        8083,
        "/data",
        True,
    )
