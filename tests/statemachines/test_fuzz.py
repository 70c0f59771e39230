"""No input and no failure ends one of our machines in an unhandled error, nor one that is kept for comparison.

The plain machines call a function that fails for ever until the history is full, so here it answers in the end. The
environment variable FUZZ_EXAMPLES chooses the number of cases of each machine.
"""

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from states_language import fuzz, load
from states_language.fuzzing import OVERSIZED, Case, unhandled
from states_language.tasks.stubs import Behaviour
from tests.statemachines.connections import ROOT, after, definition
from tests.statemachines.test_definitions import MACHINES

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES") or examples(60))
MANAGER = "streamkeeper-test-connection-manager"
SOON = "connections, renewed soon"
DEFINITIONS = {name: definition(name) for name in MACHINES} | {SOON: after(1, 3)}
LOADED = {name: load(one) for name, one in DEFINITIONS.items()}
ARN = "arn:aws:states:us-east-1:111111111111:execution:"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
TEXTS = st.sampled_from(["", "2020-01-01T00:00:00.000Z", f"{ARN}connections:before"]) | st.text(max_size=3)
STREAM = st.fixed_dictionaries({"streamId": st.text(max_size=8) | JSON}, optional={"more": JSON})
DEMO = {"pathParameters": {"streamId": "demo"}}
REQUESTS = st.one_of(
    st.just(DEMO),
    st.just({**DEMO, "renews": f"{ARN}connections:before"}),
    st.builds(lambda renews, after: {**DEMO, "renews": renews, "asked_at": "2025", "after": after}, TEXTS, TEXTS),
)
INPUTS = (
    REQUESTS
    | JSON
    | st.fixed_dictionaries(
        {"pathParameters": STREAM | JSON},
        optional=dict.fromkeys(("renews", "asked_at", "after"), TEXTS | JSON)
        | dict.fromkeys(("count", "successor"), JSON),
    )
)
"""What a route, a predecessor, a rule or a hand may start an execution with, and what nobody would."""

STATUSES = st.sampled_from(["ended", "stopped", "superseded"])
EXECUTIONS = st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
LEASES = st.fixed_dictionaries({}, optional={
    "execution": st.fixed_dictionaries({"S": st.sampled_from([f"{ARN}other:one", f"{ARN}connections:before"]) | JSON}),
    "stop_at": st.fixed_dictionaries({"S": st.sampled_from(["2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"]) | JSON}),
    "stop": st.fixed_dictionaries({"BOOL": st.booleans() | JSON}),
})  # fmt: skip
ANSWERS: dict[str, st.SearchStrategy[Any]] = {
    MANAGER: st.fixed_dictionaries({"status": STATUSES}) | JSON,
    "dynamodb:updateItem": JSON,
    "dynamodb:getItem": st.fixed_dictionaries({"Item": LEASES}) | JSON,
    "aws-sdk:sfn:describeExecution": st.fixed_dictionaries({"Status": EXECUTIONS}) | JSON,
    "states:startExecution": JSON,
    "sqs:sendMessage": JSON,
}
LAST = {
    MANAGER: Behaviour(answer={"status": "ended"}),
    "dynamodb:updateItem": Behaviour(answer={}),
    "dynamodb:getItem": Behaviour(answer={}),
}


def answers(*results: Any) -> st.SearchStrategy[Behaviour]:
    """Draws one of these: a text is an error, anything else an answer."""
    return st.sampled_from([Behaviour(error=one) if isinstance(one, str) else Behaviour(answer=one) for one in results])


