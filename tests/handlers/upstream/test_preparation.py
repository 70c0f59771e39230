"""Tokens and tickets on real sockets: the order of their requests, and servers that fail."""

import itertools
import json
import re
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from handlers.aws.secret_values import SecretValues
from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.opening_steps import Tokens
from handlers.connection.preparation import USED_UP
from handlers.framing.websocket import CLOSE, TEXT, encoded_frame
from handlers.profile.parse import parse
from handlers.profile.secret_references import Reference
from handlers.profile.upstream_requests import request_of
from handlers.run.ports import preparation_of
from handlers.run.refresh_tokens import RefreshTokens
from handlers.upstream.reader import Upstream
from handlers.upstream.standstill import elapsed_s
from local.upstreams.auth_servers import CLIENT, REFRESH, SECRET
from local.upstreams.provider_player import serve_providers
from tests.handlers.aws import CONTROL, EVENTS, SECRETS, Aws
from tests.handlers.lanes import ONE_SECRET, run
from tests.handlers.servers import Peer, Script, certificate, reading, sends, serving
from tests.handlers.upstream.test_hostile_sockets import switches
from tests.local.support import until

WAIT_S = 60.0
VALUES = {Reference("secret", "key"): SECRET}
TOO_MUCH = "more than 65536 bytes came"


def table(origin: str, **fields: Any) -> dict[str, Any]:
    """Return a profile of the played stream that needs a token and a ticket."""
    token = {"kind": "client_credentials", "address": f"{origin}/oauth/token", "id": CLIENT}
    return {
        "address": f"{origin}/demo-token?ticket={{ticket}}&interval_ms=1",
        "allow_private": True,
        "framing": "sse",
        "connect_timeout_s": 2,
        "token": token | {"secret": "${secret:key}"},
        "ticket": {"address": f"{origin}/oauth/ticket", "path": "$.ticket"},
    } | fields


def opening(fields: dict[str, Any], tokens: Tokens, secret: str = SECRET) -> AbstractContextManager[Upstream]:
    """Return one opening of the profile's stream."""
    profile = parse("demo", fields, {})
    values = {Reference("secret", "key"): secret, Reference("secret", "refresh"): REFRESH}
    before = preparation_of(profile, "demo", None, values, lambda: round(1000 * elapsed_s()), tokens)
    request = request_of(profile, "demo", None, values)
    return reading(request, before=before, connect_timeout_s=profile.connect_timeout_s)


def first(fields: dict[str, Any], tokens: Tokens | None = None, secret: str = SECRET) -> Opened | Closed | Chunk:
    """Return the first arrival of an opening."""
    with opening(fields, tokens or Tokens(threading.Lock), secret) as reader:
        arrival = reader.get(WAIT_S)
    assert arrival is not None
    assert SECRET not in repr(arrival)
    return arrival


