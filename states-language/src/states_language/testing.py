"""Runs a machine for a test; its assertions fail with a report of what happened.

    run = run_machine("order.asl.yml", {"id": 7}, functions={"charge": in_turn(TaskFailure("Busy"), {"paid": True})})
    run.assert_path("Charge", "Ship")

It does not need pytest; the pytest plugin has `run_machine` as a fixture. Invariant: a mistake of the test, such as a
call without an answer or an assertion that fails in a function, fails the test, even if the machine catches errors.
"""

import inspect
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Unpack

from states_language.clock import Clock, VirtualClock
from states_language.definition.load import load
from states_language.execution import Execution, Options
from states_language.history import Event, details_of
from states_language.machine import Machine
from states_language.tasks.calls import TaskCall
from states_language.tasks.lambdas import Function, Functions
from states_language.tasks.resources import function_name
from states_language.tasks.stubs import Answer as Answer
from states_language.tasks.stubs import InTurn as InTurn
from states_language.tasks.stubs import answer_name, complete_pending, event_of, key_of
from states_language.tasks.stubs import in_turn as in_turn
from states_language.values import compact, cut, is_equal

Source = Machine | Mapping[str, Any] | str | os.PathLike[str]
ANY: Any = object()
MOST_LINES = 40
_LONGEST = 100


