"""`run`: one execution, its result and its exit status."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from machines import line, task, write_file
from states_language.__main__ import main
from states_language.workbench import run as command

WORK = line(
    ("Rest", {"Type": "Wait", "Seconds": 3600, "Next": "Do it"}),
    ("Do it", task(OutputPath="$.Payload", Catch=[{"ErrorEquals": ["Busy"], "Next": "Rest"}])),
)
DIRECT = line(("Do it", task(OutputPath="$.Payload")))


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    return main(["run", "--json", *arguments]), json.loads(capsys.readouterr().out)


def test_a_file_of_answers_is_used_in_turn_and_waits_take_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path has every visit of two hours in virtual time; a date in the file is a text."""
    answers = "work: {sequence: [{error: Busy, delay_s: 1.5}, {answer: {n: 2, on: 2026-01-31}}]}"
    functions = write_file(tmp_path, "f.yml", answers)
    status, result = run_command(capsys, write_file(tmp_path, "a.json", WORK), "--virtual", "--functions", functions)
    assert status == 0
    assert result == {"status": "SUCCEEDED", "output": {"n": 2, "on": "2026-01-31"}, "error": None, "cause": None,
                      "path": ["Rest", "Do it", "Rest", "Do it"], "transitions": 4, "history_events": 16,
                      "took_ms": 7_201_500}  # fmt: skip


def test_what_a_function_prints_is_not_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function's prints go to standard error, as its log does."""
    functions = write_file(
        tmp_path, "f.py", "print('loaded')\ndef work(payload, context):\n    print('hello')\n    return 1"
    )
    assert main(["run", write_file(tmp_path, "a.json", DIRECT), "--json", "--functions", functions]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["output"] == 1
    assert printed.err.splitlines() == ["loaded", "hello"]


def test_functions_come_from_a_module_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name may have - for _; an exception's class is the error. The file is a normal module with its dataclasses."""
    code = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Answer:
    n: int

def do_work(payload, context):
    return Answer(payload['n']).n"""
    machine = write_file(tmp_path, "a.json", line(("A", task("do-work", OutputPath="$.Payload"))))
    functions = write_file(tmp_path, "f.py", code)
    status, result = run_command(capsys, machine, "--virtual", "--functions", functions, "--input", '{"n": 3}')
    assert (status, result["output"]) == (0, 3)
    status, result = run_command(capsys, machine, "--virtual", "--functions", functions, "--history")
    assert (status, result["status"], result["error"]) == (1, "FAILED", "KeyError")
    assert [event["id"] for event in result["history"]] == list(range(1, result["history_events"] + 1))


def test_a_function_that_the_file_does_not_name_returns_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service that is not named returns {}. Each is reported once on standard error."""
    get = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "Parameters": {"TableName": "t"}}
    machine = write_file(tmp_path, "a.json", line(("A", task(OutputPath="$.Payload", Next="B")), ("B", get)))
    assert main(["run", machine, "--virtual", "--input", "[1]"]) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "states-language: --functions does not name work; it returns its input.",
        "states-language: --functions does not name dynamodb:getItem; it returns {}.",
    ]
    assert shown.out.splitlines() == ["SUCCEEDED after 0.000 s, 2 transitions, 12 events", "path: A → B", "output: {}"]


def test_history_prints_a_line_for_each_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line has the event's id, the id before it, seconds from the start, its type and its state."""
    machine = write_file(tmp_path, "a.json", line(("A", {"Type": "Wait", "Seconds": 2})))
    assert main(["run", machine, "--virtual", "--history"]) == 0
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "    id  after       at (s)  event",
        "     1      0        0.000  ExecutionStarted",
        "     2      0        0.000  WaitStateEntered A",
        "     3      2        2.000  WaitStateExited A",
        "     4      3        2.000  ExecutionSucceeded",
    ]


@pytest.mark.parametrize(
    ("functions", "error"),
    [
        ("work: 1", "work: must be a mapping with one or more of answer"),
        ("work: {anser: 1}", "work: anser is not one of answer, error"),
        ("work: {answer: 1, error: X}", "work: must have exactly one of answer, error and never"),
        ("work: {sequence: []}", "work: sequence must be the only key, and a list"),
        ("work: {sequence: [{delay_s: -1}]}", "work: sequence[0]: delay_s must be a number of seconds"),
        ("work: {delay_s: 1.0e+306}", "work: delay_s must be a number of seconds from 0 to 31622400, a year"),
        ("work: {cause: X}", "work: cause is allowed only with error"),
        ("StateMachines: {}", "--case or --mocks takes it"),
        ("[1]", "must be a mapping from functions' names"),
        ("a: {", "is neither YAML nor JSON"),
    ],
)
def test_a_mistake_in_the_file_of_functions_gives_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], functions: str, error: str
) -> None:
    """The message is one sentence that names the place."""
    machine = write_file(tmp_path, "a.json", DIRECT)
    assert main(["run", machine, "--functions", write_file(tmp_path, "f.yml", functions)]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--input", "{"], "--input is not valid JSON"),
        (["--input", "NaN"], "--input is not valid JSON: NaN"),
        (["--input", "[" * 100_000], "--input is not valid JSON: it is nested too deeply"),
        (["--input", "@nowhere.json"], "The input nowhere.json cannot be read"),
        (["--functions", "no_such_module"], "no_such_module cannot be imported"),
        (["--functions", "no_such_file.py"], "no_such_file.py: there is no such file"),
    ],
)
def test_a_mistake_on_the_command_line_gives_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    """The message names the option or file and says what is wrong with it."""
    assert main(["run", write_file(tmp_path, "a.json", DIRECT), *arguments]) == 2
    assert error in capsys.readouterr().err


def test_a_definition_that_does_not_load_gives_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the first problem, and the command that lists all."""
    path = write_file(tmp_path, "a.json", {})
    assert main(["run", path]) == 2
    assert f"`python -m states_language check {path}` lists all." in capsys.readouterr().err


def test_real_time_reports_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real time a Wait of a second takes a second, and standard error reports it."""
    monkeypatch.setattr(command, "PROGRESS_EVERY_MS", 300)
    assert main(["run", write_file(tmp_path, "a.json", line(("A", {"Type": "Wait", "Seconds": 1})))]) == 0
    shown = capsys.readouterr()
    assert "in A; Ctrl-C ends it." in shown.err
    assert shown.out.startswith("SUCCEEDED after 1.")


def test_ctrl_c_ends_a_run_without_a_trace(tmp_path: Path) -> None:
    """Ctrl-C gives exit status 130, and no traceback."""
    machine = write_file(tmp_path, "a.json", line(("A", {"Type": "Wait", "Seconds": 600})))
    code = """
import states_language.workbench.run
from states_language.__main__ import main

states_language.workbench.run.PROGRESS_EVERY_MS = 200
raise SystemExit(main())"""
    with subprocess.Popen([sys.executable, "-c", code, "run", machine], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "in A" in process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in rest
