"""Turns events into the bytes of a segment and back.

    {"at":[0,3],"id":["7","8"],"size":[14,12]}      when each came after the first, ids, the bodies' sizes
    event 7 of chaosevent 8 of …                    the bodies, one behind the other

All of that is compressed. Redundant columns are left out: keys that equal the ids, and names if there are none. In a
column similar texts are adjacent, so they compress better than the events one by one. Pure. Invariant: unpacking a
packed segment returns its events, byte for byte.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from handlers.framing.events import StreamEvent
from handlers.framing.frames import utf8_pieces
from handlers.framing.oversize import Oversize
from handlers.values import dataclass

# The zlib level: beyond it the time costs more than the saved write units. docs/store.md has the table.
LEVEL = 3
# The most bytes of events in a segment, if it has more than one; and how many may wait, so that one more chunk's events
# usually still fit.
SEGMENT_BYTES = 256 * 1024
WAITING_BYTES = 192 * 1024
# The bytes of an event besides its texts.
_EVENT_BYTES = 32
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PackedEvent:
    """An event as a segment has it; `data` is None if its body is elsewhere."""

    key: str
    id: str | None
    name: str | None
    received_at_ms: int
    data: str | bytes | None


def event_bytes(event: StreamEvent) -> int:
    """Returns about how many bytes the event takes in a segment before compression."""
    body = 0 if isinstance(event.data, Oversize) else len(event.data)
    return body + len(event.key) + len(event.id or "") + len(event.name or "") + _EVENT_BYTES


def split_into_parts(events: Sequence[StreamEvent]) -> Iterator[Sequence[StreamEvent]]:
    """Yields the events (at least one) in as few parts as fit a segment each.

    An event that is too large, or was too long to be read, is in a part by itself.
    """
    if _fits(events):
        yield events
        return
    begin = size = 0
    for at, event in enumerate(events):
        # A character may take three bytes.
        weight = event_bytes(event) * (1 if isinstance(event.data, bytes) or str(event.data).isascii() else 3)
        is_lone = isinstance(event.data, Oversize) or weight > SEGMENT_BYTES
        if begin < at and (is_lone or size + weight > SEGMENT_BYTES):
            yield events[begin:at]
            begin, size = at, 0
        size = SEGMENT_BYTES if is_lone else size + weight
    if begin < len(events):
        yield events[begin:]


def _fits(events: Sequence[StreamEvent]) -> bool:
    """Whether all certainly fit one segment, as nearly every write does."""
    keys, datas, ids, names, *_ = zip(*events, strict=True)
    if not {str, bytes}.issuperset(map(type, datas)):
        return False
    size = sum(map(len, datas)) + sum(map(len, keys)) + _EVENT_BYTES * len(events)
    size += sum(map(len, filter(None, ids))) + sum(map(len, filter(None, names)))
    return size * 3 <= SEGMENT_BYTES or (size <= SEGMENT_BYTES and all(data.isascii() for data in datas))


def pack(events: Sequence[StreamEvent], *, bodies: bool = True) -> bytes:
    """Returns the events, compressed; without their bodies if these are stored elsewhere."""
    keys, datas, ids, names, _, received = zip(*events, strict=True)
    since_ms = received[0]
    head: dict[str, Any] = {"since": since_ms, "at": [at_ms - since_ms for at_ms in received], "id": ids}
    if ids != keys:
        head["key"] = keys
    if names.count(None) < len(names):
        head["name"] = names
    if not bodies:
        return zlib.compress(_encode(head).encode() + b"\n", LEVEL)
    if len(events) == 1 and len(datas[0]) > SEGMENT_BYTES:
        return _pack_large(head, datas[0])
    contents = [data if isinstance(data, bytes) else data.encode() for data in datas]
    head["size"] = [len(one) for one in contents]
    if binary := [at for at, data in enumerate(datas) if isinstance(data, bytes)]:
        head["binary"] = binary
    # The head has no line end inside, because JSON escapes those of names and ids.
    return zlib.compress(b"".join((_encode(head).encode(), b"\n", *contents)), LEVEL)


def _pack_large(head: dict[str, Any], body: str | bytes) -> bytes:
    """As `pack`, for one event, piece by piece: a body of 16 MB does not fit into memory twice."""
    head["size"] = [sum(map(len, utf8_pieces(body)))]
    if isinstance(body, bytes):
        head["binary"] = [0]
    packer = zlib.compressobj(LEVEL)
    packed = [packer.compress(_encode(head).encode() + b"\n"), *map(packer.compress, utf8_pieces(body)), packer.flush()]
    return b"".join(packed)


def unpack(packed: bytes, most_bytes: int | None = None) -> list[PackedEvent]:
    """Returns the events; without their bodies, which are not unpacked, if these exceed `most_bytes` together."""
    head, rest, inflate = _head(packed)
    count = len(head["at"])
    ids = head["id"]
    keys = head.get("key", ids)
    names = head.get("name") or [None] * count
    binary = frozenset(head.get("binary", ()))
    bodies: list[str | bytes | None] = [None] * count
    sizes = head.get("size")
    if sizes is not None and (most_bytes is None or sum(sizes) <= most_bytes):
        content = rest + inflate.decompress(inflate.unconsumed_tail) + inflate.flush()
        end = 0
        for at, size in enumerate(sizes):
            begin, end = end, end + size
            body = content[begin:end]
            bodies[at] = body if at in binary else body.decode()
    return [
        PackedEvent(keys[at], ids[at], names[at], head["since"] + head["at"][at], bodies[at]) for at in range(count)
    ]


def last_received_ms(packed: bytes) -> int:
    """Returns when the last of the events was received; no body is unpacked."""
    head, _, _ = _head(packed)
    received_ms: int = head["since"] + head["at"][-1]
    return received_ms


def _head(packed: bytes) -> tuple[dict[str, Any], bytes, Any]:
    """The first line, the bytes unpacked after it, and the decompressor for the rest."""
    inflate = zlib.decompressobj()
    content = inflate.decompress(packed, _READ_BYTES)
    while (end := content.find(b"\n")) < 0:
        if inflate.eof:
            raise ValueError("the first line of the segment has no end")
        content += inflate.decompress(inflate.unconsumed_tail, _READ_BYTES)
    head: dict[str, Any] = json.loads(content[:end])
    return head, content[end + 1 :], inflate


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
