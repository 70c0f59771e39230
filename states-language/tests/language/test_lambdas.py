"""Lambda functions in this process: their events, their errors, and that a kill is a kill."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines import at_ms, machine, named, task, types
from states_language import TaskFailure
from states_language.clock import EPOCH_2026_MS, VirtualClock
from states_language.tasks.lambda_answers import RESPONSE_LIMIT_BYTES
from states_language.tasks.lambdas import Function, Functions
from states_language.values import copied


def invoked(function: Function, payload: Any = None, **options: Any) -> Any:
    clock = VirtualClock()
    return clock.run(Functions(clock, {}, **options).invoke("work", function, payload))


def failed(function: Function, **options: Any) -> tuple[str | None, Any]:
    with pytest.raises(TaskFailure) as failure:
        invoked(function, **options)
    return failure.value.error, json.loads(failure.value.cause or "null")


def raises(error: BaseException, after_s: int | None = None) -> Function:
    """Return a function that raises this error; an async one if it comes later."""

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
def test_a_payload_is_what_its_json_text_spells(payload: Any) -> None:
    """Arrays are lists, keys are texts, surrogate pairs one character; nothing is shared with the payload."""
    copy, read = copied(payload), json.loads(json.dumps(payload))
    assert repr(copy) == repr(read)
    assert copy is not payload or not isinstance(payload, dict | list)


def test_a_function_may_be_plain_or_async_and_sees_its_time_run_down() -> None:
    async def later(payload: Any, lambda_context: Any) -> Any:
        await asyncio.sleep(10)
        return [payload, lambda_context.get_remaining_time_in_millis(), lambda_context.function_name]

    assert invoked(lambda payload, _: {"got": payload}, 1) == {"got": 1}
    assert invoked(later, 1, function_timeout_s=45) == [1, 35_000, "work"]


def test_payload_and_result_pass_through_json() -> None:
    """A function cannot change the state's data, and cannot return a tuple."""
    event = {"list": [1]}
    assert invoked(lambda payload, _: (payload["list"].append(2), payload), event) == [None, {"list": [1, 2]}]
    assert event == {"list": [1]}


@pytest.mark.parametrize("after_s", [None, 1])
def test_what_a_function_raises_is_its_error_payload(after_s: int | None) -> None:
    """Error is the class's name; the stack trace begins in the function, even an async one."""
    error, payload = failed(raises(named("CustomException")("bad luck"), after_s))
    assert error == "CustomException"
    assert (payload["errorMessage"], payload["errorType"]) == ("bad luck", "CustomException")
    assert list(payload) == ["errorMessage", "errorType", "requestId", "stackTrace"]
    (frame,) = payload["stackTrace"]
    assert "in function" in frame or "in later" in frame
    assert "test_lambdas.py" in frame


def test_the_limit_kills_with_awss_words() -> None:
    """The request's id in the message is the one that the lambda_context has."""
    seen: list[str] = []

    async def function(_payload: Any, lambda_context: Any) -> None:
        seen.append(lambda_context.aws_request_id)
        await asyncio.sleep(1000)

    error, payload = failed(function, function_timeout_s=45)
    assert error == "Sandbox.Timedout"
    assert payload == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": f"RequestId: {seen[0]} Error: Task timed out after 45.00 seconds",
    }


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (raises(SystemExit(3)), "Runtime.ExitError", "Runtime exited with error: exit status 3"),
        # What is beyond Exception does not leave the caller to wait for the function's limit.
        (raises(asyncio.CancelledError()), "Runtime.ExitError", "Runtime exited with error: exit status 1"),
        (raises(GeneratorExit()), "Runtime.ExitError", "Runtime exited with error: exit status 1"),
        (lambda *_: [float("nan")], "Runtime.MarshalError", "Unable to marshal response: Out of range float values"),
        (lambda *_: {1}, "Runtime.MarshalError", "response: Object of type set is not JSON serializable"),
        (lambda *_: "x" * (RESPONSE_LIMIT_BYTES - 1), "Function.ResponseSizeTooLarge", "maximum allowed payload size"),
    ],
)
def test_what_is_no_answer_is_an_error_of_the_runtime(function: Function, error: str, message: str) -> None:
    """The process ends, the result is not JSON, or it exceeds six megabytes."""
    raised, payload = failed(function)
    assert (raised, payload["errorType"]) == (error, error)
    assert message in payload["errorMessage"]


def test_an_answer_is_six_megabytes_long_at_most() -> None:
    """Two bytes are the quotes around the text."""
    assert len(invoked(lambda _payload, _: "x" * (RESPONSE_LIMIT_BYTES - 2))) == RESPONSE_LIMIT_BYTES - 2


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


def test_no_except_and_no_finally_of_a_killed_function_runs_not_even_at_the_end_of_the_process() -> None:
    """They run neither on the clock, nor at garbage collection, nor while the interpreter ends."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KILLED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Sandbox.Timedout\nend\n", "")


def test_a_function_can_be_killed_from_outside_and_outlives_its_execution() -> None:
    """A kill is like a crash of its process: the caller gets the error at once. Stopping an execution kills nothing."""
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
    assert (killed.error, at_ms(killed, "TaskFailed")) == ("Runtime.ExitError", [5000])
    assert types(stopped)[-1] == "ExecutionAborted"
    assert (ended, sandbox.running) == ([20_000], [])
