"""Every expression of the deployed machine, evaluated alone: its value for given variables.

An expression that only reads a variable or a path is checked to read exactly that; every other expression has its cases
below. A new expression without a case fails `test_every_expression_has_its_cases`.
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.session import Session

from states_language import Execution, load
from states_language.clock import VirtualClock
from tests.statemachines.connections import MINE, NAMES, OTHER, definition

# Each partition that botocore knows, with the domain of its endpoints and a region.
PARTITIONS = [
    (one["id"], one["outputs"]["dnsSuffix"], max(one["regions"]))
    for one in Session().get_data("partitions")["partitions"]
]
NUMBERS = {"wait_s": 40, "jitter_s": 10, "cool_down_s": 20, "throttle_max_delay_s": 300}
MACHINE = definition("connections", "test", **NUMBERS)
SHA_1 = hashlib.sha1(MINE.encode()).hexdigest()
LATER = "2026-01-01T00:00:00Z"
BEFORE = "2025-12-31T00:00:00Z"
POST = {"pathParameters": {"streamId": "demo"}}
DELEGATED = {**POST, "renews": "", "asked_at": BEFORE, "after": OTHER}
EXECUTION = {"Execution": {"Id": MINE, "StartTime": LATER}}
FREE = "attribute_not_exists(execution) AND (attribute_not_exists(ended_at) OR ended_at <= :before)"
MINE_OR_FREE = "attribute_not_exists(stop) AND (attribute_not_exists(execution) OR execution = :before)"
NO_STOP = "(attribute_not_exists(stop_at) OR stop_at < :asked_at) AND "
SET = "SET execution = :me, generation = if_not_exists(generation, :zero) + :one, started_at = "
OF_A_POST = (
    ":started, stopped_at = if_not_exists(stop_since, :started)"
    " REMOVE #group, stop, stop_at, stop_since, ending, ending_cause, ended_at, code_version, upgrade_mark"
)
ENDED = {"Error": "StreamEnded", "Cause": "ended"}
STOPPED = {"Error": "StreamEnded", "Cause": "stopped"}
SUPERSEDED = {"Error": "StreamEnded", "Cause": "superseded"}
ERROR = "States.QueryEvaluationError"


def lived_since(entered_at: str) -> dict[str, Any]:
    """A Task that was entered then."""
    return {"context": {"State": {"EnteredTime": entered_at}}}


def died(said: str, entered_at: str) -> dict[str, Any]:
    """A Task that was entered then, and Lambda's message about its function."""
    return lived_since(entered_at) | {"errorOutput": {"Error": "Sandbox.Timedout", "Cause": said}}


def cause(error: str) -> dict[str, Any]:
    """Returns the Cause with which Step Functions catches an error that a function raised in place of another."""
    return {"errorOutput": {"Error": "RenewalDue", "Cause": f'{{"errorMessage":"{error}: as usual","errorType":"R"}}'}}


def lease(**item: Any) -> dict[str, Any]:
    """Returns a lease as it is read."""
    return {"result": {"Item": item}, "context": EXECUTION}


