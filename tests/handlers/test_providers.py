"""Each profile that ships, against its provider's behaviour played on a real socket: read, resumed, and how it ends."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from handlers.driver import Clock, Driver, Invocation, Report
from handlers.stream.profiles import Profile, parse
from tests.handlers.aws import CONTROL, Aws
from tests.handlers.servers import Peer, Script, Server, serving

STREAMS = Path(__file__).parents[2] / "env" / "streams"
SSE, LINES = b"text/event-stream", b"application/json"


def plays(*lines: Any, status: bytes = b"200 OK", kind: bytes = LINES) -> Script:
    """An answer whose body is these lines: texts as they are, anything else as JSON; then the connection ends."""
    body = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines).encode()

    def script(peer: Peer) -> None:
        if peer.request.startswith(b"POST") and peer.request.endswith(b"\r\n\r\n"):
            peer.request += peer.connection.recv(65536)  # the body may come in a packet of its own
        peer.send(b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\n\r\n" + body)

    return script


def sse(*lines: str) -> Script:
    return plays(*lines, kind=SSE)


def refuses(status: bytes) -> Script:
    return plays("{}", status=status)


@dataclass(frozen=True)
class Case:
    """What the provider plays first; then what came of it, and what the next request holds."""

    stream_id: str
    script: Script
    ended_by: str
    stored: int
    cursor: str | None = None
    next_holds: bytes = b""
    loss: str = ""
    error: str = "StreamDropped"
    before: str | None = None


TICK = {"tick": {"instrument": "EUR_USD", "time": "1", "bid": 1.1, "ask": 1.2}}
OANDA_OUT = {"disconnect": {"code": 60, "message": "This connection will now be disconnected"}}
X_OUT = {"errors": [{"title": "operational-disconnect", "disconnect_type": "UpstreamOperationalDisconnect"}]}
FILING = {"resource_uri": "/company/1", "event": {"timepoint": 71}}
POD = {"type": "ADDED", "object": {"metadata": {"uid": "u", "resourceVersion": "10596"}}}
BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12746"}}}
GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
ETCD = {"result": {"events": [{"kv": {"mod_revision": "7"}}, {"kv": {"mod_revision": "9"}}]}}
COMPACTED = {"result": {"canceled": True, "compact_revision": "40"}}
EDIT = 'data: {"meta": {"id": "a", "domain": "en.wikipedia.org"}}'
CANARY = 'data: {"meta": {"id": "b", "domain": "canary"}}'
TRADE = 'data: {"event_id": "01A"}'
SLOW = ": you are reading too slowly, dropped 10000 messages"
WIKI_ID = '[{"topic":"t","offset":5}]'
CLOSED, OUT, OLD = "ended_by_upstream", "disconnected_by_upstream", "cursor_expired"
CASES = {
    "wikimedia is cut": Case(
        "wikimedia:recentchange", sse(f"id: {WIKI_ID}", EDIT, "", CANARY, ""), CLOSED, 1, WIKI_ID, WIKI_ID.encode()
    ),
    "x disconnects": Case(
        "x-filtered", plays("", {"data": {"id": "5"}}, "", X_OUT), OUT, 1, "5", b"?backfill_minutes=5 "
    ),
    "x refuses a second": Case("x-filtered", refuses(b"429 Too Many"), "refused", 0, error="StreamThrottled"),
    "alpaca loses": Case(
        "alpaca:trades", sse(":heartbeat", "", TRADE, "", SLOW, ""), CLOSED, 1, "01A", b"since_id=01A ",
        loss="announced_by_upstream",
    ),
    "alpaca fails": Case("alpaca:trades", sse(TRADE, "", ": internal server error", "", TRADE), OUT, 1, "01A"),
    "oanda evicts": Case("oanda:one", plays(TICK, {"heartbeat": {"time": "2"}}, OANDA_OUT), OUT, 1),
    "companies house is cut": Case(
        "companies-house:filings", plays("", FILING, ""), CLOSED, 1, "71", b"?timepoint=71 "
    ),
    "companies house forgets": Case(
        "companies-house:filings", refuses(b"416 Range"), OLD, 0, "", b"GET /filings ", loss=OLD, before="3"
    ),
    "kubernetes marks": Case(
        "kubernetes:pods", plays(POD, BOOKMARK), CLOSED, 1, "12746", b"resourceVersion=12746 "
    ),
    "kubernetes forgets in band": Case(
        "kubernetes:pods", plays(GONE), OLD, 0, "", b"allowWatchBookmarks=true ", loss=OLD, before="3"
    ),
    "kubernetes forgets": Case("kubernetes:pods", refuses(b"410 Gone"), OLD, 0, "", loss=OLD, before="3"),
    "etcd watches": Case(
        "etcd:Zm9v", plays({"result": {"created": True}}, ETCD), CLOSED, 1, "9", b'"start_revision":"10"'
    ),
    "etcd compacts": Case(
        "etcd:Zm9v", plays(COMPACTED), OLD, 0, "", b'{"create_request":{"key":"Zm9v"}}', loss=OLD, before="3"
    ),
    "mercure is cut": Case(
        "mercure:orders", sse(":", "", "id: urn:1", "data: x", ""), CLOSED, 1, "urn:1", b"\r\nlast-event-id: urn:1\r\n"
    ),
    "mastodon thumps": Case(
        "mastodon:public", sse(":thump", "", "event: update", 'data: {"id": "1"}', "", "event: delete", "data: 1", ""),
        CLOSED, 2,
    ),
    "mastodon refuses": Case("mastodon:public", refuses(b"401 No"), "refused", 0, error="StreamRejected"),
    "couchdb ends its feed": Case(
        "couchdb:orders", plays("", {"seq": "4-x", "id": "d"}, {"last_seq": "4-x"}), OUT, 1, "4-x", b"since=4-x "
    ),
    "a completion ends": Case(
        "completions", sse('data: {"a": 1}', "", 'data: {"a": 1}', "", "data: [DONE]", ""), "ended", 3, error=""
    ),
}  # fmt: skip


def shipped(stream_id: str, server: Server) -> Profile:
    """The profile as it ships, at the address of `server`."""
    name = stream_id.partition(":")[0]
    table = tomllib.loads((STREAMS / f"{name}.toml").read_text())
    parts = urlsplit(table["address"].replace("${UPSTREAM_", "http://x/").replace("}/", "/", 1))
    path = table["address"].partition("}")[2] if table["address"].startswith("${") else parts.path
    query = "" if table["address"].startswith("${") or not parts.query else f"?{parts.query}"
    return parse(name, table | {"address": server.address + path + query, "allow_private": True}, {})


def connect(profile: Profile, stream_id: str, aws: Aws) -> Report:
    clock = Clock()
    invocation = Invocation(
        stream_id=stream_id, lane="A", execution="", request_id="r", deadline_ms=clock.now_ms() + 4000,
        margin_ms=400, lease_every_ms=100, progress_every_ms=100, overlap_max_ms=60_000,
    )  # fmt: skip
    values = dict.fromkeys(profile.secrets, "s3cret")
    return Driver(profile, aws.store(), invocation, clock, values).run()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_provider_is_understood(aws: Aws, case: Case) -> None:
    """Events are stored without heartbeats, the cursor goes on, losses are gaps, and the next request resumes."""
    if case.before is not None:
        aws.store().save_cursor(case.stream_id, case.before, 0, 1)

    with serving(case.script, refuses(b"503 X")) as server:
        profile = shipped(case.stream_id, server)
        report = connect(profile, case.stream_id, aws)
        connect(profile, case.stream_id, aws)
        requests = [peer.request for peer in server.peers]
    control = aws.items(CONTROL, case.stream_id)
    ended = control["connection#000000000001"]["ended_by"]
    assert (report.outcome.error, ended, report.progress.stored) == (case.error, case.ended_by, case.stored)
    assert aws.store().read_cursor(case.stream_id) == case.cursor
    assert case.next_holds in requests[1]
    assert [item["cause"] for key, item in control.items() if key.count("#") == 2] == [case.loss] * bool(case.loss)
    assert all(b"s3cret" in request for request in requests) is bool(profile.secrets)


def test_a_mercure_hub_that_lost_the_id_says_so_in_its_answer(aws: Aws) -> None:
    """The answer's Last-Event-ID is another than was asked for: what lay between is a gap."""
    aws.store().save_cursor("mercure:orders", "urn:1", 0, 1)

    def earliest(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nLast-Event-ID: urn:9\r\n\r\n")

    with serving(earliest) as server:
        connect(shipped("mercure:orders", server), "mercure:orders", aws)
    control = aws.items(CONTROL, "mercure:orders")
    assert control["gap#000000000001#000001"]["cause"] == "cursor_unknown"
    assert control["connection#000000000001"]["resumed"] is False
