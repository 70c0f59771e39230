"""Connections on real sockets: what arrives, why it ended, and how fast it lets go."""

import http.client
import socket
import ssl
import threading
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import urllib3
from urllib3 import exceptions

from handlers import tls as trust
from handlers.connection.inputs import Arrival, Chunk, Closed, Opened
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.end_reasons import explain
from handlers.upstream.reader import CHUNK_BYTES, INBOX_BYTES, LITTLE_BYTES, Share, Upstream
from handlers.upstream.standstill import elapsed_s
from tests.handlers.servers import CHUNKED, UNTIL_CLOSE, Peer, Script, certificate, chunks, reading, sends, serving

WAIT_S = 60.0
SILENT_BODY = sends(UNTIL_CLOSE + b"a", then=Peer.wait_until_gone)


def upstream(
    address: str, *, stall_after_s: float = 5, headers: dict[str, bytes] | None = None
) -> AbstractContextManager[Upstream]:
    address, headers = f"{address}/stream?token=secret", headers or {"authorization": b"secret"}
    request = UpstreamRequest("GET", address, headers, allow_private=True)
    return reading(request, connect_timeout_s=1, stall_after_s=stall_after_s)


def take(reader: Upstream) -> Arrival:
    arrival = reader.get(WAIT_S)
    assert arrival is not None
    return arrival


def take_all(reader: Upstream) -> tuple[list[Arrival], bytes]:
    """Return what arrives until the end, with the chunks joined."""
    body = b""
    others: list[Arrival] = []
    while True:
        arrival = take(reader)
        if isinstance(arrival, Chunk):
            body += arrival.data
        else:
            others.append(arrival)
        if isinstance(arrival, Closed):
            return others, body


