"""Says each alert of a stream once, as the watch does: ids that start over, silence, a budget that is nearly used up.

Invariant: what is over and begins again is said again.
"""

from handlers.api import status_words
from handlers.api.connection_records import Connections, Records
from local.service.stream_view import SILENT_MS


class Alerted:
    """What was said of each connected stream and still holds."""

    def __init__(self) -> None:
        self._said: dict[str, frozenset[str]] = {}

    def fresh(self, stream_id: str, records: Records | None, now_ms: int) -> list[str]:
        """Returns the new alerts, a line each; `records` is None while the stream is not connected."""
        shown = {} if records is None else status_words.alerts(Connections(records, now_ms, SILENT_MS), records)
        before, self._said[stream_id] = self._said.get(stream_id, frozenset()), frozenset(shown)
        return [f"ALERT: {stream_id}: {words}" for what, words in shown.items() if what not in before]
