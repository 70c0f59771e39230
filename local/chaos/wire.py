"""How the events of one stream look on the wire, and which event it is that stands in the table.

Events are numbered. Their bodies name the stream, so that one that lies where another stream's events are is known.
Under which key an event is stored is the profile's choice: its id, a path into its body, or a hash of all of it. Where
the body is JSON it is spelled differently at each delivery, which no key may depend on.

    id: 7                                    id: 7
    data: event 7 of chaos                   data: {"seq":7,"of":"chaos"}

Invariant: every frame of an event has the same length.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

KEYS = ("id", "path", "hash")
# The name of an event that announces a loss.
LOSS = "lost"


class Wire:
    """The wire of the stream with this id, whose profile takes `key` for the dedup key, one of KEYS."""

    def __init__(self, stream: str, key: str) -> None:
        self._stream = stream
        self._key = key
        self._spellings = itertools.cycle((0, 1))
        self._keys: dict[str, int] = {}

    @property
    def fields(self) -> dict[str, Any]:
        """What the profile says of the key."""
        return {"key": "$.seq" if self._key == "path" else self._key}

    def frame(self, number: int, *, announces_loss: bool = False) -> bytes:
        """The event on the wire; it may announce that the upstream has lost the event before it."""
        name = f"event: {LOSS}\n" if announces_loss else ""
        return f"id: {number}\n{name}data: {self._data(number)}\n\n".encode()

    def number_of(self, key: str, data: str) -> int:
        """Which event of the stream has this body; -1 where none has, or where it is not the key's."""
        number = self._number(data)
        if self._key != "hash":
            return number if key == str(number) else -1
        return number if self._keys.setdefault(key, number) == number else -1

    def _data(self, number: int) -> str:
        if self._key == "id":
            return f"event {number} of {self._stream}"
        members = [f'"seq":{number}', f'"of":{json.dumps(self._stream)}']
        return "{" + ",".join(reversed(members) if next(self._spellings) else members) + "}"

    def _number(self, data: str) -> int:
        if self._key == "id":
            word, _, rest = data.partition(" ")
            text, _, of = rest.partition(" of ")
            return int(text) if word == "event" and text.isdigit() and of == self._stream else -1
        try:
            body = json.loads(data)
        except ValueError:
            return -1
        is_whole = isinstance(body, dict) and body.keys() == {"seq", "of"} and body["of"] == self._stream
        return int(body["seq"]) if is_whole and isinstance(body["seq"], int) else -1
