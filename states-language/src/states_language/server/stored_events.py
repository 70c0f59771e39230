"""Reads the history of an execution part by part: from its journal, or from memory while the execution runs.

The places of the events in a journal are found once and remembered for the histories that were read last, so a page
costs only its own events. Invariant: a line that a kill has torn is no event.
"""

import functools
import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from states_language.values import estimate_json_length

_MOST_PLACES_KEPT = 16
_EVENTS_PER_READ = 100
EVENT = b'{"event":'


class _Events(Sequence[dict[str, Any]]):
    """Events. `_places` has the place of each in the bytes of all, and the end of the last one."""

    _places: "array[int]"

    def __len__(self) -> int:
        return len(self._places) - 1

    def size(self, at: int) -> int:
        """Returns the bytes from this event to the next."""
        return self._places[at + 1] - self._places[at]

    def _read_slice(self, first: int, end: int) -> list[dict[str, Any]]:
        raise NotImplementedError

    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return self._read_slice(first, end) if first < end else []
        at = range(len(self))[at]
        return self._read_slice(at, at + 1)[0]


class StoredEvents(_Events):
    """The events in a journal, in order; each is read only when it is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._places = _places(path, path.stat().st_size)
        except FileNotFoundError:
            self._places = array("Q", [0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for begin in range(0, len(self), _EVENTS_PER_READ):
            yield from self[begin : begin + _EVENTS_PER_READ]

    def _read_slice(self, first: int, end: int) -> list[dict[str, Any]]:
        """Returns these events by one read and one JSON text for all of them."""
        with self._path.open("rb") as file:
            file.seek(self._places[first])
            block = file.read(self._places[end] - self._places[first]) + b"\n"
        begins = [place - self._places[first] for place in self._places[first:end]]
        text = b"[" + b",".join(block[begin : block.index(b"\n", begin)] for begin in begins) + b"]"
        return [line["event"] for line in json.loads(text.decode("utf-8", "replace"))]


class WrittenEvents(_Events):
    """The events of a running execution, in one text.

    The garbage collector would walk through dictionaries repeatedly. Freeing 25,000 texts takes it 10 ms, in which no
    request is answered.
    """

    def __init__(self) -> None:
        self._text, self._places = bytearray(), array("Q", [0])

    def add(self, text: bytes) -> None:
        self._text += text + b","
        self._places.append(len(self._text))

    def _read_slice(self, first: int, end: int) -> list[dict[str, Any]]:
        events = self._text[self._places[first] : self._places[end] - 1]
        read: list[dict[str, Any]] = json.loads(b"[" + events + b"]")
        return read


def event_bytes(events: Sequence[dict[str, Any]], at: int) -> int:
    """Returns about the bytes of an event as JSON."""
    return events.size(at) if isinstance(events, _Events) else estimate_json_length(events[at], {})


@functools.lru_cache(maxsize=_MOST_PLACES_KEPT)
def _places(path: Path, _size: int) -> "array[int]":
    """Returns the places of the events in the file; with `_size`, the cache knows that a file has grown."""
    places, at, end = array("Q"), 0, 0
    with path.open("rb") as file:
        for line in file:
            if line.startswith(EVENT) and _is_whole(line):
                places.append(at)
                end = at + len(line)
            at += len(line)
    places.append(end)
    return places


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")).get("event"), dict)
    except (ValueError, AttributeError):
        return False
