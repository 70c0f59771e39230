"""The client with an API that refuses, throttles or is away, on a socket of its own."""

import email.utils
import logging
import re
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pytest

import streamkeeper
from streamkeeper import Client, InvalidRequest, Refused, Throttled, Unavailable, Unreachable
from streamkeeper.event import event_of
from streamkeeper.exceptions import wanted_rest_s
from tests.client.api_server import STREAM, afters, answers, asked, event, page, problem
from tests.handlers.servers import Peer, sends, serving

KEY = "k3y-of-the-stage"
THROTTLED = answers(problem("throttled"), 429, "Retry-After: 7")
AWAY = answers({}, 503)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the waits of the client; no time passes."""
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    return waited


def test_a_page_is_requested_until_it_comes(waits: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """After a throttle the client waits for Retry-After; after an outage or a broken connection, longer each time."""
    with serving(page(1, is_last=False), THROTTLED, AWAY, Peer.reset, page(2)) as server:
        keys = [event.key for event in Client(server.address).events(STREAM)]
        assert (keys, afters(server)) == (["1", "2"], [None, 1, 1, 1, 1])
    assert waits == [7.0, 2.0, 4.0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3
    assert caplog.messages[0] == "429 Too Many Requests: No. Fix it. Trying again in 7 s."


def test_the_client_gives_up_after_its_patience(waits: list[float]) -> None:
    """It tries for a minute, or for the chosen time. It repeats the start of a stream as well."""
    with serving(AWAY) as server:
        with pytest.raises(Unavailable, match=r"503 Service Unavailable\."):
            Client(server.address).status(STREAM)
        assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]
        waits.clear()
        with pytest.raises(Unavailable):
            Client(server.address, patient_s=3.0).start(STREAM)
    assert waits == [1.0, 2.0]
    assert asked(server)[-3:] == [f"POST /connections/{STREAM}"] * 3


def test_the_client_does_not_retry_in_vain(waits: list[float]) -> None:
    """It raises at once after a Retry-After beyond its patience, for an unknown layout, and at a silent address."""
    with serving(answers({}, 429, "Retry-After: 3600")) as server:
        with pytest.raises(Throttled) as throttled:
            Client(server.address).status(STREAM)
        assert throttled.value.retry_after_s == 3600
    with serving(answers(problem("unknown-layout"), 503)) as server, pytest.raises(Unavailable):
        Client(server.address).status(STREAM)
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9 does not answer\."):
        Client("http://127.0.0.1:9").status(STREAM)
    cut = sends(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{")
    with serving(cut) as server, pytest.raises(Unreachable, match="broke off its answer"):
        Client(server.address).status(STREAM)
    assert waits == []


@pytest.mark.parametrize(
    ("status", "kind", "name"),
    [
        *((400, "bad-query", "InvalidRequest"), (405, "bad-method", "InvalidRequest")),
        *((401, "", "NotAllowed"), (403, "not-allowed", "NotAllowed"), (404, "never-started", "NotFound")),
        *((429, "throttled", "Throttled"), (502, "bad-answer", "Unavailable")),
    ],
)
def test_an_error_has_the_problem_of_the_answer(status: int, kind: str, name: str) -> None:
    """Each error has its type and the problem's kind, field and fix."""
    with serving(answers(problem(kind, "It is wrong.", "limit"), status)) as server:
        with pytest.raises(streamkeeper.StreamkeeperError) as raised:
            Client(server.address, KEY, patient_s=0).status(STREAM)
        assert len(server.peers) == 1
    error: Any = raised.value
    assert isinstance(error, Refused)
    assert isinstance(error, getattr(streamkeeper, name))
    assert re.fullmatch(rf"{status} .+: It is wrong\. Fix it\.", str(error))
    assert (error.status, error.kind, error.field, error.fix) == (status, kind, "limit", "Fix it.")
    assert KEY not in f"{error!r} {vars(error)}"


def test_an_answer_that_is_not_the_apis_is_recognized() -> None:
    """Such an answer of 200 is HTML, a list, an object of another service, or JSON that no parser reads.

    A redirect, such as a company's login, is another, and is not followed.
    """
    bodies = (b"<html>", b"[]", b'{"status": "ok"}', b"[" * 100_000)
    for status, body in (*((b"200 X", body) for body in bodies), (b"302 X\r\nLocation: http://127.0.0.1:9/", b"")):
        reply = b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
        with serving(sends(reply)) as server, pytest.raises(streamkeeper.StreamkeeperError, match="is not that of a"):
            Client(server.address).start(STREAM)
    for listed in (Client.streams, lambda client: client.gaps(STREAM), lambda client: client.events(STREAM)):
        with serving(answers({"stream": STREAM})) as server, pytest.raises(streamkeeper.StreamkeeperError, match="not"):
            list(listed(Client(server.address)))


def test_a_key_is_sent_only_over_tls_or_to_this_machine() -> None:
    """The client sends it as x-api-key; no message and no representation contains it."""
    with serving(answers({"stream": STREAM})) as server:
        client = Client(server.address, KEY)
        client.status(STREAM)
        assert f"x-api-key: {KEY}".encode() in server.peers[0].request
    assert KEY not in repr(client)
    for url, key in (("http://api.example", KEY), ("http://127.0.0.1:3000", f"{KEY}\r\nx: y")):
        with pytest.raises(InvalidRequest) as refused:
            Client(url, key)
        assert KEY not in str(refused.value)


