"""Remembers what was made of texts, as many as together have so many characters.

Invariant: what is remembered of a text was made of this text; the least recently asked for is forgotten first.
"""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The values by text; `most` is the sum of the texts' lengths. It may be asked from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._values: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, text: str) -> T | None:
        """Returns what was made of the text; None where it is not known."""
        with self._lock:
            value = self._values.get(text)
            if value is not None:
                self._values.move_to_end(text)
            return value

    def put(self, text: str, value: T) -> None:
        """Remembers a value; the last one stays however long its text is."""
        with self._lock:
            if self._values.pop(text, None) is None:
                self._size += len(text)
            self._values[text] = value
            while self._size > self._most and len(self._values) > 1:
                self._size -= len(self._values.popitem(last=False)[0])
