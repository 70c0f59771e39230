"""Keeps the Lambda functions of the local service: starts sandboxes, reuses warm ones and ends idle ones.

Invariants: a sandbox has one invocation at a time; a function never has more sandboxes than are reserved for it; a
sandbox whose process ended is never used again; after `replace_sandboxes` no older sandbox gets an
invocation; logs are bounded.
"""

import asyncio
import contextlib
import os
import re
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from local.functions.created_functions import LATEST, CreatedFunctions, Versions
from local.functions.sandbox import Answer, Sandbox
from local.stack import Alias, Function
from states_language.server import TooManyRequests, UnknownFunction
from states_language.tasks.lambda_answers import RESPONSE_LIMIT_BYTES, too_large_payload

IDLE_S = 120.0
# How long a call may wait for others to start: less than a Task waits for its function. After that its caller has given
# up and called again, and a queue of such calls would never end.
START_WITHIN_S = 30.0
_LOG_BYTES = 5_000_000
_FUNCTION_NAME = re.compile(
    r"(?:(?:arn:aws[a-z-]*:lambda:[a-z0-9-]+:)?\d{12}:function:)?([A-Za-z0-9_-]+)(?::(\$LATEST|[A-Za-z0-9_-]+))?"
)


class _Target(NamedTuple):
    """What an invocation runs; warm sandboxes are kept by `key`."""

    key: str
    function: Function
    task_root: Path


class BoundedLog:
    """Appends bytes to a file; a full file replaces `<name>.1`. Bytes that a full disk refuses are lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Appends `data` immediately, without a buffer."""
        # The reader of a function's output must never stop: a full pipe would block the function.
        with contextlib.suppress(OSError):
            if self._file.tell() > _LOG_BYTES:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                full, self._file = self._file, self._path.open("ab", buffering=0)
                full.close()
            self._file.write(data)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def split_function_name(name_or_arn: str) -> tuple[str, str]:
    """Returns the plain name, and the version or alias or "", from a name, an ARN or a partial ARN."""
    # Source: the FunctionName of Invoke in the AWS Lambda API reference.
    match = _FUNCTION_NAME.fullmatch(name_or_arn)
    return (match[1], match[2] or "") if match else (name_or_arn, "")