def test_a_forked_process_opens_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared connection, parent and child would read each other's answers."""

    def keeps_alive(peer: Peer) -> None:
        while peer.request:
            peer.request = b""
            peer.send(b'HTTP/1.1 200 X\r\nContent-Length: 16\r\n\r\n{"stream": "at"}')
            peer.read_request()

    with serving(keeps_alive) as server, Client(server.address) as client:
        for process, connections in ((1, 1), (1, 1), (2, 2)):
            monkeypatch.setattr("os.getpid", lambda process=process: process)
            client.status(STREAM)
            assert len(server.peers) == connections


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable needs no scheme, as with curl. An unusable proxy is reported without its password."""
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(answers({"stream": STREAM})) as server:
        monkeypatch.setenv("http_proxy", server.address.replace("http://", "me:p%20w@"))
        assert Client("http://api.example").status(STREAM)["stream"] == STREAM
        assert asked(server) == [f"GET http://api.example/connections/{STREAM}"]
        assert b"proxy-authorization: Basic bWU6cCB3" in server.peers[0].request
    monkeypatch.setenv("http_proxy", "http://me:s3cret@127.0.0.1:9")
    with pytest.raises(
        Unreachable, match=r"^http://api\.example\.org does not answer through the environment's proxy\.$"
    ):
        Client("http://api.example.org").status(STREAM)
    for proxy in ("socks5://me:s3cret@proxy", "http://me:s3cret@["):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(InvalidRequest, match=r"^The proxy of the environment must be like http://[^@]+\.$"):
            Client("http://api.example")


def test_a_body_that_is_no_json_is_a_value_error() -> None:
    """Neither a binary body nor JSON that is nested too deeply raises another exception."""
    for body in ({"data": "{"}, {"data": "[" * 100_000}, {"data_base64": "AA=="}):
        with pytest.raises(ValueError, match=r"no text body|nested too deeply|Expecting property name"):
            event_of(STREAM, event(1) | {"data": None} | body).json()


def test_wrong_arguments_send_nothing() -> None:
    """The error for each wrong argument is a sentence that says what would be right."""
    client = Client("http://127.0.0.1:9")
    for since in ("yesterday", "999999d", "0001-01-01T00:00:00+05:00", timedelta(days=1_000_000)):
        with pytest.raises(InvalidRequest, match=re.escape(f"'{since}' is not an instant: write 2026-")):
            client.events(STREAM, since=since)
    with pytest.raises(InvalidRequest, match=r"until \(.*\) must be later than since \("):
        client.gaps(STREAM, since="1h", until="2h")
    for wrong, words in (("", "The stream id is empty"), ("a:\ud800", "The stream id has half of a surrogate pair")):
        with pytest.raises(InvalidRequest, match=words):
            client.follow(wrong)
    with pytest.raises(InvalidRequest, match=r"^every_s must be more than 0\.$"):
        client.follow(STREAM, every_s=0)
    with pytest.raises(InvalidRequest, match=r"^timeout_s must be more than 0\.$"):
        Client("http://127.0.0.1:9", timeout_s=0)
    with pytest.raises(InvalidRequest, match="limit must be 0 or more"):
        client.events(STREAM, limit=-1)
    assert [*client.events(STREAM, limit=0)] == []


def test_the_request_that_each_call_sends() -> None:
    """An id is one segment of the path, an instant is in UTC, and `limit` counts over all pages."""
    at = datetime(2026, 11, 24, 12, tzinfo=UTC)
    with serving(page(1, 2, is_last=False), page(3)) as server:
        events = Client(f"{server.address}/").events("p:a/b ..", since=at, until=date(2026, 11, 25), limit=3)
        assert [event.json() for event in events] == [1, 2, 3]
    times, after = "from=2026-11-24T12:00:00.000Z&to=2026-11-25T00:00:00.000Z", f"after={event(2)['position']}"
    assert [unquote(line.partition("?")[2]) for line in asked(server)] == [
        f"{times}&limit=3",
        f"{times}&{after}&limit=1",
    ]
    assert asked(server)[0].startswith("GET /connections/p%3Aa%2Fb%20../events?from=2026-11-24T12%3A00%3A00.000Z&")
    with serving(answers({"stream": ".."})) as server:
        Client(server.address).status("..")
        assert asked(server) == ["GET /connections/%2E%2E"]


def test_a_retry_after_may_be_a_date() -> None:
    """RFC 9110 allows seconds and a date. The client does not wait for any other text, nor for a date in the past."""
    later = email.utils.format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < wanted_rest_s(later) <= 60
    # Its clock is an hour ahead of this machine's.
    there = datetime.now(UTC) + timedelta(hours=1)
    dates = [email.utils.format_datetime(there + timedelta(seconds=more), usegmt=True) for more in (60, 0)]
    assert wanted_rest_s(*dates) == 60
    others = ("", "soon", "-1", "Wed, 21 Oct 2015 07:28:00 GMT", f"Wed, 21 Oct {10**20} 07:28:00 GMT")
    assert [wanted_rest_s(text) for text in ("7", *others)] == [7, 0, 0, 0, 0, 0]


def test_a_missing_package_is_named_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install. Until then the client imports neither package."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    events = Client("http://127.0.0.1:9").events(STREAM)
    for name, table in (("pandas", events.to_pandas), ("pyarrow", events.to_arrow)):
        with pytest.raises(streamkeeper.StreamkeeperError, match=rf"needs .* {name}, .*: `pip install {name}`\.$"):
            table()
