"""`python -m bench.upstreams PLAN`: plays the upstream of a function's streams, and a bucket, in a separate process.

The first word of a stream's path names what it does, a method of `Source`. Each event contains the instant at which it
was sent, by the monotonic clock, which all processes of a machine share. It first prints two ports, the upstream's and
the bucket's, and then a line of JSON if a behaviour reports. Invariant: the events of a stream are numbered from 1
without holes, over all its connections.
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from handlers.framing.decoders import FRAMINGS, Framing
from handlers.framing.websocket import CLOSE, TEXT, encoded_frame
from handlers.upstream.socket_response import accept_of

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n{}\r\n"
SWITCH = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n"
)
# How each framing delimits a text, a character for each byte; `raw` by the chunks of the transfer coding.
FRAMES: dict[str, Callable[[int, str], str]] = {
    "sse": lambda number, text: f"id: {number}\ndata: {text}\n\n",
    "ndjson": lambda _number, text: f"{text}\n",
    "json-seq": lambda _number, text: f"\x1e{text}\n",
    "length": lambda _number, text: f"{len(text)}\r\n{text}",
    "raw": lambda _number, text: text,
    "websocket": lambda _number, text: encoded_frame(TEXT, text.encode()).decode("latin-1"),
}
MIB = 1024 * 1024
AT_ONCE = 500
DRIP_S, TICK_S, BETWEEN_LARGE_S = 0.001, 0.01, 0.2
PADDING = "The quick brown fox jumps over the lazy dog. " * 80
PORTION_BYTES = 64 * 1024
# The bytes of an event besides its text, at most.
BESIDE = 200
# A read of a body takes at most this much at once, so an event of `raw` is not larger.
RAW_BYTES = 60 * 1024


@dataclass(frozen=True)
class Plan:
    """How many streams do what, their framing and store, and what the behaviours need."""

    streams: Mapping[str, int]
    framing: str = "sse"
    store: str = "items"
    events_per_s: float = 1  # 0 is as fast as they are taken
    event_bytes: int = 200
    large_bytes: int = 10 * MIB
    max_frame_bytes: int = 16 * MIB
    fields: str = ""  # further fields of the profile
    is_tls: bool = False
    certificate: str = ""
    events: int = 0  # how many events `fixed` sends
    seconds: float = 0  # how long `load` sends before `large` events of each size
    large: int = 0
    is_compressed: bool = False

    @property
    def ids(self) -> list[str]:
        return [one for behaviour in self.streams for one in self.ids_of_behaviour(behaviour)]

    def ids_of_behaviour(self, behaviour: str) -> list[str]:
        return [f"{behaviour}:{number}" for number in range(self.streams[behaviour])]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the large events of `load`: one that fits into an item, and others that do not."""
        if self.framing == "raw":
            return [RAW_BYTES - BESIDE]
        return [300 * 1024, 600 * 1024, self.max_frame_bytes - BESIDE]


