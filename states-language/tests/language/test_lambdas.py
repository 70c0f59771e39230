"""Lambda functions in this process: their events, their errors, and that a kill is a kill."""

import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from machines import at_ms, machine, named, task, types
from states_language import TaskFailure
from states_language.clock import EPOCH_2026_MS, VirtualClock
from states_language.tasks.lambdas import RESPONSE_LIMIT_BYTES, Function, Functions


def invoked(function: Function, payload: Any = None, **options: Any) -> Any:
    clock = VirtualClock()
    return clock.run(Functions(clock, {}, **options).invoke("work", function, payload))


def failed(function: Function, **options: Any) -> tuple[str | None, Any]:
    with pytest.raises(TaskFailure) as failure:
        invoked(function, **options)
    return failure.value.error, json.loads(failure.value.cause or "null")


def test_a_function_may_be_plain_or_async() -> None:
    async def later(payload: Any, _lambda_context: Any) -> Any:
        await asyncio.sleep(3)
        return payload

    assert invoked(lambda payload, _: {"got": payload}, 1) == {"got": 1}
    assert invoked(later, 1) == 1


def test_payload_and_result_pass_through_json() -> None:
    """A function cannot reach into the state's data, nor a tuple out of the function."""
    event = {"list": [1]}

    def function(payload: Any, _lambda_context: Any) -> Any:
        payload["list"].append(2)
        return (payload, None)

    assert invoked(function, event) == [{"list": [1, 2]}, None]
    assert event == {"list": [1]}


def test_the_lambda_context_counts_down_in_virtual_time() -> None:
    async def function(_payload: Any, lambda_context: Any) -> Any:
        await asyncio.sleep(10)
        return [lambda_context.get_remaining_time_in_millis(), lambda_context.function_name]

    assert invoked(function, function_timeout_s=45) == [35_000, "work"]


def test_what_a_function_raises_is_its_error_payload() -> None:
    """Error is the class's name; the stack trace begins in the function."""

    def function(_payload: Any, _lambda_context: Any) -> Any:
        raise named("CustomException")("bad luck")

    error, payload = failed(function)
    assert error == "CustomException"
    assert (payload["errorMessage"], payload["errorType"]) == ("bad luck", "CustomException")
    assert list(payload) == ["errorMessage", "errorType", "requestId", "stackTrace"]
    (frame,) = payload["stackTrace"]
    assert "in function" in frame
    assert "test_lambdas.py" in frame


def test_the_stack_trace_of_an_async_function_begins_in_it_too() -> None:
    async def function(_payload: Any, _lambda_context: Any) -> Any:
        await asyncio.sleep(1)
        raise ValueError("late")

    error, payload = failed(function)
    assert (error, len(payload["stackTrace"])) == ("ValueError", 1)


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


def test_a_function_that_leaves_the_process_is_an_exit_error() -> None:
    def function(_payload: Any, _lambda_context: Any) -> None:
        sys.exit(3)

    error, payload = failed(function)
    assert error == "Runtime.ExitError"
    assert payload["errorMessage"].endswith("Error: Runtime exited with error: exit status 3")


@pytest.mark.parametrize("raised", [asyncio.CancelledError, GeneratorExit])
def test_a_raise_beyond_exception_ends_the_runtime(raised: type[BaseException]) -> None:
    """It does not leave the caller to wait for the function's limit."""

    def function(_payload: Any, _lambda_context: Any) -> None:
        raise raised

    error, payload = failed(function)
    assert error == "Runtime.ExitError"
    assert payload["errorMessage"].endswith("Error: Runtime exited with error: exit status 1")


def test_nan_is_not_json() -> None:
    """NaN and infinities are Python's, and no execution sees them."""
    error, payload = failed(lambda _payload, _lambda_context: [float("nan")])
    assert error == "Runtime.MarshalError"
    assert payload["errorMessage"].startswith("Unable to marshal response: Out of range float values")


def test_a_result_that_is_not_json_is_a_marshal_error() -> None:
    error, payload = failed(lambda _payload, _lambda_context: {1, 2})
    assert error == "Runtime.MarshalError"
    assert payload["errorMessage"] == "Unable to marshal response: Object of type set is not JSON serializable"


