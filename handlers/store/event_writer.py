"""Writes the events of a stream to DynamoDB, each once, and all that wait in one request.

An event of a batch is spelled as an INSERT: PartiQL with parameters, as the JSON text of a request. Nearly every event
is a short text, which is filled into a template. Invariants: the first writer of an event wins; when `write` returns,
each event is stored, was known already, or is in the dead-letter queue, whole unless it was too long to be read; an
event that is sent twice is stored once; an INSERT inserts the event's item, whichever way it was made.
"""

import json
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import field
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from handlers.aws.error_translation import Refused, quoted_id, translate_errors
from handlers.connection.epochs import epochs_of
from handlers.connection.inputs import Written
from handlers.dynamodb.client import DynamoDb, decode_binary, encode
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.store.control_table import STATEMENTS, TRANSIENT, Table, insert_statement
from handlers.store.event_items import (
    COMPRESS_FROM_BYTES,
    DEFAULT_POLICY,
    PLACES,
    StoragePolicy,
    event_item,
    partition_key,
    place_of,
)
from handlers.store.overflow import DEAD_LETTERED, DUPLICATE, STORED, Objects, SingleWriter
from handlers.store.typed_values import MAX_ITEM_BYTES, Item, size_bytes
from handlers.values import dataclass

# A request to DynamoDB may have 16 MB, but a small function can hold only this many bytes several times.
BATCH_BYTES = 1024 * 1024
# How often statements are sent again if the table took none, and the delays before each time: 2.6 s together. While the
# table takes some, the delays stay short, up to DELAYS_IN_ALL_S for one write: one that waits here reads no lease.
TRIES = 8
DELAY_S, DELAY_MOST_S, DELAYS_IN_ALL_S = 0.025, 1.0, 5.0
# Data, id and name of a short event have fewer characters than this together: its item is far below every limit.
SHORT_CHARACTERS = COMPRESS_FROM_BYTES
# Marks the places in an item for texts that differ between events; no stream's id contains it.
_PLACEHOLDER = "\0"
_COUNT_DIGITS = 12
# The number of an event, the event, and its INSERT.
Pending = tuple[int, StreamEvent, str]


@dataclass(slots=True)
class Inserts:
    """The INSERTs of one stream's events into `table`, by one connection."""

    table: str
    stream_id: str
    fence: int
    policy: StoragePolicy
    _templates: dict[tuple[int, bool, bool], str] = field(default_factory=dict)

    def item(self, number: int, event: StreamEvent) -> Item:
        """Returns the item of an event, the `number`th of its connection."""
        return event_item(self.stream_id, self.fence, number, event, self.policy)

    def insert_of_item(self, item: Item) -> str:
        """Returns the INSERT of an item: it is refused if another item has its key."""
        return encode(insert_statement(self.table, item))

    def insert_of_short(self, number: int, event: StreamEvent) -> str | None:
        """Returns the INSERT of `item(number, event)`; None if the event is not short."""
        key, data, own_id, name, _, received_at_ms = event
        # As `is_short`, whose call for each event would take longer.
        if not isinstance(data, str) or len(data) + len(own_id or "") + len(name or "") >= SHORT_CHARACTERS:
            return None
        shape = (received_at_ms, own_id is None, name is None)
        pattern = self._templates.get(shape) or self._make_template(event)
        values: tuple[str | int, ...] = (quoted(key), number)
        if own_id is not None:
            values += (quoted(own_id),)
        if name is not None:
            values += (quoted(name),)
        values += (quoted(data),)
        if self.policy.partitions > 1:
            values = (quoted(partition_key(self.stream_id, key, self.policy.partitions)), *values)
        return pattern % values

    def _make_template(self, like: StreamEvent) -> str:
        """Returns the INSERT of a short event with the same time and fields as `like`, as a template for `%`."""
        own_id, name = (None if text is None else _PLACEHOLDER for text in (like.id, like.name))
        item = self.item(0, like._replace(key=_PLACEHOLDER, data=_PLACEHOLDER, id=own_id, name=name))
        if self.policy.partitions > 1:
            item["PK"] = {"S": _PLACEHOLDER}
        before = place_of(item)[:-_COUNT_DIGITS]
        item[PLACES[self.policy.order]] = {"S": before + _PLACEHOLDER}
        text = self.insert_of_item(item).replace("%", "%%")
        number = quoted(before + _PLACEHOLDER)
        pattern = text.replace(number, f'{quoted(before)[:-1]}%0{_COUNT_DIGITS}d"').replace(quoted(_PLACEHOLDER), "%s")
        self._templates[like.received_at_ms, like.id is None, like.name is None] = pattern
        return pattern


