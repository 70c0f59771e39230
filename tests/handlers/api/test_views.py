"""The answers for the page beside a stream's status, and the page's own files, with the embedded AWS."""

import io
import json
import re
import time
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from handlers.api import dead_letter_pages, repair_route, routes
from handlers.api.answers import to_iso
from handlers.api.bill import bill, cost, rates
from handlers.api.connection_records import Records
from handlers.api.control_stage import ApiCall
from handlers.api.queries import BadQuery
from handlers.api.views import current_states, graph, machine, timeline
from handlers.connection.inputs import LOG
from handlers.connection.lease import Lease
from handlers.deliver.arrivals import Arrivals, Entry
from handlers.deliver.bells import Place
from handlers.deliver.delivery_records import SinkRecord, SinkRecords
from handlers.framing.events import StreamEvent
from handlers.store.control_table import Table
from local.service import osls
from local.stack import read_stack
from tests.handlers.api.shown import DEAD_AFTER_MS, NOW, connection
from tests.handlers.api_requests import events_of, send_request, write_connected_stream
from tests.handlers.aws import CONTROL, Aws, Memory, drop_request
from tests.handlers.context import Context

HOUR_MS = 3_600_000
# The namespace of SVG, which no browser requests.
_NAMES_ALONE: tuple[list[str], ...] = ([], ["http://www.w3.org/2000/svg"])


def view(control: ModuleType, name: str, stream_id: str = "demo") -> tuple[int, Any]:
    """Return the status and the JSON of a view of a stream."""
    return send_request(control, "GET", stream_id, resource=f"/connections/{{streamId}}/{name}")


def records(*connections: Any, **lease: Any) -> Records:
    """Return records of a stream that an execution holds."""
    fields: dict[str, Any] = {"execution": "arn:mine", "generation": 1}
    return Records(Lease(**(fields | lease)), None, None, connections)


def test_the_timeline_has_each_lane_of_the_last_hour(memory: Memory, control: ModuleType) -> None:
    """A connection ends at its function's last sign of life; a connection that ended before the hour is left out."""
    write_connected_stream(memory)
    shown = view(control, "timeline")[1]
    assert ([one["fence"] for one in shown["connections"]], shown["is_repairable"]) == ([1], False)
    old, first, second = (
        connection(1, "B", 1, 2),
        connection(2, "A", 5 * HOUR_MS, 5 * HOUR_MS + 200, stored=3, claimed_ms=5 * HOUR_MS - 50),
        connection(3, "B", 5 * HOUR_MS + 100, duplicates=1, seen_ms=5 * HOUR_MS + 900),
    )
    now_ms = 5 * HOUR_MS + 1_000
    body = timeline("demo", records(old, first, second), now_ms, DEAD_AFTER_MS)
    assert (body["from_at"], body["to_at"]) == ("1970-01-01T04:00:01.000Z", "1970-01-01T05:00:01.000Z")
    names = ("lane", "fence", "claimed_at", "opened_at", "until_at", "is_open", "ended_by")
    rows = [
        ("A", 2, to_iso(5 * HOUR_MS - 50), to_iso(5 * HOUR_MS), to_iso(5 * HOUR_MS + 200), False, "taken_over"),
        ("B", 3, to_iso(5 * HOUR_MS + 100), to_iso(5 * HOUR_MS + 100), to_iso(now_ms), True, None),
    ]
    counts = [{"stored": 3, "duplicates": 0}, {"stored": 0, "duplicates": 1}]
    assert body["connections"] == [
        {**dict(zip(names, row, strict=True)), **count, "dead_lettered": 0}
        for row, count in zip(rows, counts, strict=True)
    ]
    silent = timeline("demo", records(second), now_ms + 1_800_000, DEAD_AFTER_MS)["connections"]
    assert [(one["is_open"], one["until_at"]) for one in silent] == [(False, "1970-01-01T05:00:00.900Z")]


