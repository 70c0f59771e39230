"""What a check found: one line that says what was looked at, what it is, what it should be, and what to do.

    WRONG  EventsTable: time to live: off, and should be expires_at: `streamkeeper doctor --stage prod --repair`

Invariant: what nobody could ask is not called well; it is `?`, with who refused and why.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# Services call what is not there by many names.
_MISSING = ("NotFound", "NoSuch", "DoesNotExist", "NonExistent", "404")


class State(enum.StrEnum):
    """How a check ended; of these WRONG and UNKNOWN are not well."""

    OK = "ok"
    NOTE = "note"
    WRONG = "WRONG"
    UNKNOWN = "?"
    ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Unasked:
    """In place of an answer: why there is none. `code` is AWS's; `is_absent` where this machine has no such service."""

    reason: str
    code: str = ""
    is_absent: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether AWS answered that there is no such thing."""
        return any(part in self.code for part in _MISSING)


@dataclass(frozen=True, slots=True)
class Mend:
    """A request that mends what was found: boto3's names of the service and of the operation."""

    service: str
    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `wanted` is "" where it is as it should be, `fix` is what a person does."""

    state: State
    what: str
    found: str
    wanted: str = ""
    fix: str = ""
    mend: Mend | None = None

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong and nothing is left unknown."""
        return self.state not in (State.WRONG, State.UNKNOWN)

    def line(self) -> str:
        """The finding for a person."""
        wanted = f", and should be {self.wanted}" if self.wanted else ""
        return f"{self.state.value:<6} {self.what}: {self.found}{wanted}{f'. {self.fix}' if self.fix else ''}"

    def as_json(self) -> dict[str, Any]:
        """The finding for a program; whether `--repair` mends it, and not how."""
        whole = {**asdict(self), "state": self.state.name.lower(), "can_repair": self.mend is not None}
        del whole["mend"]
        return whole


def unasked(what: str, answer: Unasked, fix: str) -> Finding:
    """The finding where there is no answer; `fix` is what to do where there is no such thing."""
    if answer.is_absent:
        return Finding(State.ABSENT, what, answer.reason)
    if answer.is_missing:
        return Finding(State.WRONG, what, "is not there", "there", fix)
    return Finding(State.UNKNOWN, what, f"not known: {answer.reason}")


def compared(what: str, found: str, wanted: str, fix: str, mend: Mend | None = None) -> Finding:
    """The finding where these two texts must be the same."""
    if found == wanted:
        return Finding(State.OK, what, found)
    return Finding(State.WRONG, what, found, wanted, fix, mend)
