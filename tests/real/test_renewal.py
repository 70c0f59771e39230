"""A renewal on real sockets: a successor takes the stream from a running execution, as the machine starts it."""

import json

from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAM = "demo:renewal"


def successor_of(service: Service, arn: str) -> str:
    """Returns the ARN of an execution that renews `arn`, started with the input that the machine gives."""
    data = {"pathParameters": {"streamId": STREAM}, "renews": arn}
    machine_arn = arn.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    started = service.aws("stepfunctions").start_execution(stateMachineArn=machine_arn, input=json.dumps(data))
    return str(started["executionArn"])


def states_of(service: Service, arn: str) -> list[str]:
    """Returns the names of the states that an execution has entered, in order."""
    events = service.aws("stepfunctions").get_execution_history(executionArn=arn, maxResults=1000)["events"]
    return [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]


def test_a_successor_takes_the_stream_from_a_running_execution(local_run: LocalRun) -> None:
    """The successor holds the stream under the next generation, and the predecessor ends as renewed: no event is
    missed. No connection of the predecessor comes after one of its successor's. A stop ends the successor as stopped.
    """
    service = local_run
    old = service.post(STREAM)["executionArn"]
    assert until(lambda: len(service.numbers(STREAM)) > 10, 20), service.log
    new = successor_of(service, old)
    assert until(lambda: service.execution(old)["status"] != "RUNNING", 20), service.log
    stored = len(service.numbers(STREAM))
    assert until(lambda: len(service.numbers(STREAM)) > stored + 10, 20), service.log
    _, status = service.ask("GET", STREAM)
    assert (status["execution"], status["generation"]) == (new, 2)
    service.ask("DELETE", STREAM)
    assert until(lambda: service.execution(new)["status"] != "RUNNING", 20), service.log
    ended = service.execution(old)
    assert (ended["status"], json.loads(ended["output"])) == ("SUCCEEDED", {"status": "superseded"})
    assert [states_of(service, arn)[-1] for arn in (old, new)] == ["Renewed", "Stopped"]
    holders = [one["execution"] for one in service.connections(STREAM)]
    assert list(dict.fromkeys(holders)) == [old, new]
    assert holders == sorted(holders, key=[old, new].index)
    kept = service.numbers(STREAM)
    assert (kept, service.items("control", STREAM, "gap#")) == (list(range(kept[0], kept[-1] + 1)), [])
