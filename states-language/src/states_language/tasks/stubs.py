"""Answers calls of functions and services with prepared behaviours, the same each time or in turn.

Invariant: the same calls in the same order get the same answers, and each answer is a copy that the machine may keep.
"""

import asyncio
import copy
import json
import os
import re
from collections.abc import Container, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from states_language.clock import Clock
from states_language.definition.fields import DefinitionError
from states_language.definition.source import read_data
from states_language.failures import TaskFailure
from states_language.tasks.callbacks import Pending
from states_language.tasks.calls import TaskCall, Whole
from states_language.tasks.resources import ACTIVITY
from states_language.values import compact


class _Echo:
    """The answer that equals the input; its repr is ECHO."""

    def __repr__(self) -> str:
        return "ECHO"


ECHO: Any = _Echo()
KILLED = "Sandbox.Timedout"
"""The error of a function that was killed because it took too long."""
YEAR_MS = 366 * 24 * 3600 * 1000
"""Longer than any execution lives."""


@dataclass(frozen=True)
class Behaviour:
    """One answer after delay_ms: a JSON value (ECHO: the input) or an error; with `never`, no answer."""

    answer: Any = ECHO
    error: str | None = None
    cause: str | None = None
    delay_ms: int = 0
    never: bool = False


@dataclass(frozen=True)
class Mock:
    """A mocked response: a behaviour for each range of attempts, from 0."""

    name: str
    attempts: Mapping[range, Behaviour]

    def behaviour(self, call: TaskCall) -> Behaviour:
        """Return the behaviour for the attempt of a call; raises LookupError if there is none."""
        for attempts, behaviour in self.attempts.items():
            if call.attempt - 1 in attempts:
                return behaviour
        there = ", ".join(map(format_attempts, self.attempts))
        raise LookupError(
            f"'{call.state}' makes attempt {call.attempt - 1}, and the response '{self.name}' has {there}"
        )


def format_attempts(attempts: range) -> str:
    """Return a range of attempts in the form of the file: 0 or 1-2."""
    return str(attempts.start) if len(attempts) == 1 else f"{attempts.start}-{attempts.stop - 1}"


Answer = Any
"""A JSON value, a callable(payload, context), a TaskFailure, a Behaviour, several of them `in_turn`, or a Mock."""


@dataclass(frozen=True)
class InTurn:
    """Answers of one function, one for each call; the last repeats."""

    answers: tuple[Answer, ...]


def in_turn(*answers: Answer) -> InTurn:
    """Return an answer that gives each call the next of these answers; the last one repeats."""
    if not answers:
        raise ValueError("in_turn needs at least one answer")
    return InTurn(answers)


def behaviour_of(answer: Answer, call: TaskCall) -> Behaviour:
    """Return the behaviour of a value, a Behaviour or a Mock; raises LookupError as `Mock.behaviour` does."""
    if isinstance(answer, Mock):
        return answer.behaviour(call)
    return answer if isinstance(answer, Behaviour) else Behaviour(answer=answer)


def key_of(call: TaskCall) -> str:
    """Return the name of a call: the function's name, service:action, aws-sdk:service:action or activity:name."""
    if call.service == ACTIVITY:
        return f"{ACTIVITY}:{call.resource.rpartition(':')[2]}"
    return call.function or f"{'aws-sdk:' if call.sdk else ''}{call.service}:{call.action}"


def event_of(call: TaskCall) -> Any:
    """Return the data of a call: a function's payload, or the parameters of another service."""
    return call.payload if call.function else call.parameters


def answer_name(call: TaskCall, names: Container[str]) -> str:
    """Return the name under which a call is answered: its state's if it is among the names, otherwise `key_of`."""
    return call.state if call.state in names else key_of(call)


_WORKERS: set[asyncio.Task[None]] = set()


