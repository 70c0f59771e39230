"""What the service prints."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from local.service.listener import Listener, bind
from local.service.screen import Screen
from local.upstreams.demo_streams import Upstreams
from tests import harness
from tests.local.support import client, in_thread, until


@pytest.mark.parametrize("text", ["demo:a: lane A is connected", "demo:100:b", "[bold]x[/bold] [/x] {'a': 1}"])
def test_a_line_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A stream id between colons is no emoji, and brackets are no markup."""
    screen = Screen()
    screen.plain(text)
    screen.say(text)
    plain, said = capsys.readouterr().out.splitlines()
    assert (plain, said[len("00:00:00 ") :]) == (text, text)


def watched(service: harness.Service) -> dict[str, Any]:
    """What the function that watches all streams answers."""
    with contextlib.closing(client("lambda", f"http://127.0.0.1:{service.port + 1}")) as functions:
        answer = functions.invoke(FunctionName=f"streamkeeper-{harness.STAGE}-connection-watch", Payload=b"{}")
        found: dict[str, Any] = json.load(answer["Payload"])
    assert "FunctionError" not in answer, found
    return found


def test_an_upstream_that_is_away_is_told_and_so_is_its_return(tmp_path: Path) -> None:
    """One line when nothing listens, however often it is tried, and one when the stream is connected again."""
    port = harness.free_port(1)

    @contextlib.asynccontextmanager
    async def upstream() -> AsyncIterator[None]:
        upstreams = Upstreams(lambda client: listener.reset(client), seed=1)
        listener = Listener(upstreams.app, bind(port, "a test"))
        await listener.start()
        yield
        upstreams.close()
        await listener.close()

    with harness.running(tmp_path, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service:
        service.post("demo:a")
        # Several attempts have failed by then, each with a record of its own.
        assert until(lambda: len(service.connections("demo:a")) > 3, 20), service.log
        assert until(lambda: "cannot connect" in service.log, 5), service.log
        # What the deployed alarm tells of a stream without a connection is told here, once.
        alert = "ALERT: demo:a has been without a connection for "
        assert until(lambda: alert in service.log, 20), service.log
        assert service.log.count(alert) == 1
        found = watched(service)
        assert (found["wanted"], list(found["unconnected_s"])) == (1, ["demo:a"])
        with in_thread(upstream):
            assert until(lambda: "demo:a: lane" in service.log and "is connected again" in service.log, 20), service.log
            told = [line for line in service.log.splitlines() if "demo:a: lane" in line]
            assert "cannot connect: the stream was not opened (refused): nothing listens at the address" in told[0]
            assert "is connected again" in told[1]
            assert service.end() == 0
