"""Generates test cases of a machine: `fuzz(machine)` is a Hypothesis strategy of inputs and behaviours.

Inputs, answers and errors are made from the paths, constants and Error Names in the definition. Hypothesis is imported
only by `fuzz`, so running machines does not need it. Invariant: a case that is run again gives the same execution, to
the byte.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from states_language.clock import VirtualClock
from states_language.definition.load import load
from states_language.definition.pointers import states_of
from states_language.execution import Execution, Options
from states_language.history import PAYLOAD_LIMIT_BYTES
from states_language.machine import Machine
from states_language.tasks.lambdas import StandIns
from states_language.tasks.resources import read_resource
from states_language.tasks.stubs import Behaviour, in_turn

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

ALWAYS = ("Exception", "Sandbox.Timedout", "Lambda.Unknown", "Lambda.TooManyRequestsException", "States.TaskFailed")
"""Error Names that any function may fail with, whatever the definition says."""

SERVICE_ERRORS = ("DynamoDB.ProvisionedThroughputExceededException", "SQS.SdkClientException", "States.Timeout")
MOST_CALLS = 6
LONGEST_DELAY_MS = 1_000_000


class _Oversized(str):
    """A text over the payload limit, with a short repr for the report of a case."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OVERSIZED"

    def __deepcopy__(self, memo: object) -> "_Oversized":
        return self


OVERSIZED = _Oversized("x" * (PAYLOAD_LIMIT_BYTES + 1))


@dataclass(frozen=True)
class Case:
    """An input, and the answers of each function or service in turn; the last repeats.

    Functions and services are named as in `states_language.tasks.stubs`.
    """

    input: Any
    behaviours: Mapping[str, list[Behaviour]] = field(default_factory=dict)
    seed: int = 0

    def run(self, machine: Machine, **options: Unpack[Options]) -> Execution:
        """Run the execution to its end in virtual time and return it. `options` are those of `Machine.start`."""
        clock = VirtualClock(seed=self.seed)
        stubs = StandIns(clock, {name: in_turn(*turns) for name, turns in self.behaviours.items() if turns})
        return machine.run(self.input, clock=clock, perform=stubs.perform, **options)


def fuzz(
    machine: Machine | Mapping[str, Any],
    *,
    inputs: "SearchStrategy[Any] | None" = None,
    answers: "Mapping[str, SearchStrategy[Any]] | None" = None,
    last: Mapping[str, Behaviour] | None = None,
) -> "SearchStrategy[Case]":
    """Return a strategy of cases for a machine or its definition.

    inputs: a strategy in place of objects made of the paths that the definition reads. answers: a strategy for what a
    function or service answers, where that is not any JSON. last: what each answers after its drawn behaviours, for a
    machine that goes on until an answer stops it.
    """
    from hypothesis import strategies as st

    loaded = machine if isinstance(machine, Machine) else load(machine)
    vocabulary = _Vocabulary(loaded.definition)
    values = _json_strategy(vocabulary)
    promised = answers or {}

    def turns(name: str) -> "SearchStrategy[list[Behaviour]]":
        drawn = st.lists(
            _behaviour_strategy(vocabulary, promised.get(name, values), name), min_size=1, max_size=MOST_CALLS
        )
        ends = [last[name]] if last is not None and name in last else []
        return drawn.map(lambda behaviours: behaviours + ends)

    drawn = {name: turns(name) for name in sorted(vocabulary.names)}
    return st.builds(
        Case,
        input=values if inputs is None else inputs,
        behaviours=st.fixed_dictionaries(drawn),
        seed=st.integers(0, 9),
    )


def unhandled(machine: Machine, execution: Execution) -> str | None:
    """Return the error that ended an execution; None if there is none or a Fail state of the machine raised it."""
    if execution.status in ("SUCCEEDED", "ABORTED"):
        return None
    fails = {path[-1] for path, state in states_of(machine.definition) if state["Type"] == "Fail"}
    if execution.status == "FAILED" and execution.path and execution.path[-1] in fails and _is_own_failure(execution):
        return None
    return execution.error or execution.status


def _is_own_failure(execution: Execution) -> bool:
    """Return whether the state entered last failed: its States.Runtime is the interpreter's, not the state's."""
    return not (execution.cause or "").startswith("An error occurred while executing the state")


