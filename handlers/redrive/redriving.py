"""Works through dead-letter messages: puts whole events back in their places, and starts rejected streams on request.

Invariants: a walk receives each message once, and no other receiver gets it meanwhile; a message is deleted only after
its event is stored or its stream runs; every other message is reported with its reason, and is back in the queue when
the walk ends. So a walk may be repeated, and two walks at once do nothing twice.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.aws.error_translation import translate_errors
from handlers.aws.executions import is_running
from handlers.connection.inputs import Layout
from handlers.errors import StoreUnavailable
from handlers.fleet.request_pacing import Outcome as Start
from handlers.fleet.request_pacing import start_stream
from handlers.group import is_group
from handlers.redrive.letters import Letter, LetterReader, Message
from handlers.redrive.restore import KNOWN, Events, NotStored
from handlers.store.leases import Leases
from handlers.store.stream_records import StreamRecords
from handlers.values import dataclass

STARTED, RUNS, LEFT = "started", "runs already", "left"
# The seconds for which a walk's messages are hidden from others; after a kill they are visible again by then.
HELD_S = 900


# With a wait SQS queries all of its servers. Without a wait it queries a few, whose answer may be empty although other
# servers have messages ("Amazon SQS short and long polling").
WAIT_S = 1
# The most messages of a request.
BATCH = 10


def receive_batches(
    sqs: Any, queue_url: str, held_s: int, is_late: Callable[[], bool]
) -> Iterator[list[dict[str, Any]]]:
    """Yields the messages in batches, as SQS has them, until it is late; each is hidden from others for `held_s`."""
    seen: set[str] = set()
    while not is_late():
        answer = sqs.receive_message(
            QueueUrl=queue_url,
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=WAIT_S,
            VisibilityTimeout=held_s,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        fresh = [one for one in answer.get("Messages", ()) if one["MessageId"] not in seen]
        if not fresh:
            return
        seen.update(one["MessageId"] for one in fresh)
        yield fresh


def release(sqs: Any, queue_url: str, receipts: Sequence[str]) -> None:
    """Makes the messages with these receipts visible to others at once."""
    from botocore.exceptions import BotoCoreError, ClientError

    for first in range(0, len(receipts), BATCH):
        some = enumerate(receipts[first : first + BATCH])
        entries = [{"Id": str(number), "ReceiptHandle": one, "VisibilityTimeout": 0} for number, one in some]
        # If the request fails, the messages become visible later by themselves.
        with contextlib.suppress(BotoCoreError, ClientError):
            sqs.change_message_visibility_batch(QueueUrl=queue_url, Entries=entries)


@dataclass(frozen=True)
class Stage:
    """The queue and the tables on which `redrive` works, and the machine that answers a POST."""

    sqs: Any
    queue_url: str
    dynamodb: Any
    control_table: str
    events: Events
    states: Any
    machine_arn: str
    held_s: int = HELD_S
    is_late: Callable[[], bool] = lambda: False
    _layouts: dict[str, Layout] = field(default_factory=dict)

    def delete(self, messages: Sequence[Message]) -> None:
        """Deletes the messages of one letter from the queue, ten in a request."""
        for at in range(0, len(messages), BATCH):
            some = enumerate(messages[at : at + BATCH])
            entries = [{"Id": str(number), "ReceiptHandle": one.receipt} for number, one in some]
            answer = self.sqs.delete_message_batch(QueueUrl=self.queue_url, Entries=entries)
            if answer.get("Failed"):
                raise ClientError({"Error": {"Code": answer["Failed"][0]["Code"]}}, "DeleteMessageBatch")

    @property
    def records(self) -> StreamRecords:
        """The streams' records in the control table."""
        return StreamRecords(self.dynamodb, self.control_table)

    def layout(self, stream_id: str) -> Layout:
        """Returns the layout of the stream's events, as its lease records it."""
        if stream_id not in self._layouts:
            known = self.records.layout(stream_id)
            self._layouts[stream_id] = Layout() if known is None else known
        return self._layouts[stream_id]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a letter; `detail` is why the letter was left, or the execution that was started."""

    letter: Letter
    outcome: str
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        letter = self.letter
        return {
            "stream": letter.stream_id,
            "key": letter.key or None,
            "reason": letter.reason,
            "messages": [message.id for message in letter.messages],
            "outcome": self.outcome,
            "detail": self.detail,
        }


@dataclass
class Redrive:
    """Works through the queue of a stage."""

    stage: Stage
    restart: bool
    dry_run: bool
    _held: dict[str, Message] = field(default_factory=dict)
    _started: dict[str, str] = field(default_factory=dict)

    def outcomes(self, wanted: frozenset[str] | None) -> Generator[Outcome]:
        """Yields the outcome of each letter of the streams in `wanted`, or of all; releases the rest at the end."""
        try:
            for letter in self._letters():
                if wanted is None or letter.stream_id in wanted:
                    yield self._settle(letter)
        finally:
            receipts = [one.receipt for one in self._held.values()]
            release(self.stage.sqs, self.stage.queue_url, receipts)

    def _letters(self) -> Iterator[Letter]:
        reader, stage = LetterReader(), self.stage
        for some in receive_batches(stage.sqs, stage.queue_url, stage.held_s, stage.is_late):
            messages = [Message(one["MessageId"], one["ReceiptHandle"], one["Body"]) for one in some]
            self._held |= {message.id: message for message in messages}
            yield from filter(None, map(reader.read, messages))
        if not stage.is_late():
            yield from reader.incomplete()

    def _settle(self, letter: Letter) -> Outcome:
        try:
            outcome = self._restore(letter)
            if outcome.outcome != LEFT and not self.dry_run:
                if letter.key:
                    # Written before the message is deleted: after a kill in between, the next walk counts the event.
                    self.stage.records.record_put_back(letter.stream_id, letter.fence, letter.key)
                self.stage.delete(letter.messages)
                for message in letter.messages:
                    del self._held[message.id]
        except (NotStored, StoreUnavailable, ClientError, BotoCoreError) as problem:
            return Outcome(letter, LEFT, _reason(problem.__cause__ or problem))
        return outcome

    def _restore(self, letter: Letter) -> Outcome:
        events, stream_id = self.stage.events, letter.stream_id
        if letter.event is not None:
            layout = self.stage.layout(stream_id)
            found = events.outcome(stream_id, letter.fence, letter.event, layout, dry_run=self.dry_run)
            return Outcome(letter, found)
        if not letter.problem:
            return self._start(letter)
        if letter.is_part and events.has_event(stream_id, letter.key, self.stage.layout(stream_id)):
            return Outcome(letter, KNOWN)
        return Outcome(letter, LEFT, letter.problem)

    def _start(self, letter: Letter) -> Outcome:
        """Starts the stream as a POST does, once for all its letters, so that it joins a group if it should.

        A stream with a stop request is started only by a POST.
        """
        stream_id = letter.stream_id
        if stream_id in self._started:
            return Outcome(letter, STARTED, self._started[stream_id])
        lease = Leases(self.stage.dynamodb, self.stage.control_table).read(stream_id)
        if lease.execution and not lease.stop and is_running(self.stage.states, lease.execution):
            return Outcome(letter, RUNS, lease.execution)
        if is_group(stream_id):
            return Outcome(letter, LEFT, "it is a group: a POST of any of its streams starts it again")
        if not self.restart:
            return Outcome(letter, LEFT, "the stream is started again with --restart, or by a POST")
        if lease.stop:
            return Outcome(letter, LEFT, "a stop was requested since: it stays stopped until a POST starts it")
        start, detail = Start.DONE, ""
        if not self.dry_run:
            start, detail = start_stream(self.stage.states, self.stage.machine_arn, stream_id)
        if start is not Start.DONE:
            return Outcome(letter, LEFT, detail)
        self._started[stream_id] = detail
        return Outcome(letter, STARTED, detail)


def _reason(problem: BaseException) -> str:
    if isinstance(problem, ClientError):
        return f"AWS refused {problem.operation_name}: {problem.response['Error']['Code']}"
    if isinstance(problem, BotoCoreError):
        return f"AWS did not answer: {type(problem).__name__}"
    return str(problem)


def redrive_stream(stage: Stage, stream_id: str, parts: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the answer to `POST /connections/{streamId}/redrive`, for as many messages as there is time for.

    `parts` are the ids of the stream's parts, if it has any. Raises StoreUnavailable if the queue does not answer.
    """
    redrive = Redrive(stage, restart=False, dry_run=False)
    wanted = frozenset(parts or [stream_id])
    with translate_errors("ReceiveMessage"), contextlib.closing(redrive.outcomes(wanted)) as outcomes:
        shown = [outcome.as_json() for outcome in outcomes]
    return {
        "stream": stream_id,
        "dead_letters": shown,
        "counts": dict(Counter(one["outcome"] for one in shown)),
        "is_all": not stage.is_late(),
    }
