"""Regular expressions in JSONata.

Decides how long one may look, and that none may match nothing. Does not know what a match is used for.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import regex
from jsonata.jexception import JException
from jsonata.jsonata import Jsonata

from states_language.clock import worked_s

LONGEST_SEARCH_S = 1.0
"""How long all regular expressions of one evaluation may look: backtracking cannot be counted from outside."""


_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
"""Groups that call themselves: `regex` has them, JavaScript has not, and their depth is bounded by memory alone."""


def pattern(text: str, flags: Any) -> "Pattern":
    """Return the compiled regular expression; `flags` is the library's. Raises ValueError for what is none."""
    if _RECURSION.search(text):
        raise ValueError("a group of a regular expression cannot call another")
    chosen = (regex.IGNORECASE if flags.case_insensitive else 0) | (regex.MULTILINE if flags.multiline else 0)
    return Pattern(regex.compile(text, chosen))


class Pattern:
    """What the library takes for a regular expression: whatever has these four methods."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.pattern = compiled.pattern

    def finditer(self, text: str) -> Iterator[Any]:
        """Yield the matches; raises JException D1004 for one that is empty, TimeoutError past LONGEST_SEARCH_S."""
        with _searching() as left_s:
            matches = self._compiled.finditer(text, timeout=left_s)
        while True:
            with _searching():
                found = next(matches, None)
            if found is None:
                return
            if not found.group():
                raise JException("D1004", -1)
            yield found

    def search(self, text: str) -> Any:
        """Return the first match, None where there is none."""
        return next(self.finditer(text), None)

    def sub(self, new: Any, text: str, count: int = 0) -> str:
        """Return the text with its matches replaced, at most `count` of them unless that is 0."""
        with _searching() as left_s:
            return str(self._compiled.sub(new, text, count, timeout=left_s))

    def split(self, text: str, maxsplit: int = 0) -> list[str]:
        """Return what stands between the matches, groups left out, at most `maxsplit` of them cut unless that is 0."""
        pieces: list[str] = []
        at = 0
        for found in self.finditer(text):
            if maxsplit and len(pieces) == maxsplit:
                break
            pieces.append(text[at : found.start()])
            at = found.end()
        return [*pieces, text[at:]]


@contextlib.contextmanager
def _searching() -> Iterator[float]:
    """Give the seconds that the evaluation has left for looking, and take off what is used; TimeoutError for none."""
    bounds = Jsonata.CURRENT.jsonata.bounds
    left_s = LONGEST_SEARCH_S - bounds.searched_s
    if left_s <= 0:
        raise TimeoutError
    begun_s = worked_s()
    try:
        yield left_s
    finally:
        bounds.searched_s += worked_s() - begun_s
