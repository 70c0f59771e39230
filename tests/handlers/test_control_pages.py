"""The control API answers a stream's events, and all streams, a page at a time."""

from types import ModuleType
from typing import Any

import pytest

from handlers.api.answers import to_iso
from handlers.api.queries import INSTANT_IS
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from tests.handlers.api_requests import REQUESTED_AT, events_of, send_request, streams_of, write_connected_stream
from tests.handlers.aws import Memory


def shown_event(position: str, at_ms: int, key: str, **body: str) -> dict[str, Any]:
    """Return an event without an id and a name in the form of the answer."""
    return {"position": position, "received_at": to_iso(at_ms), "key": key, "id": None, "name": None, **body}


def test_events_come_a_page_at_a_time(memory: Memory, control: ModuleType) -> None:
    """Events are returned in order and as received; a page begins where the last one ended, the last has no `next`."""
    write_connected_stream(memory)
    bodies: list[str | bytes] = ["ä", b"\xff", *("x" * 3)]
    events = [StreamEvent(f"k{n}", body, None, None, f"{n}", n) for n, body in enumerate(bodies)]
    memory.store().write("demo", 1, 0, events)
    code, first = events_of(control, limit="2")
    positions = [f"{n:015d}/{1:012d}/{n:012d}" for n in range(5)]
    shown = [shown_event(positions[0], 0, "k0", data="ä"), shown_event(positions[1], 1, "k1", data_base64="/w==")]
    assert (code, first) == (200, {"stream": "demo", "events": shown, "next": positions[1]})
    code, rest = events_of(control, after=first["next"])
    assert (code, rest["next"], [event["position"] for event in rest["events"]]) == (200, None, positions[2:])
    assert events_of(control, after=positions[-1])[1] == {"stream": "demo", "events": [], "next": None}


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


def test_all_streams_come_a_page_at_a_time_and_in_order(memory: Memory, control: ModuleType) -> None:
    """The list has each started stream, with the status of the stream's own GET; pages follow each other in order."""
    assert streams_of(control, limit="1001")[0] == 400
    assert streams_of(control, after="a\nb") == (400, {"detail": "The parameter after must be a stream id."})
    assert streams_of(control) == (200, {"streams": [], "next": None})
    names = ["b", "a:two", "c", "a:one", "_"]
    for name in names[:4]:
        write_connected_stream(memory, name)
    memory.put_control("c", "lease", execution={"S": ""}, generation={"N": "7"}, ending={"S": "StreamRejected"})
    memory.put_control("never", "lease", stop={"BOOL": True}, stop_at={"S": REQUESTED_AT})
    code, first = streams_of(control, limit="3")
    assert (code, [one["stream"] for one in first["streams"]], first["next"]) == (200, ["a:one", "a:two", "b"], "b")
    code, rest = streams_of(control, limit="3", after=first["next"])
    assert (code, [one["stream"] for one in rest["streams"]], rest["next"]) == (200, ["c"], None)
    for stream in first["streams"] + rest["streams"]:
        alone = send_request(control, "GET", stream["stream"])[1]
        # The list should seldom change, so it rounds durations to one unit. It knows only the losses in its few
        # records, and does not read the cursor.
        same = {name: value for name, value in stream.items() if name != "lag_ms"}
        assert same == {name: alone[name] for name in same} | {"verdict": stream["verdict"], "reason": stream["reason"]}
        assert (alone["reason"] or "").startswith(stream["reason"] or "")
    assert [(one["status"], one["verdict"][:10]) for one in first["streams"]] == [("running", "Connected ")] * 3
    assert list(rest["streams"][0]) == [
        *("stream", "status", "verdict", "since_at", "since_before_at", "reason", "execution", "generation"),
        *("fence", "started_at"),
        *("stop_requested_at", "ended_at", "holder", "last_event_at", "events_per_s", "open_gaps"),
        *("open_gaps_at_least", "ids_restarted_at", "last_error", "lag_ms"),
    ]
