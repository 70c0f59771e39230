"""Looks after orphaned streams on this machine, by the rule of the deployed watch (handlers/orphans.py).

The deployed watch looks once a minute, this one every few seconds. It knows the executions of a stream by their inputs,
so also those that a POST started. Invariants: a stream for which an execution runs is left alone, whatever its lease
names; one alert says of one orphan what was done; what does not answer ends nothing.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.connection.lease import Lease
from handlers.connection.orphans import Verdict, is_suspect, verdict
from handlers.orphans import Described, Orphans, StepFunctions
from handlers.store.leases import all_leases, read_lease
from local.stepfunctions.executions import Executions, KnownExecution

LOOK_EVERY_S = 5.0


class OrphanWatch:
    """Reads all leases again and again.

    `dynamodb` returns a client. Where `shares_tables`, somebody else's executions may stand in leases, so only streams
    of which this service knows an execution are looked after. `may_start` says whether this machine has room for a
    stream, `say` prints a line.
    """

    def __init__(
        self, executions: Executions, dynamodb: Callable[[], Any], states: StepFunctions, control_table: str,
        shares_tables: bool, may_start: Callable[[str], bool], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._executions = executions
        self._dynamodb = dynamodb
        self._states = states
        self._control_table = control_table
        self._shares_tables = shares_tables
        self._may_start = may_start
        self._say = say
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                sentences = await self.look()
            except (BotoCoreError, ClientError):
                continue  # The embedded database may be restarting; the next look is seconds away.
            for stream_id, sentence in sentences.items():
                if self._said.get(stream_id) != sentence:
                    self._say(f"ALERT: {sentence}")
            self._said = sentences

    async def look(self) -> dict[str, str]:
        """Starts what is to be started, and returns what to say of each orphan, by its stream's id."""
        leases = await asyncio.to_thread(lambda: list(all_leases(self._dynamodb(), self._control_table)))
        now_ms = time.time_ns() // 1_000_000
        suspects = [(stream_id, lease) for stream_id, lease in leases if is_suspect(lease, now_ms)]
        if not suspects:
            return {}
        youngest = self._youngest()
        if self._shares_tables:
            suspects = [(stream_id, lease) for stream_id, lease in suspects if stream_id in youngest]
        return await asyncio.to_thread(self._check, suspects, youngest, now_ms)

    def _youngest(self) -> dict[str, Described]:
        """The youngest execution of each stream; one that runs comes before one that is over."""
        executions = [known for known in self._executions.all() if known.stream_id]
        executions.sort(key=lambda known: known.closing is None)
        return {known.stream_id: _described(known) for known in executions if not _is_aside(known)}

    def _check(
        self, suspects: list[tuple[str, Lease]], youngest: Mapping[str, Described], now_ms: int
    ) -> dict[str, str]:
        def of(stream_id: str, execution: str) -> Described:
            return youngest.get(stream_id) or self._states.describe(execution)

        orphans = Orphans(self._states, self._read, of, self._may_start)
        sentences: dict[str, str] = {}
        for stream_id, lease in suspects:
            try:
                orphan = orphans.check(stream_id, lease, now_ms)
            except (BotoCoreError, ClientError) as problem:
                sentences[stream_id] = f"whether {stream_id} is orphaned cannot be found out: {type(problem).__name__}"
                continue
            if orphan is not None:
                sentences[stream_id] = orphan.sentence
        return sentences

    def _read(self, stream_id: str) -> Lease:
        return read_lease(self._dynamodb(), self._control_table, stream_id)


def _described(known: KnownExecution) -> Described:
    output = known.closing.output if known.closing is not None else None
    return Described(known.opening.arn, verdict(known.status, output or ""), known.opening.started_ms)


def _is_aside(known: KnownExecution) -> bool:
    return _described(known).verdict is Verdict.ASIDE
