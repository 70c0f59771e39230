"""Upstreams whose HTTP lies, floods, drips or never ends: each ends with its reason, after a bounded number of bytes.

docs/hostile.md has a row for each.
"""

import base64
import hashlib
import http.client
import logging
import threading
from typing import Any

import pytest

from handlers.run.threads import SystemClock
from handlers.upstream.strict_response import LINES_BYTES
from tests.handlers.aws import EVENTS, Aws, Memory
from tests.handlers.hostile import CLOSED, EVENT, NOT_OPENED, STREAM, Flood, connect, drips, ending
from tests.handlers.servers import CHUNKED, OK, UNTIL_CLOSE, Peer, sends

# What the kernel's buffers of both sockets may hold besides the bytes that were read.
IN_FLIGHT_BYTES = 16 * 1024 * 1024
NO_PART = f"(protocol): more than {LINES_BYTES} bytes came outside the body"
PASSES = ": final if it goes on for 300 s"
LONG_HEAD = "(protocol): the answer's head has more than 100 lines"
# Newer releases of Python count interim answers.
COUNTS_INTERIM = hasattr(http.client, "_MAXINTERIMRESPONSES")
INTERIM = "(protocol): there are more than 100 interim answers" if COUNTS_INTERIM else NO_PART
LONG_LINE = "(protocol): a line of the answer's head is too long"

FLOODS: dict[str, tuple[bytes, bytes, str]] = {
    "a status line without end": (b"HTTP/1.1 200 ", b"x" * 1000, f"{NOT_OPENED} {LONG_LINE}"),
    "a header without end": (OK + b"X: ", b"x" * 1000, f"{NOT_OPENED} {LONG_LINE}"),
    "headers without end": (OK, b"X: %s\r\n" % (b"x" * 60_000), f"{NOT_OPENED} {NO_PART}"),
    "short headers without end": (OK, b"X: y\r\n", f"{NOT_OPENED} {LONG_HEAD}"),
    "interim answers without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", f"{NOT_OPENED} {INTERIM}"),
    "early hints without end": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", f"{NOT_OPENED} {NO_PART}"),
    "a chunk's size without end": (CHUNKED, b"0", f"{CLOSED} {NO_PART}"),
    "a chunk's extension without end": (CHUNKED + b"5;", b"x=y;" * 100, f"{CLOSED} {NO_PART}"),
    "the extension of a later chunk without end": (CHUNKED + b"1\r\n:\r\n5;", b"x=y;" * 100, f"{CLOSED} {NO_PART}"),
    "trailers without end": (CHUNKED + b"5\r\n: hi\n\r\n0\r\n", b"X: y\r\n", f"{CLOSED} {NO_PART}"),
}
ENDLESS: dict[str, bytes] = {
    "a line": b"x" * 1000,
    "an event": b"data: x\n",
    "a line of data": b"data: " + b"x" * 10**6,
}


@pytest.mark.parametrize("what", FLOODS)
def test_an_endless_flood_outside_the_body_drops_the_connection(memory: Memory, what: str) -> None:
    """An endless head, chunk size or trailer is dropped with its reason, after a bounded number of bytes."""
    head, text, message = FLOODS[what]
    flood = Flood(head, text)
    assert ending(memory, flood) == ("StreamDropped", message)
    assert flood.sent_bytes < LINES_BYTES + IN_FLIGHT_BYTES


@pytest.mark.parametrize("what", ENDLESS)
def test_an_endless_frame_is_rejected_if_the_profile_rejects_oversize_frames(memory: Memory, what: str) -> None:
    """An endless frame ends the stream at `max_frame_bytes`: the next connection would get the same frame."""
    flood = Flood(UNTIL_CLOSE, ENDLESS[what])
    assert ending(memory, flood, oversize="reject") == (
        "StreamRejected",
        "a frame is longer than max_frame_bytes (100000)",
    )
    assert flood.sent_bytes < LINES_BYTES + IN_FLIGHT_BYTES


