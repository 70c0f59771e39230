"""Puts unreliable clients in front of the in-memory tables and of an in-memory dead-letter queue.

While a fault lasts, the fault's own random numbers decide the outcome of each request. Invariant: without a fault every
request is passed on unchanged, and every message reaches the queue once.
"""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from local.simulation.tables import MemoryDynamoDB, method
from states_language.clock import Clock

Request = Callable[[], dict[str, Any]]
# The odds of a request while outcomes are unknown.
OUTCOMES = {"passes": 5, "is lost": 2, "loses its answer": 3, "lands late": 2, "is sent twice": 3}
# The same for a single statement of a batch.
STATEMENTS = {"passes": 6, "is throttled": 2, "fails when it is done": 1}
# The odds of a message while the queue refuses.
MESSAGES = {"passes": 2, "is refused": 4, "loses its answer": 2}
LATEST_MS = 6_000
# The text that makes every table refuse an item, while `refuses` is on.
REFUSED = "and no table takes it"
READS = frozenset({"GetItem", "BatchGetItem", "Query"})


class _UnknownOutcomes:
    """The outcomes of requests while a fault lasts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms = 0
        self._draws = random.Random(0)

    def hold(self, until_ms: int, draws: random.Random) -> None:
        """Makes the outcome of every request random until `until_ms`."""
        self._until_ms, self._draws = max(self._until_ms, until_ms), draws

    @property
    def is_lasting(self) -> bool:
        """Whether the fault lasts now."""
        return self._clock.now_ms() < self._until_ms

    def draw_outcome(self, often: Mapping[str, int]) -> str:
        """Returns a random outcome; without the fault, a request passes."""
        return self._draws.choices(list(often), list(often.values()))[0] if self.is_lasting else "passes"

    def draw_late_ms(self) -> int:
        """Returns how much later a request takes effect."""
        return self._draws.randrange(1, LATEST_MS)


def _operation(operation: str) -> Callable[..., dict[str, Any]]:
    def operate(self: UnreliableDynamoDB, **request: Any) -> dict[str, Any]:
        """As boto3's."""
        return self.send(operation, request)

    return operate


