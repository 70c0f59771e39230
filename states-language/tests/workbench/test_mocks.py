"""The MockConfigFile.json of Step Functions Local, in tests and on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from states_language.__main__ import main
from states_language.tasks.stubs import MockError, read_mocks
from states_language.testing import run_machine

FOLDER = Path(__file__).parent / "mocks"
CONFIG, DEFINITION = FOLDER / "MockConfigFile.json", FOLDER / "lambda-sqs.asl.json"


def test_a_test_case_answers_by_state_and_attempt() -> None:
    """AWS's example has one failure, then two others, then a whole response of lambda:invoke."""
    config = read_mocks(CONFIG)
    run = run_machine(DEFINITION, {}, functions=config.answers("LambdaSQSIntegration", "RetryPath"))
    run.assert_output({"MD5OfMessageBody": "abc", "MessageId": "1"})
    assert [event["error"] for event in run.events("TaskFailed")] == [
        "Lambda.ResourceNotReadyException",
        *["Lambda.TimeoutException"] * 2,
    ]
    assert json.loads(run.events("TaskSucceeded")[0]["output"])["Payload"]["body"] == "Hello from Lambda!"
    assert run.elapsed_s == 14


def test_an_attempt_or_a_state_without_a_response_fails_the_test() -> None:
    one: dict[str, Any] = {"StateMachines": {"M": {"TestCases": {"C": {"LambdaState": "R"}}}}}
    config = read_mocks(one | {"MockedResponses": {"R": {"0": {"Throw": {"Error": "Busy"}}}}})
    with pytest.raises(AssertionError, match="'LambdaState' makes attempt 1, and"):
        run_machine(DEFINITION, functions=config.case("C"))
    config = read_mocks(one | {"MockedResponses": {"R": {"0": {"Return": {}}}}})
    with pytest.raises(AssertionError, match="'SQSState' calls 'sqs:sendMessage', which has no answer"):
        run_machine(DEFINITION, functions=config.case("M#C"))


@pytest.mark.parametrize(
    ("responses", "sentence"),
    [
        ({}, 'StateMachines.M.TestCases.C.S: there is no response "R" in MockedResponses'),
        ({"R": {}}, "MockedResponses.R: has no response"),
        ({"R": {"1-0": {}}}, "MockedResponses.R: '1-0' must be the number of an attempt, such as 0, or a range"),
        ({"R": {"x": {}}}, "MockedResponses.R: 'x' must be the number"),
        ({"R": {"0-2": {"Return": 1}, "2": {"Return": 1}}}, "'2' is an attempt that has another response"),
        ({"R": {"0": {}}}, "MockedResponses.R.0: needs one of Return and Throw"),
        ({"R": {"0": {"Throw": {"Cause": "c"}}}}, "MockedResponses.R.0.Throw: needs an Error"),
        ({"R": {"0": {"Retrun": 1}}}, "MockedResponses.R.0: 'Retrun' is not one of Return, Throw"),
    ],
)
def test_a_broken_configuration_is_refused_with_the_place(responses: Any, sentence: str) -> None:
    data = {"StateMachines": {"M": {"TestCases": {"C": {"S": "R"}}}}, "MockedResponses": responses}
    with pytest.raises(MockError) as refusal:
        read_mocks(data)
    assert sentence in str(refusal.value)
    with pytest.raises(MockError, match="the configuration: must be a JSON object"):
        read_mocks([data])  # type: ignore[arg-type]


def test_the_command_shows_and_runs_the_test_cases(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a definition the command prints each state's answers; with one, how each test case ends."""
    assert main(["mocks", str(CONFIG)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "LambdaSQSIntegration#HappyPath"
    assert '  SQSState, attempt 0: {"Return":{"MD5OfMessageBody":"abc","MessageId":"1"}}  (MockedSQSSuccess)' in lines
    assert main(["mocks", str(CONFIG), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["LambdaSQSIntegration#RetryPath"]["LambdaState"]
    assert shown["1-2"] == {"Throw": {"Error": "Lambda.TimeoutException", "Cause": "Lambda timed out."}}
    assert main(["mocks", str(CONFIG), str(DEFINITION)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].startswith("RetryPath: SUCCEEDED by LambdaState → SQSState with ")
    assert "does not name sqs:sendMessage" in printed.err


def test_a_test_case_that_does_not_fit_the_definition_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing state or attempt gives status 1. `run` exits with 2, in real and in virtual time."""
    config = json.loads(CONFIG.read_text(encoding="utf-8"))
    config["MockedResponses"]["Late"] = {"1": {"Return": {}}}
    responses = {"A": ("Nowhere", "MockedSQSSuccess"), "C": ("LambdaState", "Late")}
    responses["B"] = ("LambdaState", "LambdaMockedResourceNotReady")
    config["StateMachines"] = {"M": {"TestCases": {case: dict([one]) for case, one in responses.items()}}}
    path = tmp_path / "mocks.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert main(["mocks", str(path), str(DEFINITION)]) == 1
    told = capsys.readouterr().err
    assert "A: the definition has no state 'Nowhere'" in told
    assert "B: 'LambdaState' makes attempt 1" in told
    command = ["run", str(DEFINITION), "--functions", str(path), "--case", "C"]
    assert [main(command), main([*command, "--virtual"])] == [2, 2]
    assert capsys.readouterr().err.count("'LambdaState' makes attempt 0, and the response 'Late' has 1.") == 2


def test_run_takes_a_test_case(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(DEFINITION), "--functions", str(CONFIG), "--virtual", "--case"]
    assert main([*command, "RetryPath"]) == 0
    assert "SUCCEEDED after 14.000 s" in capsys.readouterr().out
    assert main([*command, "Nowhere"]) == 2
    assert "there is no test case 'Nowhere'; there is HappyPath, RetryPath, HybridPath." in capsys.readouterr().err
    assert main(["run", str(DEFINITION), "--case", "RetryPath"]) == 2
    assert main(["mocks", str(CONFIG), "--of", "Nothing"]) == 2
