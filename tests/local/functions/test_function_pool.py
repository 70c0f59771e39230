"""The pool of sandboxes: which sandbox takes an invocation, and when it ends; and versions."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from local.functions.created_functions import LATEST, Versions
from local.functions.function_pool import FunctionPool
from local.stack import Alias, Function
from states_language.server import TooManyRequests, UnknownFunction
from tests.local.support import running, until

pytestmark = pytest.mark.anyio


async def test_a_sandbox_is_used_again_while_it_is_warm(functions: FunctionPool) -> None:
    """Two invocations, one after the other, use the same process; the deadline is the function's limit."""
    first = json.loads((await functions.invoke("echo", b'{"n": 1}')).payload)
    second = json.loads((await functions.invoke("echo", b'{"n": 2}')).payload)
    assert (first["event"], second["event"]) == ({"n": 1}, {"n": 2})
    assert first["pid"] == second["pid"]
    assert (first["calls"], second["calls"]) == (1, 2)
    assert 4000 < second["remaining_ms"] <= 5000


async def test_a_sandbox_that_was_killed_while_it_waited_takes_no_invocation(functions: FunctionPool) -> None:
    """Another sandbox takes the invocation, even if the event loop does not know of the death yet."""
    first = json.loads((await functions.invoke("echo", b"1")).payload)
    os.kill(first["pid"], signal.SIGKILL)
    # Nothing is awaited in between. The kernel may still take a moment to end each of its threads.
    assert until(lambda: _has_ended(first["pid"]))
    answer = await functions.invoke("echo", b"2")
    assert answer.function_error is None
    assert json.loads(answer.payload)["pid"] != first["pid"]


def _has_ended(child: int) -> bool:
    """Returns whether the last of the child's threads has ended, after which its parent may know of it."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


async def test_functions_start_in_turn(functions: FunctionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many functions start at a time as there are cores: here one of three that are called at once."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    calls = [asyncio.create_task(functions.invoke("echo", b"1")) for _ in range(3)]
    starting = []
    while not all(call.done() for call in calls):
        starting.append(sum(one.is_alive and not one._is_initialised.is_set() for one in functions.sandboxes))
        await asyncio.sleep(0)
    assert max(starting) == 1
    assert len({json.loads((await call).payload)["pid"] for call in calls}) == 3


@pytest.mark.parametrize("functions", [{"starts_within_s": 0}], indirect=True)
async def test_a_call_that_waits_too_long_for_its_start_is_refused(
    functions: FunctionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a call is throttled, so that a slow machine builds up no queue of unwanted functions."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    first = asyncio.create_task(functions.invoke("echo", b"1"))
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="Rate Exceeded"):
        await functions.invoke("echo", b"2")
    assert json.loads((await first).payload)["event"] == 1
    assert len([sandbox for sandbox in functions.sandboxes if sandbox.pid is not None]) == 1


async def test_a_sandbox_that_cannot_be_started_is_closed(functions: FunctionPool, tmp_path: Path) -> None:
    """Otherwise each try would leave a listener, and a run without free descriptors would never recover."""
    functions.replace_sandboxes(task_root=tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        await functions.invoke("echo", b"1")
    async with asyncio.timeout(60):
        while functions.sandboxes:
            await asyncio.sleep(0)


async def test_a_missing_function_is_an_error_of_its_own(functions: FunctionPool) -> None:
    """A missing function is UnknownFunction, not a failure of a function."""
    with pytest.raises(UnknownFunction, match="missing"):
        await functions.invoke("missing", b"{}")


@pytest.mark.parametrize("functions", [{"idle_s": 0.05}], indirect=True)
async def test_an_idle_sandbox_ends(functions: FunctionPool) -> None:
    """A sandbox without work is ended after the idle time."""
    pid = json.loads((await functions.invoke("echo", b"1")).payload)["pid"]
    async with asyncio.timeout(10):
        while functions.sandboxes:
            await asyncio.sleep(0.02)
    assert not running(pid)


async def test_output_goes_to_the_functions_log(functions: FunctionPool, tmp_path: Path) -> None:
    """A function's output is in `<name>.log`."""
    await functions.invoke("speak", b"1")
    await functions.close()
    assert (tmp_path / "logs" / "speak.log").read_text().splitlines() == ["spoken"]