def is_short(event: StreamEvent) -> bool:
    """Whether the event's item is far below every limit."""
    return (
        isinstance(event.data, str) and len(event.data) + len(event.id or "") + len(event.name or "") < SHORT_CHARACTERS
    )


@dataclass(slots=True)
class EventWriter:
    """The events table, and the places for events that are too large for it; `sleep` waits for a number of seconds."""

    dynamodb: Any
    table: str
    objects: Objects
    singles: SingleWriter
    sleep: Callable[[float], None]

    def write(
        self,
        stream_id: str,
        fence: int,
        first: int,
        events: Sequence[StreamEvent],
        policy: StoragePolicy = DEFAULT_POLICY,
    ) -> Written:
        """Returns how many `events` were new, known already, or dead-lettered; `first` is the number of the first."""
        # Two statements of one batch must not touch the same item, and the first delivery counts.
        fresh: dict[str, tuple[int, StreamEvent]] = {}
        for number, event in enumerate(events, first):
            fresh.setdefault(event.key, (number, event))
        one = EventsWrite(self, Inserts(self.table, stream_id, fence, policy))
        outcomes = [DUPLICATE] * (len(events) - len(fresh)) + one.put_events(fresh.values())
        duplicates = outcomes.count(DUPLICATE)
        written = Written(outcomes.count(STORED), duplicates, outcomes.count(DEAD_LETTERED))
        if not duplicates or policy.on_conflict is None:
            return written
        repeated = [known for known in enumerate(events, first) if fresh[known[1].key][0] != known[0]]
        return one.settle_conflicts(written, repeated)


