"""Events for the tests of the store, and a write of one event."""

import random
from typing import Any

from handlers.connection.inputs import Written
from handlers.framing.events import StreamEvent
from handlers.store.connection_store import Store
from handlers.store.overflow import DEAD_LETTERED, DUPLICATE, STORED

STREAM = "demo"


def an_event(key: str = "1", data: str | bytes = "a", **fields: Any) -> StreamEvent:
    return StreamEvent(
        **({"key": key, "data": data, "id": None, "name": None, "cursor": None, "received_at_ms": 5} | fields)
    )


def noise(size_bytes: int) -> bytes:
    """Return bytes that no compression makes smaller, the same in every run."""
    return random.Random(1).randbytes(size_bytes)


def put(store: Store, stream_id: str, fence: int, number: int, event: StreamEvent) -> str:
    outcomes = {Written(1, 0): STORED, Written(0, 1): DUPLICATE, Written(0, 0, 1): DEAD_LETTERED}
    return outcomes[store.write(stream_id, fence, number, [event])]
