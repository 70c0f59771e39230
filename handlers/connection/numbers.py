"""Finds holes in the numbers of events, which are the events that a numbered feed has not delivered.

    41, 42, 45      2 are missing before 45
    45, 43, 44, 45  nothing: a number that is not larger begins the row again, as after a restart or in a repetition

Each value at the profile's `by` has a row of its own. Invariant: at most `MOST_ROWS` rows are kept; a row that was
forgotten begins anew.
"""

from handlers.framing.events import at, parse_json
from handlers.framing.frames import Frame
from handlers.profile.messages import Numbering

MOST_ROWS = 10_000
# Text with more digits than this is a name, not a number.
_MOST_DIGITS = 18


class Numbers:
    """The rows of one connection; without `by`, the only row continues after `after`, if that is a number.

    `goes_on` is whether the first event continued it: then the upstream still had all that came after the cursor.
    """

    def __init__(self, numbering: Numbering, after: str | None = None) -> None:
        self._numbering = numbering
        self._last: dict[object, int] = {}
        self._after: int | None = None
        self.goes_on = False
        if after is not None and numbering.by is None and (number := _number(after)) is not None:
            self._last[None] = self._after = number

    def missing(self, frame: Frame, *, begins: bool) -> list[int]:
        """Returns how many numbers are missing before the event of `frame`, as a list of one; empty if none are.

        None are missing if the event `begins` its row, as a snapshot does.
        """
        body = parse_json(frame.data)
        number = _number(at(body, self._numbering.path)[1])
        if number is None:
            return []
        by = self._numbering.by
        row = None if by is None else str(at(body, by)[1])
        if self._after is not None:
            # The event of the cursor itself may come once more.
            self.goes_on, self._after = not begins and number - self._after in (0, 1), None
        last = self._last.pop(row, None)
        self._last[row] = number
        if len(self._last) > MOST_ROWS:
            del self._last[next(iter(self._last))]
        return [number - last - 1] if not begins and last is not None and number > last + 1 else []


def _number(value: object) -> int | None:
    if type(value) is int:
        return value
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    return int(str(value)) if is_number else None