async def test_a_closed_pool_starts_no_function(functions: FunctionPool) -> None:
    """A machine that retries while the service ends gets no answer, and no process starts."""
    await functions.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(functions.invoke("echo", b"{}"), 0.1)
    assert not functions.sandboxes


async def test_a_pool_that_closes_while_a_sandbox_starts_leaves_no_process(functions: FunctionPool) -> None:
    """The invocation is answered, and the starting process has ended when the pool is closed."""
    invocations = [asyncio.create_task(functions.invoke("echo", b"{}")) for _ in range(3)]
    while len(functions.sandboxes) < 3:
        await asyncio.sleep(0)
    sandboxes = functions.sandboxes
    await functions.close()
    assert [pid for sandbox in sandboxes if (pid := sandbox.pid) is not None and running(pid)] == []
    answers = await asyncio.gather(*invocations)
    assert {json.loads(answer.payload)["errorType"] for answer in answers} == {"Runtime.ExitError"}
    assert not functions.sandboxes


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def handler(event, context): pass\n", ""),
        ("import no_such_module\n", "Unable to import module 'changed': No module named 'no_such_module'"),
        ("def other(event, context): pass\n", "Handler 'handler' missing on module 'changed'"),
        ("\nhandler = nosuch\n", "changed.py, line 2: NameError: name 'nosuch' is not defined"),
        ("import os; os._exit(3)\n", "changed.handler: Runtime exited with error: exit status 3"),
    ],
)
def test_code_from_which_a_function_does_not_start_has_a_reason(tmp_path: Path, source: str, problem: str) -> None:
    """A separate sandbox's init phase finds the reason, and the sandbox ends; the reason is "" if all start."""
    (tmp_path / "changed.py").write_text(source)
    function = Function("changed", "changed.handler", 5, 128, {})

    async def run() -> None:
        pool = FunctionPool([function], {}, tmp_path / "former", tmp_path / "logs")
        assert await pool.start_problem(tmp_path) == problem
        assert pool.sandboxes == frozenset()
        await pool.close()

    asyncio.run(run())


async def test_no_more_calls_run_than_are_reserved(functions: FunctionPool) -> None:
    """The next call is refused at once, and accepted once another has ended; other functions are not affected."""
    bounded = [replace(function, reserved_concurrency=2) for function in functions.functions if function.name == "echo"]
    functions.replace_sandboxes([*bounded, *(one for one in functions.functions if one.name != "echo")])
    running = [asyncio.create_task(functions.invoke("echo", b"1")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="Rate Exceeded"):
        await functions.invoke("echo", b"1")
    assert (await functions.invoke("fail", b"1")).function_error == "Unhandled"
    await asyncio.gather(*running)
    assert (await functions.invoke("echo", b"1")).function_error is None


FUNCTION = Function("manager", "handlers/manager.handler", 8, 128, {"WAIT_S": "4"})


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A function's code."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "manager.py").write_text("old")
    return tmp_path / "code"


def test_a_version_keeps_code_and_variables(tmp_path: Path, code: Path) -> None:
    """A version is not changed by later deployments; publishing the same again makes none, even after a restart."""
    versions = Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)])
    assert versions.publish(FUNCTION, code) == "1"
    (code / "manager.py").write_text("new")
    later = replace(FUNCTION, environment={"WAIT_S": "9"})
    versions = Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)])
    assert (versions.publish(later, code), versions.publish(later, code)) == ("2", "2")
    kept = [versions.find("manager", number) for number in ("1", "2", "3")]
    assert [one and (one[0].environment["WAIT_S"], (one[1] / "manager.py").read_text()) for one in kept] == [
        ("4", "old"),
        ("9", "new"),
        None,
    ]


def test_an_alias_leads_to_versions_that_exist(tmp_path: Path, code: Path) -> None:
    """An alias points to existing versions only; its version survives a restart, whatever the template says."""
    versions = Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)])
    assert (versions.resolve("manager", "stable"), versions.is_pinned) == (LATEST, False)
    versions.publish(FUNCTION, code)
    answers = (("stable", "1"), ("stable", "7"), ("other", "1"))
    assert [versions.set_alias("manager", name, number) for name, number in answers] == [True, False, False]
    assert versions.is_pinned
    assert Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)]).resolve("manager", "stable") == "1"
