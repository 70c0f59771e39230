"""The status in one word is right after any sequence of events; stopped, ended and rejected streams differ."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.api.status_words import word
from handlers.connection.ends import ANSWERED
from handlers.connection.lease import Lease
from tests.handlers.api.shown import NOW, connection, shown

ENDINGS = {
    "stopped": ("StreamEnded", "stopped"),
    "ended": ("StreamEnded", "ended"),
    "rejected": ("StreamRejected", "the upstream answered 404"),
    "broken": ("RenewalFailed", "No successor."),
}
STEPS = ("post", "delete", "claim", "connect", "break", "upstream ends", "upstream rejects", "kill", "fail", "release")


NOBODY = Lease()


@dataclass(frozen=True)
class World:
    """The lease as the machine and the control API write it, and the truth beside it.

    `posts` are executions that were started and have not claimed the stream. `over` says how the current run has ended,
    `truth` how the last finished run did; "" if not.
    """

    lease: Lease = NOBODY
    now_ms: int = 1
    posts: tuple[int, ...] = ()
    is_open: bool = False
    has_connected: bool = False
    over: str = ""
    truth: str = ""

    def expected(self) -> str:
        """Return what a person who saw everything would say."""
        if self.lease.execution:
            if self.lease.stop:
                return "stopping"
            return "running" if self.is_open else "reconnecting" if self.has_connected else "starting"
        return self.truth or ("stopped" if self.lease.stop else "ended")


def step(world: World, name: str) -> World:
    """Return the world after a step; a step that cannot happen changes only the time."""
    lease, now_ms = world.lease, world.now_ms + 1
    world = replace(world, now_ms=now_ms)
    held, runs = bool(lease.execution), bool(lease.execution) and not world.over
    match name:
        case "post":
            return replace(world, posts=(*world.posts, now_ms))
        case "delete":
            return replace(world, lease=replace(lease, stop=True, stop_at_ms=now_ms))
        case "claim" if world.posts:
            return _claim(world, world.posts[0])
        case "connect" if runs and not lease.stop:
            return replace(world, is_open=True, has_connected=True)
        case "break" | "kill" if runs:
            return replace(world, is_open=False)
        # The connection reads a stop request before anything else ends it, or it does not: both happen.
        case "upstream ends" if runs and world.is_open:
            return replace(world, over="ended", is_open=False)
        case "upstream rejects" if runs and not world.is_open:
            return replace(world, over="rejected")
        case "fail" if runs:
            return replace(world, over="broken", is_open=False)
        case "release" if held and (world.over or lease.stop):
            how = world.over or "stopped"
            error, cause = ENDINGS[how]
            released = replace(lease, execution="", ending=error, ending_cause=cause, ended_at_ms=now_ms)
            return replace(world, lease=released, over="", truth=how, is_open=False, has_connected=False)
    return world


def _claim(world: World, asked_ms: int) -> World:
    """The machine's claim; a younger stop request refuses it, and so does an execution that holds the stream."""
    lease, rest = world.lease, world.posts[1:]
    if lease.execution:
        return replace(world, posts=rest) if not lease.stop else world
    if lease.stop and lease.stop_at_ms >= asked_ms:
        error, cause = ENDINGS["stopped"]
        stopped = replace(lease, ending=error, ending_cause=cause, ended_at_ms=world.now_ms)
        return replace(world, posts=rest, lease=stopped, truth="stopped")
    claimed = Lease(execution="mine", generation=lease.generation + 1, started_at_ms=world.now_ms)
    return replace(world, posts=rest, lease=claimed, truth="", over="", is_open=False, has_connected=False)


@given(st.lists(st.sampled_from(STEPS), max_size=14))
def test_the_word_is_the_truth_whatever_happens(steps: list[str]) -> None:
    """POSTs, DELETEs, claims, connections, ends, rejections, kills and releases come in any order."""
    world = World()
    for name in steps:
        world = step(world, name)
        seen = {"is_open": world.is_open, "is_heard": True, "has_connected": world.has_connected}
        assert (steps, word(world.lease, **seen)) == (steps, world.expected())


@pytest.mark.parametrize("how", list(ENDINGS))
def test_a_stop_request_after_the_end_changes_nothing_of_it(how: str) -> None:
    """The word and the reason stay; the answer also shows that a stop was requested, and when."""
    error, cause = ENDINGS[how]
    over: dict[str, Any] = {"execution": "", "ending": error, "ending_cause": cause, "ended_at_ms": 5}
    before, after = shown(**over), shown(**over, stop=True, stop_at_ms=7)
    assert before["status"] == after["status"] == how
    assert (before["stop_requested_at"], after["stop_requested_at"]) == (None, "1970-01-01T00:00:00.007Z")
    assert before["ended_at"] == after["ended_at"] == "1970-01-01T00:00:00.005Z"
    if how != "stopped":
        assert before["reason"] == after["reason"]


@pytest.mark.parametrize(
    ("how", "more", "reason"),
    [
        ("stopped", {"stop_at_ms": 7, "stop": True}, "stopped on request"),
        ("ended", {}, "the upstream answered 204: the stream has ended"),
        ("rejected", {}, "refused: 401 Unauthorized"),
        ("broken", {}, "the last execution failed: RenewalFailed: No successor."),
    ],
)
def test_why_a_stream_is_over_is_said(how: str, more: dict[str, Any], reason: str) -> None:
    """One sentence names the stop request, the upstream's answer, or the machine's own words.

    What was never connected has no cursor from which a start could continue.
    """
    error, cause = ENDINGS[how]
    ends: dict[str, dict[str, Any]] = {
        "ended": {"ended_by": "ended", "detail": "the upstream answered 204: the stream has ended"},
        "rejected": {"ended_by": "refused", "error": "StreamRejected", "http_status": 401},
    }
    one = connection(1, "B", None, claimed_ms=3, seen_ms=3, **ends.get(how, {"ended_by": "stopped"}))
    for token, again in ((0, "start it to try again"), (1, "start it to continue from its cursor")):
        over: dict[str, Any] = {
            "execution": "",
            "ending": error,
            "ending_cause": cause,
            "ended_at_ms": 5,
            "connected_token": token,
        }
        body = shown(one, **over, **more)
        assert (body["status"], body["reason"]) == (how, f"{reason}; {again}")


def test_what_is_requested_once_is_not_said_to_continue() -> None:
    """A start would not continue it: the API refuses one once it has an answer, and there is no cursor."""
    for ending, cause in (("StreamBroken", "no end mark"), ("InvalidRequest", ANSWERED.message)):
        one = connection(1, "B", None, claimed_ms=3, seen_ms=3, ended_by="truncated")
        body = shown(one, execution="", ending=ending, ending_cause=cause, ended_at_ms=5)
        assert body["reason"].endswith(f"{cause}; for another answer start another id, such as name:2")
        assert "continue" not in body["last_error"]["message"]


def test_a_connection_that_outlives_its_execution_is_shown_and_decides_nothing() -> None:
    """Of two connected lanes one was refused for good; the other reads on until its time is over."""
    over: dict[str, Any] = {"execution": "", "ending": "StreamRejected", "expires_at_ms": NOW + 1}
    body = shown(connection(1, "A", 1, deadline_ms=NOW + 9), **over)
    assert (body["status"], body["holder"]["lane"], body["lanes"]["A"]["phase"]) == ("rejected", "A", "connected")