def test_an_endless_frame_ends_at_the_deadline_and_is_one_dead_letter(memory: Memory) -> None:
    """Inside an endless frame a connection expires as usual; the part that came is one dead letter, however often."""
    frame = drips(UNTIL_CLOSE + EVENT + b"id: 2\ndata: " + b"x" * 200_000, b"x")
    for stored in (1, 0):
        report = connect(memory, frame, lasts_ms=3_000)
        assert (report.outcome.error, report.progress.stored) == ("ConnectionExpired", stored)
        assert report.progress.unterminated_bytes > 100_000
    assert memory.store().read(STREAM).cursor == "1"
    (message,) = memory.dead_letters()
    assert (message["event"]["id"], message["event"]["is_whole"]) == ("2", False)
    assert base64.b64decode(message["event"]["head"]) == b"x" * 65536


def test_an_oversize_event_is_passed_by_the_first_connection(memory: Memory) -> None:
    """An oversize event goes to the dead-letter queue, the events around it are stored, and the cursor passes all."""
    large = b"y" * 300_000
    wire = EVENT + b"id: 2\ndata: " + large + b"\n\n" + b"id: 3\ndata: 3\n\n"
    report = connect(memory, sends(UNTIL_CLOSE + wire))
    counts = (report.progress.frames, report.progress.stored, report.progress.dead_lettered)
    assert (counts, memory.store().read(STREAM).cursor) == ((3, 2, 1), "3")
    (message,) = memory.dead_letters()
    event = message["event"]
    assert (message["key"], event["size_bytes"], event["sha256"]) == ("2", 300_000, hashlib.sha256(large).hexdigest())
    again = connect(memory, sends(UNTIL_CLOSE + wire)).progress
    assert (again.stored, again.duplicates, again.dead_lettered, memory.dead_letters()) == (0, 3, 0, [])


def test_an_event_at_which_the_upstream_fails_is_tried_more_and_more_slowly(memory: Memory) -> None:
    """From the third connection that fails at one event on, a back-off is recorded, until one gets past the event."""
    store, fails = memory.store(), sends(CHUNKED, b"fff\r\nid: 2\ndata: the upstream fails he")
    assert connect(memory, sends(UNTIL_CLOSE + EVENT)).same_ends == 0
    for times in (1, 2, 3):
        began_ms = SystemClock().now_ms()
        assert connect(memory, fails).same_ends == store.read(STREAM).rest.same_ends == times
        assert (store.read(STREAM).rest.until_ms > began_ms) == (times == 3)
    rest_ms = store.read(STREAM).rest.until_ms
    assert connect(memory, fails).same_ends == 4
    assert SystemClock().now_ms() >= rest_ms
    assert connect(memory, sends(UNTIL_CLOSE + b"id: 2\ndata: 2\n\n")).progress.stored == 1
    assert (store.read(STREAM).rest.same_ends, store.read(STREAM).rest.same_end) == (0, "")


def test_a_head_that_drips_is_a_stall(memory: Memory) -> None:
    """A byte now and then outside the body is no heartbeat: the lane would wait for its whole turn."""
    slow = "(stalled): a line outside the body did not arrive whole in 1 s"
    for head, where in ((b"HTTP/1.1 200 ", NOT_OPENED), (OK + b"X: ", NOT_OPENED), (CHUNKED + b"3;", CLOSED)):
        assert ending(memory, drips(head, b"x"), stall_after_s=1) == ("StreamDropped", f"{where} {slow}")


def test_a_body_that_drips_is_connected_until_the_deadline_and_not_longer(memory: Memory) -> None:
    """Each byte of the body is a heartbeat, so only the function's deadline ends the connection."""
    report = connect(memory, drips(UNTIL_CLOSE, b":"), stall_after_s=1, lasts_ms=4_000)
    assert (report.outcome.error, report.progress.ended_by) == ("ConnectionExpired", "expired")
    assert 5 < report.progress.bytes < 100


