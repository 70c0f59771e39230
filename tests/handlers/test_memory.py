"""The memory that a large event takes: a function of 128 MB can hold an event of 16 MB once, and little more."""

import gc
import os
import threading
import tracemalloc
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from handlers.framing.events import StreamEvent
from handlers.framing.frames import Decoder
from handlers.framing.sse import SseDecoder
from handlers.framing.websocket import TEXT, WebSocketDecoder, encoded_frame
from handlers.run.threads import Bell, Pool
from handlers.store.event_items import event_item

MB = 1024 * 1024
BOUND = 2 * MB
READ = 64 * 1024


@pytest.fixture
def traced() -> Iterator[None]:
    """Count the memory of Python's objects."""
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


def decoded(decoder: Decoder, wire: bytes) -> list[Any]:
    """Return what the decoder makes of the wire, read in pieces; its memory stays below 2.3 times the bound."""
    found: list[Any] = []
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    for at in range(0, len(wire), READ):
        found += decoder.feed(wire[at : at + READ])
    _, most = tracemalloc.get_traced_memory()
    assert most - before < 2.3 * BOUND
    return found


@pytest.mark.usefixtures("traced")
def test_an_event_is_decoded_in_twice_its_size() -> None:
    """Decoding an event takes the memory of its bytes and its text, even if more events follow in the same read."""
    body = os.urandom(BOUND // 2 - 100).hex().encode()
    for behind in (b"", b"data: x\n\n" * 100):
        wire = b"id: 1\ndata: " + body + b"\n\n" + behind
        assert decoded(SseDecoder(BOUND), wire)[0].data == body.decode()


@pytest.mark.usefixtures("traced")
def test_a_text_is_compressed_piece_by_piece() -> None:
    """A text is compressed in pieces: the memory holds the result, and no copy of the text in bytes."""
    event = StreamEvent("1", "x" * 4 * MB, "1", None, None, 0)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    item = event_item("demo", 1, 1, event)
    _, most = tracemalloc.get_traced_memory()
    assert len(item["data"]["B"]) < MB
    assert most - before < 2 * MB


class Held:
    """An object that a request refers to."""


def test_the_stores_thread_keeps_nothing_of_a_request() -> None:
    """The thread may wait minutes for its next request; the events of the last request are freed by then."""
    pool = Pool(Bell(), 1, "store")
    held, asked = Held(), threading.Event()
    gone = weakref.ref(held, lambda _: asked.set())
    pool.ask("demo", lambda held=held: held and None)  # type: ignore[misc]
    del held
    assert asked.wait(60)
    assert gone() is None
    pool.stop(0)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("extension", ["", "permessage-deflate"])
def test_a_message_of_a_socket_is_decoded_in_little_more_than_twice_its_size(extension: str) -> None:
    """Decoding a message takes the memory of its bytes and its text, in one frame or many, compressed or not."""
    body = os.urandom(BOUND // 2 - 100).hex().encode()
    payload = zlib.compress(body, wbits=-15) if extension else body
    for size in (len(payload), 4_000):
        pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
        firsts = [(0x41 if extension else 0x01) if not at else 0x00 for at in range(len(pieces))]
        wire = b"".join(
            bytes([first]) + encoded_frame(TEXT, one)[1:] for first, one in zip(firsts, pieces, strict=True)
        )
        wire += b"\x80\x01\x00" if extension else b"\x80\x00"
        decoder = WebSocketDecoder(BOUND)
        decoder.take_headers({"sec-websocket-extensions": extension})
        assert decoded(decoder, wire) == [body.decode()]
