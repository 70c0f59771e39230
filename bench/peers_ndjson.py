"""Wraps the NDJSON readers that `bench.framing` compares, so that each reads chunks without a network.

Most read a file, so they get one whose reads are the chunks. `Work` says what a reader does with a line: text where it
can return the line itself, else JSON by the standard library or by orjson. Ours is measured with the same work.
Invariant: a wrapper returns everything that the reader returns, unchanged.
"""

import functools
import importlib
import io
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from bench.peers_sse import MAX_FRAME_BYTES, Raw, in_loop, stream_of
from handlers.framing.events import parse_json
from handlers.framing.ndjson import NdjsonDecoder

BUFFER_BYTES = 1 << 16
Work = Literal["text", "json", "orjson"]


class Reader(NamedTuple):
    """A reader, and its work on a line."""

    name: str
    work: Work
    read: Callable[[Sequence[bytes]], Iterable[Any]]


class Chunks(io.RawIOBase):
    """A file whose reads are the chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much of the next chunk as there is room for, and return the number of bytes; 0 at the end."""
        chunk = self._rest or next(self._chunks, b"")
        count = min(len(chunk), len(buffer))
        buffer[:count] = chunk[:count]
        self._rest = chunk[count:]
        return count


def file(chunks: Sequence[bytes]) -> io.BufferedReader:
    """Return a binary file of the chunks."""
    return io.BufferedReader(Chunks(chunks), BUFFER_BYTES)


def text_file(chunks: Sequence[bytes]) -> io.TextIOWrapper:
    """Return a text file of the chunks."""
    return io.TextIOWrapper(file(chunks), "utf-8", newline="\n")


def ours(work: Work) -> Reader:
    """The product's decoder as its reader calls it, with the peer's parser behind it."""

    def read(chunks: Sequence[bytes]) -> Iterable[Any]:
        return chain.from_iterable(map(NdjsonDecoder(MAX_FRAME_BYTES).feed, chunks))

    if work == "text":
        return Reader("streamkeeper", work, read)
    loads = parse_json if work == "json" else _load_of_orjson()
    return Reader("streamkeeper", work, lambda chunks: map(loads, read(chunks)))


def _load_of_orjson() -> Callable[[Any], Any]:
    loads: Callable[[Any], Any] = importlib.import_module("orjson").loads
    return loads


def _same(line: str) -> str:
    return line


def _by_requests(module: Any, chunks: Sequence[bytes]) -> Any:
    answer = module.Response()
    answer.status_code, answer.encoding, answer.raw = 200, "utf-8", Raw(chunks)
    return answer.iter_lines(decode_unicode=True)


def aiohttp() -> Reader:
    """aiohttp's stream, line by line."""
    importlib.import_module("aiohttp")

    async def consume(chunks: Sequence[bytes]) -> Any:
        return [line.decode() async for line in stream_of(chunks)]

    read: Any = in_loop(consume)
    return Reader("aiohttp, a loop over the content", "text", read)


# What each is called, its work, its module, and how that reads. Where it can have a parser it has one that leaves a
# line as it is; of ijson the fastest backend that it has here counts.
_PEERS: tuple[tuple[str, Work, str, Callable[[Any, Sequence[bytes]], Any]], ...] = (
    ("jsonlines", "text", "jsonlines", lambda module, chunks: module.Reader(file(chunks), loads=_same)),
    (
        "NewlineJSON", "text", "newlinejson",
        lambda module, chunks: module.NLJReader(text_file(chunks), json_lib=SimpleNamespace(loads=_same)),
    ),
    ("ndjson", "json", "ndjson", lambda module, chunks: module.reader(text_file(chunks))),
    ("json-lines", "json", "json_lines", lambda module, chunks: module.reader(file(chunks))),
    ("py-jsonl", "text", "jsonl", lambda module, chunks: module.load(file(chunks), cls=_same)),
    (
        "ijson", "orjson", "ijson",
        lambda module, chunks: module.items(file(chunks), "", multiple_values=True, use_float=True),
    ),
    ("orjson, a loop over a file", "orjson", "orjson", lambda module, chunks: map(module.loads, file(chunks))),
    ("requests, iter_lines", "text", "requests", _by_requests),
    (
        "httpx, iter_lines", "text", "httpx",
        lambda module, chunks: module.Response(200, content=iter(chunks)).iter_lines(),
    ),
)  # fmt: skip


def _peer(name: str, work: Work, package: str, read: Callable[[Any, Sequence[bytes]], Any]) -> Reader:
    return Reader(name, work, functools.partial(read, importlib.import_module(package)))


READERS: tuple[Callable[[], Reader], ...] = (*(functools.partial(_peer, *peer) for peer in _PEERS), aiohttp)
