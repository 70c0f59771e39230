"""Reads the history of an execution part by part: from its journal, or from memory while the execution runs.

The places of the events in a journal are found once and remembered for the histories that were read last, so a page
costs only what it holds. Invariant: a line that a kill has torn is no event.
"""

import functools
import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from states_language.values import weight

_MOST_PLACES_KEPT = 16
_AT_ONCE = 100
EVENT = b'{"event":'


class _Events(Sequence[dict[str, Any]]):
    """Events, and the place of each in the bytes of all; `_read` returns a slice of them."""

    _places: "array[int]"

    def __len__(self) -> int:
        return len(self._places)

    def size(self, at: int) -> int:
        """Returns the bytes from this event to the next; 0 for the last."""
        return self._places[at + 1] - self._places[at] if at + 1 < len(self) else 0

    def _read(self, part: slice) -> list[dict[str, Any]]:
        raise NotImplementedError

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self._read(at)
        return self._read(slice(at, at + 1 or None))[0]


class StoredEvents(_Events):
    """The events in a journal, in their order; each is read only when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._places = _places(path, path.stat().st_size)
        except FileNotFoundError:
            self._places = array("Q")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self[begin : begin + _AT_ONCE]

    def _read(self, part: slice) -> list[dict[str, Any]]:
        """Returns the events of an ascending slice, by one read and one JSON text for all of them."""
        places = self._places[part]
        if not places:
            return []
        with self._path.open("rb") as file:
            file.seek(places[0])
            block = file.read(places[-1] - places[0]) + file.readline()
        block += b"\n"
        begins = [place - places[0] for place in places]
        text = b"[" + b",".join(block[begin : block.index(b"\n", begin)] for begin in begins) + b"]"
        return [line["event"] for line in json.loads(text.decode("utf-8", "replace"))]


class WrittenEvents(_Events):
    """The events of a running execution, each kept as the text that was written to its journal.

    Texts spare the garbage collector, which walks through dictionaries again and again.
    """

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._places, self._end = array("Q"), 0

    def add(self, text: bytes) -> None:
        """Adds the JSON text of an event."""
        self._texts.append(text)
        self._places.append(self._end)
        self._end += len(text)

    def _read(self, part: slice) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = json.loads(b"[" + b",".join(self._texts[part]) + b"]")
        return events


def size(events: Sequence[dict[str, Any]], at: int) -> int:
    """Returns about the bytes of an event as JSON."""
    return events.size(at) if isinstance(events, _Events) else weight(events[at], {})


@functools.lru_cache(maxsize=_MOST_PLACES_KEPT)
def _places(path: Path, _size: int) -> "array[int]":
    """Returns the place of each event in the file; with `_size`, the cache knows that a file has grown."""
    places, at = array("Q"), 0
    with path.open("rb") as file:
        for line in file:
            if line.startswith(EVENT) and _is_whole(line):
                places.append(at)
            at += len(line)
    return places


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")).get("event"), dict)
    except (ValueError, AttributeError):
        return False
