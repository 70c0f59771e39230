"""Stop, status and the next start of a stream, through the whole local service on real sockets."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import Service, free_port, running
from tests.local.support import until

STREAM, DOWN = "demo:stop", "couchdb:down"
# The stage `test` reads the lease every second; draining takes far less than another.
STOPPED_WITHIN_MS = 2000


@dataclass(frozen=True)
class Story:
    """What was answered while a stream was started, stopped, started again and stopped again."""

    running: Any
    asked_ms: int
    wished: tuple[int, Any]
    stopped: Any
    numbers_at_stop: list[int]
    wished_again: tuple[int, Any]
    running_again: Any
    executions: list[dict[str, Any]]
    connections: list[dict[str, Any]]
    numbers: list[int]
    events: list[dict[str, Any]]


def numbers(service: Service) -> list[int]:
    """The numbers of the stored events, in order."""
    return sorted(json.loads(item["data"])["n"] for item in service.items("events", STREAM))


def told(service: Service, stream_id: str = STREAM) -> Any:
    """What GET answers; None before the execution has claimed the stream."""
    code, answer = service.ask("GET", stream_id)
    assert code in (200, 404), answer
    return answer if code == 200 else {"status": None, "generation": 0}


def phases(answer: Any) -> dict[str, str]:
    """The phase of each lane in an answer."""
    return {lane: shown["phase"] for lane, shown in answer["lanes"].items()}


def is_running(service: Service, generation: int, more_than: int) -> bool:
    """Whether lane B is connected while lane A waits, and more events than that are stored."""
    found = told(service)
    if found["generation"] != generation:
        return False
    return phases(found) == {"A": "waiting", "B": "connected"} and int(found["counts"]["stored"]) > more_than


def is_over(service: Service, arn: str, stream_id: str = STREAM) -> bool:
    """Whether the execution has ended and the stream is told as stopped."""
    return service.execution(arn)["status"] != "RUNNING" and bool(told(service, stream_id)["status"] == "stopped")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service one of whose upstreams is not there."""
    nowhere = f"http://127.0.0.1:{free_port(1)}"
    with running(tmp_path_factory.mktemp("stop"), UPSTREAM_COUCHDB=nowhere) as found:
        yield found


@pytest.fixture(scope="module")
def story(service: Service) -> Story:
    """A stream from its first POST to the stop of its second run."""
    first = service.post(STREAM)["executionArn"]
    assert until(lambda: is_running(service, 1, 20), 20), service.log
    running = told(service)
    asked_ms = time.time_ns() // 1_000_000
    wished = service.ask("DELETE", STREAM)
    assert until(lambda: is_over(service, first), 10), service.log
    stopped, numbers_at_stop = told(service), numbers(service)
    wished_again = service.ask("DELETE", STREAM)
    second = service.post(STREAM)["executionArn"]
    assert until(lambda: is_running(service, 2, len(numbers_at_stop) + 20), 20), service.log
    running_again = told(service)
    service.ask("DELETE", STREAM)
    assert until(lambda: is_over(service, second), 10), service.log
    return Story(
        running=running,
        asked_ms=asked_ms,
        wished=wished,
        stopped=stopped,
        numbers_at_stop=numbers_at_stop,
        wished_again=wished_again,
        running_again=running_again,
        executions=[service.execution(arn) for arn in (first, second)],
        connections=service.connections(STREAM),
        numbers=numbers(service),
        events=service.events(STREAM, 25),
    )


def test_get_tells_of_the_running_stream(story: Story) -> None:
    """Execution, generation, fence, holder and the saved cursor, and full coverage since the first answer."""
    found = story.running
    assert found["execution"] == story.executions[0]["executionArn"]
    assert (found["status"], found["generation"], found["fence"]) == ("running", 1, 1)
    assert found["holder"] == {"lane": "B", "fence": 1, "request_id": story.connections[0]["request_id"]}
    assert int(found["cursor"]["value"]) in story.numbers
    assert (found["coverage"]["percent"], found["coverage"]["gaps"], found["last_error"]) == (100.0, [], None)


def test_delete_is_answered_at_once(story: Story) -> None:
    """202 names the execution and the holder that will see the wish; asked again later, nothing is left to do."""
    code, found = story.wished
    assert (code, found["status"]) == (202, "stopping")
    assert (found["execution"], found["holder"]) == (story.running["execution"], story.running["holder"])
    code, found = story.wished_again
    assert (code, found["status"], found["execution"], found["holder"]) == (202, "stopped", None, None)


