"""How executions begin and end, their latencies, and that two runs are the same to the byte."""

import asyncio
import json
from typing import Any

import pytest

from machines import INVOKE, error_class, event_chain, event_times_ms, function_raising, line, machine, task
from states_language import Execution, Machine, TaskCall, TaskFailure, load
from states_language.clock import EPOCH_2026_MS, VirtualClock
from states_language.values import parse_json

WAIT = {"Type": "Wait", "Seconds": 10}


def staggered_machine(**retry: Any) -> Any:
    """Return the two-branch staggered machine: A begins with Wait, B with the Task."""

    def lane(name: str, start_at: str) -> dict[str, Any]:
        parameters = {"FunctionName": "connect", "Payload": {"lane": name, "execution.$": "$$.Execution.Id"}}
        work = {"Type": "Task", "Resource": INVOKE, "Parameters": parameters, "OutputPath": "$.Payload",
                "Catch": [{"ErrorEquals": ["TakenOver"], "ResultPath": None, "Next": f"Wait{name}"}],
                "Next": f"Wait{name}", **retry}  # fmt: skip
        wait = {"Type": "Wait", "Seconds": 35, "Next": f"Task{name}"}
        return {"StartAt": start_at, "States": {f"Wait{name}": wait, f"Task{name}": work}}

    return machine(("P", {"Type": "Parallel", "Branches": [lane("A", "WaitA"), lane("B", "TaskB")]}))


async def run_day(clock: VirtualClock, staggered: Any, perform: Any) -> Execution:
    execution: Execution = staggered.start({"id": "demo"}, clock=clock, perform=perform)
    await clock.sleep_until(EPOCH_2026_MS + 4 * 3_600_000)
    return execution


def perform_for(clock: VirtualClock) -> Any:
    """Return a perform that fails after 43 s as TakenOver, or earlier as Dropped, at random by the clock."""

    async def perform(call: TaskCall) -> Any:
        chance = clock.random()
        if chance < 0.3:
            await asyncio.sleep(round(chance * 100))
            raise TaskFailure("Dropped", "dropped")
        await asyncio.sleep(43)
        raise TaskFailure("TakenOver", call.payload["lane"])

    return perform


def test_two_runs_give_byte_equal_histories_with_jitter() -> None:
    """The seed decides every byte of four hours of drops and jittered retries. Another seed gives another history."""
    retry = [{"ErrorEquals": ["Dropped"], "MaxAttempts": 50, "MaxDelaySeconds": 20, "JitterStrategy": "FULL"}]

    def history(seed: int) -> str:
        clock = VirtualClock(seed=seed)
        return json.dumps(clock.run(run_day(clock, staggered_machine(Retry=retry), perform_for(clock))).history)

    first = history(1)
    assert first == history(1)
    assert first != history(2)


class ListedLatencies:
    """Latencies with fixed values."""

    def __init__(self) -> None:
        self.overshoots = [55, 64]
        self.to_tasks = [56, 63]

    def start_ms(self) -> int:
        return 25

    def wait_overshoot_ms(self) -> int:
        return self.overshoots.pop(0)

    def wait_to_task_ms(self) -> int:
        return self.to_tasks.pop(0)


def test_latencies_are_added_where_aws_takes_time() -> None:
    """Latencies come before the first state, after a Wait, and between a Wait and the next Task, and nowhere else."""
    latencies = ListedLatencies()
    states = [
        ("W", {**WAIT, "Next": "T"}),
        ("T", task(Next="V")),
        ("V", {**WAIT, "Next": "P"}),
        ("P", {"Type": "Pass"}),
    ]
    execution = machine(*states).execute(functions={"work": function_raising()}, latencies=latencies)
    assert event_times_ms(execution, "ExecutionStarted") == [0]
    assert event_times_ms(execution, "WaitStateEntered") == [25, 10_025 + 55 + 56]
    assert event_times_ms(execution, "WaitStateExited") == [10_025 + 55, 20_136 + 64]
    assert event_times_ms(execution, "TaskStateEntered") == [10_136]
    assert (event_times_ms(execution, "PassStateEntered"), latencies.to_tasks) == ([20_200], [63])


def test_the_history_is_in_the_wire_shape_of_get_execution_history() -> None:
    """The history has GetExecutionHistory's shape. A state that changes nothing repeats its input's text exactly."""
    whole, text = {"truncated": False}, '{"b":"ä","a":[1,2.5,null]}'
    given, made = {"input": text, "inputDetails": whole}, {"output": text, "outputDetails": whole}

    def event(number: int, previous: int, kind: str, **details: Any) -> dict[str, Any]:
        return {"timestamp": EPOCH_2026_MS, "type": kind, "id": number, "previousEventId": previous, **details}

    role = "arn:aws:iam::111111111111:role/states-language"
    assert machine(("P", {"Type": "Pass"})).execute({"b": "ä", "a": [1, 2.5, None]}).history == [
        event(1, 0, "ExecutionStarted", executionStartedEventDetails={**given, "roleArn": role}),
        event(2, 0, "PassStateEntered", stateEnteredEventDetails={"name": "P", **given}),
        event(3, 2, "PassStateExited", stateExitedEventDetails={"name": "P", **made}),
        event(4, 3, "ExecutionSucceeded", executionSucceededEventDetails=made),
    ]


