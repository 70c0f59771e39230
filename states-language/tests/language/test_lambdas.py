"""Lambda functions in this process: their payloads, their errors, and that a killed function never runs on."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines import error_class, event_times_ms, event_types, machine, task
from states_language import TaskFailure
from states_language.clock import EPOCH_2026_MS, VirtualClock
from states_language.tasks.lambda_answers import RESPONSE_LIMIT_BYTES
from states_language.tasks.lambdas import Function, Functions
from states_language.values import copy_json


def invoke(function: Function, payload: Any = None, **options: Any) -> Any:
    clock = VirtualClock()
    return clock.run(Functions(clock, {}, **options).invoke("work", function, payload))


def failure_of(function: Function, **options: Any) -> tuple[str | None, Any]:
    with pytest.raises(TaskFailure) as failure:
        invoke(function, **options)
    return failure.value.error, json.loads(failure.value.cause or "null")


def function_raising(error: BaseException, after_s: int | None = None) -> Function:
    """Return a function that raises this error. With `after_s` it is async and raises after that time."""

    def function(_payload: Any, _lambda_context: Any) -> Any:
        raise error

    async def later(_payload: Any, _lambda_context: Any) -> Any:
        await asyncio.sleep(after_s or 0)
        raise error

    return function if after_s is None else later


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just("\ud83d\ude00"),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(st.text(max_size=2) | st.integers() | st.booleans(), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(ANYTHING)
def test_a_payload_is_copied_as_json(payload: Any) -> None:
    """Arrays become lists, keys texts, surrogate pairs one character; the copy shares nothing with the payload."""
    copy, read = copy_json(payload), json.loads(json.dumps(payload))
    assert repr(copy) == repr(read)
    assert copy is not payload or not isinstance(payload, dict | list)


def test_a_function_may_be_plain_or_async_and_sees_its_time_run_down() -> None:
    async def later(payload: Any, lambda_context: Any) -> Any:
        await asyncio.sleep(10)
        return [payload, lambda_context.get_remaining_time_in_millis(), lambda_context.function_name]

    assert invoke(lambda payload, _: {"got": payload}, 1) == {"got": 1}
    assert invoke(later, 1, function_timeout_s=45) == [1, 35_000, "work"]


def test_a_function_gets_and_returns_copies_as_json() -> None:
    """A function cannot change the state's data, and a tuple that it returns becomes a list."""
    event = {"list": [1]}
    assert invoke(lambda payload, _: (payload["list"].append(2), payload), event) == [None, {"list": [1, 2]}]
    assert event == {"list": [1]}


@pytest.mark.parametrize("after_s", [None, 1])
def test_an_exception_of_a_function_becomes_its_error_payload(after_s: int | None) -> None:
    """The Error is the exception's class name. The stack trace begins in the function, also in an async one."""
    error, payload = failure_of(function_raising(error_class("CustomException")("bad luck"), after_s))
    assert error == "CustomException"
    assert (payload["errorMessage"], payload["errorType"]) == ("bad luck", "CustomException")
    assert list(payload) == ["errorMessage", "errorType", "requestId", "stackTrace"]
    (frame,) = payload["stackTrace"]
    assert "in function" in frame or "in later" in frame
    assert "test_lambdas.py" in frame


def test_a_function_is_killed_at_its_time_limit_with_awss_message() -> None:
    """The message has the request id that the lambda_context has."""
    seen: list[str] = []

    async def function(_payload: Any, lambda_context: Any) -> None:
        seen.append(lambda_context.aws_request_id)
        await asyncio.sleep(1000)

    error, payload = failure_of(function, function_timeout_s=45)
    assert error == "Sandbox.Timedout"
    assert payload == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": f"RequestId: {seen[0]} Error: Task timed out after 45.00 seconds",
    }


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (function_raising(SystemExit(3)), "Runtime.ExitError", "Runtime exited with error: exit status 3"),
        # A BaseException fails the caller at once, and not only at the function's time limit.
        (function_raising(asyncio.CancelledError()), "Runtime.ExitError", "Runtime exited with error: exit status 1"),
        (function_raising(GeneratorExit()), "Runtime.ExitError", "Runtime exited with error: exit status 1"),
        (lambda *_: [float("nan")], "Runtime.MarshalError", "Unable to marshal response: Out of range float values"),
        (lambda *_: {1}, "Runtime.MarshalError", "response: Object of type set is not JSON serializable"),
        (lambda *_: "x" * (RESPONSE_LIMIT_BYTES - 1), "Function.ResponseSizeTooLarge", "maximum allowed payload size"),
    ],
)
def test_an_exit_or_an_unusable_result_is_an_error_of_the_runtime(function: Function, error: str, message: str) -> None:
    """The runtime's error reports a process that exits, and a result that is not JSON or exceeds six megabytes."""
    raised, payload = failure_of(function)
    assert (raised, payload["errorType"]) == (error, error)
    assert message in payload["errorMessage"]


def test_an_answer_of_exactly_six_megabytes_is_returned() -> None:
    """An answer may have six megabytes, of which two bytes are the quotes around the text."""
    assert len(invoke(lambda _payload, _: "x" * (RESPONSE_LIMIT_BYTES - 2))) == RESPONSE_LIMIT_BYTES - 2


KILLED = """
import asyncio, gc, sys
from states_language import TaskFailure
from states_language.clock import VirtualClock
from states_language.tasks.lambdas import Functions

async def deeper():
    try:
        await asyncio.sleep(99)
    finally:
        print("deeper, finally")

async def function(payload, lambda_context):
    asyncio.get_running_loop().call_later(50, print, "callback")
    below = asyncio.create_task(deeper())
    try:
        await asyncio.sleep(99)
        print("resumed")
    except BaseException as problem:
        print("except", problem)
    finally:
        print("finally")

def main():
    clock = VirtualClock()
    async def run():
        try:
            await Functions(clock, {}, function_timeout_s=45).invoke("work", function, {})
        except TaskFailure as failure:
            print(failure.error)
        await asyncio.sleep(3600)
    clock.run(run())

main()
gc.collect()
print("end")
"""


def test_a_killed_functions_except_and_finally_never_run() -> None:
    """A killed function's handlers never run: not on the clock, at garbage collection or at the interpreter's end."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KILLED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Sandbox.Timedout\nend\n", "")


def test_a_function_can_be_killed_from_outside_and_outlives_its_execution() -> None:
    """A kill is like a crash: the caller gets the error at once. Stopping an execution kills no function."""
    clock = VirtualClock()
    ended: list[int] = []

    async def function(_payload: Any, _lambda_context: Any) -> None:
        await asyncio.sleep(20)
        ended.append(clock.now_ms() - EPOCH_2026_MS)

    sandbox = Functions(clock, {"work": function})

    async def main() -> Any:
        killed, stopped = (machine(("T", task())).start({}, clock=clock, perform=sandbox.perform) for _ in range(2))
        await asyncio.sleep(5)
        sandbox.running[0].kill("Runtime.ExitError", "Runtime exited with error: signal: killed")
        stopped.stop("Stopped", "by a test")
        await asyncio.sleep(60)
        return killed, stopped

    killed, stopped = clock.run(main())
    assert (killed.error, event_times_ms(killed, "TaskFailed")) == ("Runtime.ExitError", [5000])
    assert event_types(stopped)[-1] == "ExecutionAborted"
    assert (ended, sandbox.running) == ([20_000], [])
