"""Compiles and applies Retriers and Catchers.

The counts of Retriers live in one visit of a state; only a transition resets them. States.Runtime is never matched.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields, child_pointer
from states_language.failures import StateError
from states_language.jsonata.query_flow import OutputAndAssign, states_variable
from states_language.jsonpath.dataflow import read_assignment, result_path
from states_language.tasks.stubs import YEAR_MS

Settle = Callable[[Any, dict[str, str | None], Branch], Any]
"""Called with the state's raw input, the error output and the branch."""


class Retrier(NamedTuple):
    """One element of Retry."""

    errors: tuple[str, ...]
    interval_s: int
    max_attempts: int
    backoff_rate: float
    max_delay_s: int | None
    jitter: bool

    def delay_ms(self, retries: int, random: Callable[[], float]) -> int:
        """Return the wait in milliseconds after so many retries; with FULL jitter, a random part of it."""
        try:
            delay_ms = self.interval_s * self.backoff_rate**retries * 1000
        except OverflowError:
            delay_ms = YEAR_MS
        bound_ms = YEAR_MS if self.max_delay_s is None else self.max_delay_s * 1000
        whole_ms = round(min(delay_ms, bound_ms))
        return int(random() * (whole_ms + 1)) if self.jitter else whole_ms


class Catcher(NamedTuple):
    """One element of Catch. settle: returns the input of the fallback state, with Assign staged in the branch."""

    errors: tuple[str, ...]
    next: str
    settle: Settle
    assigned_variables: list[tuple[str, str]]


class Attempts:
    """How often each Retrier has been used in one visit of a state.

    A Retrier's waits grow with all its uses, but MaxAttempts bounds those for one Error Name: in the complex retry
    scenario of AWS's Developer Guide a Retrier of two attempts answers ErrorA, ErrorB and ErrorB after 1, 2 and 4 s.
    """

    def __init__(self, retriers: tuple[Retrier, ...]) -> None:
        self._retriers = retriers
        self._uses: dict[int, Counter[str | None]] = {}
        self.retries = 0

    def next_delay_ms(self, error: StateError, random: Callable[[], float]) -> int | None:
        """Return the wait before the next attempt; None if the first Retrier that names the error is used up."""
        for place, retrier in enumerate(self._retriers):
            if is_error_named(retrier.errors, error):
                if not retrier.max_attempts:
                    return None
                uses = self._uses.setdefault(place, Counter())
                if uses[error.error] >= retrier.max_attempts:
                    return None
                delay_ms = retrier.delay_ms(uses.total(), random)
                uses[error.error] += 1
                self.retries += 1
                return delay_ms
        return None


def is_error_named(names: tuple[str, ...], error: StateError) -> bool:
    """Return whether ErrorEquals names the error under any of its names; States.TaskFailed names no time-out."""
    if error.error in names or error.terminal:
        return error.error in names
    if "States.Timeout" in error.names:
        return any(name in (*error.names, "States.ALL") for name in names)
    return "States.ALL" in names or "States.TaskFailed" in names


def find_catcher(catchers: tuple[Catcher, ...], error: StateError) -> Catcher | None:
    """Return the first Catcher that names the error."""
    for catcher in catchers:
        if is_error_named(catcher.errors, error):
            return catcher
    return None


def compile_retry(fields: Fields) -> tuple[Retrier, ...]:
    """Return the Retriers of a state; raises DefinitionError."""
    if not (values := fields.array("Retry")):
        return ()
    # Most states of a machine have the same Retriers.
    written = repr(values)
    if (retriers := _COMPILED.get(written)) is None:
        retriers = tuple(_compile_retrier(each, last) for each, last in _elements(fields, "Retry"))
        if len(_COMPILED) >= _MOST_COMPILED:
            _COMPILED.clear()
        _COMPILED[written] = retriers
    return retriers


def is_compiled(values: Any) -> bool:
    """Return whether these Retriers were compiled before."""
    return repr(values) in _COMPILED


_COMPILED: dict[str, tuple[Retrier, ...]] = {}
_MOST_COMPILED = 256


def compile_catch(fields: Fields) -> tuple[Catcher, ...]:
    """Return the Catchers of a state; raises DefinitionError."""
    return tuple(_compile_catcher(each, last, i) for i, (each, last) in enumerate(_elements(fields, "Catch")))


def _elements(fields: Fields, name: str) -> list[tuple[Fields, bool]]:
    values = fields.array(name)
    pointer = fields.pointer_of(name) if values else ""
    return [
        (fields.child_fields(value, child_pointer(pointer, i)), i == len(values) - 1) for i, value in enumerate(values)
    ]


def _compile_retrier(fields: Fields, last: bool) -> Retrier:
    errors = _read_error_names(fields, last)
    jitter = fields.string("JitterStrategy")
    if jitter not in (None, "FULL", "NONE"):
        raise fields.error_for("JitterStrategy", "must be FULL or NONE")
    interval_s = fields.integer("IntervalSeconds", 1)
    max_attempts = fields.integer("MaxAttempts", 0)
    backoff_rate = fields.number("BackoffRate", 1.0)
    max_delay_s = fields.integer("MaxDelaySeconds", 1, 31_622_400)
    fields.string("Comment")
    fields.refuse_unread("a Retrier")
    # The language's specification gives these defaults.
    return Retrier(
        errors=errors,
        interval_s=1 if interval_s is None else interval_s,
        max_attempts=3 if max_attempts is None else max_attempts,
        backoff_rate=2.0 if backoff_rate is None else backoff_rate,
        max_delay_s=max_delay_s,
        jitter=jitter == "FULL",
    )


def _compile_catcher(fields: Fields, last: bool, index: int) -> Catcher:
    fields.require("Next")
    errors = _read_error_names(fields, last)
    settle, assigns = _compile_jsonata_settle(fields, index) if fields.is_jsonata else _compile_jsonpath_settle(fields)
    catcher = Catcher(errors, fields.string("Next") or "", settle, assigns)
    fields.string("Comment")
    fields.refuse_unread("a Catcher")
    return catcher


def _compile_jsonpath_settle(fields: Fields) -> tuple[Settle, list[tuple[str, str]]]:
    """Return a JSONPath Catcher's `settle`: ResultPath puts the error output into the input, Assign reads only it."""
    path, assignment = result_path(fields), read_assignment(fields)

    def settle(raw: Any, error_output: dict[str, str | None], branch: Branch) -> Any:
        assignment.stage(error_output, branch)
        return raw if path is None else path.put(raw, error_output)

    return settle, assignment.names


def _compile_jsonata_settle(fields: Fields, index: int) -> tuple[Settle, list[tuple[str, str]]]:
    """Return a JSONata Catcher's `settle`: $states.errorOutput is also the output if there is no Output (recorded)."""
    outcome = OutputAndAssign(fields, f"Catch[{index}]/")
    return (
        lambda raw, error_output, branch: outcome.settle(
            error_output, states_variable(raw, errorOutput=error_output), branch
        ),
        outcome.assigned_variables,
    )


def _read_error_names(fields: Fields, last: bool) -> tuple[str, ...]:
    fields.require("ErrorEquals")
    names = fields.array("ErrorEquals")
    if set(map(type, names)) != {str}:
        raise fields.error_for("ErrorEquals", "must hold at least one Error Name")
    if "States.ALL" in names and (len(names) > 1 or not last):
        raise DefinitionError(
            fields.pointer_of("ErrorEquals"), "States.ALL stands alone, and in the last Retrier or Catcher only"
        )
    return tuple(names)
