"""The Lambda handler: its event, its answer, its errors, logs and metrics, in a sandbox of its own."""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.credentials import Credentials

from handlers import errors
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation
from handlers.framing.decoders import FRAMINGS
from handlers.run.stream_invocation import read_invocation
from handlers.settings import Settings
from local.costs import stage_costs
from tests.handlers import eks
from tests.handlers.aws import CONTROL, EVENTS, Aws, put_secret
from tests.handlers.context import cold_start
from tests.handlers.servers import UNTIL_CLOSE, Peer, Script, Server, certificate, sends, serving
from tests.handlers.test_settings import environment
from tests.import_graph import ROOT

MANAGER = "handlers.connection_manager"
PROFILE = """
address = "${UPSTREAM_TEST}/{streamId}?q=secret-query"
allow_private = true
framing = "sse"
end = { event = "end" }
[headers]
X-Mine = "secret-header"
"""


@dataclass
class LambdaContext:
    aws_request_id: str = "request-1"
    remaining_ms: int = 600_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


@pytest.fixture
def sandbox(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the environment of a function, and the folder of its profiles."""
    times = {"MARGIN_S": "1", "WAIT_S": "1", "PROGRESS_EVERY_S": "1", "KEEP_DAYS": "30", "LEDGER_KEEP_DAYS": "0"}
    # A logger lives as long as the process and keeps its first output, so each sandbox has a logger of its own.
    logs = {"POWERTOOLS_SERVICE_NAME": tmp_path.name, "POWERTOOLS_LOG_LEVEL": "INFO", "METRICS_BY": "stage"}
    places = {"DEAD_LETTER_QUEUE_URL": aws.queue_url, "STREAMS_DIR": str(tmp_path)}
    for name, value in environment(tmp_path, **times, **logs, **places).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "demo.toml").write_text(PROFILE)
    return tmp_path


def call(event: Any, context: LambdaContext | None = None) -> Any:
    with cold_start(MANAGER) as module:
        return module.handler(event, context or LambdaContext())


def an_event(stream_id: Any = "demo", **fields: Any) -> dict[str, Any]:
    return {"pathParameters": {"streamId": stream_id}, **fields}


def test_a_wrong_profile_of_a_groups_stream_is_logged_as_an_error(
    sandbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group logs a stream's InvalidRequest, which no connection's end logs; the alarm Rejections counts the line."""
    told: list[Any] = []
    with cold_start(MANAGER) as module:
        for error in ("InvalidRequest", "StreamRejected"):
            module._with_log("#1", lambda *one: told.append(one[0]))(sandbox.name, "arn:1", Outcome(error, "", "why"))
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert told == [sandbox.name] * 2
    assert [line[name] for name in ("level", "message", "stream_id", "group", "outcome")] == [
        "ERROR", "why", sandbox.name, "#1", "InvalidRequest",
    ]  # fmt: skip


WATCH = """
address = "${UPSTREAM_TEST}/api/v1/{name}?watch=1"
allow_private = true
framing = "ndjson"
key = ["$.object.metadata.uid", "$.object.metadata.resourceVersion"]
cursor = "$.object.metadata.resourceVersion"
resume = { query = "resourceVersion" }
end = { json = { "$.object.metadata.resourceVersion" = "2" } }
token = { kind = "eks", cluster = "prod", region = "eu-central-1" }
"""


def test_a_cluster_of_eks_is_watched_with_the_functions_role(
    sandbox: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], aws: Aws
) -> None:
    """A watch trusts the cluster's own authority and sends a valid token, another after a 401; no log contains it."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a/session+token==")
    keys = Credentials("testing", "testing", "a/session+token==")
    with eks.cluster(sandbox, keys, os.environ["AWS_ENDPOINT_URL"], refuses=1) as (server, authority, roles):
        monkeypatch.setenv("UPSTREAM_TEST", server.address)
        (sandbox / "pods.toml").write_text(f"{WATCH}tls = {{ ca = '''\n{authority}''' }}\n")
        answer = call(an_event("pods:pods", lane="A", execution="arn:1"))
    assert (answer["status"], answer["stored"]) == ("ended", 2)
    assert roles == ["arn:aws:iam::000000000000:root"] * 2
    records = json.dumps([aws.items(table, "pods:pods") for table in (EVENTS, CONTROL)], default=str)
    assert "k8s-aws-v1" not in capsys.readouterr().out + records


REFERRING = """
address = "${UPSTREAM_TEST}/{streamId}?q=${secret:leak:query}"
allow_private = true
framing = "sse"
method = "POST"
body = '{"key": "${ssm:leak}"}'
stall_after_s = 0.5
[headers]
Authorization = "Bearer ${secret:leak:header}"
"""
# Each planted value, also as the query spells it.
PLANTED = {"query": "pl&nted-query", "header": "planted-header", "body": "planted-body"}
SPELLED = (*PLANTED.values(), "pl%26nted-query", "planted")
ECHO = b"planted-header pl%26nted-query planted-body"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
FAILURES = {
    "a refusal that repeats it all": b"HTTP/1.1 401 planted-header\r\nX-Echo: %s\r\nContent-Length: 43\r\n\r\n%s",
    "another refusal": b"HTTP/1.1 429 %s\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n",
    "a redirect to another host": b"HTTP/1.1 307 X\r\nLocation: http://other.test/?%s\r\nX: %s\r\n\r\n",
    "a redirect to nowhere": b"HTTP/1.1 302 X\r\nLocation: http://[%s/\r\nX: %s\r\n\r\n",
    "a redirect to the metadata": b"HTTP/1.1 302 X\r\nLocation: http://169.254.169.254/%s\r\nX: %s\r\n\r\n",
    "no HTTP": b"%s %s\r\n\r\n",
    "a head that is none": b"HTTP/1.1 200 OK\r\n%s\r\n%s\r\n\r\n",
    "a page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html; x=%s\r\n\r\n<html>%s",
    "a coding that is none": OK + b"Content-Encoding: %s\r\n\r\n%s",
    "chunks that are none": OK + b"Transfer-Encoding: chunked\r\n\r\n%s\r\n%s",
    "a body that is not compressed": OK + b"Content-Encoding: gzip\r\n\r\n%s%s",
    "a length that is none": OK + b"Content-Length: %s\r\n\r\n%s",
    "an end in the middle": OK + b"Content-Length: 999\r\n\r\n: %s\n\n%s",
    "comments": OK + b"\r\n: %s\n\n: %s\n\n",
}


# START, END and REPORT of an invocation, as Lambda writes them.
PLATFORM_BYTES = 350
NO_NAME = "it must begin with a profile's name, 1 to 64 of the characters A-Z a-z 0-9 . _ -"


@contextmanager
def upstream(monkeypatch: pytest.MonkeyPatch, *scripts: Script) -> Iterator[Server]:
    """Yield a server that plays scripts, at the address that the profile names."""
    with serving(*scripts) as server:
        monkeypatch.setenv("UPSTREAM_TEST", server.address)
        yield server


def test_a_key_with_two_bodies_is_reported(
    sandbox: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], aws: Aws
) -> None:
    """If a key comes with two bodies, the first is stored; a warning and a metric count the conflict without bodies."""
    body = b"id: 1\ndata: secret-data\n\nid: 1\ndata: secret-other\n\nevent: end\ndata: x\n\n"
    with upstream(monkeypatch, sends(UNTIL_CLOSE, body)):
        answer = call(an_event(lane="A", execution="arn:1"))
    assert (answer["stored"], answer["duplicates"], answer["conflicts"]) == (2, 1, 1)
    out = capsys.readouterr().out
    lines = [json.loads(line) for line in out.splitlines()]
    (warning,) = [line for line in lines if line.get("level") == "WARNING"]
    assert (warning["message"], warning["conflicts"]) == ("known keys came with other bodies", 1)
    assert warning["service"] == sandbox.name
    assert [line["Conflicts"] for line in lines if "_aws" in line] == [1]
    assert "secret" not in out
    assert aws.items(EVENTS, "demo")["1"]["data"] == "secret-data"
    assert aws.items(CONTROL, "demo")["connection#000000000001"]["conflicts"] == 1


def test_a_stream_that_has_ended_is_returned_with_counts(
    aws: Aws, sandbox: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The handler returns status and counts of an ended stream, and prints one metrics document and no secret."""
    body = b"id: 1\ndata: secret-data\n\nid: 1\ndata: secret-data\n\nevent: end\ndata: x\n\n"
    with upstream(monkeypatch, sends(UNTIL_CLOSE, body)) as server:
        answer = call(an_event(lane="A", execution="arn:1"))
        assert server.peers[0].request.startswith(b"GET /demo?q=secret-query HTTP/1.1\r\n")
    counts = {"stored": 2, "duplicates": 1, "frames": 3, "bytes": len(body)}
    none = dict.fromkeys(("dead_lettered", "conflicts", "left_out", "missing", "unterminated_bytes"), 0)
    assert answer == {"status": "ended", "fence": 1, **counts, **none}
    out = capsys.readouterr().out
    assert "secret" not in out
    assert server.address not in out
    lines = [json.loads(line) for line in out.splitlines()]
    (document,) = [line for line in lines if "_aws" in line]
    written = {"Stored": 2, "Duplicates": 1, "DeadLettered": 0, "profile": "demo", "service": sandbox.name}
    assert document | written == document
    assert "ConnectMs" in document
    last = [line for line in lines if "_aws" not in line][-1]
    who = {"lane": "A", "execution": "arn:1", "request_id": "request-1"}
    assert last | who | {"stream_id": "demo", "outcome": "ended", "fence": 1} == last
    record = aws.items(CONTROL, "demo")["connection#000000000001"]
    assert record | who == record
    # An upgrade compares this number; only Linux provides it.
    assert (record["memory_mb"] > 0) is (sys.platform == "linux")


