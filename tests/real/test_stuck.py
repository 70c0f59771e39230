"""An upstream that fails at one event, in the whole service: reported on the terminal and by GET, and tried slowly."""

from tests.handlers.servers import chunks
from tests.local.support import until
from tests.local_run import LocalRun

STREAM = "scripted:stuck"


def test_a_stream_that_is_stuck_at_its_cursor_is_reported(local_run: LocalRun) -> None:
    """The terminal reports it once; GET has the cursor, and the number of connections that failed there."""
    local_run.script(STREAM, chunks(b"id: 1\ndata: 1\n\n"), chunks(b"id: 2\ndata: the upstream fails he"))
    local_run.post(STREAM)
    assert until(lambda: f"ALERT: {STREAM} is stuck at its cursor: " in local_run.log, 60), local_run.log
    shown = until(lambda: local_run.ask("GET", STREAM)[1].get("stuck_at_cursor"), 20)
    assert shown, local_run.log
    assert (shown["value"], shown["ended_by"], shown["same_ends"] >= 3) == ("1", "truncated", True)
    assert local_run.log.count("is stuck at its cursor") == 1
    assert [event["data"] for event in local_run.events(STREAM)] == ["1"]
