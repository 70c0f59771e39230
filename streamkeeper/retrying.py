"""Decides whether a request is sent again, and when. Pure: the caller who performs the steps sends and waits.

Invariants: a request is not sent again before its Retry-After; the waits of a request add up to at most `patient_s`; an
error that will not pass is raised at once.
"""

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamkeeper.exceptions import Refused, StreamkeeperError, refusal

T = TypeVar("T")
JSON = {"accept": "application/json"}
# Each answer of the API has one of these.
_OURS = {"stream", "streams", "executionArn", "as_wanted"}

_FOREIGN = "This address is not that of a Streamkeeper API: its answer is none of that API's."

# The first wait between two tries, and the longest, unless the API asks for more.
EVERY_S, LONGEST_S = 1.0, 30.0


@dataclass(frozen=True)
class Reply:
    """An answer of the API; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def refusal(self) -> Refused:
        """The error for this answer, unless it is a success."""
        return refusal(self.status, self.headers, self.body)


@dataclass(frozen=True)
class Send:
    """A request to send; the performer returns the Reply, or an Unreachable if there was none.

    `page_of` names the list of which the answer is a page, if it is one.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: bytes = b""
    page_of: str = ""


@dataclass(frozen=True)
class Wait:
    """How long to wait, and a sentence for the log that says why; "" if there is simply nothing new."""

    seconds: float
    why: str = ""


Outcome = Reply | StreamkeeperError | None
Steps = Generator[Send | Wait, Outcome, T]


def perform(steps: Steps[T], send: Callable[[Send], Outcome], wait: Callable[[Wait], None]) -> T:
    """Performs the steps one after the other; returns their result, or raises their error."""
    outcome: Outcome = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Wait):
            wait(step)
        outcome = send(step) if isinstance(step, Send) else None


def request_steps(request: Send, patient_s: float, *, is_known: bool = False) -> Steps[dict[str, Any]]:
    """The steps of a request; returns the answer's JSON, or raises the error of the last try.

    If the address `is_known` as an API's, another answer, such as a proxy's page, is an outage.
    """
    left_s, rest_s = patient_s, EVERY_S
    while True:
        outcome = yield request
        if not isinstance(outcome, Reply):
            problem = outcome
        elif not outcome.is_success:
            problem = outcome.refusal
        elif (read := _json(outcome.body, request.page_of)) is not None:
            return read
        else:
            problem = StreamkeeperError(_FOREIGN)
            problem.may_pass = is_known
        assert problem is not None
        wait_s = max(rest_s, problem.retry_after_s)
        if not problem.may_pass or wait_s > left_s:
            raise problem
        left_s, rest_s = left_s - wait_s, min(rest_s * 2, LONGEST_S)
        yield Wait(wait_s, f"{problem} Trying again in {wait_s:g} s.")


def _json(body: str, page_of: str) -> dict[str, Any] | None:
    """An answer of the API; None for any other."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or _OURS.isdisjoint(read):
        return None
    return None if page_of and not (isinstance(read.get(page_of), list) and "next" in read) else read