class Source:
    """All streams of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._is_socket = plan.framing == "websocket"
        # Section 5.5.1 of RFC 6455: a close frame without a code.
        self._over = encoded_frame(CLOSE, b"") if self._is_socket else b"0\r\n\r\n"
        self._numbers: dict[str, int] = defaultdict(int)
        self._fixed = [self._chunk(self.event("fixed")) for _ in range(plan.events)]
        self._fixed.append(self._chunk(self._done(plan.events)) + self._over)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Plays one connection of the stream that its request names."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await reader.readuntil(b"\r\n\r\n")
            name = request.split()[1].decode().strip("/")
            behaviour = name.partition("-")[0]
            if self._is_socket:
                writer.write(SWITCH.format(_accept(request)).encode())
            elif behaviour != "refuses":
                accept = FRAMINGS[cast(Framing, self._plan.framing)].accept.partition(",")[0]
                gzip = "Content-Encoding: gzip\r\n" if self._plan.is_compressed else ""
                writer.write(HEAD.format(accept, gzip).encode())
            await getattr(self, behaviour)(name, writer)
        writer.close()

    def event(self, name: str, size: int = 0) -> bytes:
        """The next event of the stream as it is sent; one of a given `size` cannot be compressed to half of that."""
        self._numbers[name] += 1
        number = self._numbers[name]
        text = os.urandom(size // 2).hex() if size else PADDING[: max(0, self._plan.event_bytes - 50)]
        body = f'{{"n":{number},"sent_us":{time.monotonic_ns() // 1000},"text":"{text}"}}'
        return FRAMES[self._plan.framing](number, body).encode("latin-1")

    def _done(self, last: int) -> bytes:
        """The end mark after event `last`."""
        return FRAMES[self._plan.framing](last + 1, "[DONE]").encode("latin-1")

    # --- what a stream does -------------------------------------------------------------------------------------------

    async def calm(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event at regular intervals, over which the streams are spread."""
        loop, every_s = asyncio.get_running_loop(), 1 / self._plan.events_per_s
        due_s = loop.time() + every_s * (zlib.crc32(name.encode()) % 1000 / 1000)
        while True:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            due_s += every_s
            writer.write(self._chunk(self.event(name)))
            await writer.drain()

    async def flood(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Events as fast as they are taken, one per chunk."""
        while True:
            writer.write(b"".join(self._chunk(self.event(name)) for _ in range(100)))
            await writer.drain()
            await asyncio.sleep(0)

    async def large(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Large events, one after the other."""
        while True:
            await self._send(writer, self.event(name, self._plan.large_bytes))

    async def unfinished(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event, then a large one without its end, and silence."""
        await self._send(writer, self.event(name) + self.event(name, self._plan.large_bytes)[:-10])
        await self.stall(name, writer)

    async def drip(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event that never ends, one byte per chunk."""
        writer.write(self._chunk(self.event(name)[:40]))
        while True:
            writer.write(self._chunk(b"x"))
            await writer.drain()
            await asyncio.sleep(DRIP_S)

    async def stall(self, _name: str, writer: asyncio.StreamWriter) -> None:
        """Nothing at all, and no end."""
        await writer.drain()
        await asyncio.Event().wait()

    async def lies(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event, and then a chunk that is longer than it says."""
        writer.write(self._chunk(self.event(name)) + b"5\r\nnot five bytes\r\n")

    async def ends(self, name: str, writer: asyncio.StreamWriter) -> None:
        """An event, and the end of the body."""
        writer.write(self._chunk(self.event(name)) + self._over)

    async def refuses(self, _name: str, writer: asyncio.StreamWriter) -> None:
        """503 at once, each time."""
        writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")

    async def fixed(self, _name: str, writer: asyncio.StreamWriter) -> None:
        """The same events to each connection, one per chunk, and an end; reports for how long nothing could be sent."""
        begun_s, stood_s, per_s = time.monotonic(), 0.0, self._plan.events_per_s
        step = 1 if per_s else AT_ONCE
        for at in range(0, len(self._fixed), step):
            if per_s:
                await asyncio.sleep(max(0.0, begun_s + at / per_s - time.monotonic()))
            since_s = time.monotonic()
            writer.write(b"".join(self._fixed[at : at + step]))
            await writer.drain()
            stood_s += time.monotonic() - since_s
        _report(stood_still_s=round(stood_s, 3))

    async def load(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Events for some seconds, then with large ones among them, and an end mark; reports both ends."""
        _report(asked_s=time.monotonic())
        plan, is_raw = self._plan, self._plan.framing == "raw"
        packer = zlib.compressobj(1, wbits=31) if plan.is_compressed else None

        async def send(events: list[bytes]) -> None:
            for piece in events if is_raw else [b"".join(events)]:
                data = piece if packer is None else packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)
                if data:
                    writer.write(self._chunk(data))
                await writer.drain()

        async def steady(for_s: float) -> None:
            begun_s, first = time.monotonic(), self._numbers[name]
            while (elapsed_s := time.monotonic() - begun_s) < for_s:
                sent = self._numbers[name]
                due = first + int(elapsed_s * plan.events_per_s) if plan.events_per_s else sent + AT_ONCE
                await send([self.event(name) for _ in range(sent, due)])
                if plan.events_per_s:
                    await asyncio.sleep(TICK_S)

        await steady(plan.seconds)
        for size in plan.sizes if plan.large else ():
            for _ in range(plan.large):
                await send([self.event(name, size)])
                await steady(BETWEEN_LARGE_S)
        await send([self._done(self._numbers[name])])
        writer.write(self._over)
        await writer.drain()
        _report(sent=self._numbers[name] + 1)

    def _chunk(self, data: bytes) -> bytes:
        return data if self._is_socket else b"%x\r\n%s\r\n" % (len(data), data)

    async def _send(self, writer: asyncio.StreamWriter, whole: bytes) -> None:
        for at in range(0, len(whole), PORTION_BYTES):
            writer.write(self._chunk(whole[at : at + PORTION_BYTES]))
            await writer.drain()
            await asyncio.sleep(0)


def _accept(request: bytes) -> str:
    key = next(line for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
    return accept_of(key.partition(b":")[2].strip())


def _report(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


async def bucket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts objects and forgets them."""
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


async def main(plan: Plan) -> None:
    """Serves until the process ends."""
    tls = None
    if plan.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(plan.certificate)
    upstream = await asyncio.start_server(Source(plan).serve, "127.0.0.1", 0, ssl=tls, backlog=600)
    objects = await asyncio.start_server(bucket, "127.0.0.1", 0)
    print(*(server.sockets[0].getsockname()[1] for server in (upstream, objects)), flush=True)
    await asyncio.gather(upstream.serve_forever(), objects.serve_forever())


if __name__ == "__main__":
    asyncio.run(main(Plan(**json.loads(sys.argv[1]))))
