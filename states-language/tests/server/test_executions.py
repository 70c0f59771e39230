"""The registry of executions, within one run of the service and over several."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from endpoint import PASS, PREFIX, WAIT, stepfunctions, task_definition
from states_language import TaskFailure
from states_language.server.executions import Executions
from states_language.server.journals import Journals
from states_language.server.known_executions import STOPPED_CAUSE, STOPPED_ERROR, KnownExecution, Retention
from states_language.server.requests import Refusal

FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:any"
WAITS, TRIES, ANSWERS = PREFIX + "waits", PREFIX + "tries", PREFIX + "answers"
MACHINES: list[tuple[str, dict[str, Any]]] = [
    ("waits", WAIT),
    ("tries", task_definition(FUNCTION, {}, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "S"}], End=True)),
    ("answers", PASS),
]
DEMO = '{"pathParameters": {"streamId": "demo"}, "queryStringParameters": {}}'


async def do_nothing(_: object) -> None:
    """Do nothing: no machine of these tests has a Task that ends by this."""


async def await_end(known: KnownExecution) -> None:
    """Return once the execution has ended."""
    async with asyncio.timeout(10):
        while known.closing is None:
            await asyncio.sleep(0)


def run_in_service(folder: Path, body: Callable[[Executions], Awaitable[Any]], **options: Any) -> Any:
    """Run `body` in one run of the service, and return its result."""

    async def run() -> Any:
        async with stepfunctions(folder, *MACHINES, **{"perform": do_nothing, **options}) as states:
            return await body(states.executions)

    return asyncio.run(run())


def test_a_running_execution_is_aborted_and_has_a_successor(tmp_path: Path) -> None:
    """After the service ends, cleanly or not, its executions are ABORTED and one successor has the same input."""
    arns = []

    async def first(executions: Executions) -> None:
        arns.append(executions.start(WAITS, DEMO, "one").opening.arn)
        arns.append(executions.start(WAITS, DEMO, "two").opening.arn)

    async def second(executions: Executions) -> None:
        left = executions.restore()
        # In the order of their starts, even within the same millisecond.
        assert [known.opening.arn for known in left] == arns
        for known in left:
            assert known.closing is not None
            assert (known.status, known.closing.error, known.closing.cause) == ("ABORTED", STOPPED_ERROR, STOPPED_CAUSE)
            assert executions.history(known)[-1]["type"] == "ExecutionAborted"
        (successor,) = executions.resume(left)
        assert (successor.status, successor.opening.input) == ("RUNNING", DEMO)

    async def third(executions: Executions) -> None:
        assert len(executions.restore()) == 1
        assert len(executions.all()) == 3

    run_in_service(tmp_path, first)
    run_in_service(tmp_path, second)
    run_in_service(tmp_path, third)


def test_each_pass_of_the_event_loop_stops_one_execution(tmp_path: Path) -> None:
    """Stopping several Map Runs of ten thousand executions in one pass would keep the others waiting for 0.1 s."""

    async def stop_three() -> int:
        async with stepfunctions(tmp_path, *MACHINES, perform=do_nothing) as states:
            arns = [states.executions.start(WAITS, DEMO).opening.arn for _ in range(3)]
            stops = [states.answer("StopExecution", b'{"executionArn": "%b"}' % arn.encode()) for arn in arns]
            tasks = [*map(asyncio.create_task, stops)]
            while not (done := sum(task.done() for task in tasks)):
                await asyncio.sleep(0)
            return done

    assert asyncio.run(stop_three()) == 1


def test_a_torn_line_is_skipped(tmp_path: Path) -> None:
    """A kill within a write loses only that line, and a line of another version does not stop the start."""

    async def first(executions: Executions) -> None:
        executions.start(WAITS, DEMO, "torn")

    run_in_service(tmp_path, first)
    (path,) = tmp_path.glob("executions/*.jsonl")
    with path.open("a") as file:
        file.write('{"closing":{"of":"another version"}}\n{"event":{"id":99,"ty')

    async def second(executions: Executions) -> None:
        (known,) = executions.restore()
        assert executions.history(known)[-1]["type"] == "ExecutionAborted"
        assert [event["id"] for event in executions.history(known)][-2:] != [99]

    run_in_service(tmp_path, second)
    (record,) = Journals(tmp_path / "executions").read_all()
    assert record.closing is not None


def test_a_closed_registry_halts_its_machines(tmp_path: Path) -> None:
    """After `close` a killed function is not retried, and the record on disk stays that of a running execution."""
    started: list[asyncio.Future[None]] = []

    async def perform(_: object) -> None:
        started.append(asyncio.get_running_loop().create_future())
        await started[-1]

    async def body(executions: Executions) -> None:
        known = executions.start(TRIES, DEMO, "tries")
        while not started:
            await asyncio.sleep(0)
        written = known.path.read_bytes()
        executions.close()
        started[0].set_exception(TaskFailure("Runtime.ExitError", "killed"))
        await asyncio.sleep(0.05)
        assert (len(started), known.closing, known.path.read_bytes()) == (1, None, written)

    run_in_service(tmp_path, body, perform=perform)


def test_the_listener_is_called_at_each_start_and_end(tmp_path: Path) -> None:
    """The listener is called once at each start and end, and not again for a second stop."""
    seen: list[str] = []

    async def body(executions: Executions) -> None:
        known = executions.start(WAITS, DEMO)
        executions.stop(known.opening.arn, "Enough", None)
        executions.stop(known.opening.arn, "Again", None)
        await asyncio.sleep(0)

    run_in_service(tmp_path, body, on_change=lambda known: seen.append(known.status))
    assert seen == ["RUNNING", "ABORTED"]


def test_a_failing_listener_is_reported_once_and_affects_no_execution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If a listener raises, executions still start, stop and end. The failure is one line on standard error, once."""

    class Broken(Exception):
        pass

    def watcher(_: object) -> None:
        raise Broken("no \ud800\x1b[2J")

    async def body(executions: Executions) -> list[str]:
        for machine in (ANSWERS, WAITS):
            known = executions.start(machine)
            executions.on_end(known.opening.arn, watcher)
        executions.stop(known.opening.arn, None, None)
        await asyncio.gather(*(one.live.wait() for one in executions.all() if one.live))
        await asyncio.sleep(0)
        return [one.status for one in executions.all()]

    assert run_in_service(tmp_path, body, on_change=watcher) == ["SUCCEEDED", "ABORTED"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" failed")[0] for line in lines] == [
        "states-language: the report of an execution",
        "states-language: the report of an execution's end",
    ]
    assert lines[0].endswith("Broken: no \\ud800\\x1b[2J")


