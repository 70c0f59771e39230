"""Finds out from an event's own time how much has come on a connection that is still behind its upstream.

    answer    Date: Sat, 28 Nov 2026 10:00:00 GMT, when our clock says 10:00:07.200
    10 s on   an event of 10:00:06: all has come until 4 s after the answer at least, so the connection is 6 s behind

Both instants are by the upstream's clock, so that may differ from ours. We assume that an upstream sends its backlog in
the order in which it happened, and then what happens. Pure. Invariant: an event that has not happened yet proves
nothing.
"""

from handlers.connection.judging import instant_ms
from handlers.framing.frames import Body
from handlers.profile.time_field import OwnTime

# One second because a Date has whole seconds, and one for the answer's travel time and the upstream's several clocks.
SLACK_MS = 2_000


class OwnTimes:
    """What one answer says about the upstream's clock: its header `date` came at `came_ms` by our clock."""

    def __init__(self, time: OwnTime, date: str, came_ms: int) -> None:
        self._time = time
        self._date_ms = instant_ms(date)
        self._came_ms = came_ms

    def brought_ms(self, data: Body, arrived_ms: int) -> int | None:
        """Returns until when, by our clock, all had come with the event of `arrived_ms`; None if that is unknown."""
        own_ms = None if self._date_ms is None else self._time.of(data)
        if own_ms is None or self._date_ms is None:
            return None
        brought_ms = self._came_ms + own_ms - self._date_ms - SLACK_MS
        return brought_ms if brought_ms <= arrived_ms else None
