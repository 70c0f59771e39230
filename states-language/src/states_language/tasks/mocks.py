"""Reads the MockConfigFile.json of Step Functions Local: test cases of machines, and the answers of their states.

    config = read_mocks("MockConfigFile.json")
    run_machine("order.asl.json", functions=config.answers("Order", "HappyPath"))

The attempt chooses the response: "0" is the first attempt, "1-2" the first two retries. Invariant: a file that breaks a
rule is refused as a whole, with the place.
Source: AWS Step Functions Developer Guide, "Configuration file for mocked service integrations".
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from states_language.definition.fields import DefinitionError
from states_language.definition.source import read_data
from states_language.tasks.calls import Whole
from states_language.tasks.stubs import Behaviour, Mock

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
    """Return the configuration in a file or in data; raises MockError."""
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
