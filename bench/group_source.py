"""`python -m bench.group_source`: the upstream of a group's streams and a bucket, in a process of their own.

A stream whose path begins with `/calm` gets an event each time its share of a second is over; what every other path
gets says its first word, one of `BEHAVIOURS`. Each event holds the instant at which it was sent, by the monotonic
clock, which all processes of a machine share. The first line that it prints are two ports: the upstream's, and the
bucket's.
Invariant: the events of a stream are numbered from 1 on without holes, over all its connections.
"""

import argparse
import asyncio
import contextlib
import os
import ssl
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

from bench.memory_parts import FRAMES, content_type

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOOD_EVENTS = 100
LARGE_BYTES = 10 * 1024 * 1024
DRIP_S = 0.001
PADDING = "The quick brown fox jumps over the lazy dog. " * 40
PORTION_BYTES = 64 * 1024


class Source:
    """All streams: how they are framed, how often a calm one gets an event, and of how many bytes."""

    def __init__(self, framing: str, events_per_s: float, event_bytes: int, large_bytes: int) -> None:
        self._framing = framing
        self._every_s = 1 / events_per_s
        self._padding = PADDING[: max(0, event_bytes - 50)]
        self._large_bytes = large_bytes
        self._numbers: dict[str, int] = defaultdict(int)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Plays one connection of the stream that its request names."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            name = request.split()[1].decode().strip("/")
            behaviour = BEHAVIOURS[name.partition("-")[0]]
            if behaviour is not Source.refuses:
                writer.write(HEAD.format(content_type(self._framing)).encode())
            await behaviour(self, name, writer)
        writer.close()

    def event(self, name: str, text: str = "") -> bytes:
        """The next event of the stream, as it is on the wire."""
        self._numbers[name] += 1
        number = self._numbers[name]
        body = f'{{"n":{number},"sent_us":{time.monotonic_ns() // 1000},"text":"{text or self._padding}"}}'
        return FRAMES[self._framing](number, body).encode()

    # --- what a stream does -------------------------------------------------------------------------------------------

    async def calm(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event, and then the rest of its time; the streams are spread over it."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._every_s * (zlib.crc32(name.encode()) % 1000 / 1000)
        while True:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            due_s += self._every_s
            writer.write(_chunk(self.event(name)))
            await writer.drain()

    async def flood(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Events as fast as they are taken, each a chunk."""
        while True:
            writer.write(b"".join(_chunk(self.event(name)) for _ in range(FLOOD_EVENTS)))
            await writer.drain()
            await asyncio.sleep(0)

    async def large(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Large events that nothing can compress to less than half, one after the other."""
        while True:
            whole = self.event(name, os.urandom(self._large_bytes // 2).hex())
            for at in range(0, len(whole), PORTION_BYTES):
                writer.write(_chunk(whole[at : at + PORTION_BYTES]))
                await writer.drain()
                await asyncio.sleep(0)

    async def unfinished(self, name: str, writer: asyncio.StreamWriter) -> None:
        """A large event without its end, then silence."""
        whole = self.event(name, os.urandom(self._large_bytes // 2).hex())
        for at in range(0, len(whole) - 10, PORTION_BYTES):
            writer.write(_chunk(whole[at : min(at + PORTION_BYTES, len(whole) - 10)]))
            await writer.drain()
        await self.stall(name, writer)

    async def drip(self, name: str, writer: asyncio.StreamWriter) -> None:
        """A byte at a time, each a chunk, of an event that never ends."""
        writer.write(_chunk(self.event(name)[:40]))
        while True:
            writer.write(_chunk(b"x"))
            await writer.drain()
            await asyncio.sleep(DRIP_S)

    async def stall(self, _name: str, writer: asyncio.StreamWriter) -> None:
        """Nothing at all, and no end."""
        await writer.drain()
        await asyncio.Event().wait()

    async def lies(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event, and then a chunk that is longer than it says."""
        writer.write(_chunk(self.event(name)) + b"5\r\nnot five bytes\r\n")
        await writer.drain()

    async def ends(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event, and the end of the body."""
        writer.write(_chunk(self.event(name)) + b"0\r\n\r\n")
        await writer.drain()

    async def refuses(self, _name: str, writer: asyncio.StreamWriter) -> None:
        """503 at once, each time."""
        writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()


BEHAVIOURS: dict[str, Callable[[Source, str, asyncio.StreamWriter], Awaitable[None]]] = {
    name: getattr(Source, name)
    for name in ("calm", "flood", "large", "unfinished", "drip", "stall", "lies", "ends", "refuses")
}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def bucket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes what is put into it, and forgets it."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            left = int(length.partition(b":")[2])
            while left:
                left -= len(await reader.read(min(left, PORTION_BYTES)))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
    writer.close()


async def main() -> None:
    """Serves until the process ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.group_source")
    parser.add_argument("--framing", choices=FRAMES, default="sse")
    parser.add_argument("--events-per-s", type=float, default=1, help="of a calm stream")
    parser.add_argument("--event-bytes", type=int, default=200)
    parser.add_argument("--large-bytes", type=int, default=LARGE_BYTES)
    parser.add_argument("--certificate", default="", help="a file with a key and a certificate: serve TLS")
    options = parser.parse_args()
    source = Source(options.framing, options.events_per_s, options.event_bytes, options.large_bytes)
    tls = None
    if options.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate)
    upstream = await asyncio.start_server(source.serve, "127.0.0.1", 0, ssl=tls, backlog=600)
    objects = await asyncio.start_server(bucket, "127.0.0.1", 0)
    print(*(server.sockets[0].getsockname()[1] for server in (upstream, objects)), flush=True)
    await asyncio.gather(upstream.serve_forever(), objects.serve_forever())


if __name__ == "__main__":
    asyncio.run(main())
