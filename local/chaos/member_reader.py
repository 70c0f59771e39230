"""Reads about a stream of a group through the control API, as `api_reader.py` does for a lone stream.

Its status follows from the requests for the stream, not from an execution's end.
"""

from collections.abc import Iterator

from local.chaos.api_reader import SETTLE_AFTER_MS, SETTLED_MS, SLACK_MS, ApiReader
from local.chaos.facts import lease
from local.chaos.group_world import Member

# The statuses of a stream that should be connected and is not.
COMING = frozenset({"starting", "reconnecting"})
# The statuses of a stream once a request to stop has taken effect.
ENDS = frozenset({"stopped", "ended", "rejected"})


class MemberReader(ApiReader):
    """Reads about one stream of a group."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._member = member

    def _wrong_word(self, word: str) -> Iterator[str]:
        """Yields the mistakes of a status that hold at any time, and those that hold if nothing has changed of late."""
        member = self._member
        yield from self._complain_if_unfounded(word, ())
        if not self._is_settled() or not member.answered:
            return
        # An end counts only if the stream was not opened again afterwards. An earlier claim may still make requests.
        opened_ms = [link.asked_ms for link in member.upstream.links if link.opened_ms is not None]
        ends = [end for end in member.watch.endings if end[0] >= max([member.asked_ms, *opened_ms])]
        is_open = any(link.function.is_alive for link in member.upstream.open_links)
        expected = frozenset({"running"}) if is_open else COMING
        if member.wanted == "DELETE":
            expected = ENDS if self._is_kept() else ENDS | {"stopping"}
        elif ends:
            ended_ms, error = ends[-1]
            # It is not known whether an end came before the write of a POST that was not answered yet.
            coming = expected if ended_ms < member.answered[-1] else frozenset()
            expected = coming | {"rejected" if error == "StreamRejected" else "ended"}
        if word not in expected:
            yield f"the status is {word} and not {' or '.join(sorted(expected))}, though nothing changed of late"

    def _is_kept(self) -> bool:
        """Returns whether a function of its group has lived long enough to have seen every request."""
        group = lease(self._member).get("group", {}).get("S", "")
        since_ms = self._clock.now_ms() - self._dead_after_ms - SETTLED_MS
        functions = [one for one in self._member.group.functions if one.task.invocation.stream_id == group]
        alive = [one for one in functions if one.is_alive and not one.is_lost]
        # An older function does not take back the streams that a newer one has taken over.
        if functions[-1:] != alive[-1:]:
            return not group
        begun_ms = [one.task.invocation.deadline_ms - one.task.skew_ms - one.task.limit_ms for one in alive]
        return not group or min(begun_ms, default=since_ms + 1) <= since_ms

    def _released_by_ms(self, until_ms: int) -> int:
        """Returns the same, or later if the store refused the release.

        The function keeps sending heartbeats, and releases with the first one that the store accepts; if it is killed
        before that, its last heartbeat counts.
        """
        opened = [link for link in self._member.upstream.links if link.opened_ms is not None]
        if not opened:
            return until_ms
        function, released_ms = opened[-1].function, until_ms
        for fault in sorted(self._member.schedule.faults, key=lambda fault: fault.at_ms):
            from_ms = self._member.origin_ms + fault.at_ms
            if fault.kind in SETTLE_AFTER_MS and from_ms <= released_ms:
                over_ms = from_ms + fault.for_ms + SETTLE_AFTER_MS[fault.kind]
                released_ms = max(released_ms, over_ms + self._dead_after_ms + SLACK_MS)
        if function.died_ms is None:
            return released_ms
        return max(until_ms, min(released_ms, function.died_ms + self._dead_after_ms + SLACK_MS))
