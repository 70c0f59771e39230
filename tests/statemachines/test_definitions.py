"""What holds for every machine file, and the contract between the machines and handlers/errors.py."""

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from handlers import errors
from handlers.upgrade.deployed_versions import UpgradeRefused
from local import stages
from states_language import load
from states_language.definition import practices
from tests.statemachines.connections import ROOT, definition

DEPLOYED = ("connections", "fleet", "start", "upgrade")
STAGES = ("local", "test", "dev", "prod")
MACHINES = (*DEPLOYED, "staggered", "retry", "staggered-join")
AWS_ERRORS = re.compile(r"(States|Lambda|DynamoDB|Sfn|StepFunctions|Sandbox|Runtime)\.[A-Za-z]+")
# Asks the validator for all machines, and the plugin for one after the other.
ASK = """
const CheckMachines = require("./packaging/check-machines.cjs");
const { machines, packaged } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const problems = Object.entries(machines).map(([name, machine]) =>
  [name, CheckMachines.validate(machine).errorsText()]);
const said = packaged.map((definition) => {
  const configurationInput = { stepFunctions: { stateMachines: { connections: { definition } } } };
  try { Object.values(new CheckMachines({ configurationInput, classes: { Error } }).hooks).forEach((hook) => hook()); }
  catch (problem) { return problem.message; }
  return "";
});
console.log(JSON.stringify({ problems: Object.fromEntries(problems), said }));
"""


def states(machine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Returns every state of a machine by its name, including those of branches and of a Map."""
    for name, state in machine["States"].items():
        yield name, state
        for inner in (*state.get("Branches", []), *([state["ItemProcessor"]] if "ItemProcessor" in state else [])):
            yield from states(inner)


def raised() -> set[str]:
    """Returns the names of the errors that the connection manager raises."""
    return {error.__name__ for error in errors.StreamkeeperError.__subclasses__()}


def named(state: dict[str, Any], field: str) -> set[str]:
    """Returns the Error Names in the Retriers or Catchers of a state."""
    return {name for handler in state.get(field, []) for name in handler["ErrorEquals"]}


def assigned(state: dict[str, Any], variable: str) -> Iterator[Any]:
    """Returns the objects that a state and its Catchers assign to a variable."""
    for one in (state, *state.get("Catch", [])):
        if isinstance(one.get("Assign", {}).get(variable), dict):
            yield one["Assign"][variable]


def test_packaging_accepts_only_valid_machines() -> None:
    """asl-validator, called as packaging calls it, reports no problem of any machine, and refuses an invalid one."""
    valid, invalid = definition("connections"), definition("connections") | {"StartAt": 7}
    given = {"machines": {name: definition(name) for name in MACHINES}, "packaged": [invalid, valid]}
    node = subprocess.run(
        ["node", "-e", ASK], input=json.dumps(given), cwd=ROOT, capture_output=True, text=True, check=True
    )
    answer = json.loads(node.stdout)
    assert answer["problems"] == dict.fromkeys(MACHINES, "")
    refused, taken = answer["said"]
    assert (refused.startswith("The state machine connections is invalid: "), taken) == (True, "")


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_loads_in_every_stage(name: str) -> None:
    """The interpreter takes each definition, with nothing left to resolve; every state has a Comment."""
    for stage in STAGES:
        resolved = definition(name, stage)
        load(resolved)
        assert "${" not in json.dumps(resolved)
    assert [state for state, fields in states(definition(name)) if not fields.get("Comment")] == []


@pytest.mark.parametrize("name", MACHINES)
def test_every_caught_error_name_exists(name: str) -> None:
    """Each is an Error Name of AWS, an error that our functions raise, or the error of a Fail state of the machine."""
    machine = definition(name)
    ends = {end["Error"] for _, state in states(machine) for end in assigned(state, "end")}
    ends |= {state["Error"] for _, state in states(machine) if "Error" in state}
    known = raised() | {UpgradeRefused.__name__} | ends
    caught = {error for _, state in states(machine) for error in named(state, "Retry") | named(state, "Catch")}
    assert {error for error in caught if not AWS_ERRORS.fullmatch(error)} <= known


@pytest.mark.parametrize("name", MACHINES)
def test_the_deployed_machines_pass_asl_check_without_a_warning(name: str) -> None:
    """Every loop is counted, every error caught, every Retrier bounded.

    The machines that are kept for comparison get warnings about their loops and endless retries, as meant.
    """
    allowed = set() if name in DEPLOYED else {"endless-loop", "history"}
    assert {advice.practice for advice in practices.warnings(definition(name))} <= allowed


@pytest.mark.parametrize("lane", ["A", "B"])
def test_the_lanes_handle_every_error_of_ours_by_name(lane: str) -> None:
    """A lane of the deployed machine has a way out for each error of handlers/errors.py, and one for all others."""
    task = dict(states(definition("connections")))[f"Connect {lane}"]
    assert raised() <= named(task, "Retry")
    never_retried = {name for one in task["Retry"] if one["MaxAttempts"] == 0 for name in one["ErrorEquals"]}
    assert never_retried == raised() & (named(task, "Catch") - {"StreamThrottled"})
    assert task["Catch"][-1]["ErrorEquals"] == ["States.ALL"]


def test_both_lanes_are_the_same_but_for_their_start() -> None:
    """Lane B is lane A with the letters exchanged, except that it starts at its Task."""
    branches = definition("connections")["States"]["Lanes"]["Branches"]
    first, second = (branch["States"] for branch in branches)
    assert first["Begin A"].pop("Next") == "Wait A"
    assert second["Begin B"].pop("Next") == "Connect B"
    assert json.loads(json.dumps(first).replace(' A"', ' B"')) == second


def test_the_machine_fits_on_a_page() -> None:
    """At most 20 states outside the lanes and 9 in each, in 600 lines with the comments; every name is one state's."""
    machine = definition("connections")
    lanes = [branch["States"] for branch in machine["States"]["Lanes"]["Branches"]]
    assert (len(machine["States"]) <= 20, [len(lane) <= 9 for lane in lanes]) == (True, [True, True])
    names = [name for name, _ in states(machine)]
    assert len(names) == len(set(names)) == 19 + 2 * 9
    assert len((ROOT / "statemachines" / "connections.asl.yml").read_text().splitlines()) <= 600


def test_the_jsonata_is_what_aws_documents() -> None:
    """Version 2.0.6 has neither ?? nor ?:, and Step Functions has no $eval."""
    text = json.dumps(definition("connections"))
    assert "JSONata" in text
    assert re.findall(r"\?\?|\?:|\$eval\b", text) == []


def test_every_call_has_a_limit_and_is_retried() -> None:
    """The only exception is a lane's reading of the lease: the next cycle reads it again."""
    tasks = {name: state for name, state in states(definition("connections")) if state["Type"] == "Task"}
    assert (len(tasks), all(task["TimeoutSeconds"] for task in tasks.values())) == (13, True)
    assert {name for name, task in tasks.items() if not task.get("Retry")} == {"Read lease A", "Read lease B"}


def test_a_tasks_time_limit_is_longer_than_the_functions() -> None:
    """So the machine sees the function's own time-out, not that of the Task."""
    for stage in STAGES:
        resolved, settings = dict(states(definition("connections", stage))), stages.load(stage)
        sums = [re.findall(r"\d+", resolved[f"Connect {lane}"]["TimeoutSeconds"]) for lane in ("A", "B")]
        assert sums == [[str(settings[name]) for name in ("function_timeout_s", "start_allowance_s")]] * 2
