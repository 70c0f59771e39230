"""Lambda sandboxes: real subprocesses under AWS's runtime client."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from local.functions.pool import Pool, UnknownFunction
from local.service.stack import Function
from tests.local.support import PROJECT, running, until

MODULE = """
import os, sys, time
calls = 0

class StreamDropped(Exception):
    pass

def echo(event, lambda_context):
    global calls
    calls += 1
    remaining_ms = lambda_context.get_remaining_time_in_millis()
    return {"event": event, "pid": os.getpid(), "calls": calls, "remaining_ms": remaining_ms}

def fail(event, lambda_context):
    raise StreamDropped("The upstream closed the connection.")

def leave(event, lambda_context):
    os._exit(3)

def busy(event, lambda_context):
    open(event["marker"], "w").write(str(os.getpid()))
    while True:
        try:
            pass
        finally:
            pass

def environment(event, lambda_context):
    return dict(os.environ)

def speak(event, lambda_context):
    print("spoken")
"""


@contextlib.asynccontextmanager
async def functions_of(folder: Path, limit_s: int = 5, idle_s: float = 60) -> AsyncIterator[Pool]:
    """One function for each name in MODULE, and one whose module does not import."""
    (folder / "sample.py").write_text(MODULE)
    (folder / "broken.py").write_text("import no_such_module\n")
    handlers = ["sample.echo", "sample.fail", "sample.leave", "sample.busy", "sample.environment", "sample.speak"]
    handlers.append("broken.handler")
    specs = [
        Function(handler.split(".")[-1], handler, limit_s, 128, {"EVENTS_TABLE": "events"}) for handler in handlers
    ]
    functions = Pool(specs, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, folder, folder / "logs", idle_s)
    try:
        yield functions
    finally:
        await functions.close()


def in_sandbox(folder: Path, body: Callable[[Pool], object], **options: float) -> None:
    """Runs the coroutine function `body` with functions that are closed afterwards."""

    async def run() -> None:
        async with functions_of(folder, **options) as functions:  # type: ignore[arg-type]
            await body(functions)  # type: ignore[misc]

    asyncio.run(run())


def test_a_sandbox_is_used_again_while_it_is_warm(tmp_path: Path) -> None:
    """Two invocations after each other meet the same process; its deadline is the function's limit."""

    async def body(functions: Pool) -> None:
        first = json.loads((await functions.invoke("echo", b'{"n": 1}')).payload)
        second = json.loads((await functions.invoke("echo", b'{"n": 2}')).payload)
        assert (first["event"], second["event"]) == ({"n": 1}, {"n": 2})
        assert first["pid"] == second["pid"]
        assert (first["calls"], second["calls"]) == (1, 2)
        assert 4000 < second["remaining_ms"] <= 5000

    in_sandbox(tmp_path, body)


def test_two_invocations_at_once_have_two_processes(tmp_path: Path) -> None:
    """A sandbox has one invocation at a time."""

    async def body(functions: Pool) -> None:
        answers = await asyncio.gather(functions.invoke("echo", b"1"), functions.invoke("echo", b"2"))
        assert len({json.loads(answer.payload)["pid"] for answer in answers}) == 2

    in_sandbox(tmp_path, body)


def test_what_a_function_raises_is_the_error_type(tmp_path: Path) -> None:
    """errorType is the class's name, and the process is used again after an exception."""

    async def body(functions: Pool) -> None:
        answer = await functions.invoke("fail", b"{}")
        payload = json.loads(answer.payload)
        assert answer.function_error == "Unhandled"
        assert payload["errorType"] == "StreamDropped"
        assert payload["errorMessage"] == "The upstream closed the connection."
        assert payload["requestId"] == answer.request_id
        assert len(functions.sandboxes) == 1

    in_sandbox(tmp_path, body)


def test_a_function_is_killed_at_its_deadline(tmp_path: Path) -> None:
    """A busy function gets SIGKILL at its limit, the answer is Lambda's, and nothing of it runs on."""
    marker = tmp_path / "pid"

    async def body(functions: Pool) -> None:
        started_s = time.monotonic()
        answer = await functions.invoke("busy", json.dumps({"marker": str(marker)}).encode())
        took_s = time.monotonic() - started_s
        assert json.loads(answer.payload) == {
            "errorType": "Sandbox.Timedout",
            "errorMessage": f"RequestId: {answer.request_id} Error: Task timed out after 1.00 seconds",
        }
        assert answer.function_error == "Unhandled"
        assert 1.0 <= took_s < 5.0

    in_sandbox(tmp_path, body, limit_s=1)
    assert not running(int(marker.read_text()))


