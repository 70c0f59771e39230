"""The states that call nothing: Pass, Wait, Choice, Succeed and Fail.

A Wait's Seconds and Timestamp, and a Fail's Error and Cause, are fixed or computed from the input. The first Choice
Rule that holds decides the next state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields, child_pointer
from states_language.failures import EvaluationError, StateError
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import OutputAndAssign, QueryFlow, Template, states_variable
from states_language.jsonpath.choice_rules import compile_test
from states_language.jsonpath.dataflow import Dataflow, Flow, compile_field_expression, look_up, read_assignment
from states_language.jsonpath.expressions import Expression
from states_language.states.base import DynamicField, NumberField, State, StateWithNext, Step
from states_language.timestamps import instant_ms, is_rfc3339
from states_language.values import MISSING, compact


class Succeed(State):
    type = "Succeed"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.is_jsonata else Dataflow(fields)
        if "Assign" in fields:  # "not available in Succeed and Fail" (Developer Guide, variables)
            raise fields.error_for("Assign", "is not a field of a Succeed state")
        fields.refuse_unread("a Succeed state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return no next state, and the output."""
        narrowed = self.flow.narrow_input(data, branch)
        return None, self.flow.finish(narrowed, narrowed, branch)


class Pass(StateWithNext):
    type = "Pass"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.is_jsonata else Dataflow(fields, parameters=True, result=True)
        self.assigned_variables = self.flow.assigned_variables
        self.has_result = "Result" in fields and not fields.is_jsonata
        self.result = fields.get("Result") if self.has_result else None
        fields.refuse_unread("a Pass state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return Next and the output: Result or the effective input, placed by ResultPath."""
        effective = self.flow.effective_input(data, branch)
        return self.next, self.flow.finish(data, self.result if self.has_result else effective, branch)


FailText = str | Expression | Template | None


class Fail(State):
    type = "Fail"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.error = _read_fail_text(fields, "Error")
        self.cause = _read_fail_text(fields, "Cause")
        fields.refuse_unread("a Fail state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Raise StateError with Error and Cause; None for an absent one."""
        error = _evaluate_fail_text("ErrorPath", self.error, data, branch)
        cause = _evaluate_fail_text("CausePath", self.cause, data, branch)
        raise StateError(error, cause)


def _read_fail_text(fields: Fields, name: str) -> FailText:
    if fields.is_jsonata:
        return (
            Template(fields.get(name), fields.pointer_of(name), name)
            if is_query(fields.get(name))
            else fields.string(name)
        )
    if fields.at_most_one(name, name + "Path") == [name + "Path"]:
        return compile_field_expression(fields.get(name + "Path"), fields.pointer, name + "Path")
    return fields.string(name)


def _evaluate_fail_text(field: str, part: FailText, data: Any, branch: Branch) -> str | None:
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, Template):
        return str(part.evaluate_typed("string", states_variable(data), branch))
    value = look_up(part, field, data, branch)
    if not isinstance(value, str):
        raise EvaluationError(f"The {field} parameter does not reference a string: {compact(value)}")
    return value


LONGEST_WAIT_S = 2**31 - 1
"""The longest Wait that does not fail; 24,855 days are accepted and 24,856 are not (recorded)."""

TIME_FIELDS = ("Seconds", "Timestamp", "SecondsPath", "TimestampPath")
_FORMAT = "ISO-8601 extended offset date-time format string"


class Wait(StateWithNext):
    type = "Wait"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.is_jsonata else Dataflow(fields)
        self.assigned_variables = self.flow.assigned_variables
        forms = TIME_FIELDS[:2] if fields.is_jsonata else TIME_FIELDS
        if not fields.at_most_one(*forms):
            raise DefinitionError(fields.pointer, f"one of these fields is required: {', '.join(forms)}")

        def fixed(name: str) -> str | None:
            text = fields.string(name)
            if not is_rfc3339(text):
                raise fields.error_for(name, "String does not match RFC3339 timestamp")
            return text

        self.seconds = NumberField(fields, "Seconds", 0)
        self.timestamp = DynamicField(fields, "Timestamp", "string", fixed)
        fields.refuse_unread("a Wait state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Wait, then return Next and the output."""
        narrowed = self.flow.narrow_input(data, branch)
        now_ms = branch.clock.now_ms()
        given = self.seconds if self.seconds.is_present else self.timestamp
        value = given.evaluate(narrowed, narrowed, branch)
        if value is MISSING:
            raise given.missing_error()
        until_ms = now_ms + self._duration_s(value) * 1000 if given is self.seconds else self._instant_ms(value)
        if until_ms - now_ms > LONGEST_WAIT_S * 1000:
            raise EvaluationError("Wait state delay is too long.")
        await branch.clock.sleep_until(until_ms)
        await branch.pause_ms(branch.execution.latencies.wait_overshoot_ms())
        return self.next, self.flow.finish(narrowed, narrowed, branch)

    def _instant_ms(self, value: Any) -> int:
        at_ms = instant_ms(value)
        if at_ms is None:
            queried = self.timestamp.query is not None
            what = f"cannot be parsed as an {_FORMAT}" if queried else f"does not reference a valid {_FORMAT}"
            raise self.timestamp.refusal(what, value, after_entry=True)
        return at_ms

    def _duration_s(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.seconds.refusal("cannot be parsed as a long value", value, after_entry=True)
        if value < 0:
            raise self.seconds.refusal("references a negative value", value, after_entry=True)
        return value


@dataclass(frozen=True)
class Rule:
    """A top-level Choice Rule. settle: returns the state's output and stages its variables."""

    is_met: Callable[[Any, Branch], bool]
    next: str
    settle: Callable[[Any, Branch], Any]
    assigned_variables: list[tuple[str, str]]


class Choice(State):
    type = "Choice"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.is_jsonata else Dataflow(fields)
        fields.require("Choices")
        rules = fields.array("Choices")
        if not rules:
            raise fields.error_for("Choices", "must hold at least one rule")
        where = fields.pointer_of("Choices")
        self.rules = [
            _compile_rule(fields.child_fields(rule, child_pointer(where, index)), index, self.flow)
            for index, rule in enumerate(rules)
        ]
        self.assigned_variables = [
            *self.flow.assigned_variables,
            *(each for rule in self.rules for each in rule.assigned_variables),
        ]
        self.default = fields.string("Default")
        self.targets = [(rule.next, f"Choices/{index}/Next") for index, rule in enumerate(self.rules)]
        if self.default is not None:
            self.targets.append((self.default, "Default"))
        fields.refuse_unread("a Choice state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return the Next of the first rule that holds, or Default; raises EvaluationError if there is neither."""
        narrowed = self.flow.narrow_input(data, branch)
        for rule in self.rules:
            if rule.is_met(narrowed, branch):
                return rule.next, rule.settle(narrowed, branch)
        if self.default is None:
            raise EvaluationError(
                "Failed to transition out of the state. The state does not point to a next state, "
                "please specify a Next field"
            )
        return self.default, self.flow.finish(narrowed, narrowed, branch)


def _compile_rule(fields: Fields, index: int, flow: Flow) -> Rule:
    fields.require("Next")
    target = fields.string("Next") or ""
    if fields.is_jsonata or not isinstance(flow, Dataflow):
        rule = _compile_query_rule(fields, index, target)
    else:
        assignment = read_assignment(fields)

        def settle(narrowed: Any, branch: Branch) -> Any:
            assignment.stage(narrowed, branch)
            return flow.output(narrowed, narrowed, branch)

        rule = Rule(compile_test(fields), target, settle, assignment.names)
    fields.refuse_unread("a Choice Rule")
    return rule


def _compile_query_rule(fields: Fields, index: int, target: str) -> Rule:
    fields.require("Condition")
    fields.string("Comment")
    value = fields.get("Condition")
    if not isinstance(value, bool) and not is_query(value):
        raise DefinitionError(fields.pointer_of("Condition"), "must be true, false or a JSONata expression")
    condition = Template(value, fields.pointer_of("Condition"), f"Choices[{index}]/Condition")
    outcome = OutputAndAssign(fields, f"Choices[{index}]/")
    return Rule(
        lambda raw, branch: condition.evaluate_typed("boolean", states_variable(raw), branch) is True,
        target,
        lambda raw, branch: outcome.settle(raw, states_variable(raw), branch),
        outcome.assigned_variables,
    )