def test_the_cost_follows_from_the_rates(memory: Memory, control: ModuleType) -> None:
    """The cost covers the hours since the start and the events by kind of store; too few records count as a sample."""
    known = rates()
    run = [connection(number, "A", NOW - 1_000, stored=500, claimed_ms=NOW - 1_000) for number in (1, 2)]
    given = records(*run, started_at_ms=NOW - 1_000)
    for stored in ("items", "items without an order", "log"):
        body = cost("demo", replace(given, storage_form=stored), NOW, DEAD_AFTER_MS)
        usd = 1_000 / HOUR_MS * known["stream_hour_usd"] + known["million_events_usd"][stored] / 1000
        assert (body["about_usd"], body["events"], body["stored_as"]) == (round(usd, 6), 1000, stored)
        # The forecast is a month of such seconds.
        assert body["forecast_month_usd"] == round(usd * 730 * HOUR_MS / 1_000, 2)
    # One stream of a hundred in a function; docs/costs.md has 0.0794 US dollars a month.
    shared = cost("demo", replace(records(started_at_ms=NOW - HOUR_MS), group_size=100), NOW, DEAD_AFTER_MS)
    assert (shared["forecast_month_usd"], shared["parts"]["events_usd"]) == (0.08, 0)
    half = Records(Lease(execution="x", started_at_ms=NOW - 2_000), None, None, run, is_all=False)
    assert cost("demo", half, NOW, DEAD_AFTER_MS)["events"] == 2000
    # A POST replaced an execution that died without a stop: the events stored before it, and their time, count as well.
    again = cost("demo", records(*run, started_at_ms=NOW - 10), NOW, DEAD_AFTER_MS)
    assert (again["from_at"], again["hours"]) == (body["from_at"], body["hours"])
    assert cost("demo", records(), NOW, DEAD_AFTER_MS)["about_usd"] == 0
    assert bill("demo", records(), NOW, DEAD_AFTER_MS) is None
    # A stream without an execution causes no more costs.
    over = Records(Lease(started_at_ms=NOW - 2_000, ended_at_ms=NOW - 1_000), None, None, run)
    assert bill("demo", over, NOW, DEAD_AFTER_MS) == {
        "since_at": cost("demo", over, NOW, DEAD_AFTER_MS)["from_at"],
        "so_far_usd": cost("demo", over, NOW, DEAD_AFTER_MS)["about_usd"],
        "forecast_month_usd": 0.0,
    }
    write_connected_stream(memory)
    code, body = view(control, "cost")
    assert (code, body["events"]) == (200, 5)


def definition(name: str = "connections") -> dict[str, Any]:
    found: str = next(
        one.definition for one in read_stack(osls.template("test"), {}).machines if one.name.endswith(name)
    )
    parsed: dict[str, Any] = json.loads(found)
    return parsed


def test_the_graph_has_every_state_and_transition_of_the_machine() -> None:
    """The graph has the states and transitions of all branches; an edge that only an error takes is called caught."""
    drawn = graph(definition())

    def names(part: dict[str, Any], states: str, branches: str) -> list[str]:
        inner = [each for one in part[states].values() for each in one.get(branches, ())]
        return sorted([*part[states], *(name for each in inner for name in names(each, states, branches))])

    assert names(drawn, "states", "branches") == names(definition(), "States", "Branches")
    assert drawn["start"] == "Read request"
    lane = drawn["states"]["Lanes"]["branches"][0]["states"]
    caught = ("Wait A", "Connect A", "Read lease A", "End A")
    nexts = {one["to"]: one["caught"] for one in lane["Connect A"]["next"]}
    assert nexts == {"Renewal due A": False} | dict.fromkeys(caught, True)
    assert all(one["to"] in part for part in (drawn["states"], lane) for each in part.values() for one in each["next"])


