"""A DynamoDB client that fails, before the in-memory tables: what a request meets is drawn from the fault's numbers.

Invariant: without a fault every request is passed on as it is.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from local.simulation.tables import MemoryDynamoDB, method
from states_language.clock import Clock

Request = Callable[[], dict[str, Any]]
# What a request meets while outcomes are unknown, and how often.
OUTCOMES = {"passes": 5, "is lost": 2, "loses its answer": 3, "lands late": 2, "is sent twice": 3}
# What a single statement of a batch meets then.
STATEMENTS = {"passes": 6, "is throttled": 2, "fails when it is done": 1}
LATEST_MS = 6_000
# What an item says that no table takes, while `refuses`.
REFUSED = "and no table takes it"
READS = frozenset({"GetItem", "BatchGetItem", "Query"})


def _asked(operation: str) -> Callable[..., dict[str, Any]]:
    def asked(self: UnreliableDynamoDB, **request: Any) -> dict[str, Any]:
        """As boto3's."""
        return self.send(operation, request)

    return asked


class UnreliableDynamoDB:
    """The methods of boto3's client that the store calls; `before` and `after` are called around each."""

    def __init__(self, clock: Clock, tables: MemoryDynamoDB) -> None:
        self._clock = clock
        self._tables = tables
        self._throttled_until_ms = 0
        self._unknown_until_ms = 0
        self._draws = random.Random(0)
        self.latency_ms = 0
        self.refuses = False  # what holds REFUSED
        self.before: Callable[[], None] = nothing
        self.after: Callable[[], None] = nothing

    def throttle(self, until_ms: int) -> None:
        """Refuses every request until then."""
        self._throttled_until_ms = max(self._throttled_until_ms, until_ms)

    def unsettle(self, until_ms: int, draws: random.Random) -> None:
        """Draws the result of every request until then."""
        self._unknown_until_ms, self._draws = max(self._unknown_until_ms, until_ms), draws

    def slow_down(self, latency_ms: int, until_ms: int) -> None:
        """Makes every request take that much longer until then."""
        self.latency_ms = latency_ms
        self._clock.call_at(until_ms, self._quick)

    def _quick(self) -> None:
        self.latency_ms = 0

    get_item = _asked("GetItem")
    batch_get_item = _asked("BatchGetItem")
    put_item = _asked("PutItem")
    update_item = _asked("UpdateItem")
    batch_execute_statement = _asked("BatchExecuteStatement")
    query = _asked("Query")

    def send(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        perform = functools.partial(self._perform, operation, request)
        if self.before is nothing:
            return self._answer(operation, perform)
        self.before()
        try:
            return self._answer(operation, perform)
        finally:
            self.after()

    def _perform(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Lets the tables answer; while outcomes are unknown each statement of a batch has one of its own."""
        if operation == "PutItem" and self.refuses and _is_refused(request["Item"].values()):
            raise ClientError(_error("ValidationException"), operation)
        is_unknown = self._clock.now_ms() < self._unknown_until_ms
        if operation == "BatchExecuteStatement" and (is_unknown or self.refuses):
            return {"Responses": [self._execute(statement) for statement in request["Statements"]]}
        return method(self._tables, operation)(**request)

    def _execute(self, statement: dict[str, Any]) -> dict[str, Any]:
        if self.refuses and _is_refused(statement["Parameters"]):
            return {"Error": {"Code": "ValidationError", "Message": "no item can have that"}}
        outcome = "passes"
        if self._clock.now_ms() < self._unknown_until_ms:
            (outcome,) = self._draws.choices(list(STATEMENTS), list(STATEMENTS.values()))
        if outcome == "is throttled":
            return {"Error": {"Code": "ThrottlingError", "Message": "slow down"}}
        answer: dict[str, Any] = self._tables.batch_execute_statement(Statements=[statement])["Responses"][0]
        return answer if outcome == "passes" else {"Error": {"Code": "InternalServerError", "Message": "no idea"}}

    def _answer(self, operation: str, request: Request) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        if now_ms < self._throttled_until_ms:
            raise _throttled(operation)
        if now_ms >= self._unknown_until_ms:
            return request()
        (outcome,) = self._draws.choices(list(OUTCOMES), list(OUTCOMES.values()))
        if outcome == "passes":
            return request()
        if outcome == "is sent twice":
            return _twice(request)
        if outcome == "loses its answer":
            _quietly(request)
        elif outcome == "lands late" and operation not in READS:
            self._clock.call_at(now_ms + self._draws.randrange(1, LATEST_MS), lambda: _quietly(request))
        raise ReadTimeoutError(endpoint_url="https://dynamodb.invalid")


def _twice(request: Request) -> dict[str, Any]:
    """The client's own retry after a lost answer: it gets the answer to the second."""
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


def _throttled(operation: str) -> ClientError:
    return ClientError(_error("ProvisionedThroughputExceededException"), operation)


def _error(code: str) -> Any:
    metadata = {"HTTPStatusCode": 400, "RetryAttempts": 3 if code != "ValidationException" else 0}
    return {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": metadata}


def _is_refused(values: Iterable[dict[str, Any]]) -> bool:
    return any(REFUSED in value.get("S", "") for value in values)


def nothing() -> None:
    """Does nothing: what is called around a request while nobody is to die."""
