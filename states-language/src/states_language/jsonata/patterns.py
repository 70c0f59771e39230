"""Compiles the regular expressions of JSONata and bounds the time of their search.

A character above U+FFFF counts as the two halves of a surrogate pair, as in JavaScript, whose expressions `ecmascript`
translates. Invariant: all searches of one evaluation together take at most the seconds that its limits say. Nobody can
count backtracking from outside, so a clock bounds it.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import regex

from states_language.clock import thread_cpu_s
from states_language.jsonata.ecmascript import translate
from states_language.jsonata.library import Functions, JException, Jsonata
from states_language.jsonata.numbers import to_text
from states_language.values import join_surrogates, to_utf16_units


def compile_pattern(text: str, flags: Any) -> "Pattern":
    """Return the compiled regular expression; `flags` are the library's. Raises ValueError if it is not valid."""
    chosen = regex.IGNORECASE if flags.case_insensitive else 0
    return Pattern(regex.compile(translate(to_utf16_units(text), multiline=flags.multiline), chosen))


class Pattern:
    """A regular expression with the four methods that the library calls."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.pattern = compiled.pattern

    def finditer(self, text: str, at: int = 0) -> Iterator[Any]:
        """Yield the matches from a place on; places count the characters of `units(text)`.

        Raises JException D1004 for an empty match after the first, TimeoutError past the limit.
        """
        text, first = to_utf16_units(text), at
        while True:
            with _limited_search() as left_s:
                match = self._compiled.search(text, at, timeout=left_s)
            if match is None:
                return
            # A match after another may not be empty, as in JSONata.
            if at > first and not match.group():
                raise JException("D1004", -1)
            yield _join_surrogates(match)
            if match.end() >= len(text):
                return
            if match.end() == at:
                # An empty match would be found again and again.
                raise JException("D1004", -1)
            at = match.end()

    def search(self, text: str) -> Any:
        """Return the first match or None."""
        return next(self.finditer(text), None)

    def sub(self, new: Any, text: str, count: int = 0) -> str:
        """Return the text with its matches replaced: at most `count` of them; 0 means all."""
        with _limited_search() as left_s:
            return str(self._compiled.sub(new, text, count, timeout=left_s))

    def split(self, text: str) -> list[str]:
        """Return the texts between the matches, without groups."""
        pieces: list[str] = []
        text, at = to_utf16_units(text), 0
        for match in self.finditer(text):
            pieces.append(join_surrogates(text[at : match.start()]))
            at = match.end()
        return [*pieces, join_surrogates(text[at:])]


class Matcher(Pattern):
    """A function of the expression that finds matches, as a regular expression that is called does.

    Each match names the function that finds the next one. Raises JException T1010 for a value that is no match.
    """

    def __init__(self, function: Any, caller: str) -> None:
        self._function = function
        self._caller = caller

    def finditer(self, text: str, _at: int = 0) -> Iterator[Any]:
        found = Functions.func_apply(self._function, [text])
        while found is not None:
            if not isinstance(found, dict) or not {"match", "start", "next"} <= found.keys():
                raise JException("T1010", -1, self._caller)
            end = found["start"] + len(to_utf16_units(found["match"]))
            yield _Match(found["start"], end, [found["match"], *(found.get("groups") or [])])
            found = Functions.func_apply(found["next"], [])


class _Match:
    """A match with the texts of its groups; the first is the whole match."""

    def __init__(self, start: int, end: int, texts: list[Any]) -> None:
        self._start, self._end, self._texts = start, end, texts

    def start(self) -> int:
        """Return the place of the match's first character."""
        return self._start

    def end(self) -> int:
        """Return the place after the match's last character."""
        return self._end

    def group(self, number: int = 0) -> Any:
        """Return the text of a group; None for a group that took no part."""
        return self._texts[number]

    def groups(self) -> tuple[Any, ...]:
        return tuple(self._texts[1:])


def call_pattern(expression: Pattern, text: Any = None, begin: Any = None, *_: Any) -> Any:
    """Return what a regular expression returns that is called as a function: its first match from a place on.

    A match names the function that finds the next one; undefined if there is none.
    """
    begins = isinstance(begin, int) and not isinstance(begin, bool) and begin > 0
    if not isinstance(text, str | int | float):
        return None
    return _match_object(expression.finditer(to_text(text), begin if begins else 0))


def _match_object(matches: Iterator[Any]) -> Any:
    match = next(matches, None)
    if match is None:
        return None
    found = {"match": match.group(), "start": match.start(), "end": match.end(), "groups": list(match.groups())}
    return found | {"next": Jsonata.JLambda(lambda: _match_object(matches))}


def _join_surrogates(match: Any) -> Any:
    """Return a match whose surrogate halves are joined to characters again."""
    if match.group().isascii():
        return match
    texts = [text if text is None else join_surrogates(text) for text in (match.group(), *match.groups())]
    return _Match(match.start(), match.end(), texts)


@contextlib.contextmanager
def _limited_search() -> Iterator[float]:
    """Yield the seconds that the evaluation has left to search, and subtract those used; raises TimeoutError at 0."""
    bounds = Jsonata.CURRENT.jsonata.bounds
    left_s = bounds.limits.search_s - bounds.searched_s
    if left_s <= 0:
        raise TimeoutError
    bounds.spend(1)
    begun_s = thread_cpu_s()
    try:
        yield left_s
    finally:
        bounds.searched_s += thread_cpu_s() - begun_s
