"""Defines what a group's function needs from its performer, and what it yields to it: plain data and functions.

It decides nothing. Invariant: the performer of a function does not know of groups, nor the function of threads.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from handlers.aws.error_translation import translate_errors
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation, Steps
from handlers.group.next_step import Delays, ShouldKeep, StreamEnd
from handlers.profile.behaviour import Profile
from handlers.run.ports import Ports
from handlers.store.group_store import GroupStore
from handlers.store.grouped_store import GroupedStore
from handlers.store.known_streams import GroupFunction
from handlers.values import dataclass

# Reports a stream that is over: the stream, the group's execution, and the outcome.
ReportEnd = Callable[[str, str, Outcome], None]


class GroupTables:
    """What a function needs from AWS: the store's clients and the names of its tables."""

    def __init__(self, dynamodb: Any, sqs: Callable[[], Any], **names: Any) -> None:
        self.dynamodb = dynamodb
        self._sqs = sqs
        self._names = names
        self.control_table: str = names["control_table"]

    def group_store(self, group: str) -> GroupStore:
        """Returns the store of the group's own records."""
        return GroupStore(self.dynamodb, self.control_table, group)

    def stream_store(self, who: GroupFunction, now_ms: Callable[[], int]) -> GroupedStore:
        """Returns the store for its streams' connections."""
        return GroupedStore(self.dynamodb, self._sqs, who, now_ms, **self._names)


class ReadProfiles(NamedTuple):
    """How to read a stream's profile: the function's own, or the one that is deployed now; either raises
    InvalidRequest.

    Any other error means that the deployed one could not be read.
    """

    own: Callable[[str], Profile]
    deployed: Callable[[str], Profile]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answered by what the request returns; its exception is thrown in (StoreUnavailable if it takes too long)."""

    request: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Wait:
    """Answered by the names for which the bell has rung, as soon as it rings or once this many seconds are over."""

    for_s: float


Needs = Generator[Ask | Wait, Any, Outcome]


def perform_needs(steps: Needs, ask: Callable[[Callable[[], Any]], Any], wait: Callable[[float], Any]) -> Outcome:
    """Returns what the steps return, after all that they need; what `ask` or `wait` raises is thrown in."""
    move: Callable[[], Any] = functools.partial(next, steps)
    try:
        while True:
            need = move()
            try:
                answer = ask(need.request) if isinstance(need, Ask) else wait(need.for_s)
                move = functools.partial(steps.send, answer)
            except Exception as error:
                move = functools.partial(steps.throw, error)
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPorts(Ports):
    """The ports of a group's function: those of its performer, and `keep_connected`, which makes a stream's steps.

    `report_end` notifies a person of a stream that is over, with the group's execution and the outcome.
    """

    keep_connected: Callable[[Profile, Invocation, int, Delays, ShouldKeep], Steps[StreamEnd]]
    profiles: ReadProfiles
    report_end: ReportEnd


def reporter_to(sqs: Callable[[], Any], queue_url: str) -> ReportEnd:
    """Reports a stream that is over, as the machine's own message reports one that is rejected."""

    def reports(stream_id: str, execution: str, outcome: Outcome) -> None:
        body = {"stream": stream_id, "execution": execution, "error": outcome.error, "cause": outcome.message}
        with translate_errors("SendMessage"):
            sqs().send_message(QueueUrl=queue_url, MessageBody=json.dumps(body))

    return reports
