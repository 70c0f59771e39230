"""`python -m bench.fleet_peers STREAMS EVERY_S`: plays the upstream of a fleet, and counts requests to its tables.

They have a process of their own, so that their work is not measured. The upstream serves any number of streams (`/0`,
`/1` …) as server-sent events: each has an event every EVERY_S seconds, at its own moments, and resumes behind an id. It
remembers each event that it has sent to anybody. The counter passes requests on to the tables and counts them by
operation. Invariant: an event is in the answer to `report` before a byte of it is sent.

It first prints both ports in one line. Then it answers lines: `tables HOST PORT` says where the counter leads to,
`quiet` ends the events, `counts` asks for the counts so far, `report` for all that was sent.
"""

import asyncio
import contextlib
import json
import math
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
# The moments of neighbouring streams are spread over the interval.
_GOLDEN = 0.618033988749895
_OPERATION = re.compile(rb"x-amz-target: *DynamoDB_\d+\.(\w+)\r\n", re.IGNORECASE)
_LONGEST = 80  # of such a line
_READ = 64 * 1024


def data(stream: int, number: int) -> str:
    """The body of an event: some 200 bytes that no other event has."""
    text = f"Event {number} of stream {stream}. " * 8
    return json.dumps({"stream": stream, "n": number, "text": text[:160]})


@dataclass(slots=True)
class ServedStream:
    """One stream: its connections, what was sent, and for how long it had none in between."""

    number: int
    phase: float
    connected: int = 0
    sent: set[int] = field(default_factory=set)
    openings: int = 0
    left_s: float | None = None
    gaps_ms: list[float] = field(default_factory=list)


class Upstream:
    """All streams, each with an event every `every_s`."""

    def __init__(self, streams: int, every_s: float) -> None:
        self._every_s = every_s
        self._origin_s = time.monotonic()
        self.streams = [ServedStream(number, number * _GOLDEN % 1) for number in range(streams)]
        self._last_s = math.inf

    def quiet(self) -> None:
        """Ends the events."""
        self._last_s = time.monotonic()

    async def _send(self, stream: ServedStream, number: int, writer: asyncio.StreamWriter) -> None:
        """Sends the events from this number on, each at its moment; past ones at once."""
        while (due_s := self._origin_s + (stream.phase + number - 1) * self._every_s) <= self._last_s:
            if (wait_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
                continue
            stream.sent.add(number)
            text = f"id: {number}\ndata: {data(stream.number, number)}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            number += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one connection until its client ends it, or this process ends."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split()[1].rsplit(b"/", 1)[1]
            if not name.isdigit():
                writer.write(NOT_FOUND)
                writer.close()
                return
            stream = self.streams[int(name)]
            cursor, now_s = re.search(rb"last-event-id: *(\d+)", head, re.IGNORECASE), time.monotonic()
            newest = max(0, int((min(now_s, self._last_s) - self._origin_s) / self._every_s - stream.phase) + 1)
            if stream.left_s is not None and not stream.connected:
                stream.gaps_ms.append((now_s - stream.left_s) * 1000)
            stream.connected += 1
            stream.openings += 1
            writer.write(HEAD)
            sending = asyncio.create_task(self._send(stream, (int(cursor[1]) if cursor else newest) + 1, writer))
            try:
                while await reader.read(_READ):
                    pass
            finally:
                sending.cancel()
                stream.connected -= 1
                stream.left_s = time.monotonic()
        writer.close()

    def counts(self) -> dict[str, Any]:
        gaps_ms = [gap_ms for one in self.streams for gap_ms in one.gaps_ms]
        return {
            "connected": sum(one.connected > 0 for one in self.streams),
            "openings": sum(one.openings for one in self.streams),
            "sent": sum(len(one.sent) for one in self.streams),
            "gaps": len(gaps_ms),
            "gap_ms": round(max(gaps_ms, default=0.0), 1),
        }


class RequestCounter:
    """Passes connections on to the tables, and counts the requests by operation."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.tables = ("", 0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes one connection on until one side ends it, or this process ends."""
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there, back = await asyncio.open_connection(*self.tables)
            answers = asyncio.create_task(_pass_on(there, writer))
            with contextlib.suppress(OSError):
                rest = b""
                while piece := await reader.read(_READ):
                    rest = self._counts(rest + piece)
                    back.write(piece)
                    await back.drain()
            back.close()
            await answers
        writer.close()

    def _counts(self, read: bytes) -> bytes:
        """What may be the beginning of a line that is not complete yet."""
        end = 0
        for match in _OPERATION.finditer(read):
            self.requests[match[1].decode()] += 1
            end = match.end()
        return read[max(end, len(read) - _LONGEST) :]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_READ):
            writer.write(piece)
            await writer.drain()
        writer.close()


async def serve(streams: int, every_s: float) -> None:
    """Serves until its standard input ends."""
    upstream, counted = Upstream(streams, every_s), RequestCounter()
    servers = [await asyncio.start_server(one.serve, HOST, 0, backlog=1024) for one in (upstream, counted)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while words := (await lines.readline()).decode().split():
        match words:
            case ["tables", host, port]:
                counted.tables = host, int(port)
            case ["quiet"]:
                upstream.quiet()
            case ["counts"]:
                _say(upstream.counts() | {"requests": counted.requests})
            case ["report"]:
                _say([sorted(one.sent) for one in upstream.streams])


def _say(what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
