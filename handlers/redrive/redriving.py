"""Works through dead-letter messages: whole events go back to their places, rejected streams to work where asked for.

Invariants: a message is deleted only after what it holds was stored, or its stream started, or either was so already;
every other one is reported with its reason and is back in the queue when the walk ends. So it may be repeated, and two
at once do each thing once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from handlers.redrive.letters import EndLetter, EventLetter, Incomplete, Letter, Message, Reader, Rest
from handlers.redrive.restore import KNOWN, NotStored
from handlers.redrive.stage import Stage

STARTED, RUNS, LEFT = "started", "runs already", "left"


@dataclass(frozen=True)
class Outcome:
    """What became of a letter; `detail` is why it was left, or the execution that was started."""

    letter: Letter
    outcome: str
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The outcome for a program."""
        letter = self.letter
        return {
            "stream": letter.stream_id,
            "key": key_of(letter) or None,
            "reason": letter.reason,
            "messages": [message.id for message in letter.messages],
            "outcome": self.outcome,
            "detail": self.detail,
        }


class Redrive:
    """Works through the queue of a stage."""

    def __init__(self, stage: Stage, *, restart: bool, dry_run: bool) -> None:
        self._stage = stage
        self._restart = restart
        self._dry_run = dry_run
        self._held: dict[str, Message] = {}
        self._started: dict[str, str] = {}

    def outcomes(self, wanted: frozenset[str] | None) -> Generator[Outcome]:
        """What becomes of each letter, of the streams in `wanted` or of all; what is left is released at the end."""
        reader = Reader()
        try:
            for messages in self._stage.messages():
                self._held |= {message.id: message for message in messages}
                for letter in filter(None, map(reader.read, messages)):
                    if _is_wanted(letter, wanted):
                        yield self._settle(letter)
            if not self._stage.is_late():
                yield from (self._settle(letter) for letter in reader.incomplete() if _is_wanted(letter, wanted))
        finally:
            for message in self._held.values():
                # Where that fails it is back by itself.
                with contextlib.suppress(BotoCoreError, ClientError):
                    self._stage.release(message)

    def _settle(self, letter: Letter) -> Outcome:
        try:
            outcome = self._act(letter)
            if outcome.outcome != LEFT and not self._dry_run:
                self._stage.delete(letter.messages)
                for message in letter.messages:
                    del self._held[message.id]
        except (NotStored, StoreUnavailable) as problem:
            return Outcome(letter, LEFT, str(problem))
        except ClientError as refusal:
            return Outcome(letter, LEFT, f"AWS refused {refusal.operation_name}: {refusal.response['Error']['Code']}")
        except BotoCoreError as problem:
            return Outcome(letter, LEFT, f"AWS did not answer: {type(problem).__name__}")
        return outcome

    def _act(self, letter: Letter) -> Outcome:
        if isinstance(letter, EventLetter):
            layout = self._stage.layout(letter.stream_id)
            return Outcome(
                letter,
                self._stage.events.outcome(
                    letter.stream_id,
                    letter.fence,
                    letter.event,
                    layout.partitions,
                    order=layout.order,
                    dry_run=self._dry_run,
                ),
            )
        if isinstance(letter, EndLetter):
            return self._start(letter)
        assert isinstance(letter, Rest)
        if isinstance(letter, Incomplete):
            partitions = self._stage.layout(letter.stream_id).partitions
            if self._stage.events.has(letter.stream_id, letter.key, partitions):
                return Outcome(letter, KNOWN)
        return Outcome(letter, LEFT, letter.problem)

    def _start(self, letter: Letter) -> Outcome:
        """Starts the stream as a POST does, once for all its letters; a stop request is left to a POST."""
        stream_id = letter.stream_id
        if stream_id in self._started:
            return Outcome(letter, STARTED, self._started[stream_id])
        lease = self._stage.lease(stream_id)
        if lease.execution and not lease.stop and self._stage.is_running(lease.execution):
            return Outcome(letter, RUNS, lease.execution)
        if not self._restart:
            return Outcome(letter, LEFT, "the stream is started again with --restart, or by a POST")
        if lease.stop:
            return Outcome(letter, LEFT, "a stop was requested since; a POST starts the stream again")
        execution = "" if self._dry_run else self._stage.start(stream_id)
        self._started[stream_id] = execution
        return Outcome(letter, STARTED, execution)


def _is_wanted(letter: Letter, wanted: frozenset[str] | None) -> bool:
    return wanted is None or letter.stream_id in wanted


def key_of(letter: Letter) -> str:
    """The key of the event that a letter is of, "" where it is of none."""
    if isinstance(letter, EventLetter):
        return letter.event.key
    return letter.key if isinstance(letter, Rest) else ""