def test_a_stream_that_drips_is_handed_over_as_any_other(aws: Aws) -> None:
    """A successor takes over while the older connection receives a byte now and then."""
    connected = threading.Event()

    def script(peer: Peer) -> None:
        peer.send(UNTIL_CLOSE)
        connected.set()
        drips(b"", b":")(peer)

    store = aws.store()

    def take_over() -> None:
        assert connected.wait(60)
        lease = store.claim(STREAM, execution="", holder="B/r2").record.lease
        store.mark_connected(STREAM, lease.fence, SystemClock().now_ms() + 60_000)

    successor = threading.Thread(target=take_over)
    successor.start()
    error, message = ending(aws, script)
    successor.join(60)
    assert (error, message) == ("StreamTakenOver", "connection 2 has taken over")


NO_SIZE, TRUNCATED = "(protocol): a chunk of the body has no size", "(truncated): the body ended before its end"
LIES: dict[bytes, str] = {
    # No hexadecimal number, a negative one, Python's prefix and underscore, no size, and too many digits.
    **dict.fromkeys((b"zz\r\n", b"-5\r\ndata: x\n\n", b"0x5\r\n: hi\n\r\n", b"1_0\r\n", b"\r\n"), NO_SIZE),
    b"f" * 17 + b"\r\n": NO_SIZE,
    # A size that is too small, and one too large; then no last chunk, half a size, half an end.
    b"3\r\n: hi there\n\r\n": "(protocol): a chunk of the body is not as long as its size says",
    b"fffffffffffffff\r\n: hi\n": TRUNCATED,
    **dict.fromkeys((b"5\r\n: hi\n\r\n", b"5", b"5\r\n: hi\n\r"), TRUNCATED),
}


@pytest.mark.parametrize("sent", LIES)
def test_a_chunk_of_a_wrong_size_ends_the_connection_after_storing_earlier_events(memory: Memory, sent: bytes) -> None:
    """Bytes in the place of a size are never taken for the body."""
    before = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
    assert ending(memory, sends(CHUNKED, before, sent)) == ("StreamDropped", f"{CLOSED} {LIES[sent]}")
    assert [item["data"] for item in memory.items(EVENTS, STREAM).values()] == ["1"]


def test_bytes_after_the_end_of_a_body_are_not_read(memory: Memory) -> None:
    """Bytes after the last chunk, or after Content-Length, do not count."""
    more = b"id: 2\ndata: 2\n\n"
    chunked = CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n%x\r\n%s\r\n" % (len(EVENT), EVENT, len(more), more)
    counted = OK + b"Content-Length: %d\r\n\r\n%s%s" % (len(EVENT), EVENT, more)
    for answer in (chunked, counted):
        report = connect(memory, sends(answer))
        assert report.outcome.message == f"{CLOSED} (ended_by_upstream)"
        assert (report.progress.frames, report.progress.bytes) == (1, len(EVENT))