def test_many_openings_that_need_a_token_and_a_ticket_share_one_token() -> None:
    """Eight openings at once share one token; once that is revoked, eight more share another."""
    with serve_providers() as (origin, upstreams):
        tokens, statuses = Tokens(threading.Lock), []
        for at in (1, 2):
            threads = [threading.Thread(target=lambda: statuses.append(first(table(origin), tokens))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
            assert [one.status for one in statuses if isinstance(one, Opened)] == [200] * 8 * at
            assert len(upstreams.auth.tokens) == at
            upstreams.auth.revoke()
        assert isinstance(statuses[0], Opened)
        assert {one.name for one in statuses[0].places} == {"token", "ticket"}


def test_functions_share_the_refresh_token_that_replaced_the_secrets(aws: Aws) -> None:
    """Each process sends the newest token in the table; without the table the secret's own is refused."""
    with serve_providers() as (origin, upstreams):
        token = {**table(origin)["token"], "kind": "refresh_token", "refresh_token": "${secret:refresh}"}
        fields, shared = table(origin, token=token), RefreshTokens(aws.dynamodb, CONTROL)
        for number in (1, 2, 3):
            opened = first(fields, Tokens(threading.Lock, shared))
            assert isinstance(opened, Opened)
            assert opened.status == 200
            (item,) = aws.items(CONTROL, "#").values()
            assert (item["refresh_token"], item["version"]) == (upstreams.auth.refresh, number)
        closed = first(fields)
    assert closed == Closed("rejected", f"the token server 127.0.0.1 answered 400: {USED_UP}")


def answers(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def _drips(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not peer.gone.wait(0.2):
        peer.send(b" ")


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        (sends(answers("503 Unavailable")), " answered 503"),
        (sends(answers("307 Elsewhere", b"", "Location: http://127.0.0.1:9/")),
         ": it redirects, which is not followed"),
        (sends(answers("200 OK", b" " * 70_000)), f": {TOO_MUCH}"),
        (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), ": the body ended before its end"),
        (sends(), ": the connection was closed without an answer"),
        (lambda peer: peer.wait_until_gone(), ": no byte came for 0.5 s"),
        (_drips, ": its answer did not come within 0.5 s"),
    ],
)  # fmt: skip
def test_a_token_server_that_fails_is_named_and_nothing_is_sent_to_the_upstream(script: Script, detail: str) -> None:
    """A token server that is slow, cut off, endless or redirects is explained in bounded time."""

    def answer(peer: Peer) -> None:
        peer.read_body()  # bytes that are unread when a socket is closed reset it
        script(peer)

    with serving(answer) as server, serving(sends(b"")) as upstream:
        fields = table(server.address, address=f"{upstream.address}/x", connect_timeout_s=0.5)
        closed = first({name: value for name, value in fields.items() if name != "ticket"})
        assert isinstance(closed, Closed)
        assert closed.detail == f"the token server 127.0.0.1{detail}"
        assert upstream.peers == []


@pytest.mark.parametrize(
    ("opens", "reason", "words"),
    [
        ("{other}/link?ticket=t", "", ""),
        ("ftp://127.0.0.1/", "rejected", "the ticket leads to an address that is not a valid one for a stream"),
        ("wss://127.0.0.1/", "rejected", 'the ticket leads to a WebSocket, for which framing must be "websocket"'),
        ("http://a:b@127.0.0.1/", "rejected", "the ticket leads to an address that is not a valid one for a stream"),
        ("http://169.254.169.254/", "rejected", "the upstream's name resolves to a link-local address, which is never"),
        ("{other}/?k=s3cret", "rejected", "the ticket leads to another host with a secret in the address"),
        ("", "no_ticket", "the ticket server 127.0.0.1 answered with no address at $.url"),
    ],
)
def test_a_tickets_address_is_opened_as_after_a_redirect(opens: str, reason: str, words: str) -> None:
    """Another host gets no credentials of the profile; an address to which no redirect may lead is not opened."""
    with serving(sends(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")) as other:
        said = json.dumps({"url": opens.replace("{other}", other.address)}).encode()
        with serving(sends(answers("200 OK", said))) as tickets:
            fields = {
                "address": f"{tickets.address}/usual", "allow_private": True, "framing": "sse",
                "headers": {"X-Api": "${secret:key}"},
                "ticket": {"address": f"{tickets.address}/open", "opens": "$.url"},
            }  # fmt: skip
            arrival = first(fields, secret="s3cret")
            assert [peer.request.split()[1] for peer in tickets.peers] == [b"/open"]
        if not reason:
            assert isinstance(arrival, Opened)
            (peer,) = other.peers
            assert peer.request.startswith(b"GET /link?ticket=t HTTP/1.1\r\n")
            assert b"x-api" not in peer.request.lower()
        else:
            assert isinstance(arrival, Closed)
            assert (arrival.reason, arrival.detail[: len(words)], other.peers) == (reason, words, [])


@pytest.mark.parametrize(
    ("to", "subscribe", "message"),
    [
        ("wss", {"op": "subscribe"}, "the upstream closed the socket with 4000"),
        ("https", {"op": "subscribe"}, "the upstream closed the socket with 4000"),
        ("ws", {"op": "subscribe"}, "the stream was not opened (rejected): the ticket leads from https to http"),
        (
            "wss",
            {"op": "subscribe", "key": "${secret:key}"},
            "the stream was not opened (rejected): the ticket leads to another host, and a message to it would hold a "
            "secret",
        ),
        ("wss", {"op": "login", "key": "{ticket}"}, "the upstream closed the socket with 4000"),
    ],
)
def test_a_ticket_opens_a_socket_at_a_whole_address(
    aws: Aws, tmp_path: Path, to: str, subscribe: dict[str, str], message: str
) -> None:
    """A ticket may open a wss address of another host, which the profile's authority may certify, without credentials.

    Only values from the ticket's server may go there, in messages and headers.
    """
    context, authority = certificate(tmp_path)
    event, closing = encoded_frame(TEXT, b'{"n": 1}'), encoded_frame(CLOSE, b"\x0f\xa0")
    with serving(switches(event, closing), tls=context) as other:
        said = json.dumps({"key": "t1", "url": f"{to}{other.address.removeprefix('https')}/link?ticket=t1"}).encode()
        with serving(sends(answers("200 OK", said)), tls=context) as tickets:
            fields = {
                "address": "wss://feed.example/usual", "allow_private": True, "framing": "websocket", "key": "$.n",
                "headers": {"X-Api": "${secret:key}", "X-Both": "${secret:key}{ticket}", "X-Ticket": "k {ticket}"},
                "tls": {"ca": authority.read_text()}, "subscribe": [{"send": subscribe}],
                "ticket": {"address": f"{tickets.address}/open", "opens": "$.url", "path": "$.key"},
            }  # fmt: skip
            secrets = SecretValues(lambda _: ONE_SECRET, SECRETS)
            outcome = run(parse("feed", fields, {}), aws.store(), stream_id="feed", secrets=secrets).outcome
    assert outcome.message.startswith(message)
    assert b"s3cret" not in b"".join(peer.request for peer in (*tickets.peers, *other.peers))
    if "closed" in message:
        assert [peer.request.partition(b"\r\n")[0] for peer in other.peers] == [b"GET /link?ticket=t1 HTTP/1.1"]
        assert all(b"x-ticket: k t1" in peer.request and b"x-both" not in peer.request for peer in other.peers)
        assert set(aws.items(EVENTS, "feed")) == {"1"}
    else:
        assert (other.peers, aws.items(EVENTS, "feed")) == ([], {})


CODES: dict[str, Any] = {"1008": {}, "4001": {"close_codes": {"4001": "rejected", "4000": "ended"}}}


@pytest.mark.parametrize("code", CODES, ids=["by the default", "finally, by the profile"])
def test_a_token_that_a_socket_refuses_by_its_close_is_requested_again_once(aws: Aws, code: str) -> None:
    """The next opening comes at once with a new token; if that is refused too, it is kept and the refusal counts."""
    given, accepted, heard = itertools.count(1), {"t2"}, []

    def script(peer: Peer) -> None:
        if peer.request.startswith(b"POST"):
            peer.read_body()
            token = {"access_token": f"t{next(given)}", "token_type": "Bearer", "expires_in": 3600}
            sends(answers("200 OK", json.dumps(token).encode()))(peer)
            return
        token = re.findall(rb"Bearer (\S+)", peer.request)[0].decode()
        heard.append(token)
        switches(encoded_frame(CLOSE, (4000 if token in accepted else int(code)).to_bytes(2)))(peer)

    with serving(script) as server:
        fields = {
            "address": server.address.replace("http", "ws"), "allow_private": True, "framing": "websocket",
            "key": "$.n", "close_codes": {"4000": "ended"}, "backoff": {"refused": {"start_s": 0.01}},
            "token": {**table(server.address)["token"], "secret": "${secret:key}"},
        }  # fmt: skip
        parsed, secrets = parse("feed", fields | CODES[code], {}), SecretValues(lambda _: ONE_SECRET, SECRETS)
        for stream, wanted in (("feed:1", "ended"), ("feed:2", ""), ("feed:2", "")):
            outcome = run(parsed, aws.store(), stream_id=stream, secrets=secrets).outcome
            assert outcome.status == wanted
            accepted.clear()
    assert heard == ["t1", "t2", *["t2", "t2"]]
    assert outcome.error == ("StreamDropped" if code == "1008" else "StreamRejected")


def test_a_private_token_server_is_refused_unless_the_profile_allows_it() -> None:
    """The stream's address policy applies to its token server too, which then must use https."""
    fields = table("https://127.0.0.1:9", allow_private=False, address="https://example.invalid/x")
    closed = first({name: value for name, value in fields.items() if name != "ticket"})
    assert isinstance(closed, Closed)
    assert closed.reason == "rejected"
    assert closed.detail.startswith("the token server 127.0.0.1: the upstream's name resolves to a private address")


def test_closing_ends_a_request_that_is_under_way() -> None:
    """A stop does not wait for a silent token server, and lets the next stream have its turn."""
    tokens = Tokens(threading.Lock)
    with serving(Peer.wait_until_gone) as server:
        fields = table(server.address, connect_timeout_s=30)
        with opening(fields, tokens) as reader:
            assert until(lambda: server.peers and server.peers[0].request.startswith(b"POST /oauth/token "))
        assert server.peers[0].gone.wait(WAIT_S)
        assert reader.get(WAIT_S) == Closed("closed_here")
        assert tokens.turn(f"{server.address}/oauth/token").acquire(timeout=WAIT_S)  # type: ignore[attr-defined]


def test_a_silent_token_server_delays_only_the_streams_that_need_it() -> None:
    """Streams take turns for each token server, so one that hangs delays only those that need it."""
    tokens, silent = Tokens(threading.Lock), Peer.wait_until_gone
    with serving(silent) as server, opening(table(server.address, connect_timeout_s=60), tokens) as waiting:
        assert until(lambda: server.peers and server.peers[0].request)
        with serve_providers() as (origin, _):
            opened = first(table(origin), tokens)
        assert (isinstance(opened, Opened), waiting.get(0)) == (True, None)
