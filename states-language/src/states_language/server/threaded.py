"""Runs a server in a thread of this process, for tests that talk to Step Functions through an SDK.

    with Server() as server:
        server.functions["Charge"] = {"paid": True}
        server.client().create_state_machine(...)

Invariant: it changes no setting of the process, and when it ends, all that it stored is gone.
"""

import asyncio
import contextlib
import errno
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import botocore.session
import uvicorn
from botocore.config import Config
from starlette.types import ASGIApp

from states_language import TaskCall
from states_language.clock import RealClock
from states_language.server.actions import StepFunctions, application
from states_language.server.http_task import Connection, by_name
from states_language.server.requests import REGION
from states_language.server.task_performer import TaskPerformer
from states_language.tasks.resources import ACTIVITY
from states_language.testing import Answer, Answers
from states_language.workbench import Mistake

HOST = "127.0.0.1"
_GRACE_S = 1
"""How long requests that run may still take when the serving ends."""
_IDLE_S = 75
"""How long a connection stays open between two requests. After uvicorn's five seconds a client that was busy meanwhile
would find it closed under its next request."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind_socket(port: int, host: str = HOST) -> socket.socket:
    """Returns a socket bound to this port (0: any free one); raises Mistake if it cannot be opened."""
    # Without IPPROTO_TCP asyncio would not set TCP_NODELAY, and each answer of two parts would take 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as problem:
        listening.close()
        if isinstance(problem, socket.gaierror | UnicodeError) or getattr(problem, "errno", 0) == errno.EADDRNOTAVAIL:
            raise Mistake(f"--host {host!r} is not an IPv4 address or name of this machine.") from None
        if isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE:
            raise Mistake(f"Port {port} is in use: stop what listens there, or choose another by --port.") from None
        raise Mistake(f"Port {port} cannot be opened: {str(problem).rstrip('.')}.") from None
    return listening


@contextlib.asynccontextmanager
async def serve_application(application: ASGIApp, port: int = 0, host: str = HOST) -> AsyncIterator[str]:
    """Yields the address at which the application answers until the context ends.

    Invariant: it binds the given address and no other, and leaves signals to the host.
    """
    listening = bind_socket(port, host)
    config = uvicorn.Config(
        application,
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_IDLE_S,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    # From here on the socket takes connections, which uvicorn accepts in its next turns.
    listening.listen(512)
    try:
        yield f"http://{host}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


class Server:
    """Step Functions at `url`, where Waits take no time unless `virtual_time` is false.

    functions: the answers, as `run_machine` takes them; a test may change them at any time. Nested executions and
    activities need none. connections: those of http:invoke, by name or ARN, as EventBridge's CreateConnection takes
    them; with them, http:invoke asks the address that its Task names. mistakes: calls without an answer, and assertions
    that failed in a function.
    """

    def __init__(self, *, virtual_time: bool = True) -> None:
        self.functions: dict[str, Answer] = {}
        self.connections: dict[str, Connection] = {}
        self._answers = Answers(RealClock(), self.functions)
        self.mistakes = self._answers.mistakes
        self._virtual_time = virtual_time
        self._address: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._address.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def client(self) -> Any:
        """Return a client of this server, the same as boto3's."""
        return botocore.session.Session().create_client(
            "stepfunctions",
            REGION,
            endpoint_url=self.url,
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=Config(inject_host_prefix=False),
        )

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        with tempfile.TemporaryDirectory() as folder:
            states = StepFunctions(Path(folder), RealClock(), virtual_time=self._virtual_time)
            tasks = TaskPerformer(_refuse_call, _refuse_call, states, by_name(self.connections))

            async def perform(call: TaskCall) -> Any:
                states.tokens.watch(call.pending)
                performed = ("states", "sfn", ACTIVITY, *(["http"] if self.connections else []))
                if not self._answers.has_answer(call) and call.service in performed:
                    return await tasks.perform(call)
                return await self._answers.perform(call)

            states.executions.perform = perform
            try:
                async with serve_application(application(states)) as address:
                    self._address.set_result(address)
                    await self._ended.wait()
                    states.executions.close()
                    states.close()
                    await states.executions.evaluators.wait_closed()
            except BaseException as problem:
                if not self._address.done():
                    self._address.set_exception(problem)
                raise
            finally:
                tasks.close()


def _refuse_call(*call: object) -> Any:
    raise AssertionError(f"{call} has an answer, or is a mistake")