def test_an_invocation_begins_after_its_latency() -> None:
    """The hook is called once for each invocation, with the function's name."""
    asked: list[str] = []

    def latency_ms(name: str) -> int:
        asked.append(name)
        return 230

    clock = VirtualClock()
    begun: list[int] = []
    sandbox = Functions(clock, {"work": lambda *_: begun.append(clock.now_ms())}, latency_ms=latency_ms)

    async def main() -> None:
        await machine(("T", task())).start({}, clock=clock, perform=sandbox.perform).wait()

    clock.run(main())
    assert asked == ["work"]
    assert begun == [EPOCH_2026_MS + 230]


def test_request_ids_follow_from_the_seed() -> None:
    def request_id(_payload: Any, lambda_context: Any) -> str:
        return str(lambda_context.aws_request_id)

    def of(seed: int) -> Any:
        return machine(("T", task())).execute(functions={"work": request_id}, clock=VirtualClock(seed=seed)).output

    assert of(1)["Payload"] == of(1)["Payload"] != of(2)["Payload"]


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
    """Neither on the clock, nor when the clock is gone and garbage is collected, nor while the interpreter ends."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", KILLED],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Sandbox.Timedout\nend\n", "")


def test_a_killed_function_stays_dead_when_its_clock_goes_on() -> None:
    """Its sub-tasks and callbacks too; and its garbage is never collected."""
    ran: list[str] = []

    async def function(_payload: Any, _lambda_context: Any) -> None:
        try:
            while True:
                await asyncio.sleep(10)
                ran.append("tick")
        finally:
            ran.append("finally")

    clock = VirtualClock()
    sandbox = Functions(clock, {}, function_timeout_s=45)

    async def main() -> None:
        with pytest.raises(TaskFailure, match=r"Sandbox\.Timedout"):
            await sandbox.invoke("work", function, {})
        await asyncio.sleep(86_400)

    clock.run(main())
    gc.collect()
    assert ran == ["tick"] * 4
    assert sandbox.running == []


def test_a_function_can_be_killed_from_outside() -> None:
    """As a crash of its process would: the caller gets the error at once."""
    clock = VirtualClock()

    async def function(_payload: Any, _lambda_context: Any) -> None:
        await asyncio.sleep(100)

    sandbox = Functions(clock, {"work": function})

    async def main() -> Any:
        execution = machine(("T", task())).start({}, clock=clock, perform=sandbox.perform)
        await asyncio.sleep(5)
        (invocation,) = sandbox.running
        invocation.kill("Runtime.ExitError", "Runtime exited with error: signal: killed")
        return await execution.wait()

    execution = clock.run(main())
    assert (execution.error, at_ms(execution, "TaskFailed")) == ("Runtime.ExitError", [5000])


def test_stopping_an_execution_does_not_stop_its_function() -> None:
    """AWS lets a running function run on; so nothing of it is cancelled here."""
    ended: list[int] = []
    clock = VirtualClock()

    async def function(_payload: Any, _lambda_context: Any) -> None:
        await asyncio.sleep(20)
        ended.append(clock.now_ms() - EPOCH_2026_MS)

    sandbox = Functions(clock, {"work": function})

    async def main() -> Any:
        execution = machine(("T", task())).start({}, clock=clock, perform=sandbox.perform)
        await asyncio.sleep(5)
        execution.stop("Stopped", "by a test")
        await asyncio.sleep(60)
        return execution

    execution = clock.run(main())
    assert types(execution)[-1] == "ExecutionAborted"
    assert ended == [20_000]


def test_an_answer_is_six_megabytes_long_at_most() -> None:
    """Two bytes are the quotes around the text."""
    assert len(invoked(lambda _payload, _: "x" * (RESPONSE_LIMIT_BYTES - 2))) == RESPONSE_LIMIT_BYTES - 2
    error, payload = failed(lambda _payload, _: "x" * (RESPONSE_LIMIT_BYTES - 1))
    assert (error, payload["errorType"]) == ("Function.ResponseSizeTooLarge", "Function.ResponseSizeTooLarge")
