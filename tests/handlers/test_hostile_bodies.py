"""Bodies that explode, break off or contain nonsense are stored or end with a named error, in little memory.

docs/hostile.md has a row for each.
"""

import gzip
import json
import subprocess
import sys
import zlib
from typing import Any

import pytest

from handlers.upstream.reader import CHUNK_BYTES
from tests.handlers.aws import Memory
from tests.handlers.hostile import CLOSED, EVENT, STREAM, Flood, connect
from tests.handlers.servers import OK, UNTIL_CLOSE, Script, sends, serving

GZIP = OK + b"Content-Encoding: gzip\r\n\r\n"
PACKED = gzip.compress(EVENT, mtime=0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (PACKED[:-8], "(truncated): the compressed body was cut off"),
        (PACKED + b"<html>", "(protocol): the body is not compressed as its header says"),
        (PACKED + gzip.compress(b": hi\n", mtime=0), "(ended_by_upstream)"),
    ],
    ids=["truncated", "damaged", "several members"],
)
def test_a_compressed_body_that_breaks_off_is_stored_as_far_as_it_came(memory: Memory, body: bytes, why: str) -> None:
    """If a compressed body is truncated, damaged, or has several members, the events before the problem are stored."""
    report = connect(memory, sends(GZIP + body))
    assert (report.outcome.error, report.outcome.message) == ("StreamDropped", f"{CLOSED} {why}")
    assert report.progress.stored == 1


def hostile_lines() -> dict[str, bytes]:
    deep = b'{"id": %s%s}' % (b"[" * 20_000, b"]" * 20_000)
    edge = [b'{"id": %s%s}' % (b"[" * depth, b"]" * depth) for depth in range(900, 1000, 3)]
    return {
        "no UTF-8": b'{"id": "\xff"}',
        "a name that stands twice": b'{"id": 1, "id": 2}',
        "half of a surrogate pair": b'{"id": "\\ud800"}',
        "deep nesting": deep,
        "a number of many digits": b'{"id": %s}' % (b"9" * 5000),
        "a number of many powers": b'{"id": 1e%s}' % (b"9" * 5000),
        "a number that is none": b'{"id": NaN}',
        "a long text": b'{"id": "%s"}' % (b"x" * 70_000),
        "no JSON": b"secret",
    } | {f"nesting at the edge {number}": line for number, line in enumerate(edge)}


@pytest.mark.parametrize("key", ["$.id", ["$.id", "$.id"], "hash"])
def test_lines_that_are_strange_json_are_stored_as_they_came(memory: Memory, key: Any) -> None:
    """Lines of strange or invalid JSON break no rule for keys, cursors and ends; each is stored whole."""
    lines = hostile_lines()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    end = {"json": {"$.id": "over"}}
    answer = head + b"".join(line + b"\n" for line in lines.values()) + b'{"id": "over"}\n'
    fields = {"framing": "ndjson", "key": key, "cursor": "$.id", "resume": {"query": "since"}, "end": end}
    report = connect(memory, sends(answer), **fields)
    assert (report.outcome.error, report.outcome.status) == ("", "ended")
    assert report.progress.frames == report.progress.stored == len(lines) + 1
    assert memory.store().read(STREAM).cursor == "over"


def test_an_id_too_long_for_a_request_is_no_cursor(memory: Memory) -> None:
    """If an id is too long for a request, its hash is the event's key, and the cursor before it is kept."""
    report = connect(memory, sends(UNTIL_CLOSE + EVENT + b"id: %s\ndata: 2\n\n" % (b"x" * 70_000)))
    assert report.progress.stored == 2
    assert memory.store().read(STREAM).cursor == "1"


# Reads its upstreams under a memory limit, and prints the results.
READER = """
import json, resource, sys, threading
from handlers.framing.decoders import make_decoder
from handlers.framing.frames import FramingError
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.connection.inputs import Chunk, Closed
from handlers.upstream.reader import Upstream
threading.stack_size(256 * 1024)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for skips, address in zip((True, True, False), sys.argv[2:]):
    request = UpstreamRequest("GET", address, {}, allow_private=True)
    upstream = Upstream(request, connect_timeout_s=5, stall_after_s=5)
    frames = make_decoder("sse", 1024 * 1024, skips=skips)
    upstream.start()
    longest = total = 0
    end = None
    while end is None:
        arrival = upstream.get(60)
        if isinstance(arrival, Chunk):
            longest, total = max(longest, len(arrival.data)), total + len(arrival.data)
            try:
                assert frames.feed(arrival.data) == []
            except FramingError as error:
                end = str(error)
        elif isinstance(arrival, Closed):
            end = arrival.reason
    upstream.close()
    print(json.dumps([longest, total, end]))
"""


def bomb(text: bytes, times: int) -> Script:
    """Return `times` times `text` as one endless gzip stream: each repetition is the same few bytes."""
    compressor = zlib.compressobj(9, wbits=31)
    head = compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(text) + compressor.flush(zlib.Z_FULL_FLUSH)
    return sends(GZIP, head, block * times)


def test_bombs_are_read_within_little_memory() -> None:
    """A process with 32 MB of memory skips a line of 40 MB that was packed in 40 KB, and reads 36 MB of comments.

    A decoder that may not skip fails at max_frame_bytes.
    """
    mega = 1024 * 1024
    line = bomb(b"x" * mega, 40)
    comments = bomb((b":" + b"x" * 62 + b"\n") * (mega // 64), 36)
    flood = Flood(UNTIL_CLOSE, b"x" * 65536)
    with serving(line) as first, serving(comments) as second, serving(flood) as third:
        addresses = [server.address for server in (first, second, third)]
        command = [sys.executable, "-c", READER, str(32 * mega), *addresses]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stderr == ""
    too_long = f"a frame is longer than max_frame_bytes ({mega})"
    results = [json.loads(answer) for answer in done.stdout.splitlines()]
    assert [end for *_, end in results] == ["truncated", "truncated", too_long]
    assert [total for _, total, _ in results[:2]] == [40 * mega, 36 * mega]
    assert all(longest <= CHUNK_BYTES for longest, *_ in results)
    assert all(total <= mega + CHUNK_BYTES for _, total, end in results if end == too_long)
