"""An upstream that fails at one event, in the whole service: reported on the terminal and by GET, and tried slowly."""

from pathlib import Path

from tests.handlers.servers import CHUNKED, Peer, serving
from tests.harness import running
from tests.local.support import until


def first(peer: Peer) -> None:
    """Sends one event whole, and breaks off."""
    peer.send(CHUNKED)
    peer.chunk(b"id: 1\ndata: 1\n\n")


def fails(peer: Peer) -> None:
    """Breaks off within the event behind it."""
    peer.send(CHUNKED)
    peer.chunk(b"id: 2\ndata: the upstream fails he")


def test_a_stream_that_is_stuck_at_its_cursor_is_reported(tmp_path: Path) -> None:
    """Once on the terminal; GET names the cursor, and says for how many connections."""
    with serving(first, fails) as server, running(tmp_path, UPSTREAM_DEMO=server.address) as service:
        service.post("demo")
        assert until(lambda: "ALERT: demo is stuck at its cursor: " in service.log, 60), service.log
        assert until(lambda: service.ask("GET", "demo")[1]["stuck_at_cursor"] is not None, 20), service.log
        shown = service.ask("GET", "demo")[1]["stuck_at_cursor"]
        if shown is not None:
            assert (shown["value"], shown["ended_by"], shown["same_ends"] >= 3) == ("1", "truncated", True)
        assert service.log.count("is stuck at its cursor") == 1
        assert [event["data"] for event in service.events("demo")] == ["1"]
        service.ask("DELETE", "demo")
        assert until(lambda: service.ask("GET", "demo")[1]["status"] == "stopped", 30)
        assert service.end() == 0