@pytest.mark.parametrize(
    ("length", "why"),
    [
        (b"1000", "(truncated): the body ended before its end"),
        (b"-5", "(ended_by_upstream)"),
        (b"9" * 5000, "(ended_by_upstream)"),
        (b"ten", "(ended_by_upstream)"),
    ],
)
def test_a_wrong_content_length_loses_nothing_that_came(memory: Memory, length: bytes, why: str) -> None:
    """If the length is too large the body is truncated; a text that is no number is ignored."""
    report = connect(memory, sends(OK + b"Content-Length: %s\r\n\r\n%s" % (length, EVENT)))
    assert (report.outcome.error, report.outcome.message) == ("StreamDropped", f"{CLOSED} {why}")
    assert report.progress.stored == 1


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (OK + b"secret\r\nTransfer-Encoding: chunked", "a line of the answer's head is not a valid header"),
        (OK + b"Transfer-Encoding: gzip, chunked", "the answer has a transfer coding that was not requested"),
        (OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "the answer has a transfer coding"),
        (OK + b"\r\n".join([b"a: b"] * 100), "the answer's head has more than 100 lines"),
        (OK + b"Content-Length: 5, 6", "the answer is not valid HTTP (InvalidHeader)"),
        (b"HTTP/1.1 99999999 OK", "the answer is not valid HTTP (ProtocolError)"),
        (b"HTTP/2 200", "the answer is not valid HTTP (ProtocolError)"),
        (b"ICY 200 OK", "the answer is not valid HTTP (ProtocolError)"),
        *((b"HTTP/1.1 200" + cut, "the answer's head ended before its end") for cut in (b"", b" OK\r\n", b"\r\nA-b")),
    ],
)
def test_an_invalid_head_ends_the_connection_and_nothing_of_it_is_logged(
    memory: Memory, head: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The body after such a head could be anything; no log has the address, which may hold a secret."""
    with caplog.at_level(logging.INFO):
        error, message = ending(memory, sends(head + b"\r\n\r\n" * ("ended" not in why)))
    assert error == "StreamDropped"
    assert message.startswith(f"{NOT_OPENED} (protocol): {why}")
    assert "hidden" not in caplog.text
    assert "secret" not in caplog.text


def test_interim_answers_are_passed_over(memory: Memory) -> None:
    """Every 1xx before the answer is skipped, as HTTP requires, except a 101, which was not requested."""
    hints = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
    )
    assert connect(memory, sends(hints + UNTIL_CLOSE + EVENT)).progress.stored == 1
    switched = ("StreamDropped", f"the upstream answered 101{PASSES}")
    assert ending(memory, sends(b"HTTP/1.1 101 Switching\r\n\r\n")) == switched


def answer(status: int, *headers: bytes) -> bytes:
    """Return an answer with a page for people."""
    return b"".join(
        [b"HTTP/1.1 %d X\r\n" % status, *(header + b"\r\n" for header in headers), b"\r\n<html>Sorry</html>"]
    )


LINES = {"framing": "ndjson"}
EVENTS_OF, HTML, JSON = (b"Content-Type: " + kind for kind in (b"text/event-stream", b"text/html", b"application/json"))
NO_STREAM = {
    "a content type other than text/event-stream": ({}, answer(200, HTML)),
    "an HTML page instead of a stream": (LINES, answer(200, HTML)),
}
NO_CODING = "the body is compressed by a coding that was not requested"
DROPPED = "StreamDropped"
ROUND = f"{NOT_OPENED} (rejected): the upstream redirected more than 5 times"
REFUSED = (301, 404, 451)


@pytest.mark.parametrize(
    ("fields", "answer", "error", "message"),
    [
        *((*sent, DROPPED, f"the upstream answered with {what}{PASSES}") for what, sent in NO_STREAM.items()),
        *(({}, answer(status), DROPPED, f"the upstream answered {status}{PASSES}") for status in REFUSED),
        (LINES, answer(200, JSON), DROPPED, "the body begins with markup: it is a page, not a stream"),
        ({}, answer(200, EVENTS_OF, b"Content-Encoding: br"), DROPPED, NO_CODING + PASSES),
        ({}, answer(200, EVENTS_OF, *[b"Content-Encoding: gzip"] * 2), DROPPED, NO_CODING + PASSES),
        ({}, answer(429, b"Retry-After: " + b"9" * 5000), "StreamThrottled", "the upstream answered 429"),
        ({}, answer(503, b"Content-Encoding: br"), DROPPED, "the upstream answered 503"),
        ({}, answer(302, b"Location: /round"), DROPPED, ROUND + PASSES),
    ],
)
def test_an_answer_that_is_no_stream_ends_with_its_reason(
    memory: Memory, fields: dict[str, Any], answer: bytes, error: str, message: str
) -> None:
    """A page, a coding that cannot be read, a loop of redirects: none becomes an event."""
    assert ending(memory, sends(answer), **fields) == (error, message)
    assert memory.items(EVENTS, STREAM) == {}