def test_a_state_that_was_entered_and_not_left_is_current() -> None:
    """A state whose last entry has no exit is current; an execution that has ended has none."""
    newest_first: list[dict[str, Any]] = [
        {"type": "WaitStateEntered", "stateEnteredEventDetails": {"name": "Wait A"}},
        {"type": "TaskStateExited", "stateExitedEventDetails": {"name": "Connect A"}},
        {"type": "TaskScheduled"},
        {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": "Connect B"}},
        {"type": "WaitStateExited", "stateExitedEventDetails": {"name": "Wait B"}},
        {"type": "TaskStateEntered", "stateEnteredEventDetails": {"name": "Connect A"}},
        {"type": "WaitStateEntered", "stateEnteredEventDetails": {"name": "Wait B"}},
        {"type": "ParallelStateEntered", "stateEnteredEventDetails": {"name": "Lanes"}},
    ]
    assert current_states(newest_first) == ["Lanes", "Connect B", "Wait A"]
    over = {"status": "FAILED", "executionArn": "arn:mine"}
    assert machine("demo", over, definition(), newest_first)["current"] == []


def test_the_newest_events_come_after_the_latest_place(memory: Memory, control: ModuleType) -> None:
    """The latest place is before the last hundred events of an index or the last four segments of a log, else null."""
    write_connected_stream(memory)
    assert view(control, "latest") == (200, {"stream": "demo", "after": None})
    events = [StreamEvent(f"k{n}", "x", None, None, f"{n}", n) for n in range(130)]
    memory.store().write("demo", 1, 0, events)
    after = view(control, "latest")[1]["after"]
    page = events_of(control, after=after, limit="1000")[1]
    assert [one["key"] for one in page["events"]] == [f"k{n}" for n in range(30, 130)]
    store = memory.store()
    store.claim("demo:log", execution="", holder="B/1", partitions=LOG)
    log = store.log_writer("demo:log", 1, lambda: 4_000, window_ms=1_000, keep_days=0)
    for number in range(7):
        log.write(number, [StreamEvent(f"s{number}", "x", None, None, f"{number}", 1)])
    after = view(control, "latest", "demo:log")[1]["after"]
    page = events_of(control, "demo:log", after=after)[1]
    assert [one["key"] for one in page["events"]] == ["s3", "s4", "s5", "s6"]


class Delivery:
    """Accepts requests in place of the function that delivers; `fails` is Lambda's answer if that is killed."""

    def __init__(self) -> None:
        self.asked, self.fails = list[dict[str, Any]](), dict[str, str]()

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        self.asked.append({"function": FunctionName, **json.loads(Payload)})
        return {"Payload": io.BytesIO(b"{}")} | self.fails


@pytest.fixture
def delivery(memory: Memory, control: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Delivery:
    """Return a stage that delivers, with any table of its key, and a profile with two sinks."""
    settings = replace(control.stage.settings, sinks_table=CONTROL, sinks_function="deliver")
    monkeypatch.setattr(control.stage, "settings", settings)
    made = Delivery()
    monkeypatch.setattr(control.stage, "functions", lambda *_, **__: made)
    profile = 'address = "https://example.org"\nframing = "sse"\ndeliver = [{ s3 = "lake" }, { sqs = "a.fifo" }]\n'
    (control.stage.settings.streams_dir / "demo.toml").write_text(profile)
    write_connected_stream(memory)
    return made


def test_a_sink_is_shown_while_the_profile_names_it(
    memory: Memory, control: ModuleType, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sinks of the profile are shown with their waiting events and the oldest one's age, and no removed sink."""
    assert delivery.asked == []
    table = Table(memory.dynamodb, CONTROL)
    entries = [Entry("demo", str(n), 1, 3_000 + n) for n in range(3)]
    (noted,) = Arrivals(table).note({"demo": (entries, "1-3")}, 4_000).values()
    for sink in ("s3:lake", "s3:gone"):
        record = SinkRecord(sink, number=noted.number, done=1, delivered=1, failed=4, waits="away", newest_ms=3_000)
        SinkRecords(table).save(Place("demo", sink), record)
    monkeypatch.setattr(control.stage, "now_ms", lambda: 9_000)
    shown = send_request(control, "GET", "demo", resource="/connections/{streamId}/sinks")[1]["sinks"]
    assert shown == send_request(control, "GET", "demo")[1]["delivery"]
    assert [(row["sink"], row["waiting"], row["lag_ms"], row["waits"]) for row in shown] == [
        ("s3:lake", 2, 5_999, "away"),
        ("sqs:a.fifo", 0, 0, None),
    ]


def test_a_command_to_a_sink_is_checked_and_handed_on(control: ModuleType, delivery: Delivery) -> None:
    """The delivery function gets a valid command; an invalid one is refused by the name of its parameter."""

    def post(**query: str) -> tuple[int, Any]:
        return send_request(
            control, "POST", "demo", resource="/connections/{streamId}/sinks", queryStringParameters=query
        )

    assert post(do="pause", sink="s3:lake")[0] == 200
    assert post(do="replay", sink="sqs:a.fifo", **{"from": "1970-01-01T00:00:02Z"})[0] == 200
    assert post(do="skip", sink="s3:lake", all="true")[0] == 200
    base = {"function": "deliver", "streams": ["demo"], "from_ms": 0, "all": False}
    assert delivery.asked == [
        {**base, "command": "pause", "sink": "s3:lake"},
        {**base, "command": "replay", "sink": "sqs:a.fifo", "from_ms": 2_000},
        {**base, "command": "skip", "sink": "s3:lake", "all": True},
    ]
    wrong: list[tuple[dict[str, str], str]] = [
        ({"do": "stop", "sink": "s3:lake"}, "do"), ({"do": "pause"}, "sink"), ({"do": "pause", "sink": "s3:x"}, "sink"),
        ({"do": "replay", "sink": "s3:lake"}, "from"), ({"do": "skip", "sink": "s3:lake", "all": "1"}, "all"),
        ({"do": "replay", "sink": "s3:lake", "from": "2999-01-01T00:00:00Z"}, "from"),
        ({"do": "pause", "sink": "s3:lake", "all": "true"}, "all"),
        ({"do": "pause", "sink": "s3:lake", "from": "start"}, "from"), ({"do": "pause", "now": "1"}, "now"),
    ]  # fmt: skip
    for query, field in wrong:
        code, problem = post(**query)
        assert (code, f"parameter {field} " in json.dumps(problem)) == (400, True)
    assert len(delivery.asked) == 3
    delivery.fails = {"FunctionError": "Unhandled"}
    assert post(do="pause", sink="s3:lake") == (502, {"detail": "The delivery function did not carry out the command."})


def test_a_dry_run_of_a_repair_names_the_failure(
    memory: Memory, control: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run reports a repair function that is busy, failed or is late; parts share the available time."""
    profile = 'address = "https://example.org"\nframing = "sse"\nrepair = { address = "https://example.org/old" }\n'
    (control.stage.settings.streams_dir / "demo.toml").write_text(profile)
    write_connected_stream(memory)
    resource = "/connections/{streamId}/repair"

    def dry_run(invoke: Any) -> tuple[int, Any]:
        monkeypatch.setattr("handlers.api.repair_route._functions", lambda _left_s: SimpleNamespace(invoke=invoke))
        return send_request(control, "POST", resource=resource, queryStringParameters={"dry_run": "true"})

    busy = {"Payload": io.BytesIO(b'{"status": "busy"}')}
    assert dry_run(lambda **_: busy) == (409, {"detail": "The gaps of this profile are being repaired now."})
    failed = {"Payload": io.BytesIO(b"{}"), "FunctionError": "Unhandled"}
    assert dry_run(lambda **_: failed) == (502, {"detail": "The repair function failed."})
    code, late = dry_run(lambda **_: drop_request(print))
    assert (code, late["detail"]) == (400, "The dry run takes longer than 17 s.")
    request = ApiCall("demo", "demo", {"dry_run": "true"}, {})
    with pytest.raises(BadQuery, match="takes longer than 17 s"):
        repair_route.answer(control.stage, request, ends_s=time.monotonic())


def test_the_whole_queue_is_seen_and_given_back_in_few_requests(aws: Aws) -> None:
    """The whole queue is read with long polling, as SQS may else ask empty servers, and returned in tens."""
    for number in range(23):
        aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody=str(number))
    released: list[Any] = []

    def receive_message(**more: Any) -> Any:
        return aws.sqs.receive_message(**more) if more.get("WaitTimeSeconds") else {}

    def change_message_visibility_batch(**more: Any) -> Any:
        released.append(aws.sqs.change_message_visibility_batch(**more)["Successful"])

    sqs = SimpleNamespace(**locals())
    messages, is_all = dead_letter_pages.receive_messages(sqs, aws.queue_url, lambda: False)
    assert (len(messages), is_all, [len(some) for some in released]) == (23, True, [10, 10, 3])
    assert len(aws.dead_letters()) == 23


def test_dead_letters_of_a_stream_are_listed_and_stay(aws: Aws, function: ModuleType) -> None:
    """The list spans several SQS answers, leaves out other streams and foreign messages, and can be read again."""
    write_connected_stream(aws)
    bodies: list[Any] = [
        {"stream": "demo", "fence": 1, "reason": "too large", "key": f"k{n}", "part": 1, "parts": 1, "event": {}}
        for n in range(12)
    ]
    bodies.append({"stream": "demo", "sink": "sqs:a.fifo", "key": "u", "position": "1", "reason": "too large"})
    bodies += [{"stream": "other", "reason": "x", "key": "y"}, "no object", {"stream": "demo", "reason": "x"}]
    bodies.append({"stream": "demo", "error": "StreamRejected", "cause": '{"errorMessage": "401"}'})
    bodies.append({"stream": "demo", "from_at": "x", "to_at": "y", "repair": "failed", "reason": "no gap is left"})
    for body in bodies:
        aws.sqs.send_message(QueueUrl=aws.queue_url, MessageBody=json.dumps(body))
    for _ in range(2):
        code, answer = view(function, "dead-letters")
        assert (code, answer["is_all"]) == (200, True)
        shown = sorted((one["key"] or "", one["part"], one["reason"]) for one in answer["dead_letters"])
        expected: list[tuple[str, str | None, str]] = [(f"k{n}", "1 of 1", "too large") for n in range(12)]
        expected.append(("u", None, "not delivered to sqs:a.fifo: too large"))
        assert shown == sorted([*expected, ("", None, "StreamRejected: 401"), ("", None, "no gap is left")])
    assert len(aws.dead_letters()) == len(bodies)


def test_every_route_is_answered_but_the_start(control: ModuleType) -> None:
    """The control function answers every route but the start, which Step Functions answers itself."""
    assert {*control._ROUTES} == {*routes.ROUTES} - {"POST /connections/{streamId}"}


def test_the_page_has_a_policy_and_loads_nothing_from_elsewhere(control: ModuleType) -> None:
    """Each file of the page is served unchanged and names no other host; any other path is 404."""

    def file(name: str | None) -> Any:
        resource, parameters = ("/console", None) if name is None else ("/console/{file}", {"file": name})
        event = {"httpMethod": "GET", "resource": resource, "pathParameters": parameters}
        return control.handler(event, Context())

    page = file(None)
    assert (page["statusCode"], page["headers"]["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in page["headers"]["Content-Security-Policy"]
    names = sorted(path.name for path in routes.FOLDER.iterdir())
    for name in names:
        answer = file(name)
        assert (answer["statusCode"], answer["body"]) == (200, (routes.FOLDER / name).read_text())
        assert set(routes.HEADERS) <= set(answer["headers"])
        assert re.findall(r"\w+:" + "//[^'\"]*|innerHTML|outerHTML|insertAdjacent", answer["body"]) in _NAMES_ALONE
    for other in ("../control.py", "..%2Fcontrol.py", "", "index", "rates.json"):
        assert file(other)["statusCode"] == 404
