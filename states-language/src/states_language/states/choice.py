"""The Choice state: the first Choice Rule that holds decides the next state."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields, below
from states_language.failures import EvaluationError
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import Outcome, QueryFlow, Template, states_of
from states_language.jsonpath.choice_rules import compile_test
from states_language.jsonpath.dataflow import Assignment, Dataflow, Flow
from states_language.states.base import State, Step


@dataclass(frozen=True)
class Rule:
    """A top-level Choice Rule. settle: makes the output of the state and stages its variables."""

    holds: Callable[[Any, Branch], bool]
    next: str
    settle: Callable[[Any, Branch], Any]
    assigns: list[tuple[str, str]]


class Choice(State):
    """A Choice state."""

    type = "Choice"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.queries else Dataflow(fields)
        fields.require("Choices")
        rules = fields.array("Choices")
        if not rules:
            raise fields.fail("Choices", "must hold at least one rule")
        where = fields.at("Choices")
        self.rules = [
            _rule(fields.inside(rule, below(where, index)), index, self.flow) for index, rule in enumerate(rules)
        ]
        self.assigns = [*self.flow.assigns, *(each for rule in self.rules for each in rule.assigns)]
        self.default = fields.string("Default")
        fields.close("a Choice state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Return the Next of the first rule that holds, or Default; raises EvaluationError when there is neither."""
        narrowed = self.flow.narrowed(data, branch)
        for rule in self.rules:
            if rule.holds(narrowed, branch):
                return rule.next, rule.settle(narrowed, branch)
        if self.default is None:
            raise EvaluationError(
                "Failed to transition out of the state. The state does not point to a next state, "
                "please specify a Next field"
            )
        return self.default, self.flow.finish(narrowed, narrowed, branch)

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield the Next of each rule, and Default."""
        for index, rule in enumerate(self.rules):
            yield rule.next, f"{self.pointer}/Choices/{index}/Next"
        if self.default is not None:
            yield self.default, f"{self.pointer}/Default"


def _rule(fields: Fields, index: int, flow: Flow) -> Rule:
    fields.require("Next")
    target = fields.string("Next") or ""
    if fields.queries or not isinstance(flow, Dataflow):
        rule = _query_rule(fields, index, target)
    else:
        assignment = Assignment(fields)

        def settle(narrowed: Any, branch: Branch) -> Any:
            assignment.stage(narrowed, branch)
            return flow.output(narrowed, narrowed, branch)

        rule = Rule(compile_test(fields), target, settle, assignment.names)
    fields.close("a Choice Rule")
    return rule


def _query_rule(fields: Fields, index: int, target: str) -> Rule:
    fields.require("Condition")
    fields.string("Comment")
    value = fields.get("Condition")
    if not isinstance(value, bool) and not is_query(value):
        raise DefinitionError(fields.at("Condition"), "must be true, false or a JSONata expression")
    condition = Template(value, fields.at("Condition"), f"Choices[{index}]/Condition")
    outcome = Outcome(fields, f"Choices[{index}]/")
    return Rule(
        lambda raw, branch: condition.typed("boolean", states_of(raw), branch) is True,
        target,
        lambda raw, branch: outcome.settle(raw, states_of(raw), branch),
        outcome.assigns,
    )
