"""Stop, status and the next start of a stream, through the whole local service on real sockets."""

import json
from typing import Any

from handlers.aws.executions import find_first_execution as begun_by
from tests import problems
from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAM, DOWN = "demo:stop", "absent:down"


def get(service: Service, stream_id: str = STREAM) -> Any:
    """Returns GET's answer, from the POST on: also before the execution has claimed the stream."""
    code, answer = service.ask("GET", stream_id)
    assert code == 200, answer
    return answer


def phases(answer: Any) -> dict[str, str]:
    """Returns the phase of each lane in an answer."""
    return {lane: shown["phase"] for lane, shown in answer["lanes"].items()}


def is_running(service: Service, generation: int, more_than: int) -> Any:
    """Returns GET's answer once lane B is connected while lane A waits, and more events than that are stored."""
    status = get(service)
    if status["generation"] != generation or phases(status) != {"A": "waiting", "B": "connected"}:
        return None
    return status if int(status["counts"]["stored"]) > more_than else None


def is_over(service: Service, arn: str, stream_id: str = STREAM) -> bool:
    """Returns whether the execution has ended and the stream's status is stopped."""
    return service.execution(arn)["status"] != "RUNNING" and bool(get(service, stream_id)["status"] == "stopped")


def test_a_stream_is_stopped_and_goes_on_from_its_cursor(local_run: LocalRun) -> None:
    """From the first POST to the stop of the second run each event is stored once, including those of the pause."""
    service = local_run
    first = service.post(STREAM)["executionArn"]
    begun = get(service)
    assert (begun["status"] in ("starting", "running"), begun["execution"]) == (True, first)
    machine_arn = first.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    found = begun_by(service.aws("stepfunctions"), machine_arn, STREAM)
    assert found is not None
    assert found[0] == first
    running = until(lambda: is_running(service, 1, 5), 20)
    assert running, service.log
    code, stopping = service.ask("DELETE", STREAM)
    assert until(lambda: is_over(service, first), 10), service.log
    stopped, stored = get(service), service.numbers(STREAM)
    # 202 names the execution and the holder that will see the stop request; a second one has nothing to stop.
    assert (code, stopping["status"]) == (202, "stopping")
    assert (stopping["execution"], stopping["holder"]) == (running["execution"], running["holder"])
    code, answer = service.ask("DELETE", STREAM)
    assert (code, answer["status"], answer["execution"], answer["holder"]) == (202, "stopped", None, None)

    second = service.post(STREAM)["executionArn"]
    again = until(lambda: is_running(service, 2, len(stored) + 5), 20)
    assert again, service.log
    service.ask("DELETE", STREAM)
    assert until(lambda: is_over(service, second), 10), service.log
    connections = service.connections(STREAM)
    describes_the_running(running, first, connections, stored)
    has_drained(stopped, connections, stored)
    # Each execution succeeds as stopped; the lane that waited has connected in neither.
    executions = [service.execution(arn) for arn in (first, second)]
    ends = [(one["status"], json.loads(one["output"])["status"]) for one in executions]
    assert ends == [("SUCCEEDED", "stopped")] * 2
    assert [(one["fence"], one["lane"], one["resumed"]) for one in connections] == [(1, "B", False), (2, "B", True)]
    assert (again["status"], again["generation"], again["fence"]) == ("running", 2, 2)
    assert again["coverage"]["since"] > stopped["coverage"]["to_at"]
    kept = service.numbers(STREAM)
    assert (kept[: len(stored)], kept) == (stored, list(range(kept[0], kept[0] + len(kept))))
    returns_every_event(service, kept)
    is_listed(service)


def describes_the_running(status: Any, execution: str, connections: list[dict[str, Any]], stored: list[int]) -> None:
    """Checks execution, generation, fencing token, holder, the saved cursor, and full coverage from the start."""
    assert (status["execution"], status["status"], status["generation"], status["fence"]) == (
        execution,
        "running",
        1,
        1,
    )
    assert status["holder"] == {"lane": "B", "fence": 1, "request_id": connections[0]["request_id"]}
    assert int(status["cursor"]["value"]) in stored
    covered = status["coverage"]
    assert (covered["connected_percent"], covered["gaps"], status["last_error"]) == (100.0, [], None)


def has_drained(status: Any, connections: list[dict[str, Any]], stored: list[int]) -> None:
    """Checks that the holder saw the stop request, stored what it had read, saved the last cursor, and closed."""
    record = connections[0]
    assert (record["ended_by"], record["stored"], record["frames"]) == ("stopped", len(stored), len(stored))
    assert status["cursor"]["value"] == str(stored[-1])
    assert (status["execution"], status["holder"], phases(status)) == (None, None, {"B": "stopped"})
    assert (status["coverage"]["connected_since_at"], status["coverage"]["gaps"]) == (None, [])


def returns_every_event(service: Service, kept: list[int]) -> None:
    """Checks that the pages have every stored event, as it was delivered, in order."""
    events = service.events(STREAM, 5)
    assert [json.loads(event["data"])["n"] for event in events] == kept
    assert [event["id"] for event in events] == [str(number) for number in kept]
    assert sorted(events, key=lambda event: str(event["position"])) == events


def is_listed(service: Service) -> None:
    """Checks that the list has the status of the stream's own GET, and no stream that never started."""
    code, listing = service.ask("GET", "")
    assert (code, listing["next"]) == (200, None)
    (listed,) = (one for one in listing["streams"] if one["stream"] == STREAM)
    assert listed.pop("lag_ms") is None
    alone = get(service)
    # A list does not read the cursor.
    words = {"verdict": "Stopped on request.", "reason": "stopped on request; start it to continue"}
    shown = {name: alone[name] for name in listed} | words
    assert (listed["status"], listed) == ("stopped", shown)
    assert "demo:never" not in {one["stream"] for one in listing["streams"]}


def test_a_stop_of_a_stream_that_never_started_is_recorded(local_run: LocalRun) -> None:
    """GET says that it was never started. The stop is recorded, because a POST may be under way, and GET reports it."""
    service = local_run
    code, answer = service.ask("GET", "demo:never")
    assert problems.read(code, answer)["detail"] == "The stream 'demo:never' was never started."
    code, answer = service.ask("DELETE", "demo:never")
    assert (code, answer["status"], answer["execution"]) == (202, "stopped", None)
    assert get(service, "demo:never")["status"] == "stopped"


def test_a_stream_whose_upstream_is_down_can_be_stopped(local_run: LocalRun) -> None:
    """After the stop, the next try of a lane is refused, and the execution ends cleanly."""
    service = local_run
    arn = service.post(DOWN)["executionArn"]
    assert until(lambda: get(service, DOWN)["status"] == "reconnecting", 10), service.log
    status = get(service, DOWN)
    assert (status["coverage"], status["holder"], status["last_error"]["lane"]) == (None, None, "B")
    assert status["last_error"]["message"].startswith("refused: nothing listens at the address")
    assert service.ask("DELETE", DOWN)[0] == 202
    assert until(lambda: is_over(service, arn, DOWN), 20), service.log
    ending = service.execution(arn)
    assert (ending["status"], json.loads(ending["output"])["status"]) == ("SUCCEEDED", "stopped")
