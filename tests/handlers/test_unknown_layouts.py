"""Records that a later version wrote in another layout: every route names the reason, and none misreads them."""

from types import ModuleType
from typing import Any

import pytest

from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.store import segment_reader
from handlers.store.control_record import LAYOUT
from tests.handlers.aws import CONTROL, EVENTS, Memory
from tests.handlers.store.test_stored_before import SEGMENTS, bare
from tests.handlers.test_damaged_leases import send_request, sound

WORDS = f"The control record has layout {LAYOUT + 1}, and this version knows {LAYOUT}."
EVENT = {"received_at_ms": {"N": "1"}, "fence": {"N": "1"}, "data": {"S": "x"}}
POSITION = "000000000000001/000000000001/000000000001"


def segment() -> dict[str, Any]:
    """Return a segment as the previous version wrote it, without an expiry."""
    item: dict[str, Any] = bare(SEGMENTS)[1]["item"]
    return {name: value for name, value in item.items() if name != "expires_at"}


def put(memory: Memory, stream_id: str, **attributes: Any) -> None:
    """Write a lease."""
    memory.dynamodb.put_item(TableName=CONTROL, Item=sound(stream_id) | attributes)


def test_a_newer_control_record_is_refused_by_name(memory: Memory, control: ModuleType) -> None:
    """Status and list name a newer layout of the control record; routes that need it answer 503; a DELETE works."""
    put(memory, "demo:new", layout={"N": str(LAYOUT + 1)})
    put(memory, "demo:now", layout={"N": str(LAYOUT)})
    for part in ("/events", "/gaps", "/timeline", "/cost", "/latest"):
        code, problem = send_request(control, f"/connections/{{streamId}}{part}", "demo:new")
        assert (code, problem["detail"], "later one" in problem["fix"]) == (503, WORDS, True), part
        assert problem["type"].endswith(":unknown-layout")
    code, status = send_request(control, "/connections/{streamId}", "demo:new")
    assert (code, status["reason"]) == (200, "its lease cannot be read whole: layout")
    rows = send_request(control, "/connections", "")[1]["streams"]
    assert {row["stream"]: "layout" in (row["reason"] or "") for row in rows} == {"demo:new": True, "demo:now": False}
    assert send_request(control, "/connections/{streamId}", "demo:new", "DELETE")[0] == 202


def test_a_newer_event_is_refused_by_name(memory: Memory, control: ModuleType) -> None:
    """The refusal of an event with a newer layout, or with an unknown encoding, names the event's position."""
    put(memory, "demo:now")
    item = {"PK": {"S": "demo:now"}, "SK": {"S": "k"}, "position": {"S": POSITION}} | EVENT
    memory.dynamodb.put_item(TableName=EVENTS, Item=item | {"layout": {"N": "2"}})
    code, problem = send_request(control, "/connections/{streamId}/events", "demo:now")
    words = f"The event at {POSITION} has layout 2, and this version knows 1."
    assert (code, problem["detail"]) == (503, words)
    memory.dynamodb.put_item(TableName=EVENTS, Item=item | {"encoding": {"S": "text+zstd"}, "data": {"B": b"\0"}})
    code, problem = send_request(control, "/connections/{streamId}/events", "demo:now")
    assert (code, problem["detail"].startswith(f"The event at {POSITION} cannot be read")) == (503, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layout": {"N": "2"}}, "the segment 1 of the log has layout 2, and this version knows 1"),
        ({"data": {"B": b"no zlib"}}, "the segment 1 of the log cannot be read"),
    ],
)
def test_a_newer_segment_is_refused_by_name(memory: Memory, control: ModuleType, changes: Any, words: str) -> None:
    """A request for events is refused at a segment with a newer layout, or with data that cannot be unpacked."""
    put(memory, "demo:log", partitions={"N": "0"})
    item = segment()
    memory.dynamodb.put_item(TableName=EVENTS, Item=item | {"PK": {"S": segment_reader.log_key("demo:log")}} | changes)
    code, problem = send_request(control, "/connections/{streamId}/events", "demo:log")
    assert (code, problem["detail"][1:].startswith(words[1:])) == (503, True), problem


def test_a_writer_refuses_to_append_behind_a_newer_segment(memory: Memory) -> None:
    """It reads the last segment before it appends. The refusal names the layout, and the table stays unchanged."""
    item = segment() | {"layout": {"N": "2"}, "PK": {"S": segment_reader.log_key("demo:log")}}
    memory.dynamodb.put_item(TableName=EVENTS, Item=item)
    before, events = memory.items(EVENTS, item["PK"]["S"]), (StreamEvent("k", "body", None, None, "c", 1),)
    log = memory.store().log_writer("demo:log", 9, lambda: 1, window_ms=60_000, keep_days=0)
    for request in (log.read_cursor, lambda: log.write(0, events, 1)):
        with pytest.raises(StoreUnavailable, match="segment 1 of the log has layout 2"):
            request()
    assert memory.items(EVENTS, item["PK"]["S"]) == before
