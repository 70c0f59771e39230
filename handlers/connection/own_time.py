"""Says by an event's own time until when all that happened has come on a connection, though it is still behind.

    answer    Date: Sat, 28 Nov 2026 10:00:00 GMT, when our clock says 10:00:07.200
    10 s on   an event of 10:00:06: all has come until 4 s after the answer at least, so the connection is 6 s behind

Both instants are the upstream's own, so its clock may differ from ours. An upstream sends its backlog in the order in
which it happened, and then what happens. Pure. Invariant: an event that has not happened yet proves nothing.
"""

from handlers.connection.judging import instant_ms
from handlers.framing.frames import Body
from handlers.profile.time_field import OwnTime

# A second, which a Date leaves out, and one for the answer's way and the clocks of the upstream's servers.
SLACK_MS = 2_000


class OwnTimes:
    """What one answer says of the upstream's clock: `date` is its header, which came at `came_ms` of ours."""

    def __init__(self, time: OwnTime, date: str, came_ms: int) -> None:
        self._time = time
        self._date_ms = instant_ms(date)
        self._came_ms = came_ms

    def brought_ms(self, data: Body, arrived_ms: int) -> int | None:
        """Until when, by our clock, all had come with the event that arrived then; None where nothing shows it."""
        own_ms = None if self._date_ms is None else self._time.of(data)
        if own_ms is None or self._date_ms is None:
            return None
        brought_ms = self._came_ms + own_ms - self._date_ms - SLACK_MS
        return brought_ms if brought_ms <= arrived_ms else None
