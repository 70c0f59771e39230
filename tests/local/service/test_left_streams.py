"""Which streams the local watch of orphans starts again, and which it leaves to others."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.connection.lease import Lease
from handlers.watching.orphan_recovery import StepFunctions
from local.service.capacity import Capacity, Room
from local.service.stream_recovery import StreamRecovery, input_without_starter, is_stopped
from local.simulation.started_executions import StatesClient
from local.simulation.tables import MemoryDynamoDB
from states_language import server
from states_language.clock import RealClock

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:machine"
LEASE = {"PK": {"S": "demo"}, "SK": {"S": "lease"}, "execution": {"S": "arn:gone"}, "generation": {"N": "1"}}
LEASE |= {"started_at": {"S": "2026-01-01T00:00:00.000Z"}}


@pytest.mark.parametrize(
    ("shares_tables", "may_start", "lease", "started", "words"),
    [
        (False, True, {}, 1, "-orphan-0 continues the stream"),
        (False, False, {}, 0, "another is started as soon as possible"),
        (True, True, {}, 0, None),
        (False, True, {"stop": {"BOOL": True}}, 0, None),
        (True, True, {"stop": {"BOOL": True}, "execution": {"S": "#1"}, "group": {"S": "#1"}}, 0, None),
    ],
)
def test_an_unknown_execution_counts_as_over_only_in_this_machines_own_tables(
    tmp_path: Path, shares_tables: bool, may_start: bool, lease: dict[str, Any], started: int, words: str | None
) -> None:
    """In this machine's own tables an unknown execution is over; in shared ones it may be another machine's. A stream
    that was stopped is released.
    """
    executions, starts = server.StepFunctions(tmp_path, RealClock()).executions, list[str]()

    def start(name: str, _input: Any) -> Any:
        starts.append(name)
        return SimpleNamespace(arn=f"arn:{name}")

    known = StepFunctions(lambda: StatesClient(lambda _arn: None, start), MACHINE, lambda: None)
    room = Room(Capacity(1, "a test"), lambda: [] if may_start else ["another"])
    table = MemoryDynamoDB("control")
    table.put_item(TableName="control", Item=LEASE | lease)
    watch = StreamRecovery(executions, lambda: (table, "control"), known, room, print, shares_tables=shares_tables)
    sentences = asyncio.run(watch.check())
    assert (len(starts), [one.endswith(words or "") for one in sentences.values()]) == (started, [True] * bool(words))
    item = table.get_item(TableName="control", Key={name: LEASE[name] for name in ("PK", "SK")})["Item"]
    assert {"execution", "group"} & item.keys() == (set() if lease else {"execution"})


def test_a_renewal_under_way_is_resumed_without_its_predecessor() -> None:
    """The input of a resumed renewal no longer names its predecessor; other inputs stay."""
    first = '{"pathParameters": {"streamId": "demo"}}'
    renewal = {"pathParameters": {"streamId": "demo"}, "renews": "arn"}
    assert [input_without_starter(text) for text in (json.dumps(renewal), first, "[1]")] == [first, first, "[1]"]


@pytest.mark.parametrize(
    ("data", "started_ms", "lease", "stopped"),
    [
        ({}, 9, Lease(stop=True, stop_at_ms=5, last_stop_ms=7), False),
        ({}, 6, Lease(stop=True, stop_at_ms=5, last_stop_ms=7), True),
        ({"renews": "arn"}, 9, Lease(stop=True, stop_at_ms=5, last_stop_ms=7), True),
        ({}, 6, Lease(stop_at_ms=5, last_stop_ms=7), False),
    ],
    ids=["a POST after the stop", "a POST before it", "a renewal after it", "no stop is requested"],
)
def test_a_start_that_was_killed_before_its_claim_is_resumed(
    data: dict[str, str], started_ms: int, lease: Lease, stopped: bool
) -> None:
    """The lease of a start killed before its claim still has the older stop. Only a stop after the POST counts."""
    text = json.dumps({"pathParameters": {"streamId": "demo"}} | data)
    assert is_stopped(lease, server.Opening("arn", "name", MACHINE, text, started_ms)) is stopped
