"""Records what the product's code requests of AWS in every test, whichever server answers there.

A request passes one of four edges: the functions' own client of DynamoDB, botocore, the tables and the queue of virtual
time, and the interpreter where a Task leaves it. A function is known by the modules on the stack; a test's own request
has none of them, and is not recorded. A service has a record of its own, with the roles, including the API's requests.
Invariants: no request and no answer is changed; there is a line for each sender, action and resource, with the first
test that made it.
"""

import contextlib
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from botocore import xform_name
from botocore.handlers import BUILTIN_HANDLERS

from handlers.dynamodb.client import DynamoDb
from local.permissions import needs
from local.permissions.guard import needs_of_task
from local.permissions.needs import Need
from local.simulation.tables import MemoryDynamoDB
from local.simulation.unreliable_clients import UnreliableDynamoDB, UnreliableQueue
from states_language.execution import Execution

# Who: the modules of handlers on the stack, from the request outwards, or one of these and what tells which role it is.
TASK, ROLE = "a Task", "the role"
Who = tuple[str, ...]
# (who, action, resource, test), as JSON takes it.
Line = tuple[Who, str, str, str]

# They send what another module asks for.
_TRANSPORT = ("handlers.dynamodb.", "handlers.aws.lambda_environment")
_VIRTUAL = ("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "BatchExecuteStatement", "Query")

_seen: dict[tuple[Who, Need], str] = {}
_own = 0  # how many ask at the moment: a fixture's thread may, beside a test


def lines() -> list[Line]:
    """Returns what was recorded in this process."""
    return [(who, need.action, need.resource, test) for (who, need), test in _seen.items()]


def add(who: Who, needed: Iterable[Need]) -> None:
    """Records what a sender needs."""
    for need in needed:
        if (who, need) not in _seen:
            _seen[who, need] = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]


def add_record(file: Path) -> None:
    """Adds the record of a service, except what it refused, which is left to the test."""
    with contextlib.suppress(FileNotFoundError):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["allowed"]:
                add((ROLE, line["role"]), [Need(line["action"], line["resource"])])


def begin() -> None:
    """Records from now on, in this process."""
    # Clients that are made from now on have it: botocore registers these with each session.
    BUILTIN_HANDLERS.append(("provide-client-params", _of_botocore))
    _record(DynamoDb, "send", lambda operation, body: _of_function("dynamodb", operation, json.loads(body)))
    for tables, operation in itertools.product((MemoryDynamoDB, UnreliableDynamoDB), _VIRTUAL):
        _record(tables, xform_name(operation), functools.partial(_of_call, "dynamodb", operation))
    _record(UnreliableQueue, "send_message", functools.partial(_of_call, "sqs", "SendMessage"))
    _record(Execution, "start_call", lambda _branch, call: add((TASK, call.state, call.resource), needs_of_task(call)))


def _record(edge: type, name: str, note: Callable[..., None]) -> None:
    """Has a method noted with its parameters before it is called."""
    method = getattr(edge, name)

    @functools.wraps(method)
    def recorded(self: Any, *positional: Any, **parameters: Any) -> Any:
        note(*positional, **parameters)
        return method(self, *positional, **parameters)

    setattr(edge, name, recorded)


@contextlib.contextmanager
def own_requests() -> Iterator[None]:
    """Marks the requests within the block as the test's own, even if a function is on the stack."""
    global _own
    _own += 1
    try:
        yield
    finally:
        _own -= 1


def modules() -> Who:
    """Returns the modules of handlers on the stack that may tell the sender; none for a test's own request."""
    if _own:
        return ()
    found: dict[str, None] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        is_ours = _is_ours.get(name)
        if is_ours is None:
            is_ours = _is_ours[name] = name.startswith("handlers.") and not name.startswith(_TRANSPORT)
        if is_ours:
            found[name] = None
        frame = frame.f_back
    return tuple(found)


# Of each module that was met. Virtual time asks a million times, from stacks of a hundred functions; the name has its
# hash, while that of a function's code is computed each time.
_is_ours: dict[str, bool] = {}


def _of_call(service: str, operation: str, **parameters: Any) -> None:
    _of_function(service, operation, parameters)


def _of_function(service: str, operation: str, parameters: dict[str, Any]) -> None:
    if who := modules():
        add(who, _needed(service, operation, parameters))


def _needed(service: str, operation: str, parameters: dict[str, Any]) -> list[Need]:
    if service != "dynamodb":
        return needs.needs_of_call(service, operation, parameters)
    # Virtual time makes a million requests of a few kinds.
    statements = (one["Statement"] if isinstance(one, dict) else one for one in parameters.get("Statements", ()))
    names = (parameters.get("TableName"), parameters.get("IndexName"), *parameters.get("RequestItems", ()))
    return _of_tables(operation, *names[:2], frozenset(names[2:]), frozenset(statements))


@functools.lru_cache(4096)
def _of_tables(
    operation: str, table: str | None, index: str | None, tables: frozenset[str], statements: frozenset[str]
) -> list[Need]:
    parameters: dict[str, Any] = {"IndexName": index, "RequestItems": dict.fromkeys(tables)}
    parameters["Statements"] = [{"Statement": statement} for statement in statements]
    return needs.needs_of_call("dynamodb", operation, parameters | ({} if table is None else {"TableName": table}))


def _of_botocore(params: dict[str, Any], model: Any, **_rest: Any) -> None:
    _of_function(model.service_model.endpoint_prefix, model.name, params)
