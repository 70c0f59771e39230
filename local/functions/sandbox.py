"""Runs one Lambda sandbox: a subprocess under AWS's own runtime client, served by a Runtime API of its own.

Invariants: an invocation is answered exactly once; a function that reaches its deadline is killed with SIGKILL, so that
nothing of it continues to run.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from local.bootstrap import PARENT_VARIABLE
from local.listener import HOST, Listener, bind
from local.stack import Function
from local.template import REGION

_BOOTSTRAP = Path(__file__).resolve().parents[1] / "bootstrap.py"
# The init phase has its own ten seconds; the deadline counts from the moment the function gets its event.
# Source: AWS Lambda developer guide, "Understanding the Lambda execution environment lifecycle".
_INIT_LIMIT_S = 10.0
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")
_API = "/2018-06-01/runtime"


@dataclass(frozen=True)
class Answer:
    """The result of an invocation; `function_error` is None when the function returned, else "Unhandled"."""

    payload: bytes
    function_error: str | None
    request_id: str


def _init_phrase(report: bytes, task_root: Path) -> str:
    """Returns the report of a failed init phase as a phrase that begins with the file and line at fault."""
    error = json.loads(report)
    message = str(error["errorMessage"])
    if error["errorType"].startswith("Runtime."):
        return message  # it names the module
    at_fault = re.findall(rf'File "{re.escape(str(task_root))}/(.+?)", line (\d+)', "".join(error["stackTrace"]))
    place = "{}, line {}: ".format(*at_fault[-1]) if at_fault else ""
    return f"{place}{error['errorType']}: {message}"


@dataclass
class _Invocation:
    request_id: str
    payload: bytes
    arn: str
    answer: "asyncio.Future[Answer]"


class Sandbox:
    """A subprocess that runs one function, one invocation at a time, until it is closed, killed or exits."""

    def __init__(
        self, function: Function, environment: Mapping[str, str], task_root: Path, log: Callable[[bytes], None]
    ) -> None:
        self._function = function
        self._environment = environment
        self.task_root = task_root
        self._log = log
        self._offered: asyncio.Queue[_Invocation | None] = asyncio.Queue()
        self._current: _Invocation | None = None
        self._init_failure: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._is_killed = False
        self._is_signalled = False
        self._expired_s: float | None = None
        self._starting = asyncio.Lock()
        self._is_initialised = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._listener = Listener(self._runtime_api(), bind(0, "a Lambda sandbox"))

    @property
    def is_alive(self) -> bool:
        """Whether the subprocess runs and can take an invocation."""
        if self._process is None or self._is_killed or self._init_failure is not None:
            return False
        return self._process.returncode is None

    def is_running(self) -> bool:
        """Returns whether it is alive at this moment: the event loop may not know yet that the process has ended."""
        if not self.is_alive or self._process is None:
            return False
        if sys.platform != "linux":
            return True
        # Not reaped here: asyncio also waits for the process, and would lose its status.
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        return False

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Returns once the subprocess runs, while its init phase continues. After a kill it starts nothing."""
        async with self._starting:
            if not self._is_killed:
                await self._listener.start()
                await self._spawn()

    async def wait_until_initialised(self) -> None:
        """Returns once the init phase is over, within ten seconds: the function waits for its event or has ended."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_initialised.wait(), _INIT_LIMIT_S)

    @property
    def init_problem(self) -> str:
        """Why the init phase failed, as a phrase, or "". Known once `wait_until_initialised` has returned."""
        if not self._is_initialised.is_set():
            return f"{self._function.handler} has not started after {_INIT_LIMIT_S:.0f} s"
        if self._init_failure is not None:
            return _init_phrase(self._init_failure, self.task_root)
        return "" if self.is_alive else f"{self._function.handler}: {self._exit_message()}"

    async def _spawn(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(_BOOTSTRAP),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.task_root,
            env=self._child_environment(),
            start_new_session=True,
        )
        self._tasks = [
            asyncio.create_task(self._watch(self._process)),
            asyncio.create_task(self._copy_output(self._process)),
        ]

    async def invoke(self, payload: bytes, qualifier: str = "") -> Answer:
        """Returns the function's answer to `payload` (JSON); whatever the function does, this does not raise.

        `qualifier` is the invoked version or alias, or ""; the function gets its ARN with that.
        """
        request_id = str(uuid.uuid4())
        arn = f"{self._function.arn}:{qualifier}" if qualifier else self._function.arn
        invocation = _Invocation(request_id, payload, arn, asyncio.get_running_loop().create_future())
        self._current = invocation
        if self.is_alive:
            self._set_deadline(_INIT_LIMIT_S)
            self._offered.put_nowait(invocation)
        else:
            self._answer_for_dead()
        try:
            return await invocation.answer
        finally:
            self._cancel_deadline()
            self._current = None

    def kill(self) -> None:
        """Ends the subprocess with SIGKILL; a running invocation is answered with Runtime.ExitError."""
        self._is_initialised.set()
        self._is_killed = True
        if self._process is not None and self._process.returncode is None and not self._is_signalled:
            # Only once: a signal to an ended process reaps it, and asyncio, which waits for it, loses its status.
            self._is_signalled = True
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """Returns once the subprocess has ended and its listener is closed."""
        self.kill()
        async with self._starting:
            # It may have been started meanwhile.
            self.kill()
        self._offered.put_nowait(None)
        await self._listener.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _child_environment(self) -> dict[str, str]:
        function = self._function
        return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {
            "TZ": ":UTC",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{uuid.uuid4().hex}",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            **self._environment,
            **function.environment,
            "AWS_LAMBDA_RUNTIME_API": f"{HOST}:{self._listener.port}",
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "_HANDLER": function.handler,
            PARENT_VARIABLE: str(os.getpid()),
        }

    def _runtime_api(self) -> Starlette:
        return Starlette(
            routes=[
                Route(f"{_API}/invocation/next", self._next_invocation),
                Route(f"{_API}/invocation/{{request_id}}/{{how}}", self._accept_answer, methods=["POST"]),
                Route(f"{_API}/init/error", self._init_error, methods=["POST"]),
            ]
        )

    async def _next_invocation(self, _: Request) -> Response:
        self._is_initialised.set()
        invocation = await self._offered.get()
        if invocation is None:
            return Response(status_code=410)
        self._set_deadline(self._function.function_timeout_s)
        deadline_ms = int(time.time() * 1000) + self._function.function_timeout_s * 1000
        return Response(
            invocation.payload,
            media_type="application/json",
            headers={
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.arn,
                "Lambda-Runtime-Trace-Id": f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0",
            },
        )

    async def _accept_answer(self, request: Request) -> Response:
        payload, invocation = await request.body(), self._current
        function_error = None if request.path_params["how"] == "response" else "Unhandled"
        if invocation is None or invocation.request_id != request.path_params["request_id"] or invocation.answer.done():
            return JSONResponse({"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"}, 400)
        invocation.answer.set_result(Answer(payload, function_error, invocation.request_id))
        return JSONResponse({"status": "OK"}, 202)

    async def _init_error(self, request: Request) -> Response:
        self._init_failure = await request.body()
        self._answer_for_dead()
        return JSONResponse({"status": "OK"}, 202)

    def _set_deadline(self, limit_s: float) -> None:
        self._cancel_deadline()
        self._deadline = asyncio.get_running_loop().call_later(limit_s, self._expire, limit_s)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self, limit_s: float) -> None:
        # It is answered once the process has ended: the error proves to the machine that the function is over.
        self._expired_s = limit_s
        self.kill()

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        self._is_initialised.set()
        self._answer_for_dead()

    def _answer_for_dead(self) -> None:
        invocation = self._current
        if invocation is None or invocation.answer.done():
            return
        if self._init_failure is not None:
            payload = self._init_failure
        else:
            # Lambda's own answer for a function that could not answer.
            timeout = self._expired_s and f"Task timed out after {self._expired_s:.2f} seconds"
            kind, message = ("Sandbox.Timedout", timeout) if timeout else ("Runtime.ExitError", self._exit_message())
            text = f"RequestId: {invocation.request_id} Error: {message}"
            payload = json.dumps({"errorType": kind, "errorMessage": text}).encode()
        invocation.answer.set_result(Answer(payload, "Unhandled", invocation.request_id))

    def _exit_message(self) -> str:
        code = None if self._process is None else self._process.returncode
        if code is None or code == 0:
            return "Runtime exited without providing a reason"
        if code < 0:
            return f"Runtime exited with error: signal: {str(signal.strsignal(-code)).lower()}"
        return f"Runtime exited with error: exit status {code}"

    async def _copy_output(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while data := await process.stdout.read(65536):
            self._log(data)
