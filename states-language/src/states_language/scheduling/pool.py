"""Runs costly evaluations in a few processes, so that they stall nobody.

    pool = Pool()
    await pool.ask({"path": "$..a", "root": data})  # {"value": [...]}

Invariants: a job ends within LONGEST_S of its begin; a process has one job at a time; none outlives `close` or this
process.
"""

import asyncio
import json
import os
import sys
from collections import deque

from states_language.scheduling.lanes import Job

LONGEST_S = 10.0
"""How long a job may take. What counts steps ends earlier; this bounds what nobody counts."""
LONGEST_LINE_BYTES = 1 << 27
TIMED_OUT: Job = {"ended": "time"}
DIED: Job = {"ended": "memory"}


def processes() -> int:
    """Return how many processes evaluate at once."""
    return max(2, min(4, os.cpu_count() or 2))


class Pool:
    """The processes; each is started when it is first needed."""

    def __init__(self, most: int | None = None) -> None:
        self._free = asyncio.Semaphore(processes() if most is None else most)
        self._idle: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()
        self._ending: deque[asyncio.subprocess.Process] = deque(maxlen=64)

    async def ask(self, job: Job) -> Job:
        """Return the answer; TIMED_OUT after LONGEST_S, DIED where the process ended.

        A cancelled question ends its process.
        """
        async with self._free:
            child = self._idle.pop() if self._idle else await self._started()
            answer = None
            try:
                async with asyncio.timeout(LONGEST_S):
                    answer = await _answer(child, job)
            except TimeoutError:
                return TIMED_OUT
            finally:
                if answer is None:
                    self._end(child)
                else:
                    self._idle.append(child)
            return answer if answer is not None else DIED

    def close(self) -> None:
        """End the processes."""
        for child in list(self._all):
            self._end(child)
        self._idle.clear()

    async def wait_closed(self) -> None:
        """Return when the processes that were ended are gone."""
        while self._ending:
            await self._ending.pop().wait()

    async def _started(self) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "states_language.scheduling.evaluator",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LONGEST_LINE_BYTES,
            start_new_session=True,
        )  # fmt: skip
        self._all.add(child)
        return child

    def _end(self, child: asyncio.subprocess.Process) -> None:
        self._all.discard(child)
        self._ending.append(child)
        # This kills it and closes the pipes; asyncio has no public name for it.
        child._transport.close()  # type: ignore[attr-defined]


async def _answer(child: asyncio.subprocess.Process, job: Job) -> Job | None:
    """Return the process's answer; None where it ended first."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(job).encode() + b"\n")
        await child.stdin.drain()
        line = await child.stdout.readline()
    except (OSError, ValueError):
        return None
    answer: Job | None = json.loads(line) if line else None
    return answer
