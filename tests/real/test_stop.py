"""Stop, status and the next start of a stream, through the whole local service on real sockets."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests import problems
from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAM, DOWN = "demo:stop", "absent:down"


@dataclass(frozen=True)
class Story:
    """The answers while a stream was started, stopped, started again and stopped again."""

    running: Any
    stop_answer: tuple[int, Any]
    stopped: Any
    numbers_at_stop: list[int]
    stop_again_answer: tuple[int, Any]
    running_again: Any
    executions: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    numbers: list[int]
    events: list[dict[str, Any]]


def numbers(service: Service) -> list[int]:
    """The numbers of the stored events, in order."""
    return sorted(json.loads(item["data"])["n"] for item in service.items("events", STREAM))


def get(service: Service, stream_id: str = STREAM) -> Any:
    """What GET answers; None before the execution has claimed the stream."""
    code, answer = service.ask("GET", stream_id)
    assert code in (200, 404), answer
    return answer if code == 200 else {"status": None, "generation": 0}


def phases(answer: Any) -> dict[str, str]:
    """The phase of each lane in an answer."""
    return {lane: shown["phase"] for lane, shown in answer["lanes"].items()}


def is_running(service: Service, generation: int, more_than: int) -> Any:
    """What GET answers once lane B is connected while lane A waits, and more events than that are stored."""
    status = get(service)
    if status["generation"] != generation or phases(status) != {"A": "waiting", "B": "connected"}:
        return None
    return status if int(status["counts"]["stored"]) > more_than else None


def is_over(service: Service, arn: str, stream_id: str = STREAM) -> bool:
    """Whether the execution has ended and the stream's status is stopped."""
    return service.execution(arn)["status"] != "RUNNING" and bool(get(service, stream_id)["status"] == "stopped")


@pytest.fixture(scope="module")
def service(local_run: LocalRun) -> Service:
    """A service one of whose upstreams is not there."""
    return local_run


@pytest.fixture(scope="module")
def story(service: Service) -> Story:
    """A stream from its first POST to the stop of its second run."""
    first = service.post(STREAM)["executionArn"]
    running = until(lambda: is_running(service, 1, 5), 20)
    assert running, service.log
    stop_answer = service.ask("DELETE", STREAM)
    assert until(lambda: is_over(service, first), 10), service.log
    stopped, numbers_at_stop = get(service), numbers(service)
    stop_again_answer = service.ask("DELETE", STREAM)
    second = service.post(STREAM)["executionArn"]
    more = len(numbers_at_stop) + 5
    running_again = until(lambda: is_running(service, 2, more), 20)
    assert running_again, service.log
    service.ask("DELETE", STREAM)
    assert until(lambda: is_over(service, second), 10), service.log
    return Story(
        running=running,
        stop_answer=stop_answer,
        stopped=stopped,
        numbers_at_stop=numbers_at_stop,
        stop_again_answer=stop_again_answer,
        running_again=running_again,
        executions=[service.execution(arn) for arn in (first, second)],
        connections=service.connections(STREAM),
        numbers=numbers(service),
        events=service.events(STREAM, 5),
    )


def test_get_describes_the_running_stream(story: Story) -> None:
    """Execution, generation, fencing token, holder and the saved cursor, and full coverage since the first answer."""
    status = story.running
    assert status["execution"] == story.executions[0]["executionArn"]
    assert (status["status"], status["generation"], status["fence"]) == ("running", 1, 1)
    assert status["holder"] == {"lane": "B", "fence": 1, "request_id": story.connections[0]["request_id"]}
    assert int(status["cursor"]["value"]) in story.numbers
    assert (status["coverage"]["percent"], status["coverage"]["gaps"], status["last_error"]) == (100.0, [], None)


def test_delete_is_answered_at_once(story: Story) -> None:
    """202 names the execution and the holder that will see the stop request; a second DELETE has nothing to stop."""
    code, answer = story.stop_answer
    assert (code, answer["status"]) == (202, "stopping")
    assert (answer["execution"], answer["holder"]) == (story.running["execution"], story.running["holder"])
    code, answer = story.stop_again_answer
    assert (code, answer["status"], answer["execution"], answer["holder"]) == (202, "stopped", None, None)


