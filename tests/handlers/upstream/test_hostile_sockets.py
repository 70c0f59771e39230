"""Sockets whose server lies, floods or falls silent: each ends with its reason, after storing earlier messages.

docs/hostile.md has a row for each.
"""

import contextlib
import re
import select
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handlers.framing.websocket import BINARY, CLOSE, PING, TEXT, encoded_frame
from handlers.profile.parse import parse
from handlers.upstream.socket_response import MOST_UNSENT_BYTES, Outbox, accept_of
from handlers.upstream.strict_response import BadAnswer
from tests.handlers.aws import EVENTS, Memory
from tests.handlers.hostile import CLOSED, NOT_OPENED, STREAM, connect
from tests.handlers.lanes import run
from tests.handlers.servers import Peer, Script, certificate, serving

EVENT = encoded_frame(TEXT, b'{"n": 1}')


def head(peer: Peer, **changes: bytes) -> bytes:
    """Return the head of a switch, without headers that are empty."""
    (key,) = re.findall(rb"sec-websocket-key: *(\S+)", peer.request, re.IGNORECASE)
    named = {"Upgrade": b"websocket", "Connection": b"Upgrade", "Sec-WebSocket-Accept": accept_of(key).encode()}
    named |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = b"".join(b"%s: %s\r\n" % (name.encode(), value) for name, value in named.items() if value)
    return b"HTTP/1.1 101 Switching Protocols\r\n" + lines + b"\r\n"


def switches(*frames: bytes, then: Callable[[Peer], None] = Peer.wait_until_gone, **changes: bytes) -> Script:
    """Switch to WebSocket, send these bytes, and then do something."""

    def script(peer: Peer) -> None:
        peer.send(head(peer, **changes) + b"".join(frames))
        then(peer)

    return script


def ending(memory: Memory, script: Script, **fields: Any) -> tuple[str, str]:
    """Return the error's name and its sentence, for a socket's profile."""
    outcome = connect(memory, script, **{"framing": "websocket", "key": "$.n", **fields}).outcome
    return outcome.error, outcome.message


def hears(into: list[bytes]) -> Callable[[Peer], None]:
    """Note what the client sends until it closes."""

    def listens(peer: Peer) -> None:
        with contextlib.suppress(OSError):
            while data := peer.connection.recv(65_536):
                into.append(data)

    return listens


NO_SWITCH = "(protocol): the upstream answered 101 and did not switch to WebSocket"
UNASKED = "(protocol): the upstream chose {} of WebSocket that was not offered"
HANDSHAKES: dict[str, tuple[dict[str, Any], str]] = {
    "another accept key": ({"Sec_WebSocket_Accept": b"AAAA"},
                           "(protocol): the upstream's Sec-WebSocket-Accept does not belong to the key that was sent"),
    "no upgrade": ({"Upgrade": b""}, NO_SWITCH),
    "another upgrade": ({"Upgrade": b"h2c"}, NO_SWITCH),
    "no connection": ({"Connection": b"keep-alive"}, NO_SWITCH),
    "an extension": ({"Sec_WebSocket_Extensions": b"permessage-deflate"}, UNASKED.format("an extension")),
    "a subprotocol": ({"Sec_WebSocket_Protocol": b"chat"}, UNASKED.format("a subprotocol")),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), HANDSHAKES.values(), ids=HANDSHAKES)
def test_an_invalid_handshake_drops_the_connection(memory: Memory, changes: dict[str, Any], message: str) -> None:
    """A 101 that is no valid switch drops the connection with its reason; nothing that follows it is stored."""
    assert ending(memory, switches(EVENT, **changes)) == ("StreamDropped", f"{NOT_OPENED} {message}")
    assert memory.items(EVENTS, STREAM) == {}


def test_a_server_may_choose_only_what_was_offered(memory: Memory) -> None:
    """A server may choose compression with valid parameters and a subprotocol; other parameters are refused."""
    chosen: dict[str, Any] = {
        "Sec_WebSocket_Extensions": b"Permessage-Deflate; server_max_window_bits=10; server_no_context_takeover",
        "Sec_WebSocket_Protocol": b"v2",
    }
    offers = {"compression": True, "headers": {"Sec-WebSocket-Protocol": "v1, v2"}}
    closing = encoded_frame(CLOSE, b"\x0f\xa0")
    assert ending(memory, switches(EVENT, closing, **chosen), **offers)[1].endswith("closed the socket with 4000")
    assert len(memory.items(EVENTS, STREAM)) == 1
    why = "with a parameter that was not offered, is wrong or comes twice"
    message = f"{NOT_OPENED} (protocol): the upstream chose permessage-deflate {why}"
    bits = "server_max_window_bits"
    for wrong in ("client_max_window_bits=9", f"{bits}=7", f"{bits}=16", bits, f"{bits}=9; {bits}=10"):
        script = switches(Sec_WebSocket_Extensions=f"permessage-deflate; {wrong}".encode())
        assert ending(memory, script, **offers) == ("StreamDropped", message)


def test_a_socket_that_falls_silent_is_a_stall(memory: Memory) -> None:
    """Silence for `stall_after_s` after the switch drops the connection; earlier events are stored."""
    message = f"{CLOSED} (stalled): no byte came for 1 s"
    assert ending(memory, switches(EVENT), stall_after_s=1) == ("StreamDropped", message)
    assert list(memory.items(EVENTS, STREAM)) == ["1"]


BROKEN: dict[str, tuple[bytes, str]] = {
    "masks": (encoded_frame(TEXT, b"x", b"abcd"), "the server masks its frames"),
    "no UTF-8": (encoded_frame(TEXT, b"\xff"), "a text of the socket is not UTF-8"),
}