# place: (variables and what $states holds, value)
CASES: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "Read request/Choices/0/Condition": [
        ({"input": input_}, valid)
        for input_, valid in (
            (POST, True),
            ({**POST, "renews": OTHER}, True),
            (DELEGATED, True),
            ({**DELEGATED, "renews": OTHER}, True),
            (None, False),
            ([POST], False),
            ({"pathParameters": [{"streamId": "demo"}]}, False),
            ({"pathParameters": {"streamId": ""}}, False),
            ({"pathParameters": {"streamId": "😀" * 256}}, True),
            ({"pathParameters": {"streamId": "😀" * 257}}, False),
            ({"pathParameters": {"streamId": 3}}, False),
            ({"pathParameters": {}}, False),
            ({**POST, "renews": ""}, False),
            ({**POST, "renews": None}, False),
            ({**POST, "asked_at": BEFORE}, False),
            ({**DELEGATED, "after": None}, False),
            ({**DELEGATED, "asked_at": 3}, False),
        )
    ],
    "Read request/Choices/0/Assign/renews": [({"input": POST}, ""), ({"input": {"renews": OTHER}}, OTHER)],
    "Read request/Choices/0/Assign/asked_at": [
        ({"input": POST, "context": EXECUTION}, LATER),
        ({"input": {**POST, "renews": OTHER}, "context": EXECUTION}, "1970-01-01T00:00:00Z"),
        ({"input": DELEGATED, "context": EXECUTION}, BEFORE),
    ],
    "Read request/Choices/0/Assign/after": [({"input": POST}, ""), ({"input": DELEGATED}, OTHER)],
    "Read request/Choices/0/Assign/dead": [({}, "")],
    "Claim lease/Arguments/UpdateExpression": [
        ({"renews": "", "dead": ""}, f"{SET}{OF_A_POST}"),
        (
            {"renews": OTHER, "dead": ""},
            f"{SET}if_not_exists(started_at, :started) REMOVE #group, ending, ending_cause, ended_at",
        ),
        ({"renews": OTHER, "dead": MINE}, f"{SET}{OF_A_POST}"),
    ],
    "Claim lease/Assign/code": [
        ({"result": {"Attributes": {"code_version": {"S": "7"}}}}, "7"),
        ({"result": {"Attributes": {}}}, "stable"),
        ({"result": {}}, "stable"),
    ],
    # The function's limit and what its start may take besides, as the stage has them.
    "Connect A/TimeoutSeconds": [({}, 8 + 4)],
    "Connect A/Arguments/FunctionName": [({"code": "7"}, f"{NAMES['connection_manager']}:7")],
    "Claim lease/Arguments/ConditionExpression": [
        ({"renews": "", "dead": ""}, NO_STOP + FREE),
        ({"renews": OTHER, "dead": ""}, NO_STOP + MINE_OR_FREE),
        ({"renews": OTHER, "dead": MINE}, f"{NO_STOP}execution = :before"),
    ],
    "Claim lease/Arguments/ExpressionAttributeValues/:before/S": [
        ({"renews": "", "dead": "", "context": {"State": {"EnteredTime": LATER}}}, LATER),
        ({"renews": OTHER, "dead": ""}, OTHER),
        ({"renews": OTHER, "dead": MINE}, MINE),
    ],
    "Claim lease/Catch/0/Assign/tries": [({"tries": 1}, 2)],
    "Read lease/Assign/code": [(lease(code_version={"S": "7"}), "7"), (lease(), "stable")],
    "Read lease/Assign/holder": [
        (lease(execution={"S": OTHER}), OTHER),
        (lease(), ""),
        ({"result": {}}, ""),
        (lease(execution={"S": 3}), ""),
    ],
    "Read lease/Assign/stop": [(lease(stop={"BOOL": True}), True), (lease(), False)],
    "Read lease/Assign/stop_at": [(lease(stop_at={"S": LATER}), LATER), (lease(), "")],
    "Describe holder/Arguments/ExecutionArn": [
        ({"holder": OTHER, "context": EXECUTION}, OTHER),
        ({"holder": "", "context": EXECUTION}, MINE),
    ],
    "Describe holder/Assign/holder_status": [({"result": {"Status": "ABORTED"}}, "ABORTED"), ({"result": {}}, "")],
    "Who holds the lease/Choices/0/Condition": [
        ({"holder": MINE, "context": EXECUTION}, True),
        ({"holder": OTHER, "context": EXECUTION}, False),
        ({"holder": "", "context": EXECUTION}, False),
    ],
    "Who holds the lease/Choices/1/Condition": [
        ({"renews": renews, "holder": holder, "stop_at": stop_at, "asked_at": LATER}, holds)
        for renews, holder, stop_at, holds in (
            ("", "", LATER, True),
            ("", "", BEFORE, False),
            ("", "", "", False),
            ("", OTHER, LATER, False),
            (OTHER, "", LATER, False),
        )
    ],
    "Who holds the lease/Choices/2/Condition": [
        ({"stop_at": stop_at, "asked_at": LATER, "renews": renews, "stop": stop}, holds)
        for stop_at, renews, stop, holds in (
            ("", "", False, False),
            (BEFORE, "", True, False),
            (LATER, "", True, True),
            ("", OTHER, True, True),
            ("", OTHER, False, False),
        )
    ],
    "Who holds the lease/Choices/3/Condition": [
        ({"holder": holder, "after": after, "holder_status": status}, free)
        for holder, after, status, free in (
            ("", "", "FORGOTTEN", False),
            (OTHER, "", "RUNNING", False),
            (OTHER, "", "", False),
            (OTHER, OTHER, "RUNNING", True),
            (OTHER, "", "ABORTED", True),
            (OTHER, "", "FORGOTTEN", True),
        )
    ],
    "Who holds the lease/Choices/4/Condition": [
        ({"holder": holder, "holder_status": status, "stop": stop}, runs)
        for holder, status, stop, runs in (
            (OTHER, "RUNNING", False, True),
            (OTHER, "RUNNING", True, False),
            (OTHER, "", False, False),
            ("", "RUNNING", False, False),
        )
    ],
    "Try again/Choices/0/Condition": [({"tries": 144}, True), ({"tries": 143}, False)],
    "Try again/Choices/1/Condition": [({"tries": 115}, True), ({"tries": 114}, False)],
    "Back off/Seconds": [({"tries": 1, "dead": ""}, 0), ({"tries": 99, "dead": OTHER}, 0)],
    "Delegate claim/Arguments/Name": [({"context": EXECUTION}, f"{SHA_1}-claim")],
    "Start last successor/Arguments/Name": [({"context": EXECUTION}, f"{SHA_1}-last")],
    "Release lease/Arguments/ConditionExpression": [
        ({"status": "stopped"}, "attribute_not_exists(execution) AND stop_at >= :mine"),
        ({"status": ""}, "execution = :mine"),
    ],
    "Release lease/Arguments/ExpressionAttributeValues/:mine/S": [
        ({"status": "stopped", "asked_at": BEFORE, "context": EXECUTION}, BEFORE),
        ({"status": "", "asked_at": BEFORE, "context": EXECUTION}, MINE),
    ],
    "Release lease/Arguments/ExpressionAttributeValues/:cause/S": [
        ({"ending": STOPPED}, "stopped"),
        ({"ending": {"Error": "X", "Cause": "x" * 2_000}}, "x" * 1_000),
        ({"ending": {"Error": "X"}}, ""),
    ],
    "Choose ending/Choices/0/Condition": [({"status": "handed_on"}, True), ({"status": ""}, False)],
    "Choose ending/Choices/1/Condition": [({"status": "rejected"}, True), ({"status": ""}, False)],
    "Choose ending/Choices/2/Condition": [
        ({"ending": SUPERSEDED, "refused": False}, True),
        ({"ending": STOPPED, "refused": True}, False),
        ({"ending": {"Error": "RenewalFailed", "Cause": ""}, "refused": True}, True),
        ({"ending": {"Error": "RenewalFailed", "Cause": ""}, "refused": False}, False),
    ],
    "Choose ending/Choices/3/Condition": [({"ending": STOPPED}, True), ({"ending": ENDED}, False)],
    "Choose ending/Choices/4/Condition": [({"ending": ENDED}, True), ({"ending": {"Error": "X"}}, False)],
    "Choose ending/Choices/5/Condition": [
        ({"ending": {"Error": "StreamRejected"}, "reports": 0}, True),
        ({"ending": {"Error": "InvalidRequest"}, "reports": 0}, True),
        ({"ending": {"Error": "StreamRejected"}, "reports": 1}, False),
        ({"ending": {"Error": "States.Runtime"}, "reports": 0}, False),
    ],
    "Send dead-letter message/Arguments/QueueUrl": [
        (
            {"context": {"Execution": {"Id": f"arn:{partition}:states:{region}:111111111111:execution:machine:mine"}}},
            f"https://sqs.{region}.{suffix}/111111111111/streamkeeper-test-dead-letters",
        )
        for partition, suffix, region in PARTITIONS
    ],
    "Send dead-letter message/Assign/status": [({"status": ""}, "rejected"), ({"status": "handed_on"}, "handed_on")],
    "Already running/Output": [({"holder": OTHER}, {"status": "AlreadyRunning", "execution": OTHER})],
    "Ended/Output": [({"ending": ENDED}, {"status": "ended"})],
    "Renewed/Output": [({"status": "superseded"}, {"status": "superseded"})],
    "Rejected/Output": [
        (
            {"status": "rejected", "ending": {"Error": "StreamRejected", "Cause": "No."}},
            {"status": "rejected", "error": "StreamRejected", "cause": "No."},
        )
    ],
    "Begin A/Assign/rest_s": [({}, 30)],
    "Wait A/Seconds": [({"rest_s": 0}, 0)],
    "Connect A/Arguments/Payload/lane": [({"context": {"State": {"Name": f"Connect {lane}"}}}, lane) for lane in "AB"],
    "Connect A/Arguments/Payload/cycles": [
        ({"cycles": 114, "looked": 0}, 114),
        ({"cycles": 115, "looked": 115}, 115),
        ({"cycles": 115, "looked": 114}, ERROR),
    ],
    "Connect A/Assign/cycles": [({"cycles": 7}, 8)],
    "Connect A/Assign/end": [
        ({"result": {"Payload": {"status": "ended"}}}, ENDED),
        ({"result": {"Payload": {"status": 3}}}, None),
        ({"result": {"Payload": None}}, None),
        ({"result": {"Payload": []}}, None),
    ],
    "Connect A/Catch/0/Assign/rest_s": [
        (cause("StreamTakenOver"), 30),
        (cause("taken; late by 7 s"), 23),
        (cause("taken; late by 31 s"), 0),
        ({"errorOutput": {"Error": "StreamTakenOver"}}, 30),
    ],
    "Connect A/Catch/2/Assign/taken_over": [
        (cause("StreamTakenOver"), True),
        (cause("ConnectionExpired"), False),
        ({"errorOutput": {"Error": "RenewalDue"}}, True),
    ],
    "Connect A/Catch/2/Assign/rest_s": [
        (cause("StreamTakenOver"), 30),
        (cause("ConnectionExpired"), 0),
        ({"errorOutput": {"Error": "RenewalDue"}}, 30),
    ],
    "Connect A/Catch/4/Assign/rest_s": [
        ({"died": ""} | lived_since("2100-01-01T00:00:00Z"), 0),
        ({"died": "RequestId: r1\n"} | lived_since("2100-01-01T00:00:00Z"), 0),
        ({"died": "RequestId: r2\nRequestId: r1\n"} | lived_since("2100-01-01T00:00:00Z"), 20),
        ({"died": "RequestId: r2\nRequestId: r1\n"} | lived_since("2000-01-01T00:00:00Z"), 0),
    ],
    "Connect A/Catch/4/Assign/died": [
        (died("x" * 400, "2000-01-01T00:00:00Z"), "x" * 300 + "\n"),
        ({"died": "r1\n"} | died("r2", "2100-01-01T00:00:00Z"), "r2\nr1\n"),
        ({"died": "r1\n"} | died("r2", "2000-01-01T00:00:00Z"), "r2\n"),
        ({"died": "x" * 900} | died("r2", "2100-01-01T00:00:00Z"), "r2\n" + "x" * 897),
        (lived_since("2000-01-01T00:00:00Z") | {"errorOutput": {"Error": "Sandbox.Timedout"}}, "\n"),
    ],
    "Connect A/Catch/5/Assign/rest_s": [
        ({"errorOutput": {"Error": "StreamThrottled"}}, 300),
        ({"errorOutput": {"Error": "StreamDropped"}}, 20),
    ],
    "Renewal due A/Choices/0/Condition": [({"end": None}, False), ({"end": ENDED}, True)],
    "Renewal due A/Choices/1/Condition": [({"cycles": 114}, False), ({"cycles": 115}, True)],
    "Read lease A/Assign/end": [
        (lease(execution={"S": OTHER}, stop={"BOOL": True}), SUPERSEDED),
        (lease(execution={"S": MINE}, stop={"BOOL": True}), STOPPED),
        (lease(stop={"BOOL": True}), STOPPED),
        (lease(execution={"S": MINE}), None),
        (lease(), None),
    ],
    "Successor needed A/Choices/1/Condition": [
        ({"cycles": 115, "due": 0}, True),
        ({"cycles": 116, "due": 125}, False),
        ({"cycles": 145, "due": 150}, True),
    ],
    "Successor needed A/Choices/2/Assign/rest_s": [
        ({"taken_over": True, "rest_s": 30}, 30),
        ({"taken_over": False, "rest_s": 0}, 300),
    ],
    "Start successor A/Arguments/Name": [({"successor": 2, "context": EXECUTION}, f"{SHA_1}-2")],
    "Start successor A/Catch/0/Assign/successor": [({"successor": 1}, 2)],
    "Start successor A/Catch/0/Assign/due": [({"cycles": 115}, 125)],
    "Give up A/Choices/0/Condition": [({"cycles": 144}, False), ({"cycles": 145}, True)],
    "End A/Cause": [({"end": ENDED}, "ended"), ({"end": {"Error": "StreamRejected"}}, "")],
}
BARE = re.compile(r"\{% \$([\w.]+) %\}")