HELD = [{"Item": {"execution": {"S": f"{ARN}{name}"}}} for name in ("machine:mine", "other:one", "connections:before")]
STOPPED = {"stop": {"BOOL": True}, "stop_at": {"S": "2030-01-01T00:00:00Z"}}
USUAL: dict[str, st.SearchStrategy[Behaviour]] = {
    MANAGER: answers("StreamTakenOver", "ConnectionExpired", "StreamThrottled", "StreamRejected", "X", {}),
    "dynamodb:updateItem": answers({}, "DynamoDB.ConditionalCheckFailedException", "DynamoDB.SdkClientException"),
    "dynamodb:getItem": answers({}, *HELD, {"Item": STOPPED}, {"Item": {**HELD[0]["Item"], **STOPPED}}, "X"),
    "aws-sdk:sfn:describeExecution": answers(
        {"Status": "RUNNING"}, {"Status": "ABORTED"}, {}, "Sfn.ExecutionDoesNotExistException", "X"
    ),
    "states:startExecution": answers({}, "StepFunctions.ExecutionAlreadyExistsException", "X"),
    "sqs:sendMessage": answers({}, "X"),
}
"""What happens, rather than what might: it leads deeper into the machine."""

CASES = st.builds(
    Case,
    input=REQUESTS,
    behaviours=st.fixed_dictionaries({name: st.lists(one, min_size=1, max_size=16) for name, one in USUAL.items()}).map(
        lambda drawn: {
            name: [*behaviours, *([LAST[name]] if name in LAST else [])] for name, behaviours in drawn.items()
        }
    ),
    seed=st.integers(0, 9),
)


def test_every_machine_file_is_fuzzed() -> None:
    """A machine that is added must be in the list."""
    assert set(LOADED) - {SOON} == {path.name.partition(".")[0] for path in (ROOT / "statemachines").glob("*.asl.yml")}


@pytest.mark.parametrize("name", LOADED)
def test_no_input_and_no_failure_ends_a_machine_unhandled(name: str) -> None:
    """Services fail, never answer, or answer nonsense. For any input the machine ends in a state that says how."""
    machine = LOADED[name]

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(fuzz(machine, inputs=INPUTS, answers=ANSWERS, last=LAST) | CASES)
    def ends_handled(case: Case) -> None:
        assert unhandled(machine, case.run(machine, name="mine")) is None

    ends_handled()


@pytest.mark.parametrize("name", LOADED)
def test_answers_that_are_too_large_are_handled(name: str) -> None:
    """Each service's answer is too large alone, and all together."""
    machine = LOADED[name]
    for size in (len(OVERSIZED) // 2 - 100, len(OVERSIZED) - 300, len(OVERSIZED)):
        large = [Behaviour(answer="x" * size)] * 5
        case = Case({"pathParameters": {"streamId": "x"}}, {MANAGER: [*large, LAST[MANAGER]]})
        assert unhandled(machine, case.run(machine)) is None


@pytest.mark.parametrize("name", [name for name in LOADED if name != "connections"])
def test_a_first_or_later_answer_that_is_too_large_is_handled(name: str) -> None:
    """This holds for each service that the machine calls; States.ALL does not catch that error.

    The machine of the connections calls all of them if a renewal is due soon.
    """
    machine = LOADED[name]
    calls = json.dumps(DEFINITIONS[name])
    for service in (each for each in USUAL if f":::{each}" in calls):
        refused = Behaviour(error="DynamoDB.ConditionalCheckFailedException")
        for drawn in ([], [Behaviour(error="X")], [Behaviour(answer={})], [refused]):
            others = {MANAGER: [LAST[MANAGER]], "dynamodb:updateItem": [*drawn, LAST["dynamodb:updateItem"]]}
            case = Case(DEMO, others | {service: [*drawn, Behaviour(answer=OVERSIZED), Behaviour(answer={})]})
            assert unhandled(machine, case.run(machine, name="mine")) is None


def test_a_fuzzed_case_has_the_same_history_every_time() -> None:
    """The histories are equal byte for byte."""
    machine = LOADED["connections"]
    case = Case({"pathParameters": {"streamId": "x"}}, {MANAGER: [Behaviour(error="StreamDropped"), LAST[MANAGER]]})
    assert case.run(machine).history == case.run(machine).history
    assert case.run(machine).status == "SUCCEEDED"