async def complete_pending(call: TaskCall, pending: Pending, answer: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    """Complete a Task that waits with this answer, and return the answer of the call itself.

    An activity's worker answers later: the Task is scheduled first, and its time-outs count meanwhile.
    """

    async def work() -> None:
        try:
            pending.succeed(await answer)
        except TaskFailure as failure:
            if failure.error == KILLED and call.function:
                raise
            pending.fail(failure.error, failure.cause)

    if call.service != ACTIVITY:
        await work()
        return {}
    worker = asyncio.get_running_loop().create_task(work())
    _WORKERS.add(worker)
    worker.add_done_callback(_WORKERS.discard)
    worker.add_done_callback(lambda ended: None if ended.cancelled() else pending.crash(ended.exception()))
    return {}


async def behave(call: TaskCall, behaviour: Behaviour, clock: Clock, function_timeout_s: float) -> Any:
    """Return the behaviour's answer after its delay; raises TaskFailure.

    A function that never answers is killed after function_timeout_s, as AWS does.
    """
    if call.pending is not None and not behaviour.never:  # where an activity is never answered, nobody polls
        call.pending.start("worker")
    limit_ms = round(function_timeout_s * 1000) if call.function else YEAR_MS
    delay_ms = YEAR_MS if behaviour.never else behaviour.delay_ms
    if delay_ms > 0:
        await clock.sleep_until(clock.now_ms() + min(delay_ms, limit_ms))
    if delay_ms >= limit_ms:
        message = f"Error: Task timed out after {function_timeout_s:.2f} seconds"
        raise TaskFailure(KILLED, compact({"errorType": KILLED, "errorMessage": message}))
    if behaviour.error is not None:
        raise TaskFailure(behaviour.error, behaviour.cause)
    if behaviour.answer is ECHO:
        return event_of(call)
    return copy.deepcopy(behaviour.answer)


_ATTEMPTS = re.compile(r"(\d+)(?:-(\d+))?")
MOST_ATTEMPTS = 10_000
"""The largest number of an attempt."""


class MockError(ValueError):
    """A mock configuration breaks a rule; the message names the place and the rule."""


@dataclass(frozen=True)
class MockConfig:
    """A mock configuration. cases: each state's response, by machine and test case."""

    cases: Mapping[str, Mapping[str, Mapping[str, Mock]]]

    def answers(self, machine: str, case: str) -> Mapping[str, Mock]:
        """Return the responses of a test case by state; raises MockError if there is no such case."""
        for kind, name, names in (
            ("state machine", machine, self.cases),
            ("test case", case, self.cases.get(machine, {})),
        ):
            if name not in names:
                raise MockError(f"there is no {kind} '{name}'; there is {', '.join(names) or 'none'}")
        return self.cases[machine][case]

    def case(self, text: str) -> Mapping[str, Mock]:
        """Return the responses of `machine#case`, or of `case` if there is only one machine; raises MockError."""
        machine, hash_, case = text.rpartition("#")
        if not hash_ and len(self.cases) != 1:
            raise MockError(f"'{text}' must be MACHINE#CASE: there is {', '.join(self.cases) or 'no state machine'}")
        return self.answers(machine if hash_ else next(iter(self.cases)), case)


def read_mocks(source: Mapping[str, Any] | str | os.PathLike[str]) -> MockConfig:
    """Return the configuration in a file or in data; raises MockError.

        config = read_mocks("MockConfigFile.json")
        run_machine("order.asl.json", functions=config.answers("Order", "HappyPath"))

    The attempt chooses the response: "0" is the first attempt, "1-2" the first two retries. Invariant: a file that
    breaks a rule is refused as a whole, with the place. Source: AWS Step Functions Developer Guide, "Configuration file
    for mocked service integrations".
    """
    if not isinstance(source, str | os.PathLike):
        return _read_config(source)
    try:
        return _read_config(read_data(source))
    except DefinitionError as problem:
        place = "" if problem.rule.startswith(str(source)) else f"{source}: "
        raise MockError(place + problem.rule) from None
    except MockError as problem:
        raise MockError(f"{source}: {problem}") from None


def _read_config(data: Any) -> MockConfig:
    top = _check_members("the configuration", data, "StateMachines", "MockedResponses")
    mocks = {
        name: _read_mock(name, value)
        for name, value in _require_object("MockedResponses", top.get("MockedResponses", {})).items()
    }
    cases: dict[str, dict[str, dict[str, Mock]]] = {}
    for machine, value in _require_object("StateMachines", top.get("StateMachines", {})).items():
        where = f"StateMachines.{machine}"
        tests = _require_object(f"{where}.TestCases", _check_members(where, value, "TestCases").get("TestCases", {}))
        cases[machine] = {
            case: {
                state: _find_mock(f"{where}.TestCases.{case}.{state}", name, mocks) for state, name in states.items()
            }
            for case, states in (
                (case, _require_object(f"{where}.TestCases.{case}", each)) for case, each in tests.items()
            )
        }
    return MockConfig(cases)


def _find_mock(where: str, name: Any, mocks: Mapping[str, Mock]) -> Mock:
    if not isinstance(name, str) or name not in mocks:
        raise MockError(f"{where}: there is no response {json.dumps(name)} in MockedResponses")
    return mocks[name]


def _read_mock(name: str, value: Any) -> Mock:
    where, attempts = f"MockedResponses.{name}", dict[range, Behaviour]()
    for key, response in _require_object(where, value).items():
        match = _ATTEMPTS.fullmatch(key)
        bounds = (int(match[1]), int(match[2] or match[1])) if match and len(key) < 12 else (1, 0)
        if not bounds[0] <= bounds[1] <= MOST_ATTEMPTS:
            raise MockError(f"{where}: '{key}' must be the number of an attempt, such as 0, or a range, such as 1-2")
        chosen = range(bounds[0], bounds[1] + 1)
        if any(chosen.start < other.stop and other.start < chosen.stop for other in attempts):
            raise MockError(f"{where}: '{key}' is an attempt that has another response")
        attempts[chosen] = _read_behaviour(f"{where}.{key}", response)
    if not attempts:
        raise MockError(f"{where}: has no response")
    return Mock(name, attempts)


def _read_behaviour(where: str, value: Any) -> Behaviour:
    response = _check_members(where, value, "Return", "Throw")
    if len(response) != 1:
        raise MockError(f"{where}: needs one of Return and Throw")
    if "Return" in response:
        return Behaviour(answer=Whole(response["Return"]))
    thrown = _check_members(f"{where}.Throw", response["Throw"], "Error", "Cause")
    if not isinstance(thrown.get("Error"), str) or not isinstance(thrown.get("Cause", ""), str):
        raise MockError(f"{where}.Throw: needs an Error, and may have a Cause, both texts")
    return Behaviour(error=thrown["Error"], cause=thrown.get("Cause"))


def _check_members(where: str, value: Any, *names: str) -> Mapping[str, Any]:
    for name in (found := _require_object(where, value)):
        if name not in names:
            raise MockError(f"{where}: '{name}' is not one of {', '.join(names)}")
    return found


def _require_object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MockError(f"{where}: must be a JSON object")
    return value