def expressions(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Returns every expression with its place; lane B has those of lane A."""
    if isinstance(value, str) and value.startswith("{%"):
        yield place, value
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        if name == "Branches":
            yield from expressions(member[0]["States"])
        else:
            yield from expressions(member, f"{place}/{name}".lstrip("/"))


def placed() -> dict[str, str]:
    """Returns each distinct expression by the first place that has it."""
    places: dict[str, str] = {}
    for place, expression in expressions(MACHINE["States"]):
        places.setdefault(expression, place)
    return {place: expression for expression, place in places.items()}


def evaluated(expression: str, given: dict[str, Any], seed: int = 0) -> Execution:
    """Returns an execution whose output is the expression's value; the members of `$states` are variables here."""
    assign = {"Type": "Pass", "Assign": {**given, "at": given}, "Next": "Evaluate"}
    output = {"Type": "Pass", "Output": expression.replace("$states.", "$at."), "End": True}
    machine = {"QueryLanguage": "JSONata", "StartAt": "Assign", "States": {"Assign": assign, "Evaluate": output}}
    return load(machine).execute(clock=VirtualClock(seed=seed))


def test_every_expression_has_its_cases() -> None:
    """Each expression that does more than read a variable has a case, and no case lacks its expression."""
    assert {place for place, expression in placed().items() if not BARE.fullmatch(expression)} == set(CASES)


def test_each_expression_has_the_value_of_its_cases() -> None:
    """The result is the value, or the error that a Catcher takes."""
    known, wrong = placed(), []
    for place, given, value in [(place, *case) for place, cases in CASES.items() for case in cases]:
        execution = evaluated(known[place], given)
        found = execution.output if execution.status == "SUCCEEDED" else execution.error
        if (execution.status == "FAILED", found) != (value == ERROR, value):
            wrong.append((place, given, value, found))
    assert wrong == []


def test_each_simple_expression_reads_the_variable_that_it_names() -> None:
    """It reads a variable, a member of a variable, or a value of the state."""
    for expression, name in [(one, match[1]) for one in placed().values() if (match := BARE.fullmatch(one))]:
        first, *rest = name.split(".")
        value: Any = "marked"
        for member in reversed(rest):
            value = {member: value}
        given = value if first == "states" else {first: value}
        assert evaluated(expression, given).output == "marked", expression


@pytest.mark.parametrize(
    ("place", "given", "lowest", "highest"),
    [
        ("Wait A/Seconds", {"rest_s": 30}, 30, 40),
        ("Wait A/Seconds", {"rest_s": 20}, 20, 30),
        ("Back off/Seconds", {"tries": 2, "dead": ""}, 20, 30),
        ("Back off/Seconds", {"tries": 11, "dead": ""}, 300, 310),
    ],
)
def test_jitter_shortens_a_wait_and_lengthens_a_back_off(
    place: str, given: dict[str, Any], lowest: int, highest: int
) -> None:
    """Every whole second in the range occurs: a wait of 40 s lasts from 30 s on, a back-off of 20 s up to 30 s."""
    drawn = {evaluated(placed()[place], given, seed).output for seed in range(70)}
    assert drawn == set(range(lowest, highest + 1))
