"""The control API's function: what it reads, the one thing it writes, and its answers, on the embedded AWS."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from handlers.api.known_profiles import KnownProfiles
from handlers.api.routes import ROUTES
from handlers.connection.effects import Claim, Progress
from handlers.connection.inputs import LOG
from handlers.connection.steps import Invocation
from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.profile.parse import parse
from handlers.run.profile_source import Profiles
from handlers.run.requests import Requests
from handlers.store import control_record
from handlers.store.event_reader import EventReader
from handlers.store.stream_records import StreamRecords
from local.service import osls
from local.stack import read_stack
from tests.handlers.api_requests import FAR_MS, MINE, REQUESTED_AT, send_request, write_connected_stream
from tests.handlers.aws import CONTROL, EVENTS, Client, Memory, drop_request, fail_with, lose_answer, save_connection
from tests.handlers.context import Context
from tests.handlers.servers import Peer, Script, sends, serving

NO_ANSWER = "The table does not answer."
THROTTLED = "The table takes no more requests now; try again in 5 s."


def ledger(memory: Memory, operation: str = "", way: Callable[..., Any] = drop_request) -> StreamRecords:
    """Return the store on the table; one operation may fail."""
    return StreamRecords(Client(memory.dynamodb, operation, way) if operation else memory.dynamodb, CONTROL, EVENTS)


def test_the_index_names_every_route_and_profile(control: ModuleType) -> None:
    """The index lists the profiles and exactly the routes of the deployed API."""
    code, body = send_request(control, "GET", None, resource="/")
    assert (code, body["service"], body["profiles"]) == (200, "streamkeeper", ["demo"])
    routes = [route for route in read_stack(osls.template("test"), {}).routes if route.method != "ANY"]
    assert sorted(body["routes"]) == sorted(f"{route.method} {route.path}" for route in routes)


@pytest.mark.parametrize(
    ("accept", "path", "place"),
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", "/", "/console"),
        ("TEXT/HTML", "/prod/", "/prod/console"),
        ("text/html", "/prod", "/prod/console"),
        ("*/*", "/", None),
        ("application/json", "/", None),
        ("", "/", None),
    ],
)
def test_a_browser_is_led_to_the_page(control: ModuleType, accept: str, path: str, place: str | None) -> None:
    """A client that accepts HTML is redirected with 303; other clients are not: curl sends */*."""
    event = {"httpMethod": "GET", "resource": "/", "headers": {"Accept": accept}, "requestContext": {"path": path}}
    answer = control.handler(event, Context())
    assert (answer["statusCode"], answer["headers"].get("Location")) == ((303, place) if place else (200, None))


@pytest.mark.parametrize(("stream_id", "meant"), [("dmeo:x", "Did you mean 'demo'? "), ("zzqq", "")])
def test_an_unknown_stream_names_the_profile_that_was_meant(control: ModuleType, stream_id: str, meant: str) -> None:
    """The refusal of an unknown stream suggests a profile if its name is similar."""
    answer = control.handler({"httpMethod": "GET", "pathParameters": {"streamId": stream_id}}, Context())
    assert json.loads(answer["body"])["fix"] == f"{meant}GET / lists all profiles."


@pytest.mark.parametrize(
    ("saved", "shown"),
    [
        (None, ("8", "1970-01-01T00:00:04.000Z")),  # no function saved a cursor: the log's counts
        (("17", 1, 2_500), ("8", "1970-01-01T00:00:04.000Z")),  # the log's is later
        (("17", 1, 4_000), ("17", "1970-01-01T00:00:04.000Z")),  # the upstream moved on without an event
        (("17", 2, 1_000), ("17", "1970-01-01T00:00:01.000Z")),  # a newer connection saved it
    ],
)
def test_the_cursor_of_a_log_is_the_one_that_a_successor_resumes_from(
    memory: Memory, control: ModuleType, saved: tuple[str, int, int] | None, shown: tuple[str, str]
) -> None:
    """GET shows the later cursor of the last segment and the control record; a new connection gets the same."""
    store = memory.store()
    store.claim("demo", execution="", holder="B/request-1", partitions=LOG)
    event = StreamEvent("k8", "a", "8", None, "8", 3_000)
    store.log_writer("demo", 1, lambda: 4_000, window_ms=1_000, keep_days=0).write(0, [event])
    if saved is not None:
        memory.put_control("demo", "lease", **control_record.cursor_attributes(*saved))
    assert send_request(control, "GET")[1]["cursor"] == dict(zip(("value", "saved_at"), shown, strict=True))
    table = {"address": "http://127.0.0.1:1/", "allow_private": True, "framing": "sse", "store": "log"}
    invocation = Invocation("demo", "B", "", "request-2", FAR_MS, 0, 1_000, 1_000, 1_000)
    (claim,) = Requests(parse("demo", table, {}), store, invocation, lambda: 5_000).requests_of(Claim())
    assert claim().resumption.cursor == shown[0]


@pytest.mark.parametrize("values", [["true"], ["false", "true"]])
def test_a_parameter_that_a_route_does_not_have_or_has_twice_is_refused(
    memory: Memory, control: ModuleType, values: list[str]
) -> None:
    """Every route refuses an unknown or repeated parameter and changes nothing; those of an AWS signature pass."""
    write_connected_stream(memory)
    before, of_stream = memory.items(CONTROL, "demo"), [one for one in ROUTES if "{streamId}" in one]
    # Step Functions answers the first, and the second needs a profile with a repair.
    others = (f"POST {control.STREAM}", f"POST {control.STREAM}/repair")
    for method, _, resource in (one.partition(" ") for one in of_stream if one not in others):
        query = {"queryStringParameters": {"dry_rum": "true"}, "multiValueQueryStringParameters": {"dry_rum": values}}
        code, said = send_request(control, method, resource=resource, **query)
        words = "is given more than once." if len(values) > 1 else "is unknown"
        assert (code, said["detail"].partition(";")[0]) == (400, f"The parameter dry_rum {words}"), resource
    assert memory.items(CONTROL, "demo") == before
    assert send_request(control, "GET", queryStringParameters={"X-Amz-Signature": "0"})[0] == 200


def stop_answer(status: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    """Return the answer to a DELETE without its instant; the stream has no holder unless `more` names one."""
    said = {"stream": "demo", "status": status, "reason": reason, "message": message}
    return said | dict.fromkeys(("execution", "ended_at", "holder")) | more


def test_delete_writes_the_stop_request_and_nothing_else(memory: Memory, control: ModuleType) -> None:
    """A DELETE adds only the stop request to the lease, so later claims are refused; its answer says what follows."""
    write_connected_stream(memory)
    before = memory.items(CONTROL, "demo")
    assert send_request(control, "GET")[1]["status"] == "running"
    assert memory.items(CONTROL, "demo") == before
    code, body = send_request(control, "DELETE")
    requested_at = body.pop("stop_requested_at")
    reason = "stop requested; start it to continue from its cursor"
    holder = {"lane": "B", "fence": 1, "request_id": "request-1"}
    told = "The connection sees the stop request within 5 s, stores what it has read and closes; the execution ends."
    assert (code, body) == (202, stop_answer("stopping", reason, told, execution=MINE, holder=holder))
    after = memory.items(CONTROL, "demo")
    wished_at = after["lease"].pop("stop_at")
    assert wished_at == after["lease"].pop("stop_since") == requested_at
    before["lease"]["stop"] = True
    assert after == before
    # The same format as the machine's instants, which are compared as texts.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", wished_at)
    refused = memory.store().claim("demo", execution=MINE, holder="A/request-2")
    assert not refused.is_done
    assert refused.record.lease.stop


def test_a_second_delete_answers_the_same(memory: Memory, control: ModuleType) -> None:
    """A second DELETE changes neither the answer nor the records, except `stop_at`, which a POST is compared with."""
    write_connected_stream(memory)
    (code, first), records = send_request(control, "DELETE"), memory.items(CONTROL, "demo")
    (again_code, again), after = send_request(control, "DELETE"), memory.items(CONTROL, "demo")
    assert first["stop_requested_at"] == records["lease"].pop("stop_at") <= after["lease"].pop("stop_at")
    assert (again_code, again, after) == (code, first, records)


def test_a_delete_without_a_connection_depends_on_the_execution(memory: Memory, control: ModuleType) -> None:
    """While nobody is connected, a DELETE answers `stopping` if an execution still retries, else `stopped`."""
    memory.put_control("demo", "lease", execution={"S": MINE}, generation={"N": "1"}, fence={"N": "1"})
    refused = Progress(fence=1, claimed_ms=1_000, seen_ms=FAR_MS, ended_by="unreachable")
    save_connection(memory.store(), "demo", refused, lane="B", execution=MINE, request_id="request-1")
    code, body = send_request(control, "DELETE")
    assert (code, body["status"], body["holder"]) == (202, "stopping", None)
    assert body["message"] == "No lane is connected; none connects again, and the execution ends."
    memory.put_control("over", "lease", generation={"N": "1"}, fence={"N": "4"})
    (Path(control.stage.settings.streams_dir) / "over.toml").write_text("")
    code, body = send_request(control, "DELETE", "over")
    assert (code, body["status"], body["execution"]) == (202, "stopped", None)
    assert body["message"] == "No lane is connected: stopped on request; start it to try again."


def test_a_stream_that_was_never_started_gives_404_in_every_view(memory: Memory, control: ModuleType) -> None:
    """Every view of a stream that was never started, or has no profile, gives 404 with a sentence and no record."""
    for view in ("", "/timeline", "/machine", "/cost", "/dead-letters", "/latest", "/events", "/gaps"):
        never = (404, {"detail": "The stream 'demo' was never started."})
        assert send_request(control, "GET", resource=f"{STREAM}{view}") == never, view
    nobody = (404, {"detail": "There is no stream 'nobody:x': no profile is named 'nobody'."})
    assert [send_request(control, method, "nobody:x") for method in ("GET", "DELETE")] == [nobody] * 2
    assert (memory.items(CONTROL, "demo"), memory.items(CONTROL, "nobody:x")) == ({}, {})


def test_a_stream_is_stopped_though_its_profile_cannot_be_read(
    memory: Memory, control: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known stream is stopped without its profile. Only for a new stream must the bucket say if it may exist."""
    write_connected_stream(memory)
    settings = replace(control.stage.settings, profiles_bucket="profiles")
    requested = []

    def get_object(**more: Any) -> Any:
        requested.append(more["Key"])
        drop_request(print)

    silent = SimpleNamespace(get_object=get_object)
    profiles = Profiles(settings, lambda: silent, lambda: silent, lambda _: None)
    monkeypatch.setattr(control.stage, "known", KnownProfiles(profiles, settings))
    assert (send_request(control, "DELETE")[0], send_request(control, "GET", resource=EVENTS_OF)[0], requested) == (
        202,
        200,
        [],
    )
    assert send_request(control, "DELETE", "demo:new") == (503, {"detail": "S3 does not answer."})


def test_a_stop_before_the_first_claim_is_written_down(memory: Memory, control: ModuleType) -> None:
    """A DELETE before the first claim stores the stop request, because a POST may be on its way; GET says stopped."""
    code, body = send_request(control, "DELETE")
    assert body.pop("stop_requested_at") is not None
    told = "The stream was never started; a POST that came before this request starts nothing, one after it does."
    assert (code, body) == (202, stop_answer("stopped", "stopped on request; start it to try again", told))
    records = memory.items(CONTROL, "demo")
    assert (list(records), sorted(records["lease"])) == (["lease"], ["PK", "SK", "stop", "stop_at", "stop_since"])
    code, body = send_request(control, "GET")
    shown = ("status", "generation", "execution", "holder", "lanes", "cursor", "coverage", "last_error")
    assert (code, [body[name] for name in shown]) == (200, ["stopped", 0, None, None, {}, None, None, None])


@pytest.mark.parametrize("stream_id", ["a b", "a/b", "", "%252e", "demo:..", "a" * 65, None, 7])
def test_a_malformed_stream_id_gives_400(control: ModuleType, stream_id: Any) -> None:
    """A malformed stream id gives 400 with a sentence that describes a valid one."""
    for method in ("GET", "DELETE"):
        code, body = send_request(control, method, stream_id)
        assert (code, "is malformed" in body["detail"], body["detail"][-1]) == (400, True, ".")


@pytest.mark.parametrize("event", [None, [], {}, {"httpMethod": "GET"}, {"httpMethod": "GET", "pathParameters": None}])
def test_an_event_of_another_shape_gives_400(control: ModuleType, event: Any) -> None:
    """An invocation whose event is not a request of the API gets 400."""
    assert control.handler(event, Context())["statusCode"] == 400


def test_an_unknown_method_gives_405(control: ModuleType) -> None:
    """A method that the API does not have gives 405 with a sentence, as an invocation by hand can show."""
    assert send_request(control, "PUT") == (
        405,
        {"detail": "The path /connections/{streamId} does not have the method PUT."},
    )


def logged(caplog: pytest.LogCaptureFixture, control: ModuleType) -> list[dict[str, Any]]:
    """Return the log lines as the function formats them; its logger keeps the output that it was created with."""
    formatter = control.logger.registered_formatter
    return [json.loads(formatter.format(record)) for record in caplog.records if record.name == control.logger.name]


STREAM, EVENTS_OF, ALL = "/connections/{streamId}", "/connections/{streamId}/events", "/connections"


@pytest.mark.parametrize(
    ("method", "resource", "operation"),
    [
        *(("GET", STREAM, "get_item"), ("GET", STREAM, "query"), ("DELETE", STREAM, "update_item")),
        *(("DELETE", STREAM, "query"), ("GET", ALL, "query"), ("GET", ALL, "batch_get_item")),
        ("GET", EVENTS_OF, "batch_get_item"),
    ],
)
@pytest.mark.parametrize("way", [drop_request, fail_with("ThrottlingException")])
def test_a_table_that_does_not_answer_gives_503_or_429(
    caplog: pytest.LogCaptureFixture, memory: Memory, control: ModuleType, method: str, resource: str, operation: str,
    way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A table that is silent gives 503, a throttled one 429, even in the middle of a page; AWS is not quoted."""
    write_connected_stream(memory)
    memory.store().write("demo", 1, 0, [StreamEvent("k", "x", None, None, None, 1)])
    broken = Client(memory.dynamodb, operation, way)
    monkeypatch.setattr(control.stage, "store", StreamRecords(broken, CONTROL, EVENTS))
    monkeypatch.setattr(control.stage, "reader", EventReader(broken, EVENTS, lambda _: None))
    refusal = (503, {"detail": NO_ANSWER}) if way is drop_request else (429, {"detail": THROTTLED})
    assert send_request(control, method, resource=resource) == refusal
    log = json.dumps(logged(caplog, control))
    assert ("ERROR" in log, "secret" in log) == (True, False)


@pytest.mark.parametrize(
    ("client", "path", "service"),
    [("sqs", "/dead-letters", "The dead-letter queue"), ("states", "/machine", "Step Functions")],
)
def test_the_refusal_names_the_service_that_does_not_answer(
    memory: Memory, control: ModuleType, monkeypatch: pytest.MonkeyPatch, client: str, path: str, service: str
) -> None:
    """If SQS or Step Functions is silent or throttles, the refusal names that service, as the table has answered."""
    write_connected_stream(memory)
    many = f"{service} takes no more requests now; try again in 5 s."
    refusals = {drop_request: (503, f"{service} does not answer."), fail_with("RequestThrottled"): (429, many)}
    for way, (status, words) in refusals.items():
        silent = SimpleNamespace(**dict.fromkeys(("receive_message", "describe_execution"), partial(way, print)))
        monkeypatch.setattr(control.stage, client, lambda silent=silent: silent)
        assert send_request(control, "GET", resource=f"{STREAM}{path}") == (status, {"detail": words})


def refuses(code: str, status: int) -> Script:
    """Return a DynamoDB that refuses every request, with its id in a header and the table's ARN in its words."""
    words = {
        "__type": f"com.amazonaws.dynamodb.v20120810#{code}",
        "message": "Refused for arn:aws:dynamodb:x:1:table/y",
    }
    body = json.dumps(words).encode()
    head = f"HTTP/1.1 {status} X\r\nx-amzn-RequestId: AWS1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return sends(head.encode() + body, then=Peer.wait_until_gone)


@pytest.mark.parametrize(
    ("code", "status", "refusal"),
    [
        ("ThrottlingException", 400, 429),
        ("ProvisionedThroughputExceededException", 400, 429),
        ("RequestLimitExceeded", 400, 429),
        ("AccessDeniedException", 400, 503),
        ("ResourceNotFoundException", 400, 503),
        ("InternalServerError", 500, 503),
    ],
)
def test_a_refusal_of_dynamodb_is_429_or_503_with_the_ids(
    caplog: pytest.LogCaptureFixture, control: ModuleType, code: str, status: int, refusal: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The caller gets one sentence and API Gateway's request id; the log also has AWS's and the invocation's id."""
    with serving(refuses(code, status)) as server:
        signer = Signer(Credentials("id", "secret-key", ""), "eu-central-1")
        client = DynamoDb(server.address, signer, tries=2, connect_timeout_s=5, read_timeout_s=60, sleep=lambda _: None)
        monkeypatch.setattr(control.stage, "store", StreamRecords(client, CONTROL, EVENTS))
        context = {"requestId": "the client's own", "extendedRequestId": "API1="}
        answer = send_request(control, "GET", requestContext=context)
        client.close()
    assert answer == (refusal, {"detail": THROTTLED if refusal == 429 else NO_ANSWER, "request_id": "API1="})
    (line,) = logged(caplog, control)
    assert (line["request_id"], line["api_request_id"]) == ("invocation-1", "API1=")
    assert re.fullmatch(rf"AWS refused \w+ after its retries: {code}, request AWS1", line["message"])
    assert "arn:" not in json.dumps(line)


def test_an_index_of_many_pages_is_read_to_its_end(memory: Memory) -> None:
    """The list reads page after page: DynamoDB may cut an answer anywhere, and an empty page need not be the last."""
    for name in "edcba":
        memory.put_control(name, "lease", generation={"N": "1"})

    def one_at_a_time(call: Callable[..., Any], **parameters: Any) -> Any:
        return call(**parameters | {"Limit": 1})

    assert ledger(memory, "query", one_at_a_time).streams("", 9) == list("abcde")
    assert ledger(memory, "query", one_at_a_time).streams("b", 2) == ["c", "d"]


def test_a_stop_request_whose_answer_is_lost_is_written(memory: Memory) -> None:
    """A stop request is written even if its answer is lost, and repeating it is harmless."""
    write_connected_stream(memory)
    with pytest.raises(StoreUnavailable, match=r"^AWS did not answer UpdateItem: ReadTimeoutError$"):
        ledger(memory, "update_item", lose_answer).stop("demo", REQUESTED_AT, may_start=False)
    lease = ledger(memory).stop("demo", REQUESTED_AT, may_start=False)
    assert lease is not None
    assert (lease.stop, lease.fence, lease.execution) == (True, 1, MINE)


def test_the_reason_of_a_moved_stream_names_its_stage(control: ModuleType, memory: Memory) -> None:
    """The reason of a moved stream names its new stage: started again here, the stream would run at two places."""
    write_connected_stream(memory)
    ledger(memory).stop("demo", REQUESTED_AT, may_start=False, moved_to="prod@eu-west-1")
    assert send_request(control, "GET", "demo")[1]["reason"] == "moved to prod@eu-west-1; start it there"
