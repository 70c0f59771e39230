"""Turns an event into an item of DynamoDB and back.

Pure: the caller fetches a body that is in a bucket. Invariants: reading returns the event that was written, byte for
byte; an item of an older release is read by the attributes it has; an event's partition follows from its dedup key
alone.
"""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple
from urllib.parse import quote

from handlers.connection.epochs import Epochs
from handlers.connection.inputs import Order
from handlers.framing.events import OnConflict, StreamEvent
from handlers.framing.frames import Body, utf8_pieces
from handlers.framing.oversize import Oversize
from handlers.store import typed_values
from handlers.store.typed_values import DAY_S, Item, expiry, read_int, read_text
from handlers.values import dataclass

# From this size on a body is compressed if that saves a write unit: DynamoDB bills each KB begun.
COMPRESS_FROM_BYTES = 4 * 1024
WRITE_UNIT_BYTES = 1024
# S3: a key has at most 1,024 bytes, and two SHA-256 follow the folder.
_FOLDER_CHARACTERS = 800
# zlib's number for the format of gzip, which other tools read too.
_GZIP = 31
# The attribute with an event's place in the order of arrival: the index's key, or one that no index has.
PLACES: dict[Order, str] = {"index": "position", "none": "arrival"}
# Marks an item that is not an event, but a promise that the stream's log has an event with this key
# (`segment_writer.py`).
PROMISED = "promised"


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """How a stream's events are stored: over how many partition keys, and for how many days (0: for ever).

    `order` is whether they are in the index of the order. `on_conflict` decides about one key with two bodies; None if
    the key is made of the body. `epochs` are those of the storing connection.
    """

    partitions: int = 1
    keep_days: int = 0
    on_conflict: OnConflict | None = None
    order: Order = "index"
    epochs: Epochs | None = field(default=None, compare=False)


DEFAULT_POLICY = StoragePolicy()
# The fencing token of repaired events: those of connections count from 1.
REPAIRED_FENCE = 0
# Returns the bytes of an object by its key; None if they cannot be read.
Fetch = Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as a reader sees it; `object` is the key of the object with its body, if there is one.

    `conflict_of` is the original key if another body has that key. `data` is None if the event went to the dead-letter
    queue, for the reason `dead_letter`. It is also None if the body was too large for the reader or could not be read.
    """

    key: str
    data: str | bytes | None
    id: str | None
    name: str | None
    received_at_ms: int
    fence: int
    position: str
    dead_letter: str | None = None
    object: str | None = None
    conflict_of: str | None = None

    @property
    def is_repaired(self) -> bool:
        """Whether the repair of a gap, rather than a connection, stored the event."""
        return self.fence == REPAIRED_FENCE


class Entry(NamedTuple):
    """A place in the order; `event` is None if the event that was there has expired or is gone."""

    position: str
    event: StoredEvent | None


# --- where an event lies ----------------------------------------------------------------------------------------------


def partition_keys(stream_id: str, partitions: int) -> list[str]:
    """Returns a stream's partition keys. No two streams share one: the part before a number sign is the id's own."""
    name = _escape_signs(stream_id)
    return [name] if partitions == 1 else [f"{name}#{number}" for number in range(partitions)]


def partition_key(stream_id: str, key: str, partitions: int) -> str:
    """Returns the partition key of the event with this dedup key: always the same, so a duplicate meets its item."""
    name = _escape_signs(stream_id)
    return name if partitions == 1 else f"{name}#{zlib.crc32(key.encode()) % partitions}"


def stream_of(item: Item) -> str:
    name: str = item["PK"]["S"].partition("#")[0]
    return name.replace("%23", "#").replace("%25", "%")


def _escape_signs(stream_id: str) -> str:
    """Returns the id with percent and number signs percent-encoded; nearly every id stays as it is."""
    return stream_id.replace("%", "%25").replace("#", "%23")


def object_key(item: Item) -> str:
    """Returns the key of the object with the item's body. It follows from the content, so none is ever overwritten.

    It begins with a folder named by the number of days that the object is kept, which the bucket's rules use; then
    comes the percent-encoded stream id, or "=" and its SHA-256 if the id is too long for a key.
    """
    stream_id = stream_of(item)
    folder = quote(stream_id, safe=":")
    if len(folder) > _FOLDER_CHARACTERS:
        # No percent-encoded id has an equals sign.
        folder = f"={hashlib.sha256(stream_id.encode()).hexdigest()}"
    return "/".join((_expiry_folder(item), folder, _sha256(item["SK"]["S"]), _sha256(body_of(item))))


# The numbers of days that objects may be kept: packaging/resources/storage.yml has a rule for each. An object outlives
# its event, whose days are rounded up to one of these.
KEPT_DAYS = (1, 3, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650)


def _expiry_folder(item: Item) -> str:
    """Returns the folder of objects that are kept for as long as the event; just "kept" if it never expires."""
    expires_s, received_ms = read_int(item, "expires_at"), read_int(item, "received_at_ms")
    if expires_s is None or received_ms is None:
        return "kept"
    days = -(-(expires_s - received_ms // 1000) // DAY_S)
    return f"kept-{next((most for most in KEPT_DAYS if days <= most), KEPT_DAYS[-1])}d"


def _sha256(body: str | bytes) -> str:
    digest = hashlib.sha256()
    for piece in utf8_pieces(body):
        digest.update(piece)
    return digest.hexdigest()


# --- writing ----------------------------------------------------------------------------------------------------------


def event_item(
    stream_id: str, fence: int, count: int, event: StreamEvent, policy: StoragePolicy = DEFAULT_POLICY
) -> Item:
    """Returns the item of an event. Its place sorts events by when they came, then by connection, then by `count`.

    The place is in `position`, the index's key, or in `arrival` if no index has the item.
    """
    received_at_ms = event.received_at_ms
    item: Item = {
        "PK": {"S": partition_key(stream_id, event.key, policy.partitions)},
        "SK": {"S": event.key},
        PLACES[policy.order]: {"S": f"{received_at_ms:015d}/{fence:012d}/{count:012d}"},
        "received_at_ms": {"N": str(received_at_ms)},
        "fence": {"N": str(fence)},
    }
    if event.id is not None:
        item["id"] = {"S": event.id}
    if event.name is not None:
        item["name"] = {"S": event.name}
    _put_body(item, event.data)
    if policy.keep_days:
        item |= expiry(received_at_ms, policy.keep_days)
    return item


def _put_body(item: Item, data: Body) -> None:
    if isinstance(data, Oversize):
        return  # the item will be a mark, which has no body
    is_text = isinstance(data, str)
    item["data"] = {"S": data} if is_text else {"B": data}
    if len(data) < COMPRESS_FROM_BYTES:
        return
    packed, plain_bytes = _compress(data)
    if len(packed) + WRITE_UNIT_BYTES <= plain_bytes:
        item["data"] = {"B": packed}
        item["encoding"] = {"S": "text+gzip" if is_text else "binary+gzip"}


def _compress(data: str | bytes) -> tuple[bytes, int]:
    """Returns the body compressed by gzip, and the length of the original."""
    packer, packed, plain_bytes = zlib.compressobj(level=1, wbits=_GZIP), [], 0
    for piece in utf8_pieces(data):
        plain_bytes += len(piece)
        packed.append(packer.compress(piece))
    packed.append(packer.flush())
    return b"".join(packed), plain_bytes


def place_of(item: Item) -> str:
    """Returns the event's unique place in the order of arrival, whether the index has it or not."""
    place: str = item[PLACES["index"] if PLACES["index"] in item else PLACES["none"]]["S"]
    return place


