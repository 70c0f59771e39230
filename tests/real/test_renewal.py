"""A renewal on real sockets: a successor takes the stream from a running execution, as the machine starts it."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAM = "demo:renewal"


@dataclass(frozen=True)
class Story:
    """A stream whose execution was renewed once, and stopped when the successor had stored some events more."""

    old: dict[str, Any]
    last_states: list[str]
    holder: str
    generation: int
    executions: list[str]
    gaps: list[dict[str, Any]]
    numbers: list[int]


def numbers(service: Service) -> list[int]:
    """The numbers of the stored events, in order."""
    return sorted(json.loads(item["data"])["n"] for item in service.items("events", STREAM))


def successor_of(service: Service, arn: str) -> str:
    """The ARN of an execution that renews `arn`, started with the input that the machine gives."""
    data = {"pathParameters": {"streamId": STREAM}, "renews": arn}
    machine_arn = arn.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    started = service.aws("stepfunctions").start_execution(stateMachineArn=machine_arn, input=json.dumps(data))
    return str(started["executionArn"])


def states_of(service: Service, arn: str) -> list[str]:
    """The names of the states that an execution has entered, in order."""
    events = service.aws("stepfunctions").get_execution_history(executionArn=arn, maxResults=1000)["events"]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]


@pytest.fixture(scope="module")
def story(local_run: LocalRun) -> Story:
    """The stream from its POST to its stop."""
    service = local_run
    old = service.post(STREAM)["executionArn"]
    assert until(lambda: len(numbers(service)) > 10, 20), service.log
    new = successor_of(service, old)
    assert until(lambda: service.execution(old)["status"] != "RUNNING", 20), service.log
    stored = len(numbers(service))
    assert until(lambda: len(numbers(service)) > stored + 10, 20), service.log
    _, status = service.ask("GET", STREAM)
    service.ask("DELETE", STREAM)
    assert until(lambda: service.execution(new)["status"] != "RUNNING", 20), service.log
    return Story(
        old=service.execution(old),
        last_states=[states_of(service, arn)[-1] for arn in (old, new)],
        holder="new" if status["execution"] == new else status["execution"],
        generation=status["generation"],
        executions=["old" if one["execution"] == old else "new" for one in service.connections(STREAM)],
        gaps=service.items("control", STREAM, "gap#"),
        numbers=numbers(service),
    )


def test_the_successor_holds_the_stream_under_the_next_generation(story: Story) -> None:
    """Its connections follow those of its predecessor, and none of the predecessor comes after."""
    assert (story.holder, story.generation) == ("new", 2)
    assert story.executions == sorted(story.executions, reverse=True)
    assert set(story.executions) == {"old", "new"}


def test_the_predecessor_ends_as_renewed(story: Story) -> None:
    """A clean end with its name; the successor ends as stopped on a stop request."""
    assert (story.old["status"], json.loads(story.old["output"])) == ("SUCCEEDED", {"status": "superseded"})
    assert story.last_states == ["Renewed", "Stopped"]


def test_nothing_is_missed(story: Story) -> None:
    """Every number between the first and the last event is stored, and no gap is written down."""
    assert story.numbers == list(range(story.numbers[0], story.numbers[-1] + 1))
    assert story.gaps == []