@pytest.mark.parametrize(("own", "days"), [("", 30), ("keep_days = 2\n", 2), ("keep_days = 0\n", None)])
def test_events_expire_after_the_profiles_or_the_stages_days(
    aws: Aws, sandbox: Path, monkeypatch: pytest.MonkeyPatch, own: str, days: int | None
) -> None:
    """Events expire after the profile's `keep_days`, or else the stage's, counted from receipt; 0 means never."""
    (sandbox / "demo.toml").write_text(own + PROFILE)
    with upstream(monkeypatch, sends(UNTIL_CLOSE, b"id: 1\ndata: a\n\nevent: end\ndata: x\n\n")):
        call(an_event())
    item = aws.items(EVENTS, "demo")["1"]
    expires_s = None if days is None else item["received_at_ms"] // 1000 + days * 86_400
    assert item.get("expires_at") == expires_s


@pytest.mark.usefixtures("sandbox")
def test_a_connection_logs_no_more_than_is_priced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`streamkeeper cost` prices a connection's log lines, the platform's lines, and the raised error."""
    closed = pytest.raises(errors.StreamDropped, match=r"^the stream was closed \(ended_by_upstream\)$")
    with upstream(monkeypatch, sends(UNTIL_CLOSE, b"data: a\n\n")), closed as raised:
        call(an_event(lane="A", execution="arn:aws:states:us-east-1:1:execution:sk-prod-connections:" + "0" * 36))
    # A deployed function's traceback names Lambda's folder, whatever the place of this checkout.
    error = "".join(traceback.format_exception(raised.value)).replace(str(ROOT), "/var/task")
    out = capsys.readouterr().out
    documents = [json.loads(line) for line in out.splitlines() if "_aws" in line]
    assert [(document["Stored"], document["Dropped"]) for document in documents] == [(1, 1)]
    logged = len(out) + len(error) + PLATFORM_BYTES
    priced = stage_costs.measurements()["log_bytes_per_connection"]
    assert priced / 2 < logged < priced


def test_an_invocation_is_read_from_event_and_settings(tmp_path: Path) -> None:
    """An invocation has the settings' times in milliseconds, and a deadline that follows from the remaining time."""
    limits = {"MARGIN_S": "6", "LEASE_EVERY_S": "2", "PROGRESS_EVERY_S": "3", "WAIT_S": "840"}
    settings = Settings.load(environment(tmp_path, **limits))
    event = an_event("demo:x", lane="A", execution="arn:1", cycles=3, renew_after=9, wait_s=820)
    times = {"deadline_ms": 901_000, "margin_ms": 6_000, "lease_every_ms": 2_000, "progress_every_ms": 3_000}
    said: dict[str, Any] = times | {"overlap_max_ms": 69_000, "cycles": 3, "renew_after": 9}
    read = read_invocation(event, settings, "r1", now_ms=1_000, remaining_ms=900_000)
    assert read == Invocation("demo:x", "A", "arn:1", "r1", **said)


