"""Records what the code that ships asks of AWS in every test, whoever answers it there.

A request passes one of four edges: the functions' own client of DynamoDB, botocore, the tables and the queue of virtual
time, and the interpreter where a Task leaves it. A function is known by the modules on the stack; what a test asks by
itself has none of them, and is not recorded. A service has a record of its own, with the roles, and the API's requests
too. Invariants: no request and no answer is changed; there is a line for each who, action and resource, with the test
that was first.
"""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from botocore.handlers import BUILTIN_HANDLERS

from handlers.dynamodb.client import DynamoDb
from local.permissions import needs
from local.permissions.guard import of_task
from local.permissions.roles import Need
from local.simulation.tables import MemoryDynamoDB
from local.simulation.unreliable_clients import UnreliableDynamoDB, UnreliableQueue
from states_language import TaskCall
from states_language.execution import Execution

# Who: the modules of handlers on the stack, from the request outwards, or one of these and what tells which role it is.
TASK, ROLE = "a Task", "the role"
Who = tuple[str, ...]
# (who, action, resource, test), as JSON takes it.
Line = tuple[Who, str, str, str]

# They send what another module asks for.
_TRANSPORT = ("handlers.dynamodb.", "handlers.aws.clients")
_VIRTUAL = ("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "BatchExecuteStatement", "Query")

_seen: dict[tuple[Who, Need], str] = {}
_is_own = False


def lines() -> list[Line]:
    """What was recorded in this process."""
    return [(who, need.action, need.resource, test) for (who, need), test in _seen.items()]


def add(who: Who, needed: Iterable[Need]) -> None:
    """Records what somebody needs."""
    for need in needed:
        if (who, need) not in _seen:
            _seen[who, need] = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]


def add_record(file: Path) -> None:
    """Records what a service has recorded, but for what it refused: that is the test's own affair."""
    with contextlib.suppress(FileNotFoundError):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["allowed"]:
                add((ROLE, line["role"]), [Need(line["action"], line["resource"])])


def begin() -> None:
    """Records from now on, in this process."""
    # Clients that are made from now on have it: botocore registers these with each session.
    BUILTIN_HANDLERS.append(("provide-client-params", _of_botocore))
    DynamoDb.send = _sending(DynamoDb.send)  # type: ignore[method-assign]
    for tables in (MemoryDynamoDB, UnreliableDynamoDB):
        for operation in _VIRTUAL:
            _look(tables, "dynamodb", operation)
    _look(UnreliableQueue, "sqs", "SendMessage")
    Execution.ask = _asking(Execution.ask)  # type: ignore[method-assign]


@contextlib.contextmanager
def own_requests() -> Iterator[None]:
    """What a test asks by itself, while a function that it calls stands on the stack."""
    global _is_own
    _is_own = True
    try:
        yield
    finally:
        _is_own = False


def modules() -> Who:
    """The modules of handlers on the stack that may say whose request it is; none of a test's own."""
    if _is_own:
        return ()
    found: dict[str, None] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = _module_of.get(code)
        if name is None:
            name = _module_of[code] = _module(frame)
        if name:
            found[name] = None
        frame = frame.f_back
    return tuple(found)


# The virtual-time tests ask a million times, from stacks of fifty functions.
_module_of: dict[CodeType, str] = {}


def _module(frame: FrameType) -> str:
    """The module of handlers whose function runs in a frame, else nothing."""
    name: str = frame.f_globals.get("__name__", "")
    return name if name.startswith("handlers.") and not name.startswith(_TRANSPORT) else ""


def _of_function(service: str, operation: str, parameters: dict[str, Any]) -> None:
    if who := modules():
        add(who, _needed(service, operation, parameters))


def _needed(service: str, operation: str, parameters: dict[str, Any]) -> list[Need]:
    if service != "dynamodb":
        return needs.of_call(service, operation, parameters)
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
    return needs.of_call("dynamodb", operation, parameters | ({} if table is None else {"TableName": table}))


def _of_botocore(params: dict[str, Any], model: Any, **_rest: Any) -> None:
    _of_function(model.service_model.endpoint_prefix, model.name, params)


def _sending(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def recorded(self: DynamoDb, operation: str, body: bytes) -> Any:
        _of_function("dynamodb", operation, json.loads(body))
        return send(self, operation, body)

    return recorded


def _look(edge: type, service: str, operation: str) -> None:
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation)[1:]
    method = getattr(edge, name)

    @functools.wraps(method)
    def recorded(self: Any, **parameters: Any) -> Any:
        _of_function(service, operation, parameters)
        return method(self, **parameters)

    setattr(edge, name, recorded)


def _asking(ask: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(ask)
    def recorded(self: Execution, branch: Any, call: TaskCall) -> Any:
        add((TASK, call.state, call.resource), of_task(call))
        return ask(self, branch, call)

    return recorded
