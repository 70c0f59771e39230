"""The control API refuses malformed queries for pages, and answers events without an order by their keys."""

from types import ModuleType
from typing import Any

import pytest

from handlers.api.answers import to_iso
from handlers.api.queries import INSTANT_IS
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from tests.handlers.api_requests import events_of, streams_of, write_connected_stream
from tests.handlers.aws import Memory


def shown_event(position: str, at_ms: int, key: str, **body: str) -> dict[str, Any]:
    """Return an event without an id and a name in the form of the answer."""
    return {"position": position, "received_at": to_iso(at_ms), "key": key, "id": None, "name": None, **body}


def test_events_without_an_index_are_returned_by_key(memory: Memory, control: ModuleType) -> None:
    """Events without an index are returned by key, each once; a position of another order is refused."""
    write_connected_stream(memory)
    events = [StreamEvent(key, "x", None, None, None, 1) for key in "cab"]
    memory.store().write("demo", 1, 0, events[:2])
    position = events_of(control, limit="1")[1]["next"]
    memory.store().claim("demo", execution="", holder="B/2", order="none")
    memory.store().write("demo", 2, 0, events[2:], StoragePolicy(order="none"))
    code, first = events_of(control, limit="2")
    order = "by key, not by arrival"
    assert (code, first["order"], [event["key"] for event in first["events"]]) == (200, order, ["a", "b"])
    last = [shown_event("key.Yw", 1, "c", data="x")]
    rest = {"stream": "demo", "order": order, "events": last, "next": None}
    assert events_of(control, after=first["next"])[1] == rest
    words = "The position is not that of an event of this stream, which is read by key."
    for other in (position, "key.YR", "key.gA"):
        assert events_of(control, after=other) == (404, {"detail": words})
    write_connected_stream(memory, "other")
    words = "The position is not that of an event of this stream, which is read in order of arrival."
    assert events_of(control, "other", after="key.Yw") == (404, {"detail": words})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"limit": "0"}, "The parameter limit must be a whole number from 1 to 1000."),
        ({"limit": "٣"}, "The parameter limit must be a whole number from 1 to 1000."),
        (
            {"after": "17"},
            "The parameter after must be an event's position: 15 digits/12 digits/12 digits, "
            "key. and 2 to 1366 characters, or parts~ and theirs.",
        ),
        ({"since": "1"}, "The parameter since is unknown; known are after, limit, from, to and order."),
        ({"from": "1"}, f"The parameter from must be {INSTANT_IS}."),
        ({"to": "2026-02-30T00:00:00Z"}, f"The parameter to must be {INSTANT_IS}."),
        ({"to": "2026-02-03T00:00:00"}, f"The parameter to must be {INSTANT_IS}."),
    ],
)
def test_a_malformed_query_gives_400(control: ModuleType, query: dict[str, str], words: str) -> None:
    """A malformed query gives 400 with a sentence that names the parameter and its valid values."""
    assert events_of(control, **query) == (400, {"detail": words})
    assert streams_of(control, after="a\nb") == (400, {"detail": "The parameter after must be a stream id."})