# In seconds: the lanes' wait and the functions' limit in the event, the lanes' wait as deployed, the remaining time.
# Then the deadline and the longest overlap in milliseconds, and whether a renewal is due.
WAITS: dict[str, tuple[int, int, int, int, int, int, bool]] = {
    "an older machine, which says nothing": (0, 0, 840, 900, 900_000, 28_000, False),
    "as deployed": (840, 0, 840, 900, 900_000, 28_000, False),
    "no overlap": (868, 0, 840, 900, 900_000, 0, False),
    "less than none": (869, 0, 840, 900, 900_000, 0, True),
    "settings without an overlap are nobody's mistake": (869, 0, 869, 900, 900_000, 0, False),
    "a shorter wait": (540, 0, 840, 900, 900_000, 328_000, False),
    "an older machine with a shorter wait": (240, 0, 240, 900, 900_000, 628_000, False),
    "a moment has passed": (240, 900, 240, 899, 899_000, 627_000, False),
    "a limit that was lengthened since": (240, 300, 240, 900, 300_000, 28_000, False),
    "with a longer margin than the machine was made for": (240, 260, 240, 900, 260_000, 0, True),
    "the deployed limit leaves none": (240, 260, 240, 260, 260_000, 0, False),
}


@pytest.mark.parametrize("case", WAITS)
def test_the_wait_and_the_limit_of_the_execution_decide(case: str, tmp_path: Path) -> None:
    """A function ends when its machine stops waiting. A renewal is due if only the deployed times leave an overlap."""
    wait_s, limit_s, deployed_s, left_s, deadline_ms, overlap_ms, is_due = WAITS[case]
    limits = {"MARGIN_S": "20", "LEASE_EVERY_S": "2", "PROGRESS_EVERY_S": "5", "WAIT_S": str(deployed_s)}
    event = an_event("demo:x", cycles=3, renew_after=9, wait_s=wait_s, limit_s=limit_s)
    settings = Settings.load(environment(tmp_path, **limits))
    who = read_invocation(event, settings, "r1", now_ms=0, remaining_ms=left_s * 1000)
    assert (who.deadline_ms, who.overlap_max_ms, who.is_renewal_due) == (deadline_ms, overlap_ms, is_due)


