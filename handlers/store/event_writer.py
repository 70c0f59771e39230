"""Writes the events of a stream to DynamoDB, each once, as many in one request as are waiting.

It says what goes into one request, what is sent again and what no request can carry; it never waits to fill a batch.
Invariants: the first writer of an event wins; when `write` returns, each event is stored, was known already, or lies
in the dead-letter queue, whole but where it was too long to be read; what is sent twice is stored once.
"""

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from handlers.aws.error_translation import ConditionFailed, Refused, quoted_id, translate_errors
from handlers.connection.inputs import Written
from handlers.dynamodb.client import DynamoDb
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.framing.oversize import Oversize
from handlers.store.event_items import (
    DEFAULT_POLICY,
    MAX_ITEM_BYTES,
    StoragePolicy,
    body_of,
    in_bucket,
    mark,
    place_of,
    size_bytes,
    stream_of,
)
from handlers.store.insert_statements import Inserts, as_parameters
from handlers.store.overflow import DeadLetterQueue, Objects
from handlers.store.typed_values import Item

STORED, DUPLICATE, DEAD_LETTERED = "stored", "duplicate", "dead-lettered"
# BatchExecuteStatement: "can perform no more than 25 statements per batch".
BATCH = 25
# A request of DynamoDB's may have 16 MB. This is what a small function can hold several times over.
BATCH_BYTES = 1024 * 1024
# BatchStatementError's codes that the same statement may not meet again. Source: DynamoDB's API reference.
TRANSIENT = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)
# How often statements are sent again of which none was taken, and the delays before: 2.6 s together. While the table
# takes some the delays stay short, up to DELAYS_IN_ALL_S for one write: a connection that waits here reads no lease.
TRIES = 8
DELAY_S, DELAY_MOST_S, DELAYS_IN_ALL_S = 0.025, 1.0, 5.0

# The number of an event, the event, and its INSERT.
Pending = tuple[int, StreamEvent, str]


class EventWriter:
    """The events table, and the places for what it cannot hold; `sleep` waits for a number of seconds."""

    def __init__(
        self, dynamodb: Any, table: str, objects: Objects, dead_letters: DeadLetterQueue, sleep: Callable[[float], None]
    ) -> None:
        self.dynamodb = dynamodb
        self.table = table
        self.objects = objects
        self.dead_letters = dead_letters
        self.sleep = sleep

    def write(
        self,
        stream_id: str,
        fence: int,
        first: int,
        events: Sequence[StreamEvent],
        policy: StoragePolicy = DEFAULT_POLICY,
    ) -> Written:
        """How many of `events` were new, known already, or dead-lettered; `first` is the number of the first."""
        # Two statements of one batch may not touch the same item, and the first delivery is the one that counts.
        fresh: dict[str, tuple[int, StreamEvent]] = {}
        for number, event in enumerate(events, first):
            fresh.setdefault(event.key, (number, event))
        one = OneWrite(self, Inserts(self.table, stream_id, fence, policy))
        outcomes = [DUPLICATE] * (len(events) - len(fresh)) + one.outcomes(fresh.values())
        duplicates = outcomes.count(DUPLICATE)
        written = Written(outcomes.count(STORED), duplicates, outcomes.count(DEAD_LETTERED))
        if not duplicates or policy.on_conflict is None:
            return written
        repeated = [known for known in enumerate(events, first) if fresh[known[1].key][0] != known[0]]
        return one.settled(written, repeated, keeps_both=policy.on_conflict == "both")