def test_an_input_is_copied_as_json() -> None:
    """Keys become texts, a tuple an array, and later changes have no effect. NaN is refused, in an answer too."""
    data: dict[Any, Any] = {1: (True, [])}
    execution = load(line(("A", {"Type": "Pass"}))).execute(data)
    data[1][1].append(0)
    assert (execution.input, execution.output) == ({"1": [True, []]}, {"1": [True, []]})
    with pytest.raises(ValueError, match="the input is not a valid JSON value: NaN"):
        load(line(("A", {"Type": "Pass"}))).execute([float("nan")])

    async def odd(_call: TaskCall) -> float:
        return float("nan")

    publish = {"Type": "Task", "Resource": "arn:aws:states:::sns:publish", "Parameters": {}}
    with pytest.raises(ValueError, match="NaN is not a valid JSON number"):
        machine(("A", publish)).execute(perform=odd)


def test_a_machine_runs_within_a_running_loop() -> None:
    """A machine runs while an event loop runs: in another machine's function, in an async test, or in a notebook."""
    inner = load(line(("A", {"Type": "Wait", "Seconds": 9, "Next": "B"}), ("B", {"Type": "Pass", "Result": 5})))
    outer = load(line(("Do", task(OutputPath="$.Payload"))))

    async def elsewhere() -> Any:
        return outer.execute(functions={"work": lambda _payload, _context: inner.execute().output}).output

    assert asyncio.run(elsewhere()) == 5


def test_a_machines_time_out_ends_the_execution_and_cannot_be_caught() -> None:
    """A machine's time-out gives TIMED_OUT without Error or Cause. The event's previousEventId is 0."""
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "W"}]
    parallel = {"Type": "Parallel", "Branches": [line(("V", WAIT))], "Catch": catch, "Next": "W"}
    execution = machine(("P", parallel), ("W", WAIT), TimeoutSeconds=4).execute()
    assert (execution.status, execution.error, execution.cause) == ("TIMED_OUT", None, None)
    assert event_chain(execution)[-1] == (5, 0, "ExecutionTimedOut")
    assert execution.stopped_ms == EPOCH_2026_MS + 4000


def test_an_execution_lives_for_a_year_at_most() -> None:
    states = [("W", {"Type": "Wait", "Seconds": 40_000_000})]
    assert machine(*states).execute().stopped_ms == EPOCH_2026_MS + 365 * 86_400_000


def test_an_unexpected_exception_of_perform_fails_the_execution_and_is_raised() -> None:
    """Only TaskFailure is an answer. Another exception is States.Runtime, and the clock raises it."""
    clock = VirtualClock()
    executions: list[Execution] = []

    async def perform(_call: TaskCall) -> Any:
        raise error_class("Bug")("in perform")

    async def main() -> None:
        executions.append(machine(("T", task())).start({}, clock=clock, perform=perform))
        await executions[0].wait()

    with pytest.raises(error_class("Bug")):
        clock.run(main())
    assert (executions[0].status, executions[0].error) == ("FAILED", "States.Runtime")
    assert executions[0].cause == (
        "An error occurred while executing the state 'T' (entered at the event id #2). Bug: in perform"
    )


def test_names_that_are_left_out_follow_from_the_clocks_seed() -> None:
    names = [machine(("P", {"Type": "Pass"})).execute(clock=VirtualClock(seed=seed)).name for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert len(names[0]) == 36


def test_an_unpaired_surrogate_becomes_the_replacement_character() -> None:
    """Half of a surrogate pair becomes U+FFFD in inputs, names, results and errors, so all texts can be encoded."""
    assert parse_json('{"\\ud800": ["\\uDC00", "\\ud83d\\ude00"]}') == {"\ufffd": ["\ufffd", "\U0001f600"]}
    passed = machine(("A", {"Type": "Pass"})).execute({"a\ud800": ["\udc00", "\ud83d\ude00"]})
    assert passed.output == {"a\ufffd": ["\ufffd", "\U0001f600"]}
    worked = machine(("A", task())).execute({}, functions={"work": lambda *_: {"half": "\ud800"}})
    assert worked.output["Payload"] == {"half": "\ufffd"}
    failed = machine(("A", {"Type": "Fail", "Error": "\ud800", "Cause": "half \ud83d"})).execute()
    assert (failed.error, failed.cause) == ("\ufffd", "half \ufffd")
    raised = machine(("A", task())).execute({}, functions={"work": lambda *_: TaskFailure("\ud800", "\udc00")})
    for execution in (passed, worked, failed, raised):
        json.dumps(execution.history, ensure_ascii=False).encode()


def counting_machine(most: int) -> tuple[Machine, dict[str, int]]:
    """Return a machine that loops through a Pass and a Choice, and the input for `most` rounds."""
    add = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)", "most.$": "$.most"}, "Next": "Look"}
    again = {"Variable": "$.n", "NumericLessThanPath": "$.most", "Next": "Count"}
    look = {"Type": "Choice", "Choices": [again], "Default": "Over"}
    return machine(("Count", add), ("Look", look), ("Over", {"Type": "Succeed"})), {"n": 0, "most": most}


def test_the_limit_of_the_history_can_be_lifted_and_lowered() -> None:
    """Event 25,000 ends the execution unless the limit is lifted; a lower limit ends it earlier."""
    loop, data = counting_machine(7000)
    cut, whole, short = (loop.execute(data, history_limit=limit) for limit in (25_000, None, 10))
    assert (cut.status, cut.error, len(cut.history)) == ("FAILED", "States.Runtime", 25_000)
    assert cut.cause == "The execution reached the maximum number of history events (25000)."
    assert cut.history[-1]["previousEventId"] == 24_999
    assert (whole.status, whole.output, len(whole.history)) == ("SUCCEEDED", {"n": 7000, "most": 7000}, 28_004)
    assert whole.history[:24_999] == cut.history[:24_999]
    assert [event["type"] for event in short.history] == [event["type"] for event in whole.history[:9]] + [
        "ExecutionFailed"
    ]
