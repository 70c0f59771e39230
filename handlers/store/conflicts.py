"""Decides what happens to an event whose key is known already: is it the same event, or another body under one key?

DynamoDB refuses a duplicate by its key alone, so the stored item is read back. Bodies whose JSON is only spelled
differently are the same. For another body the profile decides (`on_conflict`):

    first   the first stays, the later one is counted and not stored
    both    the later one is stored under a key of its own, "<key>#<SHA-256 of its name and body>"
    epoch   the later one is stored under the first of "<key>#1", "<key>#2" … that is free; if several come in a row,
            ids start over (handlers/connection/epochs.py), and what came before is no longer known

`conflict_of` of the second item is the key that both came under. A third delivery of either finds its own item, because
the second key follows from key and content alone.

Invariant: no event is stored twice: with `both`, each content under a key once; with `epoch`, once in each epoch.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from handlers.connection.epochs import Epochs, alternative_keys
from handlers.framing.events import MAX_KEY_BYTES, StreamEvent, canonical_json
from handlers.framing.oversize import Oversize
from handlers.segments.known_keys import body_sum
from handlers.store.control_table import Table
from handlers.store.event_items import PROMISED, Fetch, to_stored_event, with_object_reference
from handlers.store.overflow import DEAD_LETTERED, DUPLICATE, STORED
from handlers.store.typed_values import Item, read_int, read_text, size_bytes
from handlers.values import dataclass

# The most bytes of items that are read at once; a function of 128 MB can hold that several times.
READ_BYTES = 1024 * 1024
# An upstream must have ids of our own form, this many for one key, before a conflicting event is not stored.
MOST_KEYS = 4

# The number of an event of its connection, and the event.
Known = tuple[int, StreamEvent]


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The events of one write whose keys are known; `make_item` returns the item of an event, `put` stores one.

    `epochs` are those of the connection; each conflict is reported to them.
    """

    table: Table
    fetch: Fetch
    make_item: Callable[[int, StreamEvent], Item]
    put: Callable[[StreamEvent, Item], str]
    keeps_both: bool
    epochs: Epochs

    def settle(self, known: Iterable[Known]) -> list[tuple[str, bool]]:
        """Returns the outcome of each event that came under a known key with another body, "" if it is not stored.

        It also returns whether that is a conflict. It is none if an earlier epoch or a newer connection has the key.
        """
        pairs = [(number, event, self.make_item(number, event)) for number, event in sorted(known)]
        stored: dict[str, Item] = {}
        for keys in _split_by_size(item for *_, item in pairs):
            stored |= self._read_items(keys)
        outcomes = [self._settle_one(number, event, item, stored) for number, event, item in pairs]
        return [outcome for outcome in outcomes if outcome is not None]

    def _settle_one(
        self, number: int, event: StreamEvent, item: Item, stored: dict[str, Item]
    ) -> tuple[str, bool] | None:
        """Returns the outcome of an event with another body, and whether it is a conflict; None for a duplicate."""
        stored_item = stored.get(item["SK"]["S"])
        if stored_item is None or self._is_known(stored_item, item, event):
            # If no item has the key any more, it has just expired.
            return None
        outcome, is_conflict, came_ms, taken = "", self._is_conflicting(stored_item, item), event.received_at_ms, {}
        other_ms = _came_ms(stored_item)
        if self.epochs.depth:
            likely = islice(self._alternative_keys(event), self.epochs.depth)
            taken = self._read_items(self.make_item(number, event._replace(key=other)) for other in likely)
        for depth, other in enumerate(self._alternative_keys(event)):
            item = self.make_item(number, event._replace(key=other)) | {"conflict_of": {"S": event.key}}
            stored_item = taken.get(other)
            if stored_item is None:
                outcome = self.put(event._replace(key=other), item)
                if outcome in (STORED, DEAD_LETTERED):
                    break
                stored_item = self._read_items([item]).get(other)
            if stored_item is None or self._is_known(stored_item, item, event):
                outcome, came_ms = DUPLICATE, came_ms if stored_item is None else _came_ms(stored_item)
                break
            outcome, is_conflict, other_ms = (
                "",
                is_conflict or self._is_conflicting(stored_item, item),
                _came_ms(stored_item),
            )
            self.epochs.depth = depth + 1 if self.epochs.begins else 0
        if is_conflict:
            now_ms = event.received_at_ms
            self.epochs.record_conflict(number, event.key, min(came_ms, now_ms), now_ms, other_ms)
        return None if outcome == DUPLICATE else (outcome, is_conflict)

    def _alternative_keys(self, event: StreamEvent) -> Iterator[str]:
        """Yields the other keys under which the event may be stored, in order; none if the first body stays."""
        if self.epochs.begins:
            yield from alternative_keys(event.key)
        key = event.key
        for _ in range(MOST_KEYS if self.keeps_both else 0):
            key = _conflict_key(key, event)
            yield key

    def _is_known(self, stored_item: Item, item: Item, event: StreamEvent) -> bool:
        """Returns whether the item under one of the event's keys is the event."""
        return self._is_current(stored_item) and self._is_same(stored_item, item, event)

    def _is_conflicting(self, stored_item: Item, item: Item) -> bool:
        """Returns whether another event of this epoch has the key; a newer connection's copy of it does not count."""
        # At a handover both connections bring the same events, and an upstream may write the connection's name into
        # each.
        return self._is_current(stored_item) and (read_int(stored_item, "fence") or 0) <= (read_int(item, "fence") or 0)

    def _is_current(self, stored_item: Item) -> bool:
        return self.epochs.is_in_newest(_came_ms(stored_item))

    def _read_items(self, wanted: Iterable[Item]) -> dict[str, Item]:
        """Returns the items of these keys; items that the first, cheaper read misses are read again, consistently.

        Stored items never change, but another connection may have written them a moment ago.
        """
        keys = {item["SK"]["S"]: {"PK": item["PK"], "SK": item["SK"]} for item in wanted}
        found: dict[str, Item] = {}
        for consistent in (False, True):
            missing = [key for name, key in keys.items() if name not in found]
            for item in self.table.batch_get(missing, consistent=consistent):
                found[item["SK"]["S"]] = item
        # A promise has no body: the stream's log has the event, or gets it from the connection that meets the promise.
        return {name: item for name, item in found.items() if PROMISED not in item}

    def _is_same(self, stored_item: Item, item: Item, event: StreamEvent) -> bool:
        """Returns whether the stored item is the event; assumed if either is an oversize frame, not kept whole."""
        if "dead_letter" in stored_item:
            return isinstance(event.data, Oversize) or read_int(stored_item, "body_sum") in (None, body_sum(event))
        if (read_text(stored_item, "name"), read_text(stored_item, "conflict_of")) != (
            event.name,
            read_text(item, "conflict_of"),
        ):
            return False
        if (
            "object" in stored_item
            and "object" not in item
            and stored_item["object"] == with_object_reference(item)["object"]
        ):
            return True
        # A deleted object cannot be compared, but its name follows from its content and shows that it differs.
        data = to_stored_event(stored_item, self.fetch).data
        if data is None or isinstance(event.data, Oversize):
            plain = data.encode() if isinstance(data, str) else data or b""
            return isinstance(event.data, Oversize) and hashlib.sha256(plain).hexdigest() == event.data.sha256
        return data == event.data or canonical_json(data) == canonical_json(event.data)


def _came_ms(item: Item) -> int:
    return int(item["received_at_ms"]["N"])


def _conflict_key(key: str, event: StreamEvent) -> str:
    """Returns the key for another body under a known key, no longer than DynamoDB accepts."""
    body = event.data.sha256.encode() if isinstance(event.data, Oversize) else canonical_json(event.data)
    content = json.dumps(event.name).encode() + b"\n" + body
    digest = hashlib.sha256(content).hexdigest()
    name = key if len(key.encode()) + 1 + len(digest) <= MAX_KEY_BYTES else hashlib.sha256(key.encode()).hexdigest()
    return f"{name}#{digest}"


def _split_by_size(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yields the items in lists that fit into memory: stored bodies are about as large as those of the events."""
    part: list[Item] = []
    part_bytes = 0
    for item in items:
        item_bytes = size_bytes(item)
        if part and part_bytes + item_bytes > READ_BYTES:
            yield part
            part, part_bytes = [], 0
        part.append(item)
        part_bytes += item_bytes
    if part:
        yield part
