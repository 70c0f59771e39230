"""The control API about a stream that is read in parts: one status, one walk over its events, one stop."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from handlers.api import parted_streams
from handlers.api.answers import to_iso
from handlers.api.connection_records import Records
from handlers.api.fleet_routes import document
from handlers.connection.effects import Progress
from handlers.connection.gap_record import LOST, Gap
from handlers.connection.lease import Lease
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from tests.handlers.api.shown import DEAD_AFTER_MS, NOW, RETRIES, connection
from tests.handlers.api.test_views import Delivery
from tests.handlers.api_requests import (
    MINE,
    events_of,
    read_all_pages,
    send_request,
    streams_of,
    write_connected_stream,
)
from tests.handlers.aws import CONTROL, Memory, save_connection

PARTS = ["prices:btc", "prices:eth"]
STREAM = "/connections/{streamId}"


@pytest.fixture(autouse=True)
def _profile(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('address = "https://x/{name}"\nframing = "sse"\nparts = ["btc", "eth"]\n')


def away(memory: Memory, stream_id: str) -> None:
    """Write a stream whose only connection was reset a second after it was opened."""
    memory.put_control(stream_id, "lease", execution={"S": MINE}, generation={"N": "1"})
    store = memory.store()
    store.claim(stream_id, execution=MINE, holder="A/request-1")
    progress = Progress(
        fence=1, claimed_ms=1_000, opened_ms=2_000, seen_ms=3_000, closed_ms=3_000, ended_by="reset", stored=1
    )
    save_connection(store, stream_id, progress, lane="A", execution=MINE, request_id="request-1")


def stored(memory: Memory, stream_id: str, *numbers: int) -> None:
    """Store events of a part that arrived at these milliseconds."""
    events = [StreamEvent(f"k{number}", str(number), None, None, None, number) for number in numbers]
    memory.store().write(stream_id, 1, 0, events, StoragePolicy(keep_days=0, on_conflict=None))


def test_a_whole_that_was_never_started_is_a_404(control: ModuleType) -> None:
    """Any route of a stream in parts that was never started gives 404, and the list does not have the stream."""
    for path in ("", "/events", "/gaps", "/cost", "/sinks", "/repair"):
        code, body = send_request(control, "POST" if path == "/repair" else "GET", "prices", resource=f"{STREAM}{path}")
        assert (code, body["detail"]) == (404, "The stream 'prices' was never started.")
    assert streams_of(control) == (200, {"streams": [], "next": None})


def test_the_whole_is_running_if_all_parts_are(memory: Memory, control: ModuleType) -> None:
    """A stream in parts is running while all its parts are connected; its numbers are their sums."""
    for part in PARTS:
        write_connected_stream(memory, part)
    code, whole = send_request(control, "GET", "prices")
    assert (code, whole["status"], whole["reason"]) == (200, "running", None)
    assert whole["verdict"].startswith("2 of 2 parts connected. Connected")
    assert (whole["counts"]["stored"], whole["counts"]["connections"]) == (10, 2)
    assert whole["coverage"]["connected_percent"] == 100
    assert (whole["execution"], whole["cursor"], whole["lanes"]) == (None, None, {})


def test_a_part_that_is_away_keeps_the_whole_from_being_connected(memory: Memory, control: ModuleType) -> None:
    """If one part is away, the whole is not connected: it has the worst part's status and connected share."""
    write_connected_stream(memory, PARTS[0])
    away(memory, PARTS[1])
    whole = send_request(control, "GET", "prices")[1]
    parts = [send_request(control, "GET", part)[1] for part in PARTS]
    assert [one["status"] for one in parts] == ["running", "unknown"]
    assert whole["status"] == "unknown"
    first = parts[1]["verdict"].removesuffix("Nothing lost before that.")
    assert whole["verdict"].startswith(f"1 of 2 parts connected. prices:eth: {first}1 gap of ")
    assert whole["parts"] == [
        {"stream": one["stream"], "status": one["status"], "verdict": one["verdict"], "reason": one["reason"]}
        for one in parts
    ]
    percents = [one["coverage"]["connected_percent"] for one in (whole, *parts)]
    assert percents[0] == min(percents)
    assert percents[0] < 1
    assert whole["coverage"]["missing"]["intervals"] == sum(one["coverage"]["missing"]["intervals"] for one in parts)
    assert whole["open_gaps"] == sum(one["open_gaps"] for one in parts)


def test_the_verdict_has_what_is_missing_in_all_parts(memory: Memory, control: ModuleType) -> None:
    """The verdict sums up the gaps of all parts; it names the worst part only if another does better."""
    for part in PARTS:
        away(memory, part)
        times = {"started_at": {"S": "1970-01-01T00:00:01Z"}, "stop_at": {"S": "1970-01-01T00:00:04.900Z"}}
        memory.put_control(part, "lease", **times, stop={"BOOL": True})
    whole = send_request(control, "GET", "prices")[1]
    said = "0 of 2 parts connected. Stopped on request. 2 gaps of 1.9 s in all are not proved complete."
    assert (whole["status"], whole["verdict"]) == ("stopped", said)


