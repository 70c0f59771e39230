"""Names the streams that should be connected and are not in a message to the alerts' topic.

The alarm `Unconnected` tells a number, and tells it once: while one stream is away, the next changes nothing of it. So
the watch itself names each stream that has been away for too long. Invariants: each is named when it comes to that, and
again after it was connected; where the topic did not take a message, the next run sends it. What was named is
remembered in the function's memory alone, so a new sandbox names again who is still away.
"""

import json
from collections.abc import Callable, Mapping

# A message of SNS has 256 KB at most, and a name up to 3 KB where every character is escaped.
MOST_NAMES = 50


class Names:
    """Who was named; `publish` sends a subject and a text, and raises where that was not taken."""

    def __init__(self, publish: Callable[[str, str], None]) -> None:
        self._publish = publish
        self._named: set[str] = set()

    def report(self, away_s: Mapping[str, int]) -> list[str]:
        """The streams that were named now; `away_s` has all that are away for too long, and for how many seconds."""
        self._named &= away_s.keys()
        fresh = {stream_id: away_s[stream_id] for stream_id in sorted(away_s.keys() - self._named)}
        if fresh:
            self._publish(*message(fresh, len(away_s)))
            self._named |= fresh.keys()
        return list(fresh)


def message(fresh: Mapping[str, int], away: int) -> tuple[str, str]:
    """Subject and text of the message about `fresh` of the `away` streams that should be connected and are not.

    Names are JSON strings in ASCII: a stream id may hold any character, and SNS refuses some.
    """
    lines = [f"  {json.dumps(stream_id)} for {away_s} s" for stream_id, away_s in list(fresh.items())[:MOST_NAMES]]
    if len(fresh) > MOST_NAMES:
        lines.append(f"  and {len(fresh) - MOST_NAMES} more, which the log of the watch names")
    text = [
        "These streams should be connected and are not:",
        *("", *lines, ""),
        f"In all, {_streams(away)} away. GET /connections/{{streamId}} shows why; docs/runbook.md says what to do.",
    ]
    return f"Streamkeeper: {_streams(len(fresh))} not connected", "\n".join(text)


def _streams(count: int) -> str:
    return "1 stream is" if count == 1 else f"{count} streams are"
