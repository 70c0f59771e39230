"""The verb `redrive`: lists the dead-letter messages of a stage and puts back what can be.

A whole event is stored under its stream, at its place among the others; a stream that was rejected is started again
where that was asked for. Invariants: a message is deleted only after what it holds was stored, or its stream started,
or either was so already; every other one is reported with its reason and is back in the queue when the command ends,
also after Ctrl-C. So it may be repeated, and two at once do each thing once.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from local.printable import printable
from local.redrive.letters import EndLetter, EventLetter, Incomplete, Letter, Message, Reader, Rest
from local.redrive.restore import KNOWN, NotStored
from local.redrive.stage import Stage, here

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
            "key": _key(letter) or None,
            "reason": letter.reason,
            "messages": [message.id for message in letter.messages],
            "outcome": self.outcome,
            "detail": self.detail,
        }

    def line(self, *, dry_run: bool) -> str:
        """The outcome for a person."""
        letter, key = self.letter, _key(self.letter)
        what = f"{letter.stream_id or '?'}{f', event {key}' if key else ''} ({letter.reason or 'no reason'})"
        would = dry_run and self.outcome not in (LEFT, KNOWN, RUNS)
        verb = f"would be {self.outcome}" if would else self.outcome
        return printable(f"{verb}: {what}{f': {self.detail}' if self.detail else ''}")


def add(subparsers: Any) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser(
        "redrive",
        description="Lists the dead-letter messages and puts back what can be: whole events into the table and, "
        "with --restart, rejected streams to work. What was put back is deleted from the queue, the rest stays.",
        epilog="Exit status: 0 nothing is left in the queue, 1 something is, 2 the queue cannot be reached. "
        "Without --stage the environment's PORT (3000) and STREAMKEEPER_STAGE (local) say which run is meant.",
    )
    parser.add_argument("--stage", metavar="S", help="a deployed stage; without it, the run on this machine")
    parser.add_argument("--stream", action="append", metavar="ID", help="messages of this stream alone; repeatable")
    parser.add_argument("--restart", action="store_true", help="start streams that were rejected or not claimed")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, say what would be done")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where nothing is left, 1 where something is; raises UserError."""
    redrive = Redrive(here(arguments.stage), restart=arguments.restart, dry_run=arguments.dry_run)
    wanted = None if arguments.stream is None else frozenset(arguments.stream)
    outcomes = []
    with contextlib.closing(redrive.outcomes(wanted)) as each:
        for outcome in each:
            outcomes.append(outcome)
            if not arguments.json:
                print(outcome.line(dry_run=arguments.dry_run), flush=True)
    counts = {name: sum(one.outcome == name for one in outcomes) for name in dict.fromkeys(o.outcome for o in outcomes)}
    if arguments.json:
        found = [outcome.as_json() for outcome in outcomes]
        print(json.dumps({"dry_run": arguments.dry_run, "counts": counts, "found": found}, indent=1))
    else:
        total = ", ".join(f"{count} {name}" for name, count in counts.items())
        print(f"{len(outcomes)} found{f': {total}' if total else ''}.", file=sys.stderr)
    return int(LEFT in counts)


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


def _key(letter: Letter) -> str:
    if isinstance(letter, EventLetter):
        return letter.event.key
    return letter.key if isinstance(letter, Rest) else ""