@pytest.mark.usefixtures("sandbox")
def test_the_error_of_a_throttled_connection_has_its_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a throttled connection contains the upstream's Retry-After."""
    head = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    throttled = pytest.raises(errors.StreamThrottled, match=r"^the upstream answered 429 \(Retry-After: 7 s\)$")
    with upstream(monkeypatch, sends(head)), throttled:
        call(an_event())


@pytest.mark.usefixtures("sandbox")
def test_a_warm_sandbox_serves_one_invocation_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a warm sandbox, an invocation's logs, metrics and counts contain nothing of the invocation before."""
    script = sends(UNTIL_CLOSE, b"data: a\n\nevent: end\ndata: x\n\n")
    with upstream(monkeypatch, script), cold_start(MANAGER) as module:
        first = module.handler(an_event("demo:a", lane="A"), LambdaContext("r1"))
        capsys.readouterr()
        second = module.handler(an_event("demo:b"), LambdaContext("r2"))
    assert first == second
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "fence" not in lines[0]
    assert {line["stream_id"] for line in lines if "_aws" not in line} == {"demo:b"}
    assert {(line["lane"], line["request_id"]) for line in lines if "_aws" not in line} == {("", "r2")}
    assert [line["Stored"] for line in lines if "_aws" in line] == [2]


NUMBERS = "cycles, renew_after, wait_s and limit_s in the event must be whole numbers of at least 0"


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (None, "the event must name the stream as a text in pathParameters.streamId"),
        ([], "the event must name the stream as a text in pathParameters.streamId"),
        ({}, "the event must name the stream as a text in pathParameters.streamId"),
        ({"pathParameters": None}, "the event must name the stream as a text in pathParameters.streamId"),
        (an_event(7), "the event must name the stream as a text in pathParameters.streamId"),
        (an_event(lane=7), "lane and execution in the event must be texts"),
        (an_event(execution=None), "lane and execution in the event must be texts"),
        (an_event(cycles="3"), NUMBERS),
        (an_event(renew_after=True), NUMBERS),
        (an_event(cycles=-1), NUMBERS),
        (an_event("a/b"), f"the stream id 'a/b' is malformed: {NO_NAME}"),
        (an_event("demo:.."), "the stream id 'demo:..' is malformed: no part between its colons may be '.' or '..'"),
        (an_event("nobody:x"), "there is no stream 'nobody:x': no profile is named 'nobody'"),
        (an_event("broken"), "the profile 'broken' is not valid TOML"),
        (an_event("binary"), "the profile 'binary' is not valid TOML"),
        (an_event("wrong"), f"the profile 'wrong': framing must be one of {', '.join(FRAMINGS)}"),
        (an_event("demo"), "the profile 'demo': address needs the variable UPSTREAM_TEST, which is not set: add it to "
         "the stage's upstreams"),
        (an_event("named"), "the stream id 'named' needs a name after a colon, as in 'named:orders'"),
    ],
)  # fmt: skip
def test_a_wrong_event_or_profile_is_one_clear_sentence(aws: Aws, sandbox: Path, event: Any, sentence: str) -> None:
    """A wrong event or profile raises InvalidRequest, and nothing is claimed or stored."""
    (sandbox / "broken.toml").write_text("address = secret")
    (sandbox / "binary.toml").write_bytes(b"\xff")
    (sandbox / "wrong.toml").write_text('address = "http://127.0.0.1/"\nframing = "xml"')
    (sandbox / "named.toml").write_text('address = "http://127.0.0.1/{name}"\nframing = "sse"')
    with pytest.raises(errors.InvalidRequest) as caught:
        call(event)
    assert str(caught.value) == sentence
    assert (aws.items(EVENTS, "demo"), aws.items(CONTROL, "demo")) == ({}, {})


