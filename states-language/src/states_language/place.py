"""Describes where an execution stands, as JSON from which a redrive goes on.

A part describes one line of states: `{"output": …}` once the line has ended, `{}` before its first state, `{"began_id":
…}` for an iteration that has started, and otherwise `{"place": …}`. A place names the open state; its `within` has the
parts of the state's branches or iterations, or the executions of its Map Run. Invariant: a place refers to data and
never copies it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

Part = dict[str, Any]
Place = dict[str, Any]
Within = dict[str, Any]

MAP_RUN = "run"
"""The member of `within` that says where an open Map Run stands."""

TOO_MANY_EVENTS = 24_999
PERIOD_MS = 14 * 86_400_000
"""An execution with so many events, or that ended so long ago, can no longer be redriven (API reference)."""


@dataclass(frozen=True)
class Redriven:
    """The place from which a redrive goes on. count: redrives, this one included. events: how many came before it."""

    part: Part
    count: int
    started_ms: int
    events: int


class Line(Protocol):
    """A line of states within an open state."""

    def part(self) -> Part: ...


class Parts:
    """The branches or iterations of one attempt by number, and the outputs of the ended ones.

    began_id: the event after which they began. resumed: the parts of an earlier attempt, which continue.
    """

    def __init__(self, count: int, began_id: int, within: Within | None) -> None:
        self.began_id = began_id if within is None else int(within["last_id"])
        known: list[Part] = [] if within is None else within["parts"]
        self.resumed = known + [{}] * (count - len(known))
        self.outputs: list[Any] = [part.get("output") for part in self.resumed]
        self._done = {number for number, part in enumerate(self.resumed) if "output" in part}
        self._lines: dict[int, Line] = {}
        self._frozen: list[Part] | None = None

    @property
    def open_numbers(self) -> list[int]:
        """Return the numbers of the parts that have not ended, in order."""
        return [number for number in range(len(self.outputs)) if number not in self._done]

    @property
    def is_complete(self) -> bool:
        """Return whether all parts have ended."""
        return len(self._done) == len(self.outputs)

    def begin(self, number: int, line: Line) -> Place | None:
        """Record that this line runs, and return the place from which it goes on."""
        self._lines[number] = line
        place: Place | None = self.resumed[number].get("place")
        return place

    def end(self, number: int, output: Any) -> None:
        """Record the output of a line that has ended."""
        self.outputs[number] = output
        self._done.add(number)
        self._lines.pop(number, None)

    def freeze(self) -> None:
        """Keep the parts as they are now, because the caller stops the lines next."""
        self._frozen = self._parts()

    def resume_point(self) -> Within:
        """Return the parts from which a redrive goes on."""
        return {"last_id": self.began_id, "parts": self._parts() if self._frozen is None else self._frozen}

    def _parts(self) -> list[Part]:
        """Return the parts up to the last one that began; most of many items may never begin."""
        parts = list(self.resumed)
        for number in self._done:
            parts[number] = {"output": self.outputs[number]}
        for number, line in self._lines.items():
            parts[number] = line.part() or self.resumed[number]
        while parts and not parts[-1]:
            parts.pop()
        return parts


def open_map_runs(part: Part) -> Iterator[str]:
    """Yield the ARNs of the Map Runs that are open in this part; a redrive of the execution redrives them."""
    within = part.get("place", {}).get("within") or {}
    if MAP_RUN in within:
        yield within[MAP_RUN]["arn"]
    for inner in within.get("parts", ()):
        yield from open_map_runs(inner)