@pytest.mark.parametrize(("from_ms", "events"), [(502_000, 9), (501_999, None)])
def test_losses_of_several_parts_are_added(from_ms: int, events: int | None) -> None:
    """Losses of different parts are added; if losses of one part overlap, the number of events is unknown."""
    losses = {
        "prices:btc": [Gap(1, 500_000, 502_000, "ids_restarted", LOST, 1, 2), Gap(2, from_ms, 503_000, "", LOST, 1, 3)],
        "prices:eth": [Gap(7, 501_000, 502_000, "announced_by_upstream", LOST, 1, 4)],
    }
    lease = Lease(execution=MINE, fence=1, connected_token=1, expires_at_ms=NOW + 1)
    records = {one: Records(lease, None, None, [connection(1, "A", 100_000)], lost) for one, lost in losses.items()}
    whole = parted_streams.whole_status("prices", records, NOW, DEAD_AFTER_MS, RETRIES)
    assert whole is not None
    assert whole["coverage"]["missing"]["events"] == events


def test_the_whole_is_connected_since_its_last_part() -> None:
    """The whole is connected since its last part; if a part's records do not reach its start, "at least" that long."""
    lease = Lease(execution=MINE, fence=1, connected_token=1, expires_at_ms=NOW + 1)
    longer, newest = (Records(lease, None, None, [connection(1, "A", at_ms)]) for at_ms in (100_000, NOW - 300_000))
    for is_all, said, since_at in ((True, "5 min.", to_iso(NOW - 300_000)), (False, "at least 5 min.", None)):
        records = {"prices:btc": longer, "prices:eth": replace(newest, is_all=is_all)}
        whole = parted_streams.whole_status("prices", records, NOW, DEAD_AFTER_MS, RETRIES)
        assert whole is not None
        assert whole["verdict"].startswith(f"2 of 2 parts connected. Connected {said}")
        assert (whole["since_at"], whole["since_before_at"]) == (since_at, None if is_all else to_iso(NOW - 300_000))


def test_a_part_that_was_never_started_is_named(memory: Memory, control: ModuleType) -> None:
    """The verdict names a part that was never started, and the list has only the others."""
    write_connected_stream(memory, PARTS[0])
    whole = send_request(control, "GET", "prices")[1]
    said = ("stopped", "1 of 2 parts connected. prices:eth: Never started.", None)
    assert (whole["status"], whole["verdict"], whole["since_at"]) == said
    assert [row["stream"] for row in streams_of(control)[1]["streams"]] == ["prices", "prices:btc"]


def test_sums_of_costs_are_rounded_like_their_parts() -> None:
    """Sums of costs are rounded like their parts: 0.1 and 0.2 are 0.3."""
    one, two = (
        dict.fromkeys(("about_usd", "forecast_month_usd", "hours", "events"), value)
        | {"from_at": None, "to_at": None, "parts": {"events_usd": value}}
        for value in (0.1, 0.2)
    )
    whole = parted_streams.sum_costs("prices", [one, two])
    assert (whole["about_usd"], whole["parts"]["events_usd"]) == (0.3, 0.3)


def test_events_of_all_parts_are_read_in_order(memory: Memory, control: ModuleType) -> None:
    """Events of all parts are read in order of arrival with one position, which the parts' own routes refuse."""
    for part in PARTS:
        write_connected_stream(memory, part)
    stored(memory, PARTS[0], 1, 4, 5)
    stored(memory, PARTS[1], 2, 3, 6)
    shown = read_all_pages(lambda place: events_of(control, "prices", limit="2", **place)[1], "events")
    said = [(one["stream"], one["data"]) for one in shown]
    assert said == [(PARTS[number in (2, 3, 6)], str(number)) for number in range(1, 7)]
    code, refused = events_of(control, PARTS[0], after=shown[-1]["position"])
    assert (code, refused["detail"]) == (404, f"The position is not one of {PARTS[0]!r}, which is not read in parts.")
    code, refused = events_of(control, "prices", after=f"{1:015d}/{1:012d}/{0:012d}")
    assert (code, refused["detail"]) == (404, "The position is not one of 'prices', which is read in parts.")
    newest = send_request(control, "GET", "prices", resource=f"{STREAM}/latest")[1]
    assert newest == {"stream": "prices", "after": None}


