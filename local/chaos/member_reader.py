"""Asks the control API about a stream of a group: its word follows from its own requests, not from an execution's end.

As `api_reader.py` does of a stream alone.
"""

from collections.abc import Iterator

from local.chaos.api_reader import SETTLED_MS, SLACK_MS, UNSETTLING, ApiReader
from local.chaos.group_world import Member
from local.chaos.losses import lease

# What a stream that nobody is connected to may be called while it is to be connected.
COMING = frozenset({"starting", "reconnecting"})
# What it is called once a request to stop has taken effect.
ENDS = frozenset({"stopped", "ended", "rejected"})


class MemberReader(ApiReader):
    """Of one stream of a group."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        self._member = member

    def _wrong_word(self, word: str) -> Iterator[str]:
        """Yields what is wrong with the status, whenever it is requested, and where nothing has changed of late."""
        member = self._member
        yield from self._unfounded(word, ())
        if not self._is_settled() or not member.answered:
            return
        # A stream that was let go of late may have been connected again meanwhile.
        since_ms = max([member.answered[-1], *(link.asked_ms for link in member.upstream.links)])
        is_over = [error for at_ms, error in member.watch.endings if at_ms >= since_ms]
        is_open = any(link.function.is_alive for link in member.upstream.open_links)
        expected = {"running"} if is_open else COMING
        if member.wanted == "DELETE":
            expected = ENDS if self._is_kept() else ENDS | {"stopping"}
        elif is_over:
            expected = frozenset({"rejected" if is_over[-1] == "StreamRejected" else "ended"})
        if word not in expected:
            yield f"the status is {word} and not {' or '.join(sorted(expected))}, though nothing changed of late"

    def _is_kept(self) -> bool:
        """Returns whether a function of its group has lived for so long that it has seen every request."""
        group = lease(self._member).get("group", {}).get("S", "")
        since_ms = self._clock.now_ms() - self._dead_after_ms - SETTLED_MS
        tasks = [one.task for one in self._member.group.functions if one.is_alive and not one.is_lost]
        return not group or any(
            task.invocation.stream_id == group
            and task.invocation.deadline_ms - task.skew_ms - task.limit_ms <= since_ms
            for task in tasks
        )

    def _released_by_ms(self, until_ms: int) -> int:
        """Longer where a store refused the release.

        The function's own heartbeats go on saying so, and it releases with the first of them that the store answers.
        One that was killed before has said so with its last.
        """
        opened = [link for link in self._member.upstream.links if link.opened_ms is not None]
        if not opened:
            return until_ms
        function, released_ms = opened[-1].function, until_ms
        for fault in sorted(self._member.schedule.faults, key=lambda fault: fault.at_ms):
            from_ms = self._member.origin_ms + fault.at_ms
            if fault.kind in UNSETTLING and from_ms <= released_ms:
                over_ms = from_ms + fault.for_ms + UNSETTLING[fault.kind]
                released_ms = max(released_ms, over_ms + self._dead_after_ms + SLACK_MS)
        if function.died_ms is None:
            return released_ms
        return max(until_ms, min(released_ms, function.died_ms + self._dead_after_ms + SLACK_MS))