def ends(script: Script, *, stall_after_s: float = 5) -> tuple[bytes, Closed]:
    """Return the body and the end of a connection to a server that plays `script`."""
    with serving(script) as server, upstream(server.address, stall_after_s=stall_after_s) as reader:
        others, body = take_all(reader)
    closed = others[-1]
    assert isinstance(closed, Closed)
    assert "secret" not in repr(closed)
    return body, closed


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_arrives_as_it_is_sent(is_chunked: bool, is_packed: bool) -> None:
    """The codings are removed, and data is read as it is flushed, without waiting for a full block."""
    go_on, packer = threading.Event(), zlib.compressobj(wbits=31)

    def packed(data: bytes) -> bytes:
        return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH) if is_packed else data

    def script(peer: Peer) -> None:
        send = peer.send_chunk if is_chunked else peer.send
        head = CHUNKED if is_chunked else UNTIL_CLOSE
        peer.send(head.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") if is_packed else head)
        send(packed(b"one"))
        assert go_on.wait(WAIT_S)
        send(packed(b"two") + (packer.flush() if is_packed else b""))
        peer.send(b"0\r\n\r\n" if is_chunked else b"")

    with serving(script) as server, upstream(server.address) as reader:
        opened = take(reader)
        assert is_chunked or is_packed or opened == Opened(200, {"content-type": "text/event-stream"})
        assert take(reader) == Chunk(b"one")
        go_on.set()
        assert take_all(reader) == ([Closed("ended_by_upstream")], b"two")


@pytest.mark.parametrize(
    ("kind", "length", "body", "ended"),
    [
        ("application/json; charset=utf-8", "Content-Length: 5", "[1,2]", "[1,2]\n"),
        ("Application/JSON", "Transfer-Encoding: chunked", "5\r\n[1,2]\r\n0\r\n\r\n", "[1,2]\n"),
        ("application/json", "Content-Length: 6", "[1,2]\n", "[1,2]\n"),
        ("application/json", "Content-Length: 4", "[1,2", "[1,2"),
        ("application/json", "X-Until: close", "[1,2]", "[1,2]"),
    ],
)
def test_a_whole_json_answer_gets_the_line_end_that_it_lacks(kind: str, length: str, body: str, ended: str) -> None:
    """A long poll's JSON gets the LF that it lacks if its length shows that it is whole; else it may be cut off."""
    script = sends(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{length}\r\n\r\n{body}".encode())
    assert ends(script) == (ended.encode(), Closed("ended_by_upstream"))


def test_the_reader_does_not_rest_while_more_waits_at_the_socket() -> None:
    """A short read may be the end of a chunk that was buffered, so it does not show that nothing follows."""
    has_begun, is_sent = threading.Semaphore(0), threading.Event()
    begin, end, following = b"b" * LITTLE_BYTES, b"e" * 100, b"f" * LITTLE_BYTES

    def script(peer: Peer) -> None:
        peer.send(CHUNKED + b"%x\r\n" % len(begin + end) + begin)
        assert all(has_begun.acquire(timeout=WAIT_S) for _ in (Opened, begin))
        # The inbox is full: the end is read, but what follows is at the socket before the reader goes on.
        peer.send(end + b"\r\n")
        peer.send_chunk(following)
        is_sent.set()
        peer.wait_until_gone()

    with serving(script) as server:
        request = UpstreamRequest("GET", server.address, {}, allow_private=True)
        with reading(request, rest_s=3600, shares=Share(CHUNK_BYTES, 1, has_begun.release)) as reader:
            assert is_sent.wait(WAIT_S)
            assert isinstance(take(reader), Opened)
            assert [take(reader) for _ in range(3)] == [Chunk(begin), Chunk(end), Chunk(following)]


def test_silence_after_a_rest_leaves_nothing_unread() -> None:
    """A quiet stream is known good while nothing comes, and bytes that come then have not waited since the rest."""
    goes_on = threading.Event()
    with serving(chunks(b"one", goes_on, b"two", then=Peer.wait_until_gone)) as server:
        request = UpstreamRequest("GET", server.address, {}, allow_private=True)
        with reading(request, rest_s=0.01) as reader:
            assert isinstance(take(reader), Opened)
            assert take(reader) == Chunk(b"one")
            assert (reader.get(0.2), reader.unread_age_s) == (None, None)
            sent_s = elapsed_s()
            goes_on.set()
            assert take(reader) == Chunk(b"two")
            assert elapsed_s() - reader.taken_age_s >= sent_s


def test_the_upstream_gets_the_profiles_request_and_nothing_else() -> None:
    """The upstream gets the request's method, path, query and headers; a header's bytes go out unchanged."""
    with serving(sends(UNTIL_CLOSE)) as server:
        headers = {"last-event-id": "é".encode(), "accept": b"text/event-stream", "user-agent": b"us"}
        with upstream(server.address, headers={**headers, "accept-encoding": b"identity"}) as reader:
            take_all(reader)
        lines = server.peers[0].request.split(b"\r\n")
    host = server.address.removeprefix("http://").encode()
    assert lines[0] == b"GET /stream?token=secret HTTP/1.1"
    ours = [b"accept-encoding: identity", b"last-event-id: \xc3\xa9", b"accept: text/event-stream", b"user-agent: us"]
    assert sorted(line.lower() for line in lines[1:] if line) == sorted([b"host: " + host, *ours])


@pytest.mark.parametrize("status", [204, 300, 304, 404, 429, 503])
def test_any_answer_is_handed_over_and_none_is_retried(status: int) -> None:
    """A response that is no redirect is returned unchanged: one connection is made."""
    head = b"HTTP/1.1 %d X\r\nLocation: http://127.0.0.1:1/\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n" % status
    with serving(sends(head)) as server, upstream(server.address) as reader:
        others, body = take_all(reader)
        assert others[0] == Opened(
            status, {"location": "http://127.0.0.1:1/", "retry-after": "7", "content-length": "0"}
        )
        assert (others[1:], body) == ([Closed("ended_by_upstream")], b"")
        assert len(server.peers) == 1


def test_a_reset_is_reported_as_a_reset() -> None:
    """An RST in the middle of the body, or before the answer, ends the connection with the reason `reset`."""
    go_on = threading.Event()
    in_the_body = sends(UNTIL_CLOSE + b"a", go_on, then=Peer.reset)
    with serving(in_the_body) as server, upstream(server.address) as reader:
        assert isinstance(take(reader), Opened)
        assert take(reader) == Chunk(b"a")
        go_on.set()
        assert take(reader) == Closed("reset", "connection reset by peer")
    assert ends(Peer.reset) == (b"", Closed("reset", "connection reset by peer"))


def test_silence_is_a_stall_before_the_answer_and_after_it() -> None:
    """No byte for `stall_after_s` ends the connection; any byte, even of a heartbeat, begins the wait anew."""
    assert ends(Peer.wait_until_gone, stall_after_s=0.1) == (b"", Closed("stalled", "no byte came for 0.1 s"))

    def heartbeats_then_stops(peer: Peer) -> None:
        peer.send(UNTIL_CLOSE)
        for _ in range(12):
            peer.gone.wait(0.1)
            peer.send(b"\n")
        peer.wait_until_gone()

    assert ends(heartbeats_then_stops, stall_after_s=1) == (b"\n" * 12, Closed("stalled", "no byte came for 1 s"))


def test_a_server_that_speaks_no_tls_is_a_tls_error() -> None:
    """A failed handshake is not a drop of the stream: it has its own name."""
    with (
        serving(sends(b"HTTP/1.1 400 X\r\n\r\n"), reads_request=False) as server,
        upstream(server.address.replace("http:", "https:")) as reader,
    ):
        closed = take(reader)
        assert isinstance(closed, Closed)
        # What OpenSSL calls it depends on its version.
        assert closed.reason == "tls"
        assert closed.detail.startswith("TLS failed: ")


def test_a_stream_over_tls_is_read_cut_and_let_go(tmp_path: Path, trusting: Callable[[Path], None]) -> None:
    """With a trusted certificate TLS is like any stream; a cut looks like an end. Authorities are read once."""
    tls, trusted = certificate(tmp_path)
    cut = threading.Event()
    is_cut = sends(UNTIL_CLOSE + b"a", cut, then=lambda peer: peer.connection.shutdown(socket.SHUT_RDWR))
    with serving(is_cut, SILENT_BODY, tls=tls) as server:
        trusting(trusted)
        with upstream(server.address) as reader:
            assert isinstance(take(reader), Opened)
            assert take(reader) == Chunk(b"a")
            cut.set()
            assert take(reader) == Closed("ended_by_upstream")
        with upstream(server.address, stall_after_s=60) as reader:
            assert isinstance(take(reader), Opened)
            assert take(reader) == Chunk(b"a")
            reader.close()
            assert server.peers[1].gone.wait(WAIT_S)
            assert_no_reader_is_left()
    assert trust.tls.cache_info().misses == 1


def test_a_certificate_that_the_deployed_python_refuses_is_refused_everywhere(
    tmp_path: Path, trusting: Callable[[Path], None]
) -> None:
    """The certificate breaks RFC 5280; an old Python would accept it, because its authority is trusted."""
    tls, trusted = certificate(tmp_path, names_authority=False)
    with serving(Peer.wait_until_gone, tls=tls) as server:
        trusting(trusted)
        with upstream(server.address) as reader:
            lacks = "the upstream's certificate cannot be trusted: Missing Authority Key Identifier"
            assert take(reader) == Closed("tls", lacks)


NOT_ACCEPTED = Closed("unreachable", "the connection was not accepted in time")
NO_SUCH_HOST = Closed("unreachable", "the host's name cannot be resolved")
NO_HTTP = Closed("protocol", "the answer is not valid HTTP (ProtocolError)")
HTTP = urllib3.connection.HTTPConnection("secret")
ALERT = ssl.SSLError(1, "secret")
ALERT.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"


@pytest.mark.parametrize(
    ("error", "closed"),
    [
        (exceptions.SSLError(ssl.SSLEOFError(8, "secret")), Closed("tls", "TLS failed")),
        (exceptions.SSLError(ALERT), Closed("tls", "TLS failed: tlsv13 alert certificate required")),
        (exceptions.ProtocolError("secret", OSError(113, "secret")), Closed("reset", "no route to host")),
        (exceptions.ProtocolError("secret", TimeoutError("secret")), Closed("stalled", "no byte came in time")),
        (exceptions.ProtocolError("secret", http.client.BadStatusLine("secret")), NO_HTTP),
        (exceptions.ConnectTimeoutError("secret"), NOT_ACCEPTED),
        (exceptions.NameResolutionError("secret", HTTP, socket.gaierror(-2, "secret")), NO_SUCH_HOST),
        (ValueError("secret"), Closed("protocol", "the answer is not valid HTTP (ValueError)")),
    ],
)
def test_rare_errors_are_explained_without_their_text(error: BaseException, closed: Closed) -> None:
    """Errors that no small server can cause become a reason and a phrase, without the error's own text."""
    assert explain(error, 1) == closed


def assert_no_reader_is_left() -> None:
    """Fail if a reader's thread goes on; it ends at once or never."""
    for thread in threading.enumerate():
        if thread.name == "upstream":
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_closing_lets_go_of_a_connection_that_waits_for_its_answer_or_its_body() -> None:
    """After `close` the upstream sees the end at once, and only Closed arrives."""
    chunked_body = sends(CHUNKED + b"1\r\na\r\n", then=Peer.wait_until_gone)
    for script, arrivals in ((Peer.wait_until_gone, 0), (SILENT_BODY, 2), (chunked_body, 2)):
        with serving(script) as server, upstream(server.address, stall_after_s=60) as reader:
            server.wait_for_peers(1)
            for _ in range(arrivals):
                take(reader)
            reader.close()
            assert server.peers[0].gone.wait(WAIT_S)
            assert reader.get(0) == Closed("closed_here")
            assert_no_reader_is_left()


def test_a_full_inbox_holds_the_upstream_back_and_closing_frees_the_reader() -> None:
    """An upstream that is not read stops once inbox and sockets are full; `blocked_ms` has the wait."""
    sent = 0
    stands_still = threading.Event()

    def floods(peer: Peer) -> None:
        nonlocal sent
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        peer.connection.settimeout(0.3)
        peer.send(UNTIL_CLOSE)
        try:
            while sent < 64 * INBOX_BYTES:
                sent += peer.connection.send(b"x" * 65536)
        except TimeoutError:
            stands_still.set()
            peer.connection.settimeout(None)
            peer.wait_until_gone()

    with serving(floods) as server, upstream(server.address) as reader:
        server.wait_for_peers(1)
        assert stands_still.wait(WAIT_S)
        assert INBOX_BYTES < sent < 16 * INBOX_BYTES
        assert isinstance(take(reader), Opened)
        reader.close()
        assert_no_reader_is_left()
        assert reader.blocked_ms > 200
        assert server.peers[0].gone.wait(WAIT_S)


def test_a_connection_closed_while_it_is_made_sends_nothing() -> None:
    """If `close` comes before the connection is made, no request is ever sent."""
    gate = threading.Event()

    class Slow(Upstream):
        def _hold_socket(self, connected: socket.socket) -> None:
            assert gate.wait(WAIT_S)
            super()._hold_socket(connected)

    with serving(sends(), reads_request=True) as server:
        reader = Slow(
            UpstreamRequest("GET", server.address, {}, allow_private=True), connect_timeout_s=1, stall_after_s=1
        )
        reader.start()
        reader.close()
        gate.set()
        server.wait_for_peers(1)
        assert server.peers[0].gone.wait(WAIT_S)
        assert server.peers[0].request == b""
        assert_no_reader_is_left()