class OneWrite:
    """One call of `write`: events of one connection, no two of which have the same key."""

    def __init__(self, writer: EventWriter, inserts: Inserts) -> None:
        self._writer = writer
        self._dynamodb = writer.dynamodb
        self._inserts = inserts
        self._tries = _Tries(writer.sleep)
        self._known: list[tuple[int, StreamEvent]] = []  # those whose key was refused

    def outcomes(self, events: Iterable[tuple[int, StreamEvent]]) -> list[str]:
        """The outcome of each, in any order."""
        outcomes: list[str] = []
        batch: list[Pending] = []
        batch_bytes = 0
        for number, event in events:
            text = self._inserts.of_short(number, event)
            if text is None:
                item = self._inserts.item(number, event)
                if isinstance(event.data, Oversize):
                    outcomes.append(self._noted(self._put_whole(event, item), number, event))
                    continue
                if size_bytes(item) > MAX_ITEM_BYTES:
                    outcomes.append(self._noted(self._put_large(event, item), number, event))
                    continue
                text = self._inserts.of_item(item)
            if len(batch) == BATCH or batch_bytes + len(text) > BATCH_BYTES:
                outcomes += self._put_batch(batch)
                batch, batch_bytes = [], 0
            batch.append((number, event, text))
            batch_bytes += len(text)
        return outcomes + self._put_batch(batch)

    def settled(self, written: Written, repeated: Sequence[tuple[int, StreamEvent]], *, keeps_both: bool) -> Written:
        """What was written, with what follows where a refused or `repeated` event has another body than is stored."""
        # Not before there is a duplicate: most connections meet none.
        from handlers.store.conflicts import Conflicts

        writer = self._writer
        conflicts = Conflicts(
            self._dynamodb,
            writer.table,
            writer.objects.find,
            self._inserts.item,
            self._put_whole,
            keeps_both=keeps_both,
        ).settle([*self._known, *repeated])
        return Written(
            stored=written.stored + conflicts.stored,
            duplicates=written.duplicates - conflicts.stored - conflicts.dead_lettered,
            dead_lettered=written.dead_lettered + conflicts.dead_lettered,
            conflicts=conflicts.conflicts,
        )

    def _noted(self, outcome: str, number: int, event: StreamEvent) -> str:
        """The outcome; the event of a known key is remembered."""
        if outcome == DUPLICATE:
            self._known.append((number, event))
        return outcome

    def _put_one(self, number: int, event: StreamEvent, was_sent: bool) -> str:
        return self._noted(self._put_alone(event, self._inserts.item(number, event), was_sent), number, event)

    def _put_whole(self, event: StreamEvent, item: Item) -> str:
        """Puts the item by itself, whatever its size; what is left of one that was too long goes to the queue."""
        if isinstance(event.data, Oversize):
            return self._dead_letter(event, item, event.data.reason)
        is_large = size_bytes(item) > MAX_ITEM_BYTES
        return self._put_large(event, item) if is_large else self._put_alone(event, item, False)

    def _put_large(self, event: StreamEvent, item: Item) -> str:
        """Puts the body of an event that no item holds into the bucket, then an item that refers to it."""
        referring, objects = in_bucket(item), self._writer.objects
        if not objects.exist or size_bytes(referring) > MAX_ITEM_BYTES:
            return self._dead_letter(event, item, f"too large for an item: {size_bytes(item)} bytes")
        if self._place(item) is not None:
            return DUPLICATE
        # In this order: a kill between the two leaves an object that nothing refers to, the other would lose the body.
        objects.put(referring["object"]["S"], body_of(item))
        return self._put_alone(event, referring, False)

    def _put_batch(self, batch: list[Pending]) -> list[str]:
        """The outcome of each, in any order."""
        if len(batch) < 2:
            return [self._put_one(number, event, False) for number, event, _ in batch]
        outcomes: list[str] = []
        was_sent = False
        while batch:
            try:
                answers, metadata = self._insert([text for *_, text in batch])
            except Refused:
                # The request as a whole: one of the statements must be at fault, and alone it says so.
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
                    outcomes.append(self._noted(self._refused(pending, code, was_sent, metadata), *pending[:2]))
            took_some, batch, was_sent = len(again) < len(batch), again, True
            if batch:
                self._tries.count(took_some, metadata)
        return outcomes

    def _refused(self, pending: Pending, code: str, was_sent: bool, metadata: dict[str, Any]) -> str:
        """What a statement's error means; `was_sent` is whether it may have been carried out before."""
        number, event, _ = pending
        item = self._inserts.item(number, event)
        if code == "DuplicateItem":
            return STORED if was_sent and self._is_ours(item) else DUPLICATE
        if code == "ValidationError":
            return self._dead_letter(event, item, f"refused by DynamoDB: {code}")
        raise StoreUnavailable(f"AWS refused BatchExecuteStatement: {code}{quoted_id({'ResponseMetadata': metadata})}")

    def _insert(self, texts: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """An answer for each, in order, and the client's metadata: among it how often it has sent the request again."""
        with translate_errors("BatchExecuteStatement", refusals=True):
            is_ours = isinstance(self._dynamodb, DynamoDb)
            statements = texts if is_ours else [as_parameters(text) for text in texts]
            response = self._dynamodb.batch_execute_statement(Statements=statements)
        return response["Responses"], response.get("ResponseMetadata", {})

    def _put_alone(self, event: StreamEvent, item: Item, was_sent: bool) -> str:
        try:
            return STORED if self._put_once(item, was_sent) else DUPLICATE
        except Refused as refusal:
            return self._dead_letter(event, item, f"refused by DynamoDB: {refusal}")

    def _put_once(self, item: Item, was_sent: bool = False) -> bool:
        """Whether the item was new; `was_sent` is whether a request for it may have been carried out before."""
        try:
            with translate_errors("PutItem", refusals=True):
                # The item of this key does not exist: the first writer wins, and every later one is turned away.
                self._dynamodb.put_item(
                    TableName=self._writer.table, Item=item, ConditionExpression="attribute_not_exists(PK)"
                )
            return True
        except ConditionFailed as failed:
            # After a lost answer the client sends the item again and meets its own: then it was new.
            return (was_sent or failed.retries > 0) and self._is_ours(item)

    def _is_ours(self, item: Item) -> bool:
        return self._place(item) == place_of(item)

    def _place(self, item: Item) -> str | None:
        """That of the event which lies under the item's key; None where none does."""
        with translate_errors("GetItem"):
            response = self._dynamodb.get_item(
                TableName=self._writer.table, Key={"PK": item["PK"], "SK": item["SK"]}, ConsistentRead=True
            )
        return place_of(response["Item"]) if response.get("Item") else None

    def _dead_letter(self, event: StreamEvent, item: Item, reason: str) -> str:
        """Sends the event whole, then leaves a mark under its key, so that the next connection knows it.

        In this order: a kill between the two sends it twice, the other order would lose it.
        """
        if self._place(item) is not None:
            return DUPLICATE
        self._writer.dead_letters.send(stream_of(item), int(item["fence"]["N"]), event, reason)
        with contextlib.suppress(Refused):
            self._put_once(mark(item, reason))
        return DEAD_LETTERED


class _Tries:
    """How often statements of one write may be sent again; each time after a longer delay, with full jitter."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._made = 1
        self._slept_s = 0.0

    def count(self, took_some: bool, metadata: dict[str, Any]) -> None:
        """Returns after the delay; raises StoreUnavailable where the last try was made, whose `metadata` names it."""
        if took_some:
            self._made = max(1, self._made - 1)
        delay_s = random.uniform(0, min(DELAY_S * 2 ** (self._made - 1), DELAY_MOST_S))
        if self._made == TRIES or self._slept_s + delay_s > DELAYS_IN_ALL_S:
            request = quoted_id({"ResponseMetadata": metadata})
            raise StoreUnavailable(f"AWS refused statements of BatchExecuteStatement again and again{request}")
        self._sleep(delay_s)
        self._slept_s += delay_s
        self._made += 1