class FunctionPool:
    """All functions of the stack, each with its warm sandboxes and its versions; `aliases` are the template's.

    `created` has those that were created at the endpoint. They and the versions are stored beside the logs.
    """

    def __init__(
        self,
        functions: Iterable[Function],
        environment: Mapping[str, str],
        task_root: Path,
        logs: Path,
        idle_s: float = IDLE_S,
        aliases: Iterable[Alias] = (),
        starts_within_s: float = START_WITHIN_S,
    ) -> None:
        self.versions = Versions(logs.with_name("versions"), aliases)
        self.created = CreatedFunctions(logs.with_name("functions"))
        self._functions = {function.name: function for function in functions}
        self._environment = environment
        self._task_root = task_root
        self._logs = logs
        self._idle_s = idle_s
        self._starts_within_s = starts_within_s
        self._busy: Counter[str] = Counter()
        self._open_logs: dict[str, BoundedLog] = {}
        self._idle: dict[str, list[tuple[Sandbox, asyncio.TimerHandle]]] = {}
        self._all: set[Sandbox] = set()
        self._stale: set[Sandbox] = set()
        self._background: set[asyncio.Task[None]] = set()
        # At most as many sandboxes of a function start at once as there are cores: a hundred at once would all be late.
        self._starts: dict[str, asyncio.Semaphore] = {}
        self._closed = False

    def __contains__(self, name: object) -> bool:
        return name in self._functions or self.created.get(str(name)) is not None

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of the stack."""
        return tuple(self._functions.values())

    @property
    def sandboxes(self) -> frozenset[Sandbox]:
        """Every sandbox that has not been closed, busy or idle."""
        return frozenset(self._all)

    @property
    def task_roots(self) -> set[Path]:
        """The code folders of all open sandboxes."""
        return {sandbox.task_root for sandbox in self._all}

    async def invoke(self, name_or_arn: str, payload: bytes) -> Answer:
        """Returns the function's answer; `payload` is JSON text. Closed, it never returns.

        Raises UnknownFunction, and TooManyRequests if no more of them may run, or too many are starting.
        """
        name, qualifier = split_function_name(name_or_arn)
        target = self._target(name, qualifier or LATEST)
        if self._closed:
            # A machine would retry, so it gets no answer; nothing may start while the service ends.
            await asyncio.get_running_loop().create_future()
        most = target.function.reserved_concurrency
        if most is not None and self._busy[name] >= most:
            raise TooManyRequests("Rate Exceeded.")
        self._busy[name] += 1
        try:
            return await self._run(target, payload, qualifier)
        finally:
            self._busy[name] -= 1

    def publish(self, name: str) -> str:
        """Publishes the present function as a version, and returns it; raises UnknownFunction."""
        if name not in self._functions:
            raise UnknownFunction(name)
        return self.versions.publish(self._functions[name], self._task_root)

    def _target(self, name: str, qualifier: str) -> _Target:
        """Returns what to run: the present function, or one of its versions; raises UnknownFunction."""
        if name not in self._functions:
            created = self.created.get(name)
            if created is None or qualifier != LATEST:
                raise UnknownFunction(f"{name}:{qualifier}")
            return _Target(f"{name}@{created.code}", created.function, self.created.task_root(created))
        version = self.versions.resolve(name, qualifier)
        if version == LATEST:
            return _Target(name, self._functions[name], self._task_root)
        known = self.versions.find(name, version)
        if known is None:
            raise UnknownFunction(f"{name}:{qualifier}")
        return _Target(f"{name}:{version}", *known)

    async def _run(self, target: _Target, payload: bytes, qualifier: str) -> Answer:
        name = target.key
        sandbox = self._take_idle(name) or await self._start_sandbox(target)
        try:
            answer = await sandbox.invoke(payload, qualifier)
        except BaseException:
            self._discard(sandbox)
            raise
        if len(answer.payload) > RESPONSE_LIMIT_BYTES:
            answer = Answer(too_large_payload().encode(), "Unhandled", answer.request_id)
        if sandbox.is_alive and not self._closed and sandbox not in self._stale:
            self._put_idle(name, sandbox)
        else:
            self._discard(sandbox)
        return answer

    async def start_problem(self, task_root: Path) -> str:
        """Returns why a function cannot start from this code, as a phrase; "" if all can."""
        sandboxes = [self._make_sandbox(function, task_root) for function in self._functions.values()]
        try:
            await asyncio.gather(*(sandbox.start() for sandbox in sandboxes))
            await asyncio.gather(*(sandbox.wait_until_initialised() for sandbox in sandboxes))
            return next((sandbox.init_problem for sandbox in sandboxes if sandbox.init_problem), "")
        finally:
            await asyncio.gather(*(self._close(sandbox) for sandbox in sandboxes))

    def replace_sandboxes(self, functions: Iterable[Function] | None = None, task_root: Path | None = None) -> None:
        """Uses new sandboxes, with these functions and code, for all later invocations; running ones continue."""
        if functions is not None:
            self._functions = {function.name: function for function in functions}
        if task_root is not None:
            self._task_root = task_root
        self._stale |= self._all
        for name, waiting in self._idle.items():
            self._idle[name] = []
            for sandbox, timer in waiting:
                timer.cancel()
                self._discard(sandbox)

    def kill_all(self) -> None:
        """Kills every sandbox; running invocations are answered with Runtime.ExitError."""
        for sandbox in self._all:
            sandbox.kill()

    async def close(self) -> None:
        """Returns once every subprocess has ended."""
        self._closed = True
        for sandboxes in self._idle.values():
            for _, timer in sandboxes:
                timer.cancel()
        # An invocation that ends now closes its sandbox too.
        while self._all or self._background:
            await asyncio.gather(*(self._close(sandbox) for sandbox in tuple(self._all)), *self._background)
        for log in self._open_logs.values():
            log.close()

    def _take_idle(self, name: str) -> Sandbox | None:
        waiting = self._idle.get(name, [])
        while waiting:
            sandbox, timer = waiting.pop()
            timer.cancel()
            if sandbox.is_running():
                return sandbox
            self._discard(sandbox)
        return None

    def _put_idle(self, name: str, sandbox: Sandbox) -> None:
        timer = asyncio.get_running_loop().call_later(self._idle_s, self._expire, name, sandbox)
        self._idle.setdefault(name, []).append((sandbox, timer))

    def _expire(self, name: str, sandbox: Sandbox) -> None:
        self._idle[name] = [entry for entry in self._idle[name] if entry[0] is not sandbox]
        self._discard(sandbox)

    async def _start_sandbox(self, target: _Target) -> Sandbox:
        sandbox = self._make_sandbox(target.function, target.task_root)
        starts = self._starts.setdefault(target.function.name, asyncio.Semaphore(len(os.sched_getaffinity(0))))
        try:
            async with asyncio.timeout(self._starts_within_s):
                await starts.acquire()
            try:
                await sandbox.start()
            finally:
                # The next may start once this one has ended its init phase.
                self._in_background(sandbox.wait_until_initialised()).add_done_callback(lambda _: starts.release())
        except BaseException as problem:
            self._discard(sandbox)
            if isinstance(problem, TimeoutError):
                raise TooManyRequests("Rate Exceeded.") from None
            raise
        return sandbox

    def _make_sandbox(self, function: Function, task_root: Path) -> Sandbox:
        name = function.name
        if name not in self._open_logs:
            self._open_logs[name] = BoundedLog(self._logs / f"{name}.log")
        sandbox = Sandbox(function, self._environment, task_root, self._open_logs[name].write)
        self._all.add(sandbox)
        return sandbox

    def _discard(self, sandbox: Sandbox) -> None:
        self._in_background(self._close(sandbox))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _close(self, sandbox: Sandbox) -> None:
        await sandbox.close()
        self._all.discard(sandbox)
        self._stale.discard(sandbox)
