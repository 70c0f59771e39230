"""An event in the form of the API's answer."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """A stored event.

    `key` is unique in the `stream`; `position` is its place there, for the argument `after`. `data` is a text body, or
    None: `bytes` has a binary body; `left_out` or `dead_letter` say where a body is that does not fit into an answer.
    `received_at` is None if it is not known. `raw` is the API's own JSON.
    """

    stream: str
    position: str
    key: str
    received_at: datetime | None
    id: str | None
    name: str | None
    data: str | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def part(self) -> str | None:
        """The id of the stream that it is of, where the stream is read in parts; the key is that part's."""
        return self.raw.get("stream")

    @property
    def bytes(self) -> "bytes | None":
        """The body of a binary event."""
        written = self.raw.get("data_base64")
        return None if written is None else base64.b64decode(written)

    @property
    def left_out(self) -> str | None:
        """The address of a body that was too large for the answer."""
        return self.raw.get("left_out")

    @property
    def dead_letter(self) -> str | None:
        """Why the body is in the dead-letter queue."""
        return self.raw.get("dead_letter")

    @property
    def happened_at(self) -> datetime | None:
        """When it happened, by its upstream; None if the upstream does not say, or in the order of arrival."""
        happened = self.raw.get("happened_at")
        return datetime.fromisoformat(happened) if happened else None

    @property
    def is_repaired(self) -> bool:
        """Whether a repair fetched it after a gap."""
        return bool(self.raw.get("repaired"))

    def json(self) -> Any:
        """The body as JSON; raises ValueError if it is not JSON."""
        if self.data is None:
            raise ValueError(f"The event {self.key!r} has no text body: see bytes, left_out and dead_letter.")
        try:
            return json.loads(self.data)
        except RecursionError:
            raise ValueError(f"The body of the event {self.key!r} is nested too deeply.") from None


def event_of(stream_id: str, raw: Mapping[str, Any]) -> Event:
    """The event of an entry of a page."""
    received = raw.get("received_at")
    received_at = datetime.fromisoformat(received) if received else None
    texts = raw.get("id"), raw.get("name"), raw.get("data")
    return Event(stream_id, raw["position"], raw["key"], received_at, *texts, raw)
