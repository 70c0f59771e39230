"""The Wait state: for some seconds, or until a time, both fixed or taken from the input."""

from typing import TYPE_CHECKING, Any

from local.asl.check import DefinitionError, Fields
from local.asl.dataflow import Dataflow, compiled
from local.asl.errors import EvaluationError
from local.asl.jsonpath import MISSING, Path
from local.asl.states.base import Flowing, Step
from local.asl.timestamps import instant_ms, is_rfc3339

if TYPE_CHECKING:
    from local.asl.branch import Branch

LONGEST_WAIT_S = 2**31 - 1
"""A Wait beyond it fails; 24,855 days are accepted and 24,856 are not (recorded)."""

FORMS = ("Seconds", "Timestamp", "SecondsPath", "TimestampPath")


class Wait(Flowing):
    """A Wait state."""

    type = "Wait"

    def __init__(self, name: str, fields: Fields) -> None:
        super().__init__(name, fields)
        self.flow = Dataflow(fields)
        present = fields.exclusive(*FORMS)
        if not present:
            raise DefinitionError(fields.pointer, f"one of these fields is required: {', '.join(FORMS)}")
        self.form = present[0]
        self.duration_s = fields.integer("Seconds", 0)
        self.timestamp = fields.string("Timestamp")
        if self.timestamp is not None and not is_rfc3339(self.timestamp):
            raise fields.fail("Timestamp", "String does not match RFC3339 timestamp")
        self.path: Path | None = None
        if self.form.endswith("Path"):
            self.path = compiled(fields.get(self.form), fields.at(self.form), reference=True)
        fields.close("a Wait state")

    async def run(self, branch: "Branch", data: Any) -> Step:
        """Return Next and the input after InputPath and OutputPath, once it is time."""
        narrowed = self.flow.narrowed(data, branch)
        now_ms = branch.clock.now_ms()
        until_ms = self._until_ms(now_ms, narrowed, branch)
        if until_ms - now_ms > LONGEST_WAIT_S * 1000:
            raise EvaluationError("Wait state delay is too long.")
        await branch.clock.sleep_until(until_ms)
        await branch.pause_ms(branch.execution.latencies.wait_overshoot_ms())
        return self.next, self.flow.output(narrowed, narrowed, branch)

    def _until_ms(self, now_ms: int, data: Any, branch: "Branch") -> int:
        if self.path is None:
            at_ms = instant_ms(self.timestamp)
            return at_ms if at_ms is not None else now_ms + (self.duration_s or 0) * 1000
        found = self.path.find(branch.context() if self.path.context else data)
        if found is MISSING:
            raise EvaluationError(f"The {self.form} parameter does not reference an input value: {self.path.text}")
        if self.form == "SecondsPath":
            return now_ms + self._duration_s(found) * 1000
        at_ms = instant_ms(found)
        if at_ms is None:
            raise EvaluationError(
                "The TimestampPath parameter does not reference a valid ISO-8601 extended offset date-time format "
                f"string: {self.path.text} == {found}"
            )
        return at_ms

    def _duration_s(self, found: Any) -> int:
        text = self.path.text if self.path else ""
        if not isinstance(found, int) or isinstance(found, bool):
            raise EvaluationError(f"The SecondsPath parameter cannot be parsed as a long value: {text} == {found}")
        if found < 0:
            raise EvaluationError(f"The SecondsPath parameter references a negative value: {text} == {found}")
        return found
