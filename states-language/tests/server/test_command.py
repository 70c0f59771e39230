"""`python -m states_language.server` as a process of its own, from its first line to Ctrl-C."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from endpoint import PREFIX, WAIT, await_end, create_machine, refusal, run_to_end, states_client, task_definition
from states_language import DefinitionError, read_definition
from states_language.server.__main__ import main, parser
from states_language.server.stack import template_machines

ECHO = task_definition("arn:aws:states:::lambda:invoke", {"FunctionName": "greet", "Payload.$": "$"}, End=True)
PUT = task_definition("arn:aws:states:::dynamodb:putItem", {"TableName": "t", "Item": {}}, End=True)


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


def start_server(folder: Path, *options: str) -> tuple["subprocess.Popen[str]", str]:
    """Return a server process on any free port, and its address."""
    command = [sys.executable, "-m", "states_language.server", "--port", "0", "--data", str(folder), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "answers at" in line:
            return process, line.partition("answers at ")[2].partition(";")[0]
    raise AssertionError("the server did not begin")


def end_server(process: "subprocess.Popen[str]", number: signal.Signals) -> str:
    """Send the signal and return what the server prints at its end."""
    os.kill(process.pid, number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    return said


def test_the_server_answers_until_ctrl_c_and_a_restart_keeps_its_executions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Functions answer as the file says; a service without an endpoint fails its Task; running executions are ABORTED.

    A second server does not begin, because it would abort what the first one runs.

    In virtual time, a template's machine calls the function by name, and --keep removes the execution that ended first.
    A test case of --mocks answers the start that names it and its redrives, and no other.
    """
    template = tmp_path / "template.yaml"
    template.write_text(TEMPLATE, encoding="utf-8")
    functions = tmp_path / "f.yml"
    functions.write_text("greet: {answer: {hello: world}}\n")
    process, address = start_server(tmp_path / "data", "--functions", str(functions))
    states = states_client(address)
    done = states.start_execution(stateMachineArn=create_machine(states, "echo", ECHO))["executionArn"]
    assert json.loads(await_end(states, done)["output"])["Payload"] == {"hello": "world"}
    put = run_to_end(states, create_machine(states, "puts", PUT))
    assert (put["error"], "AWS_ENDPOINT_URL_DYNAMODB" in put["cause"]) == ("States.Runtime", True)
    left = states.start_execution(stateMachineArn=create_machine(states, "waits", WAIT))["executionArn"]
    assert main(["--port", "0", "--data", str(tmp_path / "data")]) == 2
    assert f"Another server uses the folder {tmp_path / 'data'}" in capsys.readouterr().err
    assert "Traceback" not in end_server(process, signal.SIGINT)
    case = {"StateMachines": {"Order": {"TestCases": {name: {"Charge": name} for name in ("Paid", "Broke")}}}}
    responses = {"Paid": {"0": {"Return": 7}}, "Broke": {"0": {"Throw": {"Error": "Broke"}}}}
    (tmp_path / "mocks.json").write_text(json.dumps(case | {"MockedResponses": responses}))
    options = ("--virtual-time", "--template", str(template), "--keep", "3", "--mocks", str(tmp_path / "mocks.json"))
    process, address = start_server(tmp_path / "data", "--functions", str(functions), *options)
    states = states_client(address)
    assert states.describe_execution(executionArn=done)["status"] == "SUCCEEDED"
    assert states.describe_execution(executionArn=left)["status"] == "ABORTED"
    assert run_to_end(states, f"{PREFIX}Order#Paid")["output"] == "7"
    assert refusal(states.start_execution, stateMachineArn=f"{PREFIX}Order#Lost") == (
        "ValidationException",
        f"{PREFIX}Order#Lost: there is no test case 'Lost'; there is Paid, Broke.",
    )
    broke = run_to_end(states, f"{PREFIX}Order#Broke")["executionArn"]
    states.redrive_execution(executionArn=broke)
    assert await_end(states, broke)["error"] == "Broke"
    assert [json.loads(run_to_end(states, PREFIX + "Order")["output"]) for _ in range(3)] == [{"hello": "world"}] * 3
    assert refusal(states.describe_execution, executionArn=done)[0] == "ExecutionDoesNotExist"
    assert "Traceback" not in end_server(process, signal.SIGTERM)


def test_a_template_is_deployed_in_the_servers_account_with_its_type(tmp_path: Path) -> None:
    """AWS::AccountId is the server's account. A parameter may give the machine's type, and must have a value."""
    path = tmp_path / "template.yaml"
    quick = TEMPLATE.replace("Type: STANDARD", "Type: !Ref Kind").replace("!GetAtt Charge.Arn", "!Ref AWS::AccountId")
    path.write_text("Parameters: {Kind: {Type: String, Default: EXPRESS}}" + quick, encoding="utf-8")
    (one,) = template_machines(path, {})
    assert (one.type, json.loads(one.definition)["States"]["Charge"]["Resource"]) == ("EXPRESS", "000000000000")
    assert [other.type for other in template_machines(path, {"Kind": "STANDARD"})] == ["STANDARD"]
    path.write_text(quick, encoding="utf-8")
    with pytest.raises(DefinitionError, match=r"Order/Properties/Type: must be STANDARD or EXPRESS, not \$\{Kind\}"):
        template_machines(path, {})


