"""Decides whether a request is sent again, and when. Pure: whoever performs the steps sends and waits.

Invariants: a request is sent again not before its Retry-After; the waits of a request are `patient_s` in all at most;
what cannot pass is raised at once.
"""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from streamkeeper.exceptions import StreamkeeperError, refusal

# The first wait between two tries, and the longest, unless the API asks for more.
EVERY_S, LONGEST_S = 1.0, 30.0


@dataclass(frozen=True)
class Reply:
    """What the API answered; the names of the headers are in small letters."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True)
class Send:
    """A request to send; the performer answers with the Reply, or the Unreachable that came of it."""

    method: str
    path: str


@dataclass(frozen=True)
class Wait:
    """How long to wait, and the error it is for; None where nothing new was there."""

    seconds: float
    reason: StreamkeeperError | None = None


Outcome = Reply | StreamkeeperError | None
Asking = Generator[Send | Wait, Outcome, dict[str, Any]]


class Patience:
    """How long to wait before a request is sent again; `left_s` is what may still be waited."""

    def __init__(self, patient_s: float) -> None:
        self.left_s = patient_s
        self._rest_s = EVERY_S

    def wait_s(self, retry_after_s: float) -> float | None:
        """The next wait, twice the former one; None where the request is not sent again."""
        wait_s = max(self._rest_s, retry_after_s)
        if wait_s > self.left_s:
            return None
        self.left_s -= wait_s
        self._rest_s = min(self._rest_s * 2, LONGEST_S)
        return wait_s


def asking(method: str, path: str, patient_s: float) -> Asking:
    """Yields the steps of a request; returns the answer's JSON, or raises the error that the last try came to."""
    patience = Patience(patient_s)
    while True:
        outcome = yield Send(method, path)
        problem: StreamkeeperError
        if isinstance(outcome, Reply):
            if 200 <= outcome.status < 300:
                return _json(outcome.body)
            problem = refusal(outcome.status, outcome.headers, outcome.body)
        else:
            assert outcome is not None
            problem = outcome
        wait_s = patience.wait_s(problem.retry_after_s) if problem.may_pass else None
        if wait_s is None:
            raise problem
        yield Wait(wait_s, problem)


def _json(body: str) -> dict[str, Any]:
    try:
        read = json.loads(body)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise StreamkeeperError("The answer is not JSON: the address is not that of an API of Streamkeeper's.")
    return read
