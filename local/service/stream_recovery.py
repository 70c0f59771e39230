"""Recovers streams: resumes those of an earlier run, restarts orphans, releases stopped ones, and repairs due gaps.

Orphans are found by the rule of the deployed watch (handlers/watching/orphan_recovery.py), here every few seconds and
with the executions that this service knows. Invariants: a stream whose stop was requested meanwhile stays stopped; a
stream with a running execution is left alone, whatever its lease contains; no more are started than the machine holds.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.connection.lease import Lease
from handlers.connection.orphans import Verdict, judge_execution
from handlers.errors import StoreUnavailable
from handlers.group import is_group
from handlers.repair.work import RepairWork, start_due
from handlers.store.control_table import Table
from handlers.store.leases import Leases
from handlers.watching.alerts import with_streams
from handlers.watching.lease_rounds import Rounds, Turn
from handlers.watching.orphan_recovery import ExecutionDescription, Orphans, StepFunctions, release_stopped
from local.service.capacity import Room
from states_language.server import Executions, KnownExecution, Opening

CHECK_EVERY_S = 5.0
# How many streams without a connection one check handles; the next check goes on behind them.
SUSPECTS_PER_CHECK = 1000
# local/service/live_view.py reports streams without a connection.
NEVER_MS = 2**62


# How an execution names its starter. Source: "Start a new AWS Step Functions workflow", developer guide.
_STARTED_BY = "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID"


def stream_id_of(known: KnownExecution) -> str:
    """Returns the stream id in an execution's input, or ""."""
    try:
        value = json.loads(known.opening.input)["pathParameters"]["streamId"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    return value if isinstance(value, str) else ""


def input_without_starter(text: str) -> str:
    """Returns the input without the execution that started this one: a POST's, or a renewal's predecessor.

    The predecessor is dead too, and its lease is taken over.
    """
    data = json.loads(text)
    if not isinstance(data, dict) or not {"renews", _STARTED_BY} & data.keys():
        return text
    return json.dumps({"pathParameters": data.get("pathParameters", {})})


def is_stopped(lease: Lease, opening: Opening) -> bool:
    """Returns whether a stop keeps the stream of an execution stopped: any stop that is not older than the execution.

    A renewal continues what was requested before it, so any stop counts for it.
    """
    # A POST after the last stop is on its way to the stream, though its execution has not claimed it yet.
    is_newer = opening.started_ms > lease.last_stop_ms and "renews" not in json.loads(opening.input)
    return lease.stop and not is_newer


class StreamRecovery:
    """Recovers the streams of one run; `control` returns the client and name of the control table, `say` prints.

    If it `shares_tables`, leases may name other services' executions, so only streams of this service are watched.
    """

    def __init__(
        self,
        executions: Executions,
        control: Callable[[], tuple[Any, str]],
        states: StepFunctions,
        room: Room,
        say: Callable[[str], None],
        *,
        shares_tables: bool,
    ) -> None:
        self._executions = executions
        self._states = states
        self._control = control
        self._shares_tables = shares_tables
        self._room = room
        self._say = say
        self._suspects = Turn(SUSPECTS_PER_CHECK)
        self._reported: dict[str, str] = {}

    async def executions_to_resume(self) -> list[KnownExecution]:
        """Returns the executions that an earlier run left, except those of stopped streams."""
        left = self._executions.restore()
        return [known for known in left if not await asyncio.to_thread(self._is_stop_requested, known)]

    def resume(self, executions: Iterable[KnownExecution]) -> None:
        """Resumes the executions as far as there is room; `run` starts the others later, as orphans."""
        known = list(executions)
        streams = list(dict.fromkeys(stream for one in known if (stream := stream_id_of(one))))
        waiting = streams[self._room.capacity.most :]
        for one in self._executions.resume(
            (one for one in known if stream_id_of(one) not in waiting), input_without_starter
        ):
            self._say(f"resumed: {stream_id_of(one) or one.opening.name}")
        if waiting:
            sentence = self._room.capacity.sentence
            self._say(f"ALERT: {sentence}, so these are not resumed before there is room: {', '.join(waiting)}")

    def _is_stop_requested(self, known: KnownExecution) -> bool:
        return bool(stream_id_of(known)) and is_stopped(
            Leases(*self._control()).read(stream_id_of(known)), known.opening
        )

    async def run(self) -> None:
        """Reads all leases periodically, and starts orphans, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                sentences = await self.check()
            except StoreUnavailable:
                continue  # The embedded database may be restarting; the next check is seconds away.
            for stream_id, sentence in sentences.items():
                if self._reported.get(stream_id) != sentence:
                    self._say(f"ALERT: {sentence}")
            self._reported = sentences

    async def check(self) -> dict[str, str]:
        """Starts orphans, and returns a sentence about each, by stream id."""
        now_ms = time.time_ns() // 1_000_000
        rounds = Rounds(Leases(*self._control()), NEVER_MS, self._suspects)
        seen = await asyncio.to_thread(rounds.check, now_ms, lambda: False)
        damage = {
            stream_id: f"the lease of {stream_id} cannot be read whole: {', '.join(names)}"
            for stream_id, names in seen.damage.items()
        }
        suspects = list(self._suspects.take())
        if not suspects:
            return damage
        # The youngest execution of each stream, preferably a running one.
        executions = [known for known in self._executions.all() if stream_id_of(known)]
        executions.sort(key=lambda known: known.closing is None)
        described = [(stream_id_of(known), _describe(known)) for known in executions]
        youngest = {stream_id: one for stream_id, one in described if one.verdict is not Verdict.ASIDE}
        if self._shares_tables:
            suspects = [one for one in suspects if one[0] in youngest or is_group(one[1].execution)]
        return damage | await asyncio.to_thread(self._recover, suspects, youngest, now_ms, seen.groups)

    def _recover(
        self,
        suspects: list[tuple[str, Lease]],
        youngest: Mapping[str, ExecutionDescription],
        now_ms: int,
        groups: Mapping[str, Sequence[str]],
    ) -> dict[str, str]:
        def describe(stream_id: str, execution: str) -> ExecutionDescription:
            return youngest.get(stream_id) or self._states.describe(execution)

        orphans = Orphans(self._states, Leases(*self._control()).read, describe, self._room.can_hold)
        sentences: dict[str, str] = {}
        for stream_id, lease in suspects:
            try:
                if lease.stop:
                    release_stopped(Table(*self._control()), stream_id, lease, now_ms, describe)
                    continue
                orphan = orphans.check(stream_id, lease, now_ms)
            except (BotoCoreError, ClientError, StoreUnavailable) as problem:
                sentences[stream_id] = f"cannot find out whether {stream_id} is orphaned: {type(problem).__name__}"
                continue
            if orphan is not None:
                sentences[stream_id] = with_streams(orphan.sentence, groups.get(stream_id, ()))
        return sentences


def _describe(known: KnownExecution) -> ExecutionDescription:
    output = known.closing.output if known.closing is not None else None
    return ExecutionDescription(
        known.opening.arn, judge_execution(known.status, output or ""), known.opening.started_ms
    )


async def repair_due_gaps(work: Callable[[], RepairWork], invoke: Callable[[str], Awaitable[Any]]) -> None:
    """Repairs gaps that are due, as the deployed watch does, until it is cancelled.

    `invoke` runs the function for a stream; the streams of one profile are repaired one at a time.
    """
    running: dict[str, asyncio.Future[Any]] = {}
    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        try:
            due = await asyncio.to_thread(lambda: start_due(work(), time.time_ns() // 1_000_000, lambda _: True))
        except StoreUnavailable:
            continue  # The embedded database may be restarting; the next check is seconds away.
        for stream_id in due:
            profile = stream_id.partition(":")[0]
            if profile not in running or running[profile].done():
                running[profile] = asyncio.ensure_future(invoke(stream_id))