def test_the_connection_drains_within_seconds(story: Story) -> None:
    """The holder saw the wish, stored what it had read, saved the cursor behind the last event, and closed."""
    record = story.connections[0]
    assert record["ended_by"] == "stopped"
    assert record["closed_ms"] - story.asked_ms < STOPPED_WITHIN_MS
    assert (record["stored"], record["frames"]) == (len(story.numbers_at_stop), len(story.numbers_at_stop))
    assert story.stopped["cursor"]["value"] == str(story.numbers_at_stop[-1])


def test_the_executions_end_cleanly_and_nothing_starts_again(story: Story) -> None:
    """Each execution succeeds as stopped; the lane that waited has connected in neither."""
    assert [one["status"] for one in story.executions] == ["SUCCEEDED", "SUCCEEDED"]
    assert [json.loads(one["output"])["status"] for one in story.executions] == ["stopped", "stopped"]
    assert [(one["fence"], one["lane"]) for one in story.connections] == [(1, "B"), (2, "B")]
    found = story.stopped
    assert (found["execution"], found["holder"], phases(found)) == (None, None, {"B": "stopped"})
    assert (found["coverage"]["connected_since_at"], found["coverage"]["gaps"]) == (None, [])


def test_a_post_goes_on_from_the_cursor(story: Story) -> None:
    """The next generation resumes: every event, also of the pause, is stored exactly once."""
    found = story.running_again
    assert (found["status"], found["generation"], found["fence"]) == ("running", 2, 2)
    assert [one["resumed"] for one in story.connections] == [False, True]
    assert story.numbers[: len(story.numbers_at_stop)] == story.numbers_at_stop
    assert story.numbers == list(range(story.numbers[0], story.numbers[0] + len(story.numbers)))
    assert found["coverage"]["from_at"] > story.stopped["coverage"]["to_at"]


def test_a_stop_of_what_was_never_started(service: Service) -> None:
    """GET tells that it never was; a stop is written down, for a POST may be on its way, and told from then on."""
    assert service.ask("GET", "demo:never") == (404, {"message": "The stream 'demo:never' was never started."})
    code, found = service.ask("DELETE", "demo:never")
    assert (code, found["status"], found["execution"]) == (202, "stopped", None)
    assert told(service, "demo:never")["status"] == "stopped"


def test_the_api_gives_every_event_in_order(story: Story) -> None:
    """Page behind page comes all that is stored, as it was delivered; a query that is wrong gets a sentence."""
    assert [json.loads(event["data"])["n"] for event in story.events] == story.numbers
    assert [event["id"] for event in story.events] == [str(number) for number in story.numbers]
    assert sorted(story.events, key=lambda event: str(event["position"])) == story.events


def test_all_streams_are_listed(service: Service, story: Story) -> None:
    """What was started is there with its status, as GET of it alone tells; what never was is not."""
    assert story.executions
    code, found = service.ask("GET", "")
    assert (code, found["next"]) == (200, None)
    (listed,) = (one for one in found["streams"] if one["stream"] == STREAM)
    alone = told(service)
    assert (listed["status"], listed) == ("stopped", {name: alone[name] for name in listed})
    assert "demo:never" not in {one["stream"] for one in found["streams"]}


def test_a_query_for_events_is_checked(service: Service) -> None:
    """The gateway hands the query on; what it says wrongly is answered with a sentence."""
    words = "The parameter limit must be a whole number from 1 to 1000."
    assert service.ask("GET", f"{STREAM}/events?limit=many") == (400, {"message": words})
    never = {"message": "The stream 'demo:nothing' was never started."}
    assert service.ask("GET", "demo:nothing/events") == (404, never)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_cannot_be_started(service: Service, method: str) -> None:
    """Streams without a profile and with a malformed id get a sentence each."""
    no_profile = "There is no stream 'nobody': no profile is named 'nobody'."
    assert service.ask(method, "nobody") == (404, {"message": no_profile})
    malformed = "The stream id 'a b' is malformed: it is 1 to 64 of the characters A-Z a-z 0-9 . _ : -."
    assert service.ask(method, "a%20b") == (400, {"message": malformed})


def test_a_stream_whose_upstream_is_down_can_be_stopped(service: Service) -> None:
    """The next attempt of a lane is turned away, and the execution ends cleanly."""
    arn = service.post(DOWN)["executionArn"]
    assert until(lambda: told(service, DOWN)["status"] == "reconnecting", 10), service.log
    found = told(service, DOWN)
    assert (found["coverage"], found["holder"], found["last_error"]["lane"]) == (None, None, "B")
    assert service.ask("DELETE", DOWN)[0] == 202
    assert until(lambda: is_over(service, arn, DOWN), 20), service.log
    ending = service.execution(arn)
    assert (ending["status"], json.loads(ending["output"])["status"]) == ("SUCCEEDED", "stopped")