def test_a_function_that_exits_is_an_exit_error(tmp_path: Path) -> None:
    """Lambda calls it Runtime.ExitError and names the exit status."""

    async def body(functions: Pool) -> None:
        answer = await functions.invoke("leave", b"{}")
        assert json.loads(answer.payload) == {
            "errorType": "Runtime.ExitError",
            "errorMessage": f"RequestId: {answer.request_id} Error: Runtime exited with error: exit status 3",
        }

    in_sandbox(tmp_path, body)


def test_a_bad_module_is_an_import_error(tmp_path: Path) -> None:
    """The runtime client's own words reach the invoker as Runtime.ImportModuleError."""

    async def body(functions: Pool) -> None:
        payload = json.loads((await functions.invoke("handler", b"{}")).payload)
        assert payload["errorType"] == "Runtime.ImportModuleError"
        assert payload["errorMessage"] == "Unable to import module 'broken': No module named 'no_such_module'"

    in_sandbox(tmp_path, body)


def test_a_missing_function_is_an_error_of_its_own(tmp_path: Path) -> None:
    """UnknownFunction, which is not a failure of a function."""

    async def body(functions: Pool) -> None:
        with pytest.raises(UnknownFunction, match="missing"):
            await functions.invoke("missing", b"{}")

    in_sandbox(tmp_path, body)


def test_the_parents_environment_is_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function sees its template's variables and Lambda's own, not the ones of the terminal it was started from."""
    monkeypatch.setenv("SECRET_OF_THE_TERMINAL", "x")

    async def body(functions: Pool) -> None:
        environment = json.loads((await functions.invoke("environment", b"{}")).payload)
        assert "SECRET_OF_THE_TERMINAL" not in environment
        assert environment["EVENTS_TABLE"] == "events"
        assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
        assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "environment"
        assert environment["LAMBDA_TASK_ROOT"] == str(tmp_path)

    in_sandbox(tmp_path, body)


def test_an_idle_sandbox_ends(tmp_path: Path) -> None:
    """A sandbox without work is ended after the idle time."""

    async def body(functions: Pool) -> None:
        pid = json.loads((await functions.invoke("echo", b"1")).payload)["pid"]
        async with asyncio.timeout(10):
            while functions.sandboxes:
                await asyncio.sleep(0.02)
        assert not running(pid)

    in_sandbox(tmp_path, body, idle_s=0.05)


def test_output_goes_to_the_functions_log(tmp_path: Path) -> None:
    """What a function prints is in `<name>.log`."""

    async def body(functions: Pool) -> None:
        await functions.invoke("speak", b"1")

    in_sandbox(tmp_path, body)
    assert (tmp_path / "logs" / "speak.log").read_text().splitlines() == ["spoken"]


def test_no_orphan_when_the_parent_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the service ends a function that is busy."""
    marker = tmp_path / "pid"
    program = (
        "import asyncio, json, pathlib, sys\n"
        "from tests.local.functions.test_sandbox import functions_of\n"
        "async def main():\n"
        "    async with functions_of(pathlib.Path(sys.argv[1]), limit_s=60) as functions:\n"
        "        await functions.invoke('busy', json.dumps({'marker': sys.argv[2]}).encode())\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(marker)], cwd=PROJECT)
    try:
        assert until(lambda: marker.exists() and marker.read_text() != "")
        child = int(marker.read_text())
        assert running(child)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert until(lambda: not running(child))


def test_nothing_starts_once_the_pool_is_closed(tmp_path: Path) -> None:
    """A machine that retries while the service ends starts no process, and gets no answer."""

    async def body(functions: Pool) -> None:
        await functions.close()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(functions.invoke("echo", b"{}"), 0.1)
        assert not functions.sandboxes

    in_sandbox(tmp_path, body)


def test_a_pool_that_closes_while_a_sandbox_starts_leaves_no_process(tmp_path: Path) -> None:
    """The invocation is answered, and the process that was being started is gone when the pool has closed."""

    async def body(functions: Pool) -> None:
        invocations = [asyncio.create_task(functions.invoke("echo", b"{}")) for _ in range(3)]
        while len(functions.sandboxes) < 3:
            await asyncio.sleep(0)
        sandboxes = functions.sandboxes
        await functions.close()
        assert [pid for sandbox in sandboxes if (pid := sandbox.pid) is not None and running(pid)] == []
        answers = await asyncio.gather(*invocations)
        assert {json.loads(answer.payload)["errorType"] for answer in answers} == {"Runtime.ExitError"}
        assert not functions.sandboxes

    in_sandbox(tmp_path, body)