def test_the_executions_that_ended_first_are_forgotten_and_running_ones_kept(tmp_path: Path) -> None:
    """Retention counts only ended executions and forgets the oldest of them; so does a restart."""

    async def kept(executions: Executions) -> tuple[list[str], list[str]]:
        running = [executions.start(WAITS, name=f"w{number}") for number in range(5)]
        for number in range(6):
            await await_end(executions.start(ANSWERS, name=f"p{number}"))
        names = [known.opening.name for known in executions.all()]
        executions.stop(running[0].opening.arn, None, None)
        return names, [known.opening.name for known in executions.all() if known.closing is not None]

    async def restored(executions: Executions) -> list[str]:
        executions.restore()  # what ran when the service ended is ABORTED, and ended last
        return [known.opening.name for known in executions.all()]

    waiting = [f"w{number}" for number in range(5)]
    few = {"retention": Retention(count=3)}
    assert run_in_service(tmp_path, kept, **few) == ([*waiting, "p3", "p4", "p5"], ["w0", "p4", "p5"])
    again = run_in_service(tmp_path, restored, **few)
    assert (len(again), set(again) <= {*waiting, "p5"}) == (3, True)


def test_reading_a_history_that_is_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    """If the file is deleted before a thread reads it, the answer is ExecutionDoesNotExist."""
    forgotten = threading.Event()

    async def read() -> None:
        async with stepfunctions(tmp_path, *MACHINES) as states:
            known = states.executions.start(ANSWERS)
            await await_end(known)
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            held = asyncio.create_task(asyncio.to_thread(forgotten.wait, 10))
            reading = asyncio.create_task(states.call("GetExecutionHistory", {"executionArn": known.opening.arn}))
            await asyncio.sleep(0)
            await states.call("DeleteStateMachine", {"stateMachineArn": ANSWERS})
            forgotten.set()
            assert await held
            with pytest.raises(Refusal, match="Execution Does Not Exist"):
                await reading

    asyncio.run(read())


def test_an_execution_that_is_too_old_is_forgotten(tmp_path: Path) -> None:
    """An execution past its age is forgotten when the next one starts or ends."""

    async def names(executions: Executions) -> list[str]:
        for number in range(2):
            await await_end(executions.start(ANSWERS, name=f"p{number}"))
            await asyncio.sleep(0.002)
        executions.start(WAITS, name="w")
        return [known.opening.name for known in executions.all()]

    assert run_in_service(tmp_path, names, retention=Retention(age_s=0)) == ["w"]