@pytest.mark.usefixtures("sandbox")
def test_a_missing_variable_fails_the_cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a variable is not set, the import raises an error that names it."""
    monkeypatch.delenv("CONTROL_TABLE")
    with pytest.raises(ValueError, match=r"^the variable CONTROL_TABLE is not set$"), cold_start(MANAGER):
        pass
    assert "CONTROL_TABLE" not in os.environ


def test_every_outcome_that_is_raised_has_its_class() -> None:
    """Each raised outcome has a class in handlers/errors.py that derives from StreamkeeperError."""
    names = [name for name in vars(errors) if name[0].isupper() and name != "StreamkeeperError"]
    outcomes = "StreamTakenOver StreamDropped StreamThrottled StreamRejected StreamBroken"
    assert set(names) == {*outcomes.split(), "ConnectionExpired", "RenewalDue", "StoreUnavailable", "InvalidRequest"}
    assert all(issubclass(getattr(errors, name), errors.StreamkeeperError) for name in names)


def leaks(aws: Aws, error: BaseException, out: str) -> set[str]:
    """Return the planted values found in the error and its causes, the log, the tables and the dead-letter queue."""
    written = "".join(traceback.format_exception(error)) + repr(error) + out + json.dumps(aws.dead_letters())
    records = [*aws.items(CONTROL, "demo").values(), *aws.items(EVENTS, "demo").values()]
    return {value for value in SPELLED if value in written + json.dumps(records, default=str)}


@pytest.fixture
def planted(sandbox: Path) -> None:
    """Return a sandbox whose profile refers to secrets in query, header and body."""
    boto3.client("ssm").put_parameter(
        Name="/streamkeeper/test/leak", Value=PLANTED["body"], Type="SecureString", Overwrite=True
    )
    put_secret("/streamkeeper/test/leak", json.dumps(PLANTED))
    (sandbox / "demo.toml").write_text(REFERRING)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("failure", FAILURES)
def test_no_failure_reveals_a_secret(
    aws: Aws, failure: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If an upstream repeats the secrets anywhere in its answer, no error, log, table or message contains them."""
    with upstream(monkeypatch, sends(FAILURES[failure] % (ECHO, ECHO))) as server:
        with pytest.raises(errors.StreamkeeperError) as caught:
            call(an_event(lane="A", execution="arn:1"))
        assert b"Authorization: Bearer planted-header\r\n" in server.peers[0].request.replace(
            b"authorization", b"Authorization"
        )
        assert server.peers[0].request.startswith(b"POST /demo?q=pl%26nted-query HTTP/1.1\r\n")
    assert leaks(aws, caught.value, "".join(capsys.readouterr())) == set()


@pytest.mark.usefixtures("planted")
def test_no_failure_before_the_request_reveals_a_secret(
    aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An untrusted certificate, an absent host, and a value that no header can carry reveal no secret."""
    (tmp_path / "tls").mkdir()
    tls, _ = certificate(tmp_path / "tls")
    with serving(Peer.wait_until_gone, tls=tls) as server:
        for address in (server.address, "http://127.0.0.1:1", "http://no-such-host.invalid"):
            monkeypatch.setenv("UPSTREAM_TEST", address)
            with pytest.raises(errors.StreamDropped) as caught:
                call(an_event(lane="A", execution="arn:1"))
            assert leaks(aws, caught.value, "".join(capsys.readouterr())) == set()
        assert server.peers[0].request == b""
    for value in ("planted\r\nX-Other: planted", "planted-\u00fc"):
        put_secret("/streamkeeper/test/leak", json.dumps({**PLANTED, "header": value}))
        with pytest.raises(errors.StreamkeeperError) as refused:
            call(an_event(lane="A", execution="arn:1"))
        sentence = (
            "(rejected): the secret in headers.Authorization contains characters that a header cannot carry: final if"
        )
        assert (type(refused.value), sentence in str(refused.value)) == (errors.StreamDropped, True)
        assert leaks(aws, refused.value, "".join(capsys.readouterr())) == set()
