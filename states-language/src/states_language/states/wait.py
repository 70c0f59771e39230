"""The Wait state: waits for some seconds or until a time, fixed or computed from the input."""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.failures import EvaluationError
from states_language.jsonata.query_flow import QueryFlow
from states_language.jsonpath.dataflow import Dataflow, Flow
from states_language.states.amounts import Amount, Given
from states_language.states.base import Flowing, Step
from states_language.timestamps import instant_ms, is_rfc3339
from states_language.values import MISSING

LONGEST_WAIT_S = 2**31 - 1
"""A Wait beyond it fails; 24,855 days are accepted and 24,856 are not (recorded)."""

FORMS = ("Seconds", "Timestamp", "SecondsPath", "TimestampPath")
_FORMAT = "ISO-8601 extended offset date-time format string"


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

        def fixed(name: str) -> str | None:
            text = fields.string(name)
            if name in fields and not is_rfc3339(text):
                raise fields.fail(name, "String does not match RFC3339 timestamp")
            return text

        self.seconds = Amount(fields, "Seconds", 0)
        self.timestamp = Given(fields, "Timestamp", "string", fixed)
        fields.close("a Wait state")

    async def run(self, branch: Branch, data: Any) -> Step:
        """Wait, then return Next and the output."""
        narrowed = self.flow.narrowed(data, branch)
        now_ms = branch.clock.now_ms()
        given = self.seconds if self.seconds.present else self.timestamp
        value = given.find(narrowed, narrowed, branch)
        if value is MISSING:
            raise given.missing()
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
