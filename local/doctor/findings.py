"""The finding of a check: a line with its subject, the actual state, the expected state, and what to do.

    WRONG  EventsTable: time to live: off, and should be expires_at: `streamkeeper doctor --stage prod --repair`

Invariant: a check without an answer is never reported as ok, but as `?` with the reason.
"""

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DEPLOY, RUNBOOK = "Deploy the stage again (docs/deploy.md)", "docs/runbook.md"
# Services have many names for what does not exist.
_MISSING = ("NotFound", "NoSuch", "DoesNotExist", "NonExistent", "404")


class State(enum.StrEnum):
    """The outcome of a check; WRONG and UNKNOWN count as not well."""

    OK = "ok"
    NOTE = "note"
    WRONG = "WRONG"
    UNKNOWN = "?"
    ABSENT = "-"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no answer. `code` is AWS's; `is_absent` if this machine has no such service."""

    reason: str
    code: str = ""
    is_absent: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether AWS answered that the resource does not exist."""
        return any(part in self.code for part in _MISSING)


@dataclass(frozen=True, slots=True)
class Mend:
    """A request that mends the finding, with boto3's names of the service and the operation."""

    service: str
    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check. `wanted` is "" if all is as it should be; `fix` says what a person can do."""

    state: State
    what: str
    found: str
    wanted: str = ""
    fix: str = ""
    mend: Mend | None = None

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong or unknown."""
        return self.state not in (State.WRONG, State.UNKNOWN)

    def line(self) -> str:
        wanted = f", and should be {self.wanted}" if self.wanted else ""
        return f"{self.state.value:<6} {self.what}: {self.found}{wanted}{f'. {self.fix}' if self.fix else ''}"

    def as_json(self) -> dict[str, Any]:
        """The finding for programs; it says whether `--repair` mends it."""
        whole = {**asdict(self), "state": self.state.name.lower(), "can_repair": self.mend is not None}
        del whole["mend"]
        return whole


def missing_answer(what: str, answer: NoAnswer, fix: str) -> Finding:
    """The finding for a missing answer; `fix` says what to do if the thing does not exist."""
    if answer.is_absent:
        return Finding(State.ABSENT, what, answer.reason)
    if answer.is_missing:
        return Finding(State.WRONG, what, "missing", "there", fix)
    return Finding(State.UNKNOWN, what, f"not known: {answer.reason}")


def compare(what: str, found: str, wanted: str, fix: str, mend: Mend | None = None) -> Finding:
    """The finding about two texts that must be the same."""
    if found == wanted:
        return Finding(State.OK, what, found)
    return Finding(State.WRONG, what, found, wanted, fix, mend)