@pytest.mark.parametrize(("wire", "message"), BROKEN.values(), ids=BROKEN)
def test_a_server_that_breaks_the_protocol_is_closed_with_the_reason(memory: Memory, wire: bytes, message: str) -> None:
    """A protocol violation drops the connection with its reason and a close frame; earlier events are stored."""
    heard: list[bytes] = []
    assert ending(memory, switches(EVENT, wire, then=hears(heard))) == ("StreamDropped", message)
    assert list(memory.items(EVENTS, STREAM)) == ["1"]
    assert b"".join(heard)[:2] == b"\x88\x82"


def test_a_cut_inside_a_fragment_is_no_event(memory: Memory) -> None:
    """The bytes of the unfinished message are counted and dropped; the event before it is stored."""
    report = connect(memory, switches(EVENT, b"\x01\x05hello", then=Peer.reset), framing="websocket", key="$.n")
    assert (report.outcome.error, report.progress.stored, report.progress.ended_by) == ("StreamDropped", 1, "reset")
    assert report.progress.unterminated_bytes > 0


def test_a_long_message_is_passed_and_the_stream_goes_on(memory: Memory) -> None:
    """An oversize message, in one frame or in a thousand, is one dead letter; the next event is stored."""
    long, other = b"y" * 150_000, b"z" * 150_000
    pieces = [
        bytes([0x02 if not at else 0x00]) + encoded_frame(BINARY, other[at : at + 150])[1:]
        for at in range(0, 150_000, 150)
    ]
    closing = encoded_frame(CLOSE, b"\x03\xe8")
    after = encoded_frame(TEXT, b'{"n": 2}')
    report = connect(
        memory,
        switches(EVENT, encoded_frame(TEXT, long), *pieces, b"\x80\x00", after, closing),
        framing="websocket",
        key="$.n",
    )
    assert (report.progress.stored, report.progress.dead_lettered) == (2, 2)
    assert [message["event"]["size_bytes"] for message in memory.dead_letters()] == [150_000] * 2


def test_pings_without_end_are_answered_within_bounds(memory: Memory) -> None:
    """Only the last sixteen pings of a read are answered, as RFC 6455 allows; the stream goes on beside them."""
    pings = b"".join(encoded_frame(PING, b"%d" % number) for number in range(20_000))
    heard: list[bytes] = []
    after = encoded_frame(TEXT, b'{"n": 2}') + encoded_frame(CLOSE, b"\x03\xe8")
    assert ending(memory, switches(EVENT, pings, after, then=hears(heard)))[0] == "StreamDropped"
    assert sorted(memory.items(EVENTS, STREAM)) == ["1", "2"]
    assert 16 * 10 < len(b"".join(heard)) < len(pings) // 10


def test_a_server_that_reads_nothing_ends_the_connection_with_that_reason() -> None:
    """The connection ends once over 256 KB wait behind a message: decisions never wait, and memory does not grow.

    The message that is being sent may itself be longer, and takes its time.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        outbox = Outbox()
        outbox.put(b"x" * 20 * MOST_UNSENT_BYTES)
        outbox.put(b"y" * MOST_UNSENT_BYTES)
        assert flushed(outbox, ours) == select.POLLOUT
        outbox.put(b"z")
        assert flushed(outbox, ours) == "the upstream does not read what is sent to it"


def flushed(outbox: Outbox, sock: socket.socket) -> int | str:
    try:
        return outbox.flush(sock)
    except BadAnswer as error:
        return str(error)


def test_a_decompression_bomb_ends_the_connection_with_that_reason(memory: Memory) -> None:
    """Nothing of the bomb is stored, but the event before it is."""
    packer = zlib.compressobj(wbits=-15)
    bomb = (packer.compress(b"\0" * 20_000_000) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    wire = b"\xc1" + encoded_frame(TEXT, bomb)[1:]
    script = switches(EVENT, wire, Sec_WebSocket_Extensions=b"permessage-deflate")
    error, message = ending(memory, script, compression=True)
    assert (error, message.partition(":")[0]) == ("StreamDropped", "a decompression bomb")
    assert list(memory.items(EVENTS, STREAM)) == ["1"]


def test_a_socket_over_tls_talks_both_ways(memory: Memory, tmp_path: Path, trusting: Callable[[Path], None]) -> None:
    """Messages larger than a TLS record, pings between them and the last close frame all arrive."""
    tls, trusted = certificate(tmp_path)
    trusting(trusted)
    large = encoded_frame(TEXT, b'{"n": 2, "text": "%b"}' % (b"x" * 90_000))
    heard: list[bytes] = []

    def talks(peer: Peer) -> None:
        for number in range(50):
            peer.send(encoded_frame(PING, b"%d" % number))
            peer.send(large)
        peer.send(encoded_frame(CLOSE, b"\x0f\xa0"))
        hears(heard)(peer)

    with serving(switches(EVENT, then=talks), tls=tls) as server:
        address = server.address.replace("https", "wss") + "/s"
        table = {"address": address, "framing": "websocket", "allow_private": True, "key": "$.n"}
        report = run(parse(STREAM, table, {}), memory.store(), margin_ms=2_000)
    assert report.outcome.message == "the upstream closed the socket with 4000"
    assert sorted(memory.items(EVENTS, STREAM)) == ["1", "2"]
    # A pong has six bytes and those of its ping; the close has six and its code.
    assert b"".join(heard)[-8:-6] == b"\x88\x82"
    assert len(b"".join(heard)) == sum(6 + len(b"%d" % number) for number in range(50)) + 8
