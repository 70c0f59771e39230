"""The lines that the service prints."""

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from local.listener import Listener, bind
from local.service.live_view import Screen, ending_of
from local.upstreams.demo_streams import Upstreams
from states_language.server import Closing
from tests import harness
from tests.local.support import in_thread, until
from tests.local_run import LocalRun


@pytest.mark.parametrize("text", ["demo:a: lane A is connected", "demo:100:b", "[bold]x[/bold] [/x] {'a': 1}"])
def test_a_line_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line is printed unchanged: a stream id between colons is not an emoji, and brackets are not markup."""
    screen = Screen()
    screen.print_lines(text)
    screen.say(text)
    plain, said = capsys.readouterr().out.splitlines()
    assert (plain, said[len("00:00:00 ") :]) == (text, text)


@pytest.mark.parametrize(
    ("status", "output", "alert", "words"),
    [
        ("SUCCEEDED", {"status": "stopped"}, False, "stopped on request"),
        ("SUCCEEDED", {"status": "ended"}, False, "the upstream ended the stream"),
        (
            "SUCCEEDED",
            {"status": "rejected", "error": "StreamRejected", "cause": "No."},
            True,
            "rejected by StreamRejected: No.",
        ),
        ("SUCCEEDED", {"status": "superseded"}, False, "renewed: another execution keeps the stream connected"),
        ("SUCCEEDED", {"status": "another's"}, False, 'SUCCEEDED {"status": "another\'s"}'),
        ("ABORTED", {"status": "stopped"}, False, 'ABORTED {"status": "stopped"}'),
    ],
)
def test_a_stopped_an_ended_and_a_rejected_stream_have_their_own_words(
    status: Any, output: Any, alert: bool, words: str
) -> None:
    """Of the outcomes only a rejection is an alert; an unknown output is shown unchanged."""
    assert ending_of(Closing(status, 5, json.dumps(output))) == (alert, words)


def watch_result(service: harness.Service) -> dict[str, Any]:
    """The result of the function that watches all streams."""
    name = f"streamkeeper-{harness.STAGE}-connection-watch"
    answer = service.aws("lambda").invoke(FunctionName=name, Payload=b"{}")
    result: dict[str, Any] = json.load(answer["Payload"])
    assert "FunctionError" not in answer, result
    return result


def test_an_absent_upstream_is_reported_and_so_is_its_return(local_run: LocalRun) -> None:
    """If nothing listens at the address, one line reports it, however many attempts fail; another, the connection."""
    service, stream = local_run, "absent:a"

    @contextlib.asynccontextmanager
    async def upstream() -> AsyncIterator[None]:
        upstreams = Upstreams(lambda client: listener.reset(client), seed=1)
        listener = Listener(upstreams.app, bind(service.absent_port, "a test"))
        await listener.start()
        yield
        upstreams.close()
        await listener.close()

    service.post(stream)
    # Several attempts have failed by then, each with a record of its own.
    assert until(lambda: len(service.connections(stream)) > 3, 20), service.log
    assert until(lambda: "cannot connect" in service.log, 5), service.log
    # The deployed alarm of a stream without a connection is one line here.
    alert = f"ALERT: {stream}: Away "
    assert until(lambda: alert in service.log, 20), service.log
    assert service.log.count(alert) == 1
    result = watch_result(service)
    assert (result["wanted"], result["unconnected"]) == (1, 1)
    with in_thread(upstream):
        assert until(lambda: f"{stream}: lane" in service.log and "is connected again" in service.log, 20), service.log
        lines = [line for line in service.log.splitlines() if f"{stream}: lane" in line]
        assert "cannot connect: the stream was not opened (refused): nothing listens at the address" in lines[0]
        assert "is connected again" in lines[1]
