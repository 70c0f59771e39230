"""Drops repeated events by key: `follow` gives each event at least once, `once(…)` passes each on once.

An event counts as seen when the consumer requests the next one. A consumer that is killed while it handles an event
gets that event again, and no other.
"""

import os
import sqlite3
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Self, overload

from streamkeeper.event import Event
from streamkeeper.exceptions import StreamkeeperError


class Seen:
    """The keys of the newest `most` events that were seen: in memory, or in a file that survives a kill."""

    def __init__(self, path: "str | os.PathLike[str] | None" = None, most: int = 1_000_000) -> None:
        self._path, self._most = ":memory:" if path is None else path, most
        with self._usable():
            self._db = sqlite3.connect(self._path, isolation_level=None)
            # Without WAL each event would be an fsync; with it a kill of the process loses nothing.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL)")

    def __contains__(self, key: str) -> bool:
        with self._usable():
            return self._db.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is not None

    def add(self, key: str) -> None:
        """Remembers a key, and forgets the one that is `most` keys older."""
        with self._usable():
            number = self._db.execute("INSERT OR IGNORE INTO seen (key) VALUES (?)", (key,)).lastrowid or 0
            self._db.execute("DELETE FROM seen WHERE number <= ?", (number - self._most,))

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            raise StreamkeeperError(f"The seen keys in {self._path} cannot be used: {problem}.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@overload
def once(events: Iterable[Event], seen: Seen | None = None) -> Iterator[Event]: ...
@overload
def once(events: AsyncIterable[Event], seen: Seen | None = None) -> AsyncIterator[Event]: ...
def once(
    events: Iterable[Event] | AsyncIterable[Event], seen: Seen | None = None
) -> Iterator[Event] | AsyncIterator[Event]:
    """Passes on each event whose key was not seen. Without `seen` it remembers the newest million keys, in memory."""
    if isinstance(events, AsyncIterable):
        return _async_once(events, seen)
    return _sync_once(events, seen)


def _name(event: Event) -> str:
    # Another stream, or another part of this one, may have an event with the same key.
    return f"{event.part or event.stream}\n{event.key}"


def _sync_once(events: Iterable[Event], given: Seen | None) -> Iterator[Event]:
    with nullcontext(given) if given is not None else Seen() as seen:
        for event in events:
            if _name(event) not in seen:
                yield event
                seen.add(_name(event))


async def _async_once(events: AsyncIterable[Event], given: Seen | None) -> AsyncIterator[Event]:
    with nullcontext(given) if given is not None else Seen() as seen:
        async for event in events:
            if _name(event) not in seen:
                yield event
                seen.add(_name(event))
