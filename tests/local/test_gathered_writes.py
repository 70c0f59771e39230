"""Writes of one step of the event loop are sent together, in their order, and none is lost at the end."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.own_hosts import GatheredWrites


class Wire(asyncio.Transport):
    """A transport that remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return bool(self.ended)


@given(st.lists(st.binary(min_size=1, max_size=40_000), max_size=6))
def test_what_is_written_in_one_step_is_sent_together(pieces: list[bytes]) -> None:
    """As one, or in parts of some more than 64 KB; the next step sends what it writes itself."""

    async def run() -> Wire:
        wire = Wire()
        gathered = GatheredWrites(wire)
        for piece in pieces:
            gathered.write(piece)
        await asyncio.sleep(0)
        return wire

    wire = asyncio.run(run())
    assert b"".join(wire.sent) == b"".join(pieces)
    assert all(len(part) > 65_536 for part in wire.sent[:-1])


@pytest.mark.parametrize(("end", "ended"), [(GatheredWrites.close, "closed"), (GatheredWrites.abort, "aborted")])
def test_an_end_comes_behind_what_was_written(end: Callable[[GatheredWrites], None], ended: str) -> None:
    """Both ends of a connection; all else is the transport's own."""

    async def run() -> Wire:
        wire = Wire()
        gathered = GatheredWrites(wire)
        gathered.write(b"head")
        gathered.write(b"body")
        assert wire.sent == []
        end(gathered)
        assert gathered.is_closing()
        return wire

    wire = asyncio.run(run())
    assert (wire.sent, wire.ended) == ([b"headbody"], ended)
