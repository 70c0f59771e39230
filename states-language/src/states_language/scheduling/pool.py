"""Runs costly evaluations in a few processes, so that they do not block the event loop.

Invariants: a job has at most LONGEST_S of CPU time, so its answer does not depend on the machine's other work; a
process has one job at a time; no process outlives `close` or this process.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections import deque

from states_language.clock import process_cpu_s
from states_language.scheduling.evaluator import LENGTH_BYTES, pack, unpack
from states_language.scheduling.lanes import Job

LONGEST_S = 10.0
"""How long a job may calculate. Counted work ends earlier; this bounds work that nobody counts."""
SHORTEST_S = 0.1
BUFFER_BYTES = 1 << 20
TIMED_OUT: Job = {"ended": "time"}
DIED: Job = {"ended": "memory"}


def processes() -> int:
    """Return how many processes evaluate at the same time."""
    return max(2, min(4, os.cpu_count() or 2))


class Pool:
    """The processes; each is started when it is first needed."""

    def __init__(self, most: int | None = None) -> None:
        self._free = asyncio.Semaphore(processes() if most is None else most)
        self._idle: list[_Evaluator] = []
        self._server: _ForkServerProcess | None = None
        self._ended_servers: deque[_ForkServerProcess] = deque()
        self._is_closed = False

    async def evaluate(self, job: Job) -> Job:
        """Return the answer: TIMED_OUT after LONGEST_S, DIED if the process ended or the pool is closed.

        Cancelling the call ends its process. Raises RecursionError for a job that is nested too deeply.
        """
        async with self._free:
            if self._is_closed:
                return DIED
            answer = None
            evaluator = self._idle.pop() if self._idle else self._fork_evaluator()
            try:
                answer = await evaluator.answer_within(LONGEST_S, job)
            except TimeoutError:
                return TIMED_OUT
            finally:
                if answer is None:
                    evaluator.end()
                else:
                    self._idle.append(evaluator)
            return answer if answer is not None else DIED

    def close(self) -> None:
        """End the processes and start no more."""
        self._is_closed = True
        for evaluator in self._idle:
            evaluator.end()
        self._idle.clear()
        self._end_server()

    async def wait_closed(self) -> None:
        """Return once the ended processes are gone."""
        while self._ended_servers:
            await asyncio.to_thread(self._ended_servers.pop().wait)

    def _fork_evaluator(self) -> "_Evaluator":
        if self._server is not None and not self._server.is_alive:
            self._end_server()
        if self._server is None:
            self._server = _ForkServerProcess()
        return self._server.evaluator()

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._ended_servers.append(self._server)
            self._server = None


class _ForkServerProcess:
    """The process that forks the evaluators (see `evaluator`)."""

    def __init__(self) -> None:
        self._requests, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            number = child_end.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "states_language.scheduling.evaluator", str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def evaluator(self) -> "_Evaluator":
        """Return an evaluator that is being started."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(BrokenPipeError):
            socket.send_fds(self._requests, [b"evaluator"], [theirs.fileno()])
        return _Evaluator(ours, self)

    def end(self, process: int) -> None:
        """End an evaluator."""
        with contextlib.suppress(OSError):
            self._requests.send(str(process).encode())

    def close(self) -> None:
        """End the server and all evaluators."""
        self._requests.close()
        # A thread waits for the child, which the system requires, so that the event loop need not.
        self._end = threading.Thread(target=self._process.wait, daemon=True)
        self._end.start()

    def wait(self) -> None:
        """Return once all processes are gone, after `close`."""
        self._end.join()


class _Evaluator:
    """An evaluator, from the moment it is requested."""

    def __init__(self, served: socket.socket, server: _ForkServerProcess) -> None:
        self._served = served
        self._server = server
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._process: int | None = None

    async def answer_within(self, longest_s: float, job: Job) -> Job | None:
        """Return the answer as `answer` does; raises TimeoutError once the process has used so much CPU time."""
        answering = asyncio.ensure_future(self.answer(job))
        limit_s = self._cpu_s() + longest_s
        try:
            while (left_s := limit_s - self._cpu_s()) > 0:
                if (await asyncio.wait([answering], timeout=max(left_s, SHORTEST_S)))[0]:
                    return answering.result()
            raise TimeoutError
        finally:
            answering.cancel()

    def _cpu_s(self) -> float:
        """Return the CPU seconds of the process; 0 before its first answer and after its end."""
        return 0.0 if self._process is None else process_cpu_s(self._process)

    async def answer(self, job: Job) -> Job | None:
        """Return the answer to a job; None if the process ended first."""
        message = pack(job)
        try:
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(sock=self._served, limit=BUFFER_BYTES)
                self._process = (await _read_message(self._streams[0]))["process"]
            reader, writer = self._streams
            writer.write(message)
            await writer.drain()
            return await _read_message(reader)
        except (OSError, EOFError):
            return None

    def end(self) -> None:
        """End the process, whatever it is doing."""
        if self._streams is None:
            self._served.close()
        else:
            self._streams[1].transport.abort()
        if self._process is not None:
            self._server.end(self._process)


async def _read_message(reader: asyncio.StreamReader) -> Job:
    """Return the next message; raises EOFError if there is none."""
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
    return unpack(await reader.readexactly(length))