class EventsWrite:
    """One call of `write`: events of one connection, no two of which have the same key."""

    def __init__(self, writer: EventWriter, inserts: Inserts) -> None:
        self._writer = writer
        self._dynamodb = writer.dynamodb
        self._inserts = inserts
        self._singles = writer.singles
        self._delays = RetryDelays(writer.sleep)
        self._known: list[tuple[int, StreamEvent]] = []  # the events whose key was refused

    def put_events(self, events: Collection[tuple[int, StreamEvent]]) -> list[str]:
        """Returns the outcome of each event, in any order."""
        if len(events) == 1:
            # Nearly every write of a quiet stream is one event, which needs no statement.
            ((number, event),) = events
            if is_short(event):
                return [self._put_one(number, event, False)]
            return [self._note_duplicate(self._singles.put(event, self._inserts.item(number, event)), number, event)]
        outcomes: list[str] = []
        batch: list[Pending] = []
        batch_bytes = 0
        for number, event in events:
            text = self._inserts.insert_of_short(number, event)
            if text is None:
                item = self._inserts.item(number, event)
                if isinstance(event.data, Oversize) or size_bytes(item) > MAX_ITEM_BYTES:
                    outcomes.append(self._note_duplicate(self._singles.put(event, item), number, event))
                    continue
                text = self._inserts.insert_of_item(item)
            if len(batch) == STATEMENTS or batch_bytes + len(text) > BATCH_BYTES:
                outcomes += self._put_batch(batch)
                batch, batch_bytes = [], 0
            batch.append((number, event, text))
            batch_bytes += len(text)
        return outcomes + self._put_batch(batch)

    def settle_conflicts(self, written: Written, repeated: Sequence[tuple[int, StreamEvent]]) -> Written:
        """Returns the counts after refused or `repeated` events with another body than the stored one are settled."""
        # Imported at the first duplicate: most connections meet none.
        from handlers.store.conflicts import Conflicts

        writer, policy = self._writer, self._inserts.policy
        table = Table(self._dynamodb, writer.table)
        epochs = policy.epochs or epochs_of(policy.on_conflict)
        settled = Conflicts(
            table, writer.objects.find, self._inserts.item, self._singles.put, policy.on_conflict == "both", epochs
        ).settle([*self._known, *repeated])  # fmt: skip
        outcomes = [outcome for outcome, _ in settled]
        stored, dead_lettered = outcomes.count(STORED), outcomes.count(DEAD_LETTERED)
        return Written(
            written.stored + stored,
            written.duplicates - stored - dead_lettered,
            written.dead_lettered + dead_lettered,
            sum(is_conflict for _, is_conflict in settled),
        )

    def _note_duplicate(self, outcome: str, number: int, event: StreamEvent) -> str:
        """Returns the outcome; remembers an event whose key was known."""
        if outcome == DUPLICATE:
            self._known.append((number, event))
        return outcome

    def _put_one(self, number: int, event: StreamEvent, was_sent: bool) -> str:
        return self._note_duplicate(
            self._singles.put_alone(event, self._inserts.item(number, event), was_sent), number, event
        )

    def _put_batch(self, batch: list[Pending]) -> list[str]:
        """Returns the outcome of each event, in any order."""
        if len(batch) < 2:
            return [self._put_one(number, event, False) for number, event, _ in batch]
        outcomes: list[str] = []
        was_sent = False
        while batch:
            try:
                answers, metadata = self._insert([text for *_, text in batch])
            except Refused:
                # The whole request was refused because of one statement; sending each alone shows which.
                return outcomes + [self._put_one(number, event, was_sent) for number, event, _ in batch]
            if len(answers) == len(batch) and not [answer for answer in answers if "Error" in answer]:
                return outcomes + [STORED] * len(batch)
            was_sent = was_sent or metadata.get("RetryAttempts", 0) > 0
            again: list[Pending] = []
            for pending, answer in zip(batch, answers, strict=True):
                code = answer["Error"].get("Code", "Unknown") if "Error" in answer else ""
                if not code:
                    outcomes.append(STORED)
                elif code in TRANSIENT:
                    again.append(pending)
                else:
                    outcomes.append(
                        self._note_duplicate(self._outcome_of_refusal(pending, code, was_sent, metadata), *pending[:2])
                    )
            took_some, batch, was_sent = len(again) < len(batch), again, True
            if batch:
                self._delays.wait(took_some, metadata)
        return outcomes

    def _outcome_of_refusal(self, pending: Pending, code: str, was_sent: bool, metadata: dict[str, Any]) -> str:
        """Returns the outcome of a statement's error; `was_sent` is whether it may have been carried out before."""
        number, event, _ = pending
        item = self._inserts.item(number, event)
        if code == "DuplicateItem":
            return STORED if was_sent and self._singles.is_same_event(item) else DUPLICATE
        if code == "ValidationError":
            return self._singles.dead_letter(event, item, f"refused by DynamoDB: {code}")
        raise StoreUnavailable(f"AWS refused BatchExecuteStatement: {code}{quoted_id({'ResponseMetadata': metadata})}")

    def _insert(self, texts: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Returns an answer for each statement, in order, and the client's metadata, such as the number of retries."""
        with translate_errors("BatchExecuteStatement", refusals=True):
            is_ours = isinstance(self._dynamodb, DynamoDb)
            statements = texts if is_ours else [to_boto3_statement(text) for text in texts]
            response = self._dynamodb.batch_execute_statement(Statements=statements)
        return response["Responses"], response.get("ResponseMetadata", {})


class RetryDelays:
    """Counts how often statements of one write are sent again, each time after a longer delay with full jitter."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._made = 1
        self._slept_s = 0.0

    def wait(self, took_some: bool, metadata: dict[str, Any]) -> None:
        """Waits for the delay; raises StoreUnavailable after the last try, whose `metadata` identifies it."""
        if took_some:
            self._made = max(1, self._made - 1)
        delay_s = random.uniform(0, min(DELAY_S * 2 ** (self._made - 1), DELAY_MOST_S))
        if self._made == TRIES or self._slept_s + delay_s > DELAYS_IN_ALL_S:
            request = quoted_id({"ResponseMetadata": metadata})
            raise StoreUnavailable(f"AWS refused statements of BatchExecuteStatement in every try{request}")
        self._sleep(delay_s)
        self._slept_s += delay_s
        self._made += 1


def to_boto3_statement(insert: str) -> dict[str, Any]:
    """Returns the INSERT as a statement for boto3's client, which writes the JSON of a request itself."""
    statement: dict[str, Any] = json.loads(insert, object_hook=decode_binary)
    return statement
