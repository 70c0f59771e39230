"""Step Functions answers any request as AWS's model of its API describes, or with a refusal."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.validate import ParamValidator
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from endpoint import PASS, PREFIX, ROLE, WAIT, stepfunctions
from examples import examples
from language.wild import mutated_definitions
from states_language import TaskCall
from states_language.server import requests as request_validation

MACHINE, EXECUTION = PREFIX + "one", PREFIX.replace("stateMachine", "execution") + "one:first"
ACTIONS = sorted(request_validation.api_model().operation_names)
_DEFINED: list[Any] = [PASS, WAIT, {"Type": "Pass", "End": True}, {}, []]
DEFINITIONS = [json.dumps(each) for each in _DEFINED]
ANYTHING = ["x", "", "{}", '{"a":1}', "one", "S", PREFIX + "two", MACHINE, EXECUTION, *DEFINITIONS]
LIKELY = {"stateMachineArn": MACHINE, "resourceArn": MACHINE, "executionArn": EXECUTION, "definition": DEFINITIONS[0]}
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=5)
JUNK = st.one_of(st.none(), st.booleans(), st.integers(-5, 2000), ANY_TEXT, st.just([]), st.just({}))
TEXTS = {"input": "{}", "output": "1", "context": "{}", "variables": "{}"}
ACCOUNTED = LIKELY | TEXTS | {"name": "new", "stateName": "S", "roleArn": ROLE}


def mostly(good: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw from the first strategy nine times of ten."""
    return st.integers(0, 9).flatmap(lambda chance: other if chance == 9 else good)


def values(shape: Shape, name: str = "") -> st.SearchStrategy[Any]:
    """Draw a value that a client could send for this shape, and now and then something else."""
    if isinstance(shape, StructureShape):
        members = {key: values(member, key) for key, member in shape.members.items()}
        required = {key: members.pop(key) for key in shape.required_members}
        return mostly(st.fixed_dictionaries(required, optional=members), JUNK)
    if isinstance(shape, ListShape):
        return mostly(st.lists(values(shape.member), max_size=2), JUNK)
    if isinstance(shape, MapShape):
        return mostly(st.dictionaries(st.text(max_size=3), values(shape.value), max_size=2), JUNK)
    if shape.type_name != "string":
        return mostly(st.booleans() if shape.type_name == "boolean" else st.integers(0, 10), JUNK)
    texts = shape.metadata.get("enum") or [ACCOUNTED.get(name, "x")]
    return mostly(st.sampled_from(texts), mostly(st.sampled_from(ANYTHING), JUNK))


def requests() -> st.SearchStrategy[tuple[str, Any]]:
    """Draw an action, and parameters for it."""

    def of(action: str) -> st.SearchStrategy[tuple[str, Any]]:
        shape = request_validation.api_model().operation_model(action).input_shape
        return st.tuples(st.just(action), values(shape) if shape is not None else st.just({}))

    return st.sampled_from(ACTIONS).flatmap(of)


async def nothing(_: TaskCall) -> Any:
    """No machine of these tests has a Task."""


async def answers(calls: list[tuple[str, Any]]) -> list[tuple[str, int, dict[str, Any]]]:
    """Return each call's action, status and answer, from one service with one machine and one execution."""
    with tempfile.TemporaryDirectory() as name:
        answered = []
        async with stepfunctions(Path(name), ("one", PASS), perform=nothing) as states:
            states.executions.start(MACHINE, "{}", "first")
            for action, parameters in calls:
                answer = await states.answer(action, json.dumps(parameters).encode())
                answered.append((action, answer.status_code, json.loads(bytes(answer.body))))
        return answered


def logging(**members: Any) -> list[tuple[str, Any]]:
    """Return an UpdateStateMachine request with this logging configuration."""
    return [("UpdateStateMachine", {"stateMachineArn": MACHINE, "loggingConfiguration": members})]


@settings(max_examples=examples(60))
@example(logging(destinations=None, level=None))
@example(logging(destinations=[{}]))
@given(st.lists(requests(), min_size=1, max_size=8))
def test_every_request_is_answered_as_the_model_says(calls: list[tuple[str, Any]]) -> None:
    """Any request gets 200 and an answer of the action's shape, or 400 and an error name; it never crashes."""
    for action, status, answer in asyncio.run(answers(calls)):
        if status == 400:
            assert answer["__type"].startswith("com.amazonaws.states#")
            assert isinstance(answer["message"], str)
            continue
        shape = request_validation.api_model().operation_model(action).output_shape
        assert status == 200
        report = ParamValidator().validate(answer, shape)
        assert not report.has_errors(), report.generate_report()
        assert answer.keys() <= shape.members.keys()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(mutated_definitions(), min_size=1, max_size=4), st.sampled_from(["INFO", "DEBUG", "TRACE"]))
def test_a_wild_state_is_tested_or_refused(definitions: list[Any], level: str) -> None:
    """TestState answers 200 or 400 for each state of a mutated definition, alone and within it; so does validation."""
    calls: list[tuple[str, Any]] = []
    for definition in definitions:
        found = definition.get("States") if isinstance(definition, dict) else None
        states = list(found.items()) if isinstance(found, dict) else []
        for name, state in states[:3]:
            mocked = {"mock": {"result": "{}"}}
            calls.append(("TestState", {"definition": json.dumps(state), "inspectionLevel": level, **mocked}))
            calls.append(("TestState", {"definition": json.dumps(definition), "stateName": name, **mocked}))
        calls.append(("ValidateStateMachineDefinition", {"definition": json.dumps(definition)}))
    assert {status for _, status, _ in asyncio.run(answers(calls))} <= {200, 400}