def with_object_reference(item: Item) -> Item:
    """Returns the item with a reference to the object with its body in place of the body."""
    kept = {name: value for name, value in item.items() if name != "data"}
    kind = "text" if "S" in item["data"] else "binary"
    return {"encoding": {"S": kind}} | kept | {"object": {"S": object_key(item)}}


def body_of(item: Item) -> str | bytes:
    """Returns the item's body as an object has it, a text in UTF-8."""
    body: str | bytes = item["data"]["S"] if "S" in item["data"] else item["data"]["B"]
    return body


def dead_letter_mark(item: Item, reason: str) -> Item:
    """Returns the item in place of an event that went to the dead-letter queue: without body, id and name."""
    sent = ("data", "encoding", "object", "id", "name")
    return {name: value for name, value in item.items() if name not in sent} | {"dead_letter": {"S": reason}}


# --- reading ----------------------------------------------------------------------------------------------------------


def to_stored_event(item: Item, fetch: Fetch, most_bytes: int | None = None) -> StoredEvent:
    """Returns the event of an item; `fetch` is called only if an object has the body.

    A body of more than `most_bytes` is left out, before it is unpacked. Raises StoreUnavailable for an unreadable item.
    """
    name = f"the event at {place_of(item)}"
    typed_values.check_layout(item, name)
    with typed_values.refuse_unreadable(name):
        return _to_stored_event(item, fetch, most_bytes)


def _to_stored_event(item: Item, fetch: Fetch, most_bytes: int | None) -> StoredEvent:
    return StoredEvent(
        key=item["SK"]["S"],
        data=None if "dead_letter" in item else _read_body(item, fetch, most_bytes),
        id=read_text(item, "id"),
        name=read_text(item, "name"),
        received_at_ms=int(item["received_at_ms"]["N"]),
        fence=int(item["fence"]["N"]),
        position=place_of(item),
        dead_letter=read_text(item, "dead_letter"),
        object=read_text(item, "object"),
        conflict_of=read_text(item, "conflict_of"),
    )


def _read_body(item: Item, fetch: Fetch, most_bytes: int | None) -> str | bytes | None:
    if "encoding" not in item:
        plain: str | bytes = item["data"]["S"] if "S" in item["data"] else bytes(item["data"]["B"])
        return plain
    content = fetch(item["object"]["S"]) if "object" in item else bytes(item["data"]["B"])
    if content is None:
        return None
    return decode_body(content, item["encoding"]["S"], most_bytes)


def decode_body(content: bytes, encoding: str, most_bytes: int | None = None) -> str | bytes | None:
    """Returns the body whose bytes are stored in this encoding; None if it has more than `most_bytes`.

    Raises ValueError for an unknown encoding.
    """
    kind, _, packing = encoding.partition("+")
    if kind not in ("text", "binary") or packing not in ("", "gzip"):
        raise ValueError("the encoding is not known")
    # RFC 1952, ISIZE: the last four bytes are "the size of the original (uncompressed) input data modulo 2^32".
    size = int.from_bytes(content[-4:], "little") if packing == "gzip" else len(content)
    if most_bytes is not None and size > most_bytes:
        return None
    if packing == "gzip":
        content = zlib.decompress(content, wbits=_GZIP)
    return content.decode() if kind == "text" else content