def test_the_connection_drains(story: Story) -> None:
    """The holder saw the stop request, stored what it had read, saved the cursor after the last event, and closed."""
    record = story.connections[0]
    assert record["ended_by"] == "stopped"
    assert (record["stored"], record["frames"]) == (len(story.numbers_at_stop), len(story.numbers_at_stop))
    assert story.stopped["cursor"]["value"] == str(story.numbers_at_stop[-1])


def test_the_executions_end_cleanly_and_nothing_starts_again(story: Story) -> None:
    """Each execution succeeds as stopped; the lane that waited has connected in neither."""
    assert [one["status"] for one in story.executions] == ["SUCCEEDED", "SUCCEEDED"]
    assert [json.loads(one["output"])["status"] for one in story.executions] == ["stopped", "stopped"]
    assert [(one["fence"], one["lane"]) for one in story.connections] == [(1, "B"), (2, "B")]
    status = story.stopped
    assert (status["execution"], status["holder"], phases(status)) == (None, None, {"B": "stopped"})
    assert (status["coverage"]["connected_since_at"], status["coverage"]["gaps"]) == (None, [])


def test_a_post_resumes_from_the_cursor(story: Story) -> None:
    """The next generation resumes: every event, also of the pause, is stored exactly once."""
    status = story.running_again
    assert (status["status"], status["generation"], status["fence"]) == ("running", 2, 2)
    assert [one["resumed"] for one in story.connections] == [False, True]
    assert story.numbers[: len(story.numbers_at_stop)] == story.numbers_at_stop
    assert story.numbers == list(range(story.numbers[0], story.numbers[0] + len(story.numbers)))
    assert status["coverage"]["from_at"] > story.stopped["coverage"]["to_at"]


def test_a_stop_of_a_stream_that_never_started_is_recorded(service: Service) -> None:
    """GET says that it never was; a stop is recorded, for a POST may be on its way, and GET reports it."""
    code, answer = service.ask("GET", "demo:never")
    assert problems.read(code, answer)["detail"] == "The stream 'demo:never' was never started."
    code, answer = service.ask("DELETE", "demo:never")
    assert (code, answer["status"], answer["execution"]) == (202, "stopped", None)
    assert get(service, "demo:never")["status"] == "stopped"


def test_the_api_returns_every_event_in_order(story: Story) -> None:
    """Page by page, everything that is stored, as it was delivered; a query that is wrong gets a sentence."""
    assert [json.loads(event["data"])["n"] for event in story.events] == story.numbers
    assert [event["id"] for event in story.events] == [str(number) for number in story.numbers]
    assert sorted(story.events, key=lambda event: str(event["position"])) == story.events


def test_all_streams_are_listed(service: Service, story: Story) -> None:
    """Each started stream is there with the status of its own GET; another one is not."""
    assert story.executions
    code, listing = service.ask("GET", "")
    assert (code, listing["next"]) == (200, None)
    (listed,) = (one for one in listing["streams"] if one["stream"] == STREAM)
    alone = get(service)
    assert (listed["status"], listed) == ("stopped", {name: alone[name] for name in listed})
    assert "demo:never" not in {one["stream"] for one in listing["streams"]}


def test_a_stream_whose_upstream_is_down_can_be_stopped(service: Service) -> None:
    """The next attempt of a lane is turned away, and the execution ends cleanly."""
    arn = service.post(DOWN)["executionArn"]
    assert until(lambda: get(service, DOWN)["status"] == "reconnecting", 10), service.log
    status = get(service, DOWN)
    assert (status["coverage"], status["holder"], status["last_error"]["lane"]) == (None, None, "B")
    assert status["last_error"]["message"].startswith("refused: nothing listens at the address")
    assert service.ask("DELETE", DOWN)[0] == 202
    assert until(lambda: is_over(service, arn, DOWN), 20), service.log
    ending = service.execution(arn)
    assert (ending["status"], json.loads(ending["output"])["status"]) == ("SUCCEEDED", "stopped")