class UnreliableDynamoDB:
    """The methods of boto3's client that the store calls; `step` is called before and after each."""

    def __init__(self, clock: Clock, tables: MemoryDynamoDB) -> None:
        self._clock = clock
        self._tables = tables
        self._throttled_until_ms = 0
        self._unknown = _UnknownOutcomes(clock)
        self.unsettle = self._unknown.hold
        self.latency_ms = 0
        self.refuses = False  # items that contain REFUSED
        self.step: Callable[[], None] | None = None

    def throttle(self, until_ms: int) -> None:
        """Refuses every request until then."""
        self._throttled_until_ms = max(self._throttled_until_ms, until_ms)

    def slow_down(self, latency_ms: int, until_ms: int) -> None:
        """Makes every request take that much longer until then."""
        self.latency_ms = latency_ms
        self._clock.call_at(until_ms, lambda: setattr(self, "latency_ms", 0))

    get_item = _operation("GetItem")
    batch_get_item = _operation("BatchGetItem")
    put_item = _operation("PutItem")
    update_item = _operation("UpdateItem")
    batch_execute_statement = _operation("BatchExecuteStatement")
    query = _operation("Query")

    def send(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer to a request."""
        perform = functools.partial(self._perform, operation, request)
        return self.perform_stepwise(functools.partial(self._answer, operation, perform))

    def perform_stepwise(self, request: Request) -> dict[str, Any]:
        """Returns the answer to a request before or after which the function may die."""
        if self.step is None:
            return request()
        self.step()
        try:
            return request()
        finally:
            self.step()

    def _perform(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Lets the tables answer; while outcomes are unknown each statement of a batch has its own outcome."""
        if operation == "PutItem" and self.refuses and _is_refused(request["Item"].values()):
            raise ClientError(_error("ValidationException"), operation)
        if operation == "BatchExecuteStatement" and (self._unknown.is_lasting or self.refuses):
            return {"Responses": [self._execute(statement) for statement in request["Statements"]]}
        return method(self._tables, operation)(**request)

    def _execute(self, statement: dict[str, Any]) -> dict[str, Any]:
        if self.refuses and _is_refused(statement["Parameters"]):
            return {"Error": {"Code": "ValidationError", "Message": "no item can have that"}}
        outcome = self._unknown.draw_outcome(STATEMENTS)
        if outcome == "is throttled":
            return {"Error": {"Code": "ThrottlingError", "Message": "slow down"}}
        answer: dict[str, Any] = self._tables.batch_execute_statement(Statements=[statement])["Responses"][0]
        return answer if outcome == "passes" else {"Error": {"Code": "InternalServerError", "Message": "no idea"}}

    def _answer(self, operation: str, request: Request) -> dict[str, Any]:
        if self._clock.now_ms() < self._throttled_until_ms:
            raise ClientError(_error("ProvisionedThroughputExceededException"), operation)
        outcome = self._unknown.draw_outcome(OUTCOMES)
        if outcome == "passes":
            return request()
        if outcome == "is sent twice":
            return _twice(request)
        if outcome == "loses its answer":
            _quietly(request)
        elif outcome == "lands late" and operation not in READS:
            self._clock.call_at(self._clock.now_ms() + self._unknown.draw_late_ms(), lambda: _quietly(request))
        raise ReadTimeoutError(endpoint_url="https://dynamodb.invalid")


def _twice(request: Request) -> dict[str, Any]:
    """Performs a request as the client does after a lost answer: twice, with the answer to the second."""
    _quietly(request)
    try:
        return request() | {"ResponseMetadata": {"RetryAttempts": 1}}
    except ClientError as error:
        error.response["ResponseMetadata"]["RetryAttempts"] = 1
        raise


def _quietly(request: Request) -> None:
    try:
        request()
    except ClientError:
        return


def _error(code: str) -> Any:
    metadata = {"HTTPStatusCode": 400, "RetryAttempts": 3 if code != "ValidationException" else 0}
    return {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": metadata}


def _is_refused(values: Iterable[dict[str, Any]]) -> bool:
    return any(REFUSED in value.get("S", "") for value in values)


class UnreliableQueue:
    """A queue; `messages` are its bodies in order. A kill that waits for a request to the store may happen here too."""

    def __init__(self, clock: Clock, dynamodb: UnreliableDynamoDB, url: str) -> None:
        self._url = url
        self._dynamodb = dynamodb
        self._unknown = _UnknownOutcomes(clock)
        self.refuse = self._unknown.hold
        self.messages: list[dict[str, Any]] = []

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> dict[str, Any]:
        """As boto3's, for the store."""
        assert QueueUrl == self._url
        return self._dynamodb.perform_stepwise(lambda: self.put(json.loads(MessageBody)))

    def put(self, message: dict[str, Any]) -> dict[str, Any]:
        """Puts the message into the queue; raises the errors of boto3."""
        outcome = self._unknown.draw_outcome(MESSAGES)
        if outcome == "is refused":
            answer: Any = {"Error": {"Code": "ServiceUnavailable", "Message": "come again"}}
            raise ClientError(answer, "SendMessage")
        self.messages.append(message)
        if outcome == "loses its answer":
            raise ReadTimeoutError(endpoint_url="https://sqs.invalid")
        return {"MessageId": f"00000000-0000-4000-8000-{len(self.messages):012d}"}


def whole_events(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the events that messages hold whole, each as it would be stored again, with its `key` and `stream`."""
    events = []
    parts: dict[tuple[str, str], list[str]] = {}
    for message in messages:
        if "part" not in message:
            continue
        about = message["stream"], message["key"]
        if message["part"] == 1:
            parts[about] = []
        pieces = parts.get(about, [])
        if len(pieces) + 1 != message["part"]:
            continue  # the beginning was not sent with it
        if "event" in message:
            event = message["event"]
        else:
            pieces.append(message["event_base64"])
            if len(pieces) < message["parts"]:
                continue
            event = json.loads(b"".join(map(base64.b64decode, pieces)))
        events.append({**event, "stream": message["stream"], "key": message["key"]})
    return events
