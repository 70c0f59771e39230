"""The Wait state: waits for some seconds or until a time, fixed or computed from the input."""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.failures import EvaluationError, QueryFailure
from states_language.jsonata.evaluation import is_query
from states_language.jsonata.query_flow import QueryFlow, Template, states_of
from states_language.jsonpath.dataflow import Dataflow, Flow, compiled
from states_language.jsonpath.selection import Path
from states_language.states.amounts import Amount, shown
from states_language.states.base import Flowing, Step
from states_language.timestamps import instant_ms, is_rfc3339
from states_language.values import MISSING

LONGEST_WAIT_S = 2**31 - 1
"""A Wait beyond it fails; 24,855 days are accepted and 24,856 are not (recorded)."""

FORMS = ("Seconds", "Timestamp", "SecondsPath", "TimestampPath")


class Wait(Flowing):
    """A Wait state."""

    type = "Wait"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow: Flow = QueryFlow(fields) if fields.queries else Dataflow(fields)
        self.assigns = self.flow.assigns
        forms = FORMS[:2] if fields.queries else FORMS
        if not fields.exclusive(*forms):
            raise DefinitionError(fields.pointer, f"one of these fields is required: {', '.join(forms)}")
        self.seconds = Amount(fields, "Seconds", 0)
        self.until_ms: int | None = None
        self.path: Path | None = None
        self.query: Template | None = None
        self._timestamp(fields)
        fields.close("a Wait state")

    def _timestamp(self, fields: Fields) -> None:
        if fields.queries and is_query(fields.value.get("Timestamp")):
            self.query = Template(fields.get("Timestamp"), fields.at("Timestamp"), "Timestamp")
        elif "Timestamp" in fields:
            text = fields.string("Timestamp")
            if not is_rfc3339(text):
                raise fields.fail("Timestamp", "String does not match RFC3339 timestamp")
            self.until_ms = instant_ms(text)
        elif not fields.queries and "TimestampPath" in fields:
            self.path = compiled(fields.get("TimestampPath"), fields.at("TimestampPath"), reference=True)

    async def run(self, branch: Branch, data: Any) -> Step:
        """Wait, then return Next and the output."""
        narrowed = self.flow.narrowed(data, branch)
        now_ms = branch.clock.now_ms()
        until_ms = self._until_ms(now_ms, narrowed, branch)
        if until_ms - now_ms > LONGEST_WAIT_S * 1000:
            raise EvaluationError("Wait state delay is too long.")
        await branch.clock.sleep_until(until_ms)
        await branch.pause_ms(branch.execution.latencies.wait_overshoot_ms())
        return self.next, self.flow.finish(narrowed, narrowed, branch)

    def _until_ms(self, now_ms: int, data: Any, branch: Branch) -> int:
        if self.until_ms is not None:
            return self.until_ms
        if self.seconds.present:
            return now_ms + self._duration_s(self.seconds.find(data, data, branch)) * 1000
        if self.query is not None:
            text = self.query.typed("string", states_of(data), branch)
            at_ms = instant_ms(text)
            if at_ms is None:
                raise QueryFailure(f"The Timestamp field {_NO_TIMESTAMP}: {text}", "Timestamp", after_entry=True)
            return at_ms
        return self._instant_ms(data, branch)

    def _instant_ms(self, data: Any, branch: Branch) -> int:
        path = self.path
        value = MISSING if path is None else path.look(data, branch)
        text = path.text if path else ""
        if value is MISSING:
            raise EvaluationError(f"The TimestampPath parameter does not reference an input value: {text}")
        at_ms = instant_ms(value)
        if at_ms is None:
            raise EvaluationError(
                "The TimestampPath parameter does not reference a valid ISO-8601 extended offset date-time format "
                f"string: {text} == {shown(value)}"
            )
        return at_ms

    def _duration_s(self, value: Any) -> int:
        name = self.seconds.name
        text = "" if self.seconds.path is None else f"{self.seconds.path.text} == "
        if value is MISSING:
            where = self.seconds.path.text if self.seconds.path else ""
            raise EvaluationError(f"The {name} parameter does not reference an input value: {where}")
        problem = None
        if not isinstance(value, int) or isinstance(value, bool):
            problem = f"cannot be parsed as a long value: {text}{shown(value)}"
        elif value < 0:
            problem = f"references a negative value: {text}{value}"
        if problem is None:
            return int(value)
        if self.seconds.query is not None:
            raise QueryFailure(f"The {name} field {problem}", name, after_entry=True)
        raise EvaluationError(f"The {name} parameter {problem}")


_NO_TIMESTAMP = "cannot be parsed as an ISO-8601 extended offset date-time format string"