class _Vocabulary:
    """What a definition names: functions, the paths that it reads, constants that it compares with, and errors.

    errors_of: the errors that the Tasks that call a function distinguish.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.names: set[str] = set()
        self.paths: set[tuple[str, ...]] = set()
        self.constants: list[Any] = []
        self.errors: set[str] = set()
        self.errors_of: dict[str, set[str]] = {}
        for _, state in states_of(definition):
            handlers = [*state.get("Retry", ()), *state.get("Catch", ())]
            known = {error for handler in handlers for error in handler["ErrorEquals"]} - {"States.ALL"}
            self.errors |= known
            if state["Type"] == "Task":
                self.names.add(_called_name(state))
                self.errors_of.setdefault(_called_name(state), set()).update(known)
            self._collect_constants(state.get("Choices", []))
            self.paths.update(_paths_read(state))

    def _collect_constants(self, rules: Any) -> None:
        if isinstance(rules, list):
            for rule in rules:
                self._collect_constants(rule)
        elif isinstance(rules, dict):
            for name, value in rules.items():
                if name in ("And", "Or", "Not"):
                    self._collect_constants(value)
                elif name == "Condition" and isinstance(value, str):
                    self.constants += _literals(value)
                elif name not in ("Next", "Comment", "Variable") and isinstance(value, str | int | float):
                    self.constants.append(value)


def _called_name(state: Mapping[str, Any]) -> str:
    resource = read_resource(state["Resource"])
    if isinstance(resource, str):
        return str(state["Resource"]).rpartition(":::")[2]
    if resource.function is not None:
        return resource.function
    if resource.is_activity:
        return f"{resource.service}:{resource.text.rpartition(':')[2]}"
    if resource.is_lambda_invoke:
        parameters = state.get("Parameters", state.get("Arguments", {}))
        return str(parameters.get("FunctionName", "")).rpartition("function:")[2].split(":")[0] or "lambda:invoke"
    return f"{'aws-sdk:' if resource.sdk else ''}{resource.service}:{resource.action}"


_PATH = re.compile(r"(?:(?<!\$)\$|\$states\.(?:input|result))\.(?:Payload\.)?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_LITERAL = re.compile(r"\"([^\"\\]*)\"|'([^'\\]*)'|(?<![\w.$])(-?\d+(?:\.\d+)?)")


def _paths_read(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the members that paths, intrinsic functions and JSONata expressions read of their input."""
    if isinstance(value, str):
        if value.startswith(("$", "States.", "{%")):
            yield from (tuple(match[1].split(".")) for match in _PATH.finditer(value))
    elif isinstance(value, dict):
        for name, member in value.items():
            if name not in ("ResultPath", "Branches", "ItemProcessor", "Iterator"):
                yield from _paths_read(member)
    elif isinstance(value, list):
        for member in value:
            yield from _paths_read(member)


def _literals(expression: str) -> Iterator[Any]:
    """Yield the texts and numbers with which a JSONata expression compares."""
    for match in _LITERAL.finditer(expression):
        yield json.loads(match[3]) if match[3] else match[1] or match[2] or ""


def _json_strategy(vocabulary: _Vocabulary) -> "SearchStrategy[Any]":
    """JSON, as a rule an object that has some of the members that the machine reads, with the constants it knows."""
    from hypothesis import strategies as st

    plain = st.none() | st.booleans() | st.integers(-3, 200) | st.text(max_size=4)
    if vocabulary.constants:
        plain = st.sampled_from(sorted(vocabulary.constants, key=json.dumps)) | plain
    anything = st.recursive(
        plain, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
    )
    paths = sorted(vocabulary.paths)
    if not paths:
        return anything
    chosen = st.lists(st.tuples(st.sampled_from(paths), plain | anything), max_size=len(paths) + 2)
    return chosen.map(_nest_members) | anything


def _nest_members(members: list[tuple[tuple[str, ...], Any]]) -> Any:
    result: dict[str, Any] = {}
    for path, value in members:
        at = result
        for name in path[:-1]:
            inner = at.get(name)
            at[name] = inner if isinstance(inner, dict) else {}
            at = at[name]
        at[path[-1]] = value
    return result


def _behaviour_strategy(
    vocabulary: _Vocabulary, answers: "SearchStrategy[Any]", name: str
) -> "SearchStrategy[Behaviour]":
    from hypothesis import strategies as st

    delays = st.sampled_from([0, 0, 1, 1_000, 60_000, LONGEST_DELAY_MS])
    always = set(SERVICE_ERRORS if ":" in name else ALWAYS)
    # Errors that its callers distinguish lead to other states, so they are as likely as all other errors together.
    errors = st.sampled_from(sorted(vocabulary.errors_of[name] | always)) | st.sampled_from(
        sorted(vocabulary.errors | always)
    )
    return st.one_of(
        st.builds(Behaviour, answer=answers, delay_ms=delays),
        st.builds(Behaviour, error=errors, cause=st.none() | st.text(max_size=5), delay_ms=delays),
        st.just(Behaviour(never=True)),
        st.just(Behaviour(answer=OVERSIZED)),
    )