def test_gaps_of_all_parts_are_read_in_order(memory: Memory, control: ModuleType) -> None:
    """Gaps of all parts are read in the order of their beginnings; gaps that have not ended come last, each once."""
    for number, part in enumerate([0, 1, 1, 1, 1]):
        times = {"from_ms": {"N": str(100 * number)}, "to_ms": {"N": str(100 * number + 50)}}
        gap = {"cause": {"S": "reset"}, "state": {"S": "open"}} | times
        memory.put_control(PARTS[part], f"gap#{0:012d}#{number + 1:06d}", **gap)
    for part_id in PARTS:
        away(memory, part_id)

    def page(place: dict[str, str]) -> Any:
        query = {"limit": "2"} | place
        code, found = send_request(control, "GET", "prices", resource=f"{STREAM}/gaps", queryStringParameters=query)
        assert code == 200, found
        return found

    shown = [(one["stream"], one["from_at"][19:23], one["position"] is None) for one in read_all_pages(page, "gaps")]
    assert shown == [(PARTS[n > 0], f".{n}00", False) for n in range(5)] + [(part, ".000", True) for part in PARTS]


def test_a_stop_stops_every_part(memory: Memory, control: ModuleType) -> None:
    """A DELETE of the whole stops every part, also one that was never started; it may be repeated."""
    write_connected_stream(memory, PARTS[0])
    for _ in range(2):
        code, body = send_request(control, "DELETE", "prices")
        assert (code, body["stream"], body["status"]) == (202, "prices", "stopping")
        assert body["message"] == "Each part stores what it has read and closes; its execution ends."
    for part in PARTS:
        assert memory.items(CONTROL, part)["lease"]["stop"] is True


def test_a_command_to_a_sink_is_for_every_part(
    memory: Memory, control: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A command to a sink applies to every started part; a single event can be skipped only in one part."""
    with (tmp_path / "prices.toml").open("a") as profile:
        profile.write('deliver = { s3 = "lake" }\n')
    settings = replace(control.stage.settings, sinks_table=CONTROL, sinks_function="deliver")
    monkeypatch.setattr(control.stage, "settings", settings)
    delivery = Delivery()
    monkeypatch.setattr(control.stage, "functions", lambda *_, **__: delivery)

    def post(**query: str) -> tuple[int, Any]:
        return send_request(control, "POST", "prices", resource=f"{STREAM}/sinks", queryStringParameters=query)

    assert post(do="pause")[0] == 404
    # Right after the first POST: its executions have not claimed the parts yet.
    begun = Records(Lease(execution=MINE, started_at_ms=1), None, None, ())
    monkeypatch.setattr(control.stage, "first_execution", lambda _: begun)
    assert send_request(control, "GET", "prices")[0] == 200
    write_connected_stream(memory, PARTS[0])
    assert [row["stream"] for row in post(do="pause")[1]["sinks"]] == PARTS[:1]
    write_connected_stream(memory, PARTS[1])
    code, answer = post(do="skip", all="true")
    assert (code, answer) == send_request(control, "GET", "prices", resource=f"{STREAM}/sinks")
    assert [(row["stream"], row["sink"]) for row in answer["sinks"]] == [(part, "s3:lake") for part in PARTS]
    assert send_request(control, "GET", "prices")[1]["delivery"] == answer["sinks"]
    told = [("pause", PARTS[:1]), ("skip", PARTS)]
    assert [(one["command"], one["streams"]) for one in delivery.asked] == told
    code, refused = post(do="skip")
    words = "A single event is skipped in one part: request prices:btc, prices:eth; all=true skips in all."
    assert (code, len(delivery.asked)) == (409, 2)
    assert refused["detail"] == words


@pytest.mark.parametrize("path", ["/timeline", "/machine"])
def test_a_route_that_only_parts_have_names_the_parts(memory: Memory, control: ModuleType, path: str) -> None:
    """A route whose answer only a part has gives 409 with one sentence that names the parts."""
    write_connected_stream(memory, PARTS[0])
    code, body = send_request(control, "GET", "prices", resource=f"{STREAM}{path}")
    words = "The stream 'prices' is read in parts, each with its own answer: request prices:btc, prices:eth."
    assert (code, body["detail"]) == (409, words)


def test_the_list_has_a_whole_before_its_first_part(memory: Memory, control: ModuleType) -> None:
    """The list has the whole once, before its first part, with any page size."""
    for part in ("demo", *PARTS, "prices:other"):
        write_connected_stream(memory, part)

    def rows(limit: str) -> list[str]:
        found = read_all_pages(lambda place: streams_of(control, limit=limit, **place)[1], "streams")
        return [one["stream"] for one in found]

    assert [rows(limit) for limit in ("1", "2", "10")] == [["demo", "prices", *PARTS, "prices:other"]] * 3


def test_a_document_that_names_the_whole_names_each_part() -> None:
    """A document that names the whole means each part that it does not name itself."""
    text = 'connected = ["prices", "demo"]\nstopped = ["prices:eth"]'
    wanted = document(text, "application/toml", lambda _: True, lambda one: PARTS if one == "prices" else ())
    assert wanted.ids == {"demo": True, "prices:btc": True, "prices:eth": False}
