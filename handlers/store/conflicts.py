"""Decides what follows where an event's key is known already: is it the same event, or another body under one key?

A duplicate is refused by its key alone, so what lies there is read back. Bodies whose JSON is only spelled differently
are the same. For another body the profile decides (`on_conflict`):

    first   the first stays, the later one is counted and not stored
    both    the later one is stored under a key of its own, "<key>#<SHA-256 of its name and body>"

Whoever reads finds the key that both came under in `conflict_of`. A third delivery of either meets its own item, for
the second key follows from key and content alone.

Invariant: no event is stored twice, and in `both` each content under a key once.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from handlers.framing.events import MAX_KEY_BYTES, StreamEvent, canonical_json
from handlers.framing.oversize import Oversize
from handlers.store.control_table import KEYS, Table
from handlers.store.event_items import Fetch, in_bucket, size_bytes, stored_event
from handlers.store.typed_values import Item, text

# What the items of one read may have together; a function of 128 MB has room for it several times over.
READ_BYTES = 1024 * 1024
# So many ids of this form must an upstream have made up before one event counts as a conflict and is not stored.
MOST_KEYS = 4
STORED, DEAD_LETTERED = "stored", "dead-lettered"

# The number of an event of its connection, and the event.
Known = tuple[int, StreamEvent]


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The events of one write whose keys are known; `make` returns the item of an event, `put` stores one."""

    table: Table
    fetch: Fetch
    make: Callable[[int, StreamEvent], Item]
    put: Callable[[StreamEvent, Item], str]
    keeps_both: bool

    def settle(self, known: Iterable[Known]) -> list[str]:
        """The outcome of each event that came under a known key with another body, "" where it is not stored."""
        pairs = [(number, event, self.make(number, event)) for number, event in sorted(known)]
        stored: dict[str, Item] = {}
        for keys in _in_parts(item for *_, item in pairs):
            stored |= self._read(keys)
        outcomes = [self._settle_one(number, event, item, stored) for number, event, item in pairs]
        return [outcome for outcome in outcomes if outcome is not None]

    def _settle_one(self, number: int, event: StreamEvent, item: Item, stored: dict[str, Item]) -> str | None:
        """The outcome of one that is a conflict, "" where it is not stored; None for a duplicate."""
        there = stored.get(item["SK"]["S"])
        if there is None or self._is_same(there, item, event):
            # Where nothing is there any more it has expired just now.
            return None
        if not self.keeps_both:
            return ""
        for _ in range(MOST_KEYS):
            other = _own_key(item["SK"]["S"], event)
            item = self.make(number, event._replace(key=other)) | {"conflict_of": {"S": event.key}}
            outcome = self.put(event._replace(key=other), item)
            if outcome in (STORED, DEAD_LETTERED):
                return outcome
            there = self._read([item]).get(other)
            if there is None or self._is_same(there, item, event):
                return None
        return ""

    def _read(self, wanted: Iterable[Item]) -> dict[str, Item]:
        """The items of these keys. First as they are cheapest: a stored item never changes, so it may only be missing.

        What is missing is read again, consistently: another connection may have written it a moment ago.
        """
        keys = {item["SK"]["S"]: {"PK": item["PK"], "SK": item["SK"]} for item in wanted}
        there: dict[str, Item] = {}
        for consistent in (False, True):
            missing = [key for name, key in keys.items() if name not in there]
            for item in self.table.items(missing, consistent=consistent):
                there[item["SK"]["S"]] = item
        return there

    def _is_same(self, there: Item, item: Item, event: StreamEvent) -> bool:
        """Whether what is there is the event; also where nobody can know, for its body is in the dead-letter queue."""
        if "dead_letter" in there:
            return True
        if (text(there, "name"), text(there, "conflict_of")) != (event.name, text(item, "conflict_of")):
            return False
        if "object" in there and "object" not in item and there["object"] == in_bucket(item)["object"]:
            return True
        # An object that is gone cannot be compared; its name, which is of its content, says already that it differs.
        data = stored_event(there, self.fetch).data
        if data is None or isinstance(event.data, Oversize):
            plain = data.encode() if isinstance(data, str) else data or b""
            return isinstance(event.data, Oversize) and hashlib.sha256(plain).hexdigest() == event.data.sha256
        return data == event.data or canonical_json(data) == canonical_json(event.data)


def _own_key(key: str, event: StreamEvent) -> str:
    """The key of another body under a known one; at most as long as DynamoDB takes."""
    body = event.data.sha256.encode() if isinstance(event.data, Oversize) else canonical_json(event.data)
    content = json.dumps(event.name).encode() + b"\n" + body
    digest = hashlib.sha256(content).hexdigest()
    name = key if len(key.encode()) + 1 + len(digest) <= MAX_KEY_BYTES else hashlib.sha256(key.encode()).hexdigest()
    return f"{name}#{digest}"


def _in_parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in lists that one read can hold: what is there is about as large as what came."""
    part: list[Item] = []
    part_bytes = 0
    for item in items:
        item_bytes = size_bytes(item)
        if part and (len(part) == KEYS or part_bytes + item_bytes > READ_BYTES):
            yield part
            part, part_bytes = [], 0
        part.append(item)
        part_bytes += item_bytes
    if part:
        yield part
