"""Defines how an upstream behaves without faults, how it forgets events, and the fields of a careful profile for it.

If it forgets by count and reports nothing, its reach is unknown: the profile leaves resuming to the framing's default,
and the upstream keeps what the ledger assumes (`KEPT_MS`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from handlers.connection.evidence import KEPT_MS

GONE_STATUS = 410
# The name of the event that reports a cursor as too old.
GONE = "gone"
GONE_FRAME = f"event: {GONE}\ndata: the cursor is too old\n\n".encode()
# A catch-up sends events this many times faster than they happened.
SPEED = 2
# How long the upstream may take to answer; subtracted from the reach, which counts whole seconds.
ANSWER_MS = 1_000

Word = Literal["", "status", "frame"]


@dataclass(frozen=True, slots=True)
class Memory:
    """An upstream's memory; 0 is no limit. `word` is how it reports a forgotten cursor, "" for not at all."""

    keeps_ms: int = 0
    keeps: int = 0
    word: Word = ""

    @property
    def forgets(self) -> bool:
        """Whether it ever forgets."""
        return self.keeps_ms > 0 or self.keeps > 0

    @property
    def is_unknown(self) -> bool:
        """Whether it forgets by count and reports nothing, so that its reach is unknown."""
        return self.keeps > 0 and not self.word

    def reach_ms(self, skew_ms: int) -> int | None:
        """Returns how far back it certainly goes, with clocks that are wrong by `skew_ms`; 0 if that is unknown.

        None means: as far as the cursor, or else it reports that it cannot.
        """
        if self.is_unknown:
            return 0
        return None if not self.keeps_ms or self.word else (self.keeps_ms - ANSWER_MS - 2 * skew_ms) // 1000 * 1000

    def oldest_number(self, emitted_ms: Sequence[int], now_ms: int) -> int:
        """Returns the number of the oldest event that it has."""
        if self.keeps_ms:
            return first_after(emitted_ms, now_ms - self.keeps_ms)
        oldest = max(0, len(emitted_ms) - self.keeps) if self.keeps else 0
        return oldest if self.word else min(oldest, first_after(emitted_ms, now_ms - KEPT_MS))

    def fields(self, skew_ms: int) -> dict[str, Any]:
        """Returns the profile's fields for it."""
        resume: dict[str, Any] = {"header": "Last-Event-ID"}
        reach_ms = self.reach_ms(skew_ms)
        if reach_ms is not None:
            resume["reach_s"] = reach_ms // 1000
        if self.word == "frame":
            resume["expired"] = {"event": GONE}
        return {"resume": resume}

    def __str__(self) -> str:
        kept = f"what is older than {self.keeps_ms / 1000:.0f} s" if self.keeps_ms else f"all but {self.keeps} events"
        return f"forgets {kept} {'by a ' + self.word if self.word else 'silently'}"


def first_after(emitted_ms: Sequence[int], at_ms: int) -> int:
    """Returns the number of the first event that happened after `at_ms`."""
    return next((n for n, emitted in enumerate(emitted_ms) if emitted > at_ms), len(emitted_ms))


EVERYTHING = Memory()
WORDS: tuple[Word, ...] = ("", "status", "frame")
# By age and by count, at one event a second; half of the upstreams forget nothing.
MEMORIES = (
    *(Memory(keeps_ms=keeps_ms, word=word) for keeps_ms in (6_000, 10_000) for word in WORDS),
    *(Memory(keeps=keeps, word=word) for keeps in (6, 12) for word in WORDS),
    *(EVERYTHING for _ in range(12)),
)


@dataclass(frozen=True, slots=True)
class Ways:
    """How an upstream behaves without faults; if it `resumes`, it continues after a cursor.

    A refusal requests a pause of `retry_after_s`, 0 for none. If it `reorders`, it resumes a little before the cursor.
    A `socket` requires a subscription before it sends anything. With `token_lives_s` other than 0 it requires a ticket,
    and a token that expires after that.
    """

    seed: int
    policy: str
    resumes: bool
    events_every_ms: int
    retry_after_s: int = 0
    memory: Memory = EVERYTHING
    reorders: bool = False
    socket: bool = False
    token_lives_s: int = 0