class RunMachine(Protocol):
    """The type of the fixture `run_machine`; see the function of that name."""

    def __call__(
        self,
        source: Source,
        input: Any = None,
        *,
        functions: Mapping[str, Answer] | None = None,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> "MachineRun":
        """Run the machine to its end and return the run."""


def run_machine(
    source: Source,
    input: Any = None,
    *,
    functions: Mapping[str, Answer] | None = None,
    seed: int = 0,
    **options: Unpack[Options],
) -> "MachineRun":
    """Return the run of a machine from start to end in virtual time; an input of None is {}.

    source: what `load` takes, or a machine that it returned. functions: the answers by name of the state or the
    function, by `service:action` as in "dynamodb:putItem" and "aws-sdk:s3:getObject", by "activity:name", or by ARN; an
    answer for a state goes before the others. A Task that waits for a token or a job gets its answer at once. seed:
    for random numbers. options: those of `Machine.start`. Raises DefinitionError, and AssertionError for a call
    without an answer.
    """
    machine = source if isinstance(source, Machine) else load(source)
    clock = VirtualClock(seed=seed)
    answers = Answers(clock, functions or {})
    execution = machine.run({} if input is None else input, clock=clock, perform=answers.perform, **options)
    if answers.mistakes:
        raise answers.mistakes[0]
    return MachineRun(execution, answers.calls)


class MachineRun:
    """An execution that has ended. calls: the calls of its Tasks, in order.

    status: SUCCEEDED, FAILED, TIMED_OUT or ABORTED. output: None unless it succeeded. error, cause: None unless it
    failed. path: the names of the states entered, in the order of the history. history: GetExecutionHistory's events,
    with times in milliseconds. elapsed_s: the virtual seconds from start to end.
    """

    def __init__(self, execution: Execution, calls: list[TaskCall]) -> None:
        self.execution, self.calls = execution, calls
        self.status, self.output, self.path = execution.status, execution.output, execution.path
        self.error, self.cause, self.history = execution.error, execution.cause, execution.history
        self.elapsed_s = ((execution.stopped_ms or 0) - execution.started_ms) / 1000

    def events(self, type_: str) -> list[dict[str, Any]]:
        """Return the details of each event of a type, such as TaskFailed; {} for one without details."""
        return [details_of(event) for event in self.history if event["type"] == type_]

    def payloads(self, name: str) -> list[Any]:
        """Return the payload of each call of a function or a state; for another service, the parameters."""
        return [event_of(call) for call in self.calls if name in (call.state, key_of(call))]

    def assert_output(self, output: Any) -> None:
        """Raise AssertionError unless the run succeeded with this output; true is not 1."""
        __tracebackhide__ = True
        if self.status != "SUCCEEDED":
            self._fail(f"expected the output {_shorten(output)}")
        if not is_equal(self.output, output):
            self._fail(f"expected the output {compact(output)}\n           it gave {compact(self.output)}")

    def assert_error(self, error: str | None, cause: Any = ANY) -> None:
        """Raise AssertionError unless the run failed with this Error Name, and this Cause unless `cause` is ANY."""
        __tracebackhide__ = True
        if self.status == "SUCCEEDED" or self.error != error:
            self._fail(f"expected the error {error}")
        if cause is not ANY and self.cause != cause:
            self._fail(f"expected the cause {cause!r}\n               not {self.cause!r}")

    def assert_path(self, *states: str) -> None:
        """Raise AssertionError unless these states were entered, in this order, and no other."""
        __tracebackhide__ = True
        if self.path != list(states):
            steps = enumerate(itertools.zip_longest(states, self.path, fillvalue="the end"))
            at, (there, here) = next((at, pair) for at, pair in steps if pair[0] != pair[1])
            self._fail(
                f"expected the path {' → '.join(states)}\n"
                f"      it went to {' → '.join(self.path)}\n"
                f"      step {at + 1} is {here}, not {there}"
            )

    def assert_history(self, *types: str) -> None:
        """Raise AssertionError unless the history has events of these types in this order; others may be between."""
        __tracebackhide__ = True
        left = iter(event["type"] for event in self.history)
        for at, type_ in enumerate(types):
            if type_ not in left:
                after = f" after {types[at - 1]}" if at else ""
                self._fail(f"expected the event {type_}{after}")

    def _fail(self, expectation: str) -> None:
        __tracebackhide__ = True
        raise AssertionError(f"{expectation}\n{self}")

    def __str__(self) -> str:
        end = f"{self.status} after {self.elapsed_s:.3f} s"
        if self.status == "SUCCEEDED":
            end += f" with {_shorten(self.output)}"
        elif self.error is not None:
            end += f" with {self.error}: {self.cause}"
        lines = [_event_line(event, self.execution.started_ms) for event in self.history]
        if len(lines) > MOST_LINES:
            lines = [f"... {len(lines) - MOST_LINES} events before", *lines[-MOST_LINES:]]
        return "\n".join([f"The execution {end}.", *lines])


class Answers(Functions):
    """Answers calls by the names of states and functions; the given answers may change at any time.

    calls: the calls that were made. mistakes: calls without an answer, and assertions that failed in a function.
    """

    def __init__(self, clock: Clock, answers: Mapping[str, Answer]) -> None:
        super().__init__(clock, {})
        self.calls: list[TaskCall] = []
        self.mistakes: list[AssertionError] = []
        self._given = answers

    def has_answer(self, call: TaskCall) -> bool:
        """Return whether there is an answer to the call."""
        self.functions = {_function_key(name): answer for name, answer in self._given.items()}
        return answer_name(call, self.functions) in self.functions

    async def perform(self, call: TaskCall) -> Any:
        """Return the answer; raises TaskFailure. A callable answers a Task that waits for a token, too."""
        self.calls.append(call)
        answer = self._answer_call(call)
        return await (answer if call.pending is None else complete_pending(call, call.pending, answer))

    async def _answer_call(self, call: TaskCall) -> Any:
        if not self.has_answer(call):
            known = f"has {', '.join(map(repr, self.functions))}" if self.functions else "is empty"
            raise self._record_mistake(
                f"'{call.state}' calls '{answer_name(call, self.functions)}', which has no answer; functions {known}"
            )
        name = answer_name(call, self.functions)
        try:
            return await self.answer(name, self.next_answer(name), call)
        except LookupError as problem:
            raise self._record_mistake(str(problem)) from None

    def _record_mistake(self, text: str) -> AssertionError:
        self.mistakes.append(AssertionError(text))
        return self.mistakes[-1]

    async def invoke(self, name: str, function: Function, payload: Any, call: TaskCall | None = None) -> Any:
        """Return the function's result; an assertion that fails in it fails the test, not only the Task."""

        async def watched(payload: Any, context: Any) -> Any:
            try:
                result = function(payload, context)
                return await result if inspect.isawaitable(result) else result
            except AssertionError as mistake:
                self.mistakes.append(mistake)
                raise

        return await super().invoke(name, watched, payload, call)


def _function_key(name: str) -> str:
    """Return the name under which calls are answered; an ARN may be a Task's Resource or a function's."""
    if ":function:" in name or name.startswith("${"):
        return function_name(name)
    if ":activity:" in name:
        return "activity:" + name.rpartition(":")[2]
    return name.rpartition(":::")[2].split(".")[0] if name.startswith("arn:") else name


def _event_line(event: Event, started_ms: int) -> str:
    """Return an event on one line: its time, its type, and the names in it."""
    return f"{(event['timestamp'] - started_ms) / 1000:12.3f} s  {event['type']}{''.join(_excerpts(details_of(event)))}"


def _excerpts(details: Mapping[str, Any]) -> Iterator[str]:
    if "name" in details:
        yield f" {details['name']}"
    if "error" in details or "cause" in details:
        yield f" {details.get('error')}: {cut(str(details.get('cause')), _LONGEST)}"
    for name in ("input", "output", "parameters"):
        if name in details:
            yield f" {cut(str(details[name]), _LONGEST)}"


def _shorten(value: Any) -> str:
    return cut(compact(value), _LONGEST)
