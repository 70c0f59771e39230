"""Names streams in a message to the alerts' topic, and in lines of the log.

The alarm `Unconnected` is a number and fires once: while one stream is away, another does not change it. So the watch
itself names each stream that has been away for too long, and each stream whose lease cannot be read.

Invariants: a stream is named when its problem begins, and again if the problem returns; a message that the topic
refused is sent by the next run. The size of a message is bounded: it counts the streams that it leaves out, and the log
names them all. Only the function's memory has the named streams, so a new sandbox names the streams that are still away
again.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from handlers.api.verdict import plural
from handlers.values import dataclass

# A message of SNS has 256 KB at most, and every 64 KB of it count as a message.
MESSAGE_BYTES = 60_000
# The most names that a run returns; Lambda refuses an answer of more than 6 MB.
MOST_NAMES = 1000
# The most streams of a group that a sentence names; it counts the others.
MOST_OF_GROUP = 20
# A line of a function's log has 256 KB at most.
LINE_BYTES = 100_000


class AlertTexts(NamedTuple):
    """The words of a message: the end of its subject, a line before the streams, and the words after their number."""

    subject: str
    head: str
    foot: str
    what: str = "stream"

    def message(self, fresh: Mapping[str, str], count: int) -> tuple[str, str]:
        """Returns the subject and the text, which names the `fresh` ones of `count` streams, each with its words."""
        subject = f"Streamkeeper: {_count_phrase(len(fresh), self.what)} {self.subject}"
        return subject, _text(self.head, fresh, f"In all, {_count_phrase(count)} {self.foot}")


# By the fields of `Findings`.
KINDS = {
    "away_ms": AlertTexts(
        "not connected",
        "These streams should be connected and are not:",
        "away. GET /connections/{streamId} shows why; docs/runbook.md says what to do.",
    ),
    "damage": AlertTexts(
        "damaged",
        "The leases of these streams have attributes that cannot be read, or lack some:",
        "affected. What cannot be read counts as absent; docs/runbook.md says what to do.",
        "lease",
    ),
    "quiet": AlertTexts(
        "quiet",
        "These streams are connected, but nothing new comes:",
        "quiet. GET /connections/{streamId} has their pace; docs/runbook.md says what to do.",
    ),
    "restarted": AlertTexts(
        "reusing known ids",
        "The upstreams of these streams count their ids from the beginning again:",
        "affected. docs/runbook.md says what to do.",
    ),
    "budgets": AlertTexts(
        "near the budget",
        "These streams have used four fifths of their budget or more:",
        "affected. The count begins anew at 00:00 UTC; docs/runbook.md says what to do.",
    ),
}


@dataclass
class StreamAlerts:
    """The streams that were named; `publish` sends a subject and a text, and raises if the topic refuses them."""

    publish: Callable[[str, str], None]
    words: AlertTexts
    _named: set[str] = field(default_factory=set)

    def report(self, streams: Mapping[str, str]) -> list[str]:
        """Names the streams that are new in `streams`, each with its words, and returns their ids."""
        fresh = {stream_id: streams[stream_id] for stream_id in sorted(streams.keys() - self._named)}
        if fresh:
            self.publish(*self.words.message(fresh, len(streams)))
            self._named |= fresh.keys()
        return list(fresh)

    def keep_only(self, stream_ids: Collection[str]) -> None:
        """Forgets all other streams, which are well now, so that they are named again if their problem returns."""
        self._named.intersection_update(stream_ids)


def group_words(groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns for each stream in `groups` how many streams of its group are away, as words."""
    return {
        stream_id: f", one of {len(stream_ids)} that are away in the group {group_id}"
        for group_id, stream_ids in groups.items()
        for stream_id in stream_ids
    }


def with_streams(sentence: str, stream_ids: Sequence[str]) -> str:
    """Returns the sentence about a group, with the names of its streams that are away, if any."""
    if not stream_ids:
        return sentence
    named = ", ".join(json.dumps(one) for one in sorted(stream_ids)[:MOST_OF_GROUP])
    more = len(stream_ids) - MOST_OF_GROUP
    return (
        f"{sentence}; {_count_phrase(len(stream_ids))} away with it: {named}{f' and {more} more' if more > 0 else ''}"
    )


def partial_run_message(reached: int) -> tuple[str, str]:
    """Returns the subject and the text for a run of the watch that could not check all streams."""
    return "Streamkeeper: the watch is late", (
        f"One run of the watch reached {plural(reached, 'stream')}, and not all. The next run goes on with the rest,"
        " so each is checked less often than once a minute.\n\n"
        "Either DynamoDB was slow, or watch_memory_mb is too small; docs/runbook.md says what to do."
    )


def lines(streams: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yields the streams in parts, each small enough for a line of the log."""
    part: dict[str, str] = {}
    size = 0
    for stream_id, words in streams.items():
        size += len(json.dumps({stream_id: words}))
        if part and size > LINE_BYTES:
            yield part
            part, size = {}, len(json.dumps({stream_id: words}))
        part[stream_id] = words
    if part:
        yield part


def _text(head: str, streams: Mapping[str, str], foot: str) -> str:
    """Returns the message. Ids are JSON strings in ASCII, because SNS refuses some characters that an id may have."""
    rows: list[str] = []
    size = 0
    for stream_id, words in streams.items():
        row = f"  {json.dumps(stream_id)} {words}"
        size += len(row) + 1
        if size > MESSAGE_BYTES:
            rows.append(f"  and {len(streams) - len(rows)} more, which the log of the watch names")
            break
        rows.append(row)
    return "\n".join([head, "", *rows, "", foot])


def _count_phrase(count: int, what: str = "stream") -> str:
    return f"{plural(count, what)} {'is' if count == 1 else 'are'}"
