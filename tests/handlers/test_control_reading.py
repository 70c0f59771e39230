"""The control API's events by time and in other representations, and its gaps, on the embedded AWS."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from handlers.api import routes, stream_pages
from handlers.api.answers import to_iso
from handlers.api.openapi.document import document
from handlers.api.queries import BadQuery, PageRequest, is_dry_run
from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.inputs import LOG
from handlers.framing.events import StreamEvent
from handlers.profile.time_field import OwnTime
from handlers.store.event_items import Entry, StoragePolicy
from tests.examples import examples
from tests.handlers.api_requests import read_all_pages, send_request, write_connected_stream
from tests.handlers.aws import Memory, save_connection
from tests.handlers.context import Context

NONE: Mapping[str, str] = {}
FROM_MS, STEP_MS = 1_795_242_319_000, 700


def read(control: ModuleType, headers: Mapping[str, str] = NONE, **query: str) -> tuple[dict[str, str], str]:
    """Return the headers and the text of the answer to a request for events."""
    event = {
        "httpMethod": "GET",
        "resource": "/connections/{streamId}/events",
        "pathParameters": {"streamId": "demo"},
        "queryStringParameters": query or None,
        "headers": headers,
    }
    answer = control.handler(event, Context())
    assert answer["statusCode"] == 200, answer
    return answer["headers"], answer["body"]


def stored(memory: Memory, kind: str, count: int = 12, bodies: Mapping[int, str] = MappingProxyType({})) -> list[str]:
    """Store a stream with events STEP_MS apart; return their keys, in the order of reading."""
    events = [
        StreamEvent(f"k{n:02d}", bodies.get(n, f"{n}"), None, None, None, FROM_MS + n * STEP_MS) for n in range(count)
    ]
    if kind == "log":
        memory.store().claim("demo", execution="", holder="B/request-1", partitions=LOG)
        log = memory.store().log_writer("demo", 1, lambda: events[-1].received_at_ms, window_ms=1_000, keep_days=0)
        for first in range(0, count, 2):
            log.write(first, events[first : first + 2])
    elif kind == "key":
        memory.store().claim("demo", execution="", holder="B/request-1", order="none")
        memory.store().write("demo", 1, 0, events, StoragePolicy(order="none"))
    else:
        write_connected_stream(memory)
        memory.store().write("demo", 1, 0, events)
    return [event.key for event in events]


def keys_of(control: ModuleType, **query: str) -> list[str]:
    """Return the keys of all pages."""
    events = read_all_pages(lambda place: json.loads(read(control, NONE, **query, **place)[1]), "events")
    return [event["key"] for event in events]


@pytest.mark.parametrize("kind", ["index", "log", "key"])
def test_events_are_chosen_by_time(memory: Memory, control: ModuleType, kind: str) -> None:
    """A request with `from` and `to` returns exactly the events that arrived in that time, with any limit."""
    keys = stored(memory, kind)

    @settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.integers(-2, 26), st.integers(-2, 26), st.integers(1, 5))
    def chosen(first: int, last: int, limit: int) -> None:
        from_ms, to_ms = (FROM_MS + half * STEP_MS // 2 for half in (first, last))
        query = {"from": str(to_iso(from_ms)), "to": str(to_iso(to_ms))}
        wanted = [key for n, key in enumerate(keys) if from_ms <= FROM_MS + n * STEP_MS < to_ms]
        assert keys_of(control, limit=str(limit), **query) == wanted

    chosen()


@pytest.mark.parametrize("kind", ["index", "log", "key"])
def test_events_are_put_into_the_order_of_their_own_times(
    memory: Memory, control: ModuleType, tmp_path: Path, kind: str
) -> None:
    """In order of time, with any limit, an event that happened earlier goes first; without a time the arrival counts.

    The path of the time is the profile's `time`, or its repair's.
    """
    late = dict(zip(range(0, 12, 2), (5.5, -3, 0, 11.5, 2.5, 2.5), strict=True))
    bodies = {n: json.dumps({"at": round(FROM_MS + late[n] * STEP_MS)}) if n in late else "{}" for n in range(12)}
    keys = stored(memory, kind, bodies=bodies)
    (tmp_path / "demo.toml").write_text('time = "$.at"' if kind == "log" else '[repair]\ntime = "$.at"')
    wanted = sorted(range(12), key=lambda n: (late.get(n, n), n))
    for limit in (1, 5, 12, 100):
        assert keys_of(control, limit=str(limit), order="time") == [keys[n] for n in wanted]
    times = {"from": str(to_iso(FROM_MS + 4 * STEP_MS)), "to": str(to_iso(FROM_MS + 9 * STEP_MS))}
    assert keys_of(control, limit="2", order="time", **times) == [keys[n] for n in wanted if 4 <= n < 9]
    headers, text = read(control, {"accept": "application/x-ndjson"}, limit="3", order="time", **times)
    first = [json.loads(line) for line in text.splitlines()]
    assert [(one["key"], one["happened_at"]) for one in first] == [
        (keys[4], to_iso(FROM_MS)), (keys[8], to_iso(FROM_MS + 5 * STEP_MS // 2)), (keys[5], None)
    ]  # fmt: skip
    query = dict(parse_qsl(headers["Link"].partition("?")[2].partition(">")[0]))
    assert query == {"after": first[-1]["position"], "limit": "3", "order": "time"} | times
    for wrong, words in (
        ({"after": first[-1]["position"]}, "The position is not that of an event of this stream"),
        ({"order": "time", "after": json.loads(read(control)[1])["events"][0]["position"]}, "read in order of time"),
        ({"order": "key"}, "The parameter order must be time"),
    ):
        more = {"resource": "/connections/{streamId}/events", "queryStringParameters": wrong}
        assert words in send_request(control, "GET", **more)[1]["detail"]


def test_an_order_by_time_needs_times_and_few_events(memory: Memory, control: ModuleType) -> None:
    """A profile without a time gives 409; an event stream, and more events than are sorted, give 400."""
    stored(memory, "index")
    more = {"resource": "/connections/{streamId}/events", "queryStringParameters": {"order": "time"}}
    assert send_request(control, "GET", **more) == (
        409,
        {"detail": "The stream's profile does not name the events' own time."},
    )
    stream = more | {"headers": {"accept": "text/event-stream"}}
    assert send_request(control, "GET", **stream) == (400, {"detail": "An event stream is in order of arrival."})
    gone = (Entry(f"{n}", None) for n in range(stream_pages.MOST_SORTED + 1))
    with pytest.raises(BadQuery, match="sorts at most 10,000 events"):
        stream_pages.page_by_own_time("demo", gone, PageRequest("", 5, order="time"), OwnTime(), lambda: False)


@pytest.mark.parametrize("kind", ["index", "log", "key"])
def test_each_representation_has_the_same_events(memory: Memory, control: ModuleType, kind: str) -> None:
    """JSON, JSON lines (next page in `Link`) and an event stream (continued after its last id) have the same events."""
    stored(memory, kind, 5)
    wanted = json.loads(read(control)[1])["events"]
    for accept in ("application/x-ndjson", "text/event-stream", "text/html, application/x-ndjson;q=0.5"):
        shown: list[Any] = []
        query: dict[str, str] = {"limit": "2"}
        place = ""
        while True:
            headers, text = read(control, {"accept": accept, "last-event-id": place}, **query)
            assert headers["Vary"] == "Accept"
            if headers["Content-Type"] == "application/x-ndjson":
                shown += [json.loads(line) for line in text.splitlines()]
                if "Link" not in headers:
                    break
                target, _, relation = headers["Link"].partition("; ")
                assert relation == 'rel="next"'
                query = dict(parse_qsl(target.strip("<>?")))
                continue
            assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
            first, *messages = text.split("\n\n")[:-1]
            for message in messages:
                fields = dict(line.split(": ", 1) for line in message.splitlines())
                place = fields["id"]
                if "data" in fields:
                    shown.append(json.loads(fields["data"]))
                    assert shown[-1]["position"] == place
            if first == "retry: 3000":
                break
            assert first == "retry: 100"
        assert shown == wanted


def test_gaps_are_listed_whatever_their_source(memory: Memory, control: ModuleType) -> None:
    """`/gaps` returns recorded and announced gaps, and those between the newest connections, with one still open."""
    write_connected_stream(memory)
    store = memory.store()
    memory.put_control(
        "demo", "gap#000000000000", from_ms={"N": "10"}, to_ms={"N": "20"}, cause={"S": "reset"}, state={"S": "open"}
    )
    store.ledger.record_loss("demo", RecordLoss(1, 1, 1_000, 2_000, "announced_by_upstream", 12))
    ended = Progress(fence=1, claimed_ms=1_000, opened_ms=2_000, seen_ms=3_000, closed_ms=3_000, ended_by="reset")
    save_connection(store, "demo", ended, lane="B", execution="arn:mine", request_id="request-1")
    store.claim("demo", execution="arn:mine", holder="A/request-2")
    again = Progress(fence=2, claimed_ms=8_000, opened_ms=9_000, seen_ms=9_500, closed_ms=9_500, ended_by="stalled")
    save_connection(store, "demo", again, lane="A", execution="arn:mine", request_id="request-2")
    code, page = send_request(control, "GET", resource="/connections/{streamId}/gaps")
    assert (code, page["next"]) == (200, None)
    names = ("position", "cause", "from_at", "to_at", "state", "events")
    shown = [tuple(gap[name] for name in names) for gap in page["gaps"]]
    assert shown == [
        ("000000000000", "reset", to_iso(10), to_iso(20), "open", None),
        ("000000000001/000001", "announced_by_upstream", to_iso(1_000), to_iso(2_000), "lost", 12),
        ("000000000002", "reset", to_iso(3_000), to_iso(9_000), "open", None),
        (None, "stalled", to_iso(9_500), None, "open", None),
    ]
    status = send_request(control, "GET")[1]["coverage"]["gaps"]
    # Of the recorded gaps, the status reads only the announced ones.
    assert [gap["cause"] for gap in status] == ["announced_by_upstream", "reset", "stalled"]
    bare = [
        {name: value for name, value in gap.items() if name not in ("position", "length_ms")} for gap in page["gaps"]
    ]
    for gap in status:
        assert {name: value for name, value in gap.items() if name != "length_ms"} in bare
    # One gap a page, and by time.
    gaps_of = functools.partial(send_request, control, "GET", resource="/connections/{streamId}/gaps")
    walk = read_all_pages(lambda place: gaps_of(queryStringParameters={"limit": "1"} | place)[1], "gaps")
    assert [gap["position"] for gap in walk] == [position for position, *_ in shown]
    query = {"from": "1970-01-01T00:00:01.500Z", "to": "1970-01-01T00:00:04Z"}
    part = gaps_of(queryStringParameters=query)[1]
    assert [gap["cause"] for gap in part["gaps"]] == ["announced_by_upstream", "reset"]


def test_the_document_is_openapi_3_1_and_names_every_route(control: ModuleType) -> None:
    """The document passes an independent validator, has every route, and names its own host as the server."""
    event = {"httpMethod": "GET", "resource": "/openapi.json", "requestContext": {"path": "/prod/openapi.json"}}
    answer = control.handler(event, Context())
    served = json.loads(answer["body"])
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (200, "application/json")
    assert served == document("/prod")
    validate(served, cls=OpenAPIV31SpecValidator)
    served_routes = {f"{method.upper()} {path}" for path, methods in served["paths"].items() for method in methods}
    assert (served_routes, served["servers"]) == (set(routes.ROUTES), [{"url": "/prod"}])


def test_a_dry_run_is_requested_by_true_or_false() -> None:
    """Only `true` and `false` are valid for `dry_run`, as the API's document lists them."""
    assert [is_dry_run(given, "apply") for given in ({}, {"dry_run": "false"}, {"dry_run": "true"})] == [0, 0, 1]
    for text in ("0", "1", "TRUE", ""):
        with pytest.raises(BadQuery, match="must be true or false"):
            is_dry_run({"dry_run": text}, "apply")
