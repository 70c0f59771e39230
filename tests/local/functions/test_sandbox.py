"""Lambda sandboxes: real subprocesses under AWS's runtime client."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from local.functions.function_pool import FunctionPool
from tests.local.support import PROJECT, running, until

pytestmark = pytest.mark.anyio
UNKNOWN = "Unable to import module 'broken': No module named 'no_such_module'"


@pytest.mark.parametrize(
    ("function", "kind", "message", "kept"),
    [
        ("fail", "StreamDropped", "The upstream closed the connection.", 1),
        ("leave", "Runtime.ExitError", "RequestId: {} Error: Runtime exited with error: exit status 3", 0),
        ("handler", "Runtime.ImportModuleError", UNKNOWN, 0),
    ],
)
async def test_a_failure_has_lambdas_type_and_words(
    functions: FunctionPool, function: str, kind: str, message: str, kept: int
) -> None:
    """An exception is named by its class, and the process is used again. If a function exits or cannot be imported, the
    runtime names the error, and the process is not used again.
    """
    answer = await functions.invoke(function, b"{}")
    payload = json.loads(answer.payload)
    assert (answer.function_error, payload["errorType"]) == ("Unhandled", kind)
    assert payload["errorMessage"] == message.format(answer.request_id)
    assert payload.get("requestId", answer.request_id) in ("", answer.request_id)
    assert sum(sandbox.is_alive for sandbox in functions.sandboxes) == kept


@pytest.mark.parametrize("functions", [{"limit_s": 1}], indirect=True)
async def test_a_function_is_killed_at_its_deadline(functions: FunctionPool, tmp_path: Path) -> None:
    """A busy function gets SIGKILL at its limit, the answer is Lambda's, and no process of it survives."""
    marker = tmp_path / "pid"
    started_s = time.monotonic()
    answer = await functions.invoke("busy", json.dumps({"marker": str(marker)}).encode())
    took_s = time.monotonic() - started_s
    assert json.loads(answer.payload) == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": f"RequestId: {answer.request_id} Error: Task timed out after 1.00 seconds",
    }
    assert answer.function_error == "Unhandled"
    assert took_s >= 1.0
    assert not running(int(marker.read_text()))


async def test_the_parents_environment_is_not_inherited(
    functions: FunctionPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function sees the template's variables and Lambda's own, not those of the terminal."""
    monkeypatch.setenv("SECRET_OF_THE_TERMINAL", "x")
    environment = json.loads((await functions.invoke("environment", b"{}")).payload)
    assert "SECRET_OF_THE_TERMINAL" not in environment
    assert environment["EVENTS_TABLE"] == "events"
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "environment"
    assert environment["LAMBDA_TASK_ROOT"] == str(tmp_path)


def test_no_orphan_when_the_parent_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the service ends a busy function."""
    marker = tmp_path / "pid"
    program = (
        "import asyncio, json, pathlib, sys\n"
        "from tests.local.functions.samples import functions_of\n"
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
        parent.wait(60)
    assert until(lambda: not running(child))


async def test_a_function_gets_the_arn_by_which_it_was_invoked(functions: FunctionPool) -> None:
    """A function gets its ARN with the named alias or version; the same sandbox serves both."""
    arn = "arn:aws:lambda:us-east-1:000000000000:function:environment"
    for name, invoked in (("environment", arn), (arn, arn), (f"{arn}:$LATEST", f"{arn}:$LATEST")):
        answer = await functions.invoke(name, b"{}")
        assert json.loads(answer.payload)["invoked"] == invoked
    assert len(functions.sandboxes) == 1