@pytest.mark.parametrize(("stage", "created", "seconds"), [("prod", True, 600), ("dev", True, 5), ("test", False, 0)])
def test_conditions_choose_what_a_template_deploys(tmp_path: Path, stage: str, created: bool, seconds: int) -> None:
    """Conditions choose resources, values and properties. A condition without a value yet is refused by name."""
    path = tmp_path / "template.yaml"
    text = CONDITIONS + TEMPLATE.replace("86400", "!If [Live, 600, 5]").replace(
        "Order:", "Order:\n    Condition: Wanted"
    )
    path.write_text(text.replace("Type: STANDARD", "Type: !If [Live, STANDARD, !Ref AWS::NoValue]"), encoding="utf-8")
    machines = template_machines(path, {"Stage": stage})
    assert [one.name for one in machines] == ["Order"] * created
    for one in machines:
        assert (json.loads(one.definition)["States"]["Rest"]["Seconds"], one.type) == (seconds, "STANDARD")
    with pytest.raises(DefinitionError, match="/Conditions/Wanted: needs a value of each parameter"):
        template_machines(path, {})
    assert read_definition(path)["States"]["Rest"]["Seconds"] == "${Fn::If.Live.600.5}"
    path.write_text(text.replace("!Equals [!Ref Stage, prod]", "!Not [Condition: Wanted]"), encoding="utf-8")
    with pytest.raises(DefinitionError, match="/Conditions/Wanted: must not refer to itself"):
        template_machines(path, {})


CONDITIONS = """
Parameters: {Stage: {Type: String}}
Conditions:
  Live: !Equals [!Ref Stage, prod]
  Wanted: !Or [Condition: Live, !And [!Not [Condition: Live], !Not [!Equals [test, !Ref Stage]]]]
"""


def test_a_server_that_cannot_begin_prints_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A taken port, a bad folder or an unusable file of functions or template gives one sentence and status 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["--port", port, "--data", str(tmp_path)]) == 2
    assert f"Port {port} is in use" in capsys.readouterr().err
    assert main(["--port", "0", "--data", str(tmp_path), "--host", "999.1.1.1"]) == 2
    assert "--host '999.1.1.1' is not an IPv4 address or name" in capsys.readouterr().err
    assert main(["--port", "0", "--data", "/dev/null/x"]) == 2
    assert main(["--port", "0", "--functions", str(tmp_path / "none.yml")]) == 2
    for bound in (["--keep", "-1"], ["--keep-days", "nan"]):
        assert main(["--port", "0", "--data", str(tmp_path), *bound]) == 2
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["states-language"] * 4
    path = tmp_path / "template.yaml"
    path.write_text(TEMPLATE.replace("!GetAtt Charge.Arn", "!ImportValue charge"), encoding="utf-8")
    assert main(["--port", "0", "--data", str(tmp_path / "d"), "--template", str(path)]) == 2
    assert "${Fn::ImportValue.charge} is not recognized" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert (left.value.code, "--functions" in capsys.readouterr().out) == (0, True)


@pytest.mark.parametrize(("program", "status"), [("-m", 2), ("host.py", 1)])
def test_without_its_extra_the_server_says_what_to_install(program: str, status: int) -> None:
    """The command prints one sentence; a host's import raises ModuleNotFoundError with it."""
    code = f"import sys; sys.modules['starlette'] = None; sys.argv[0] = '{program}'; import states_language.server"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    words = "The server needs starlette: pip install 'states-language[server]'"
    lines = run.stderr.splitlines()
    assert (run.returncode, lines[-1]) == (status, f"{'' if status == 2 else 'ModuleNotFoundError: '}{words}")
    assert (len(lines) == 1) == (status == 2)


def test_the_containers_command_is_one_that_the_server_takes() -> None:
    """The server accepts the entry point of the Containerfile. No container is built here."""
    file = (Path(__file__).parents[2] / "Containerfile").read_text(encoding="utf-8")
    entry = json.loads(next(line for line in file.splitlines() if line.startswith("ENTRYPOINT")).partition(" ")[2])
    assert entry[:3] == ["python", "-m", "states_language.server"]
    arguments = parser().parse_args([*entry[3:], "--virtual-time"])
    said = (arguments.host, arguments.port, str(arguments.data), arguments.virtual_time)
    assert said == ("0.0.0.0", 8083, "/data", True)
