"""One connection at a store that hangs, with real sockets on one side and the tables on the other, and its clock."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from handlers.profile.parse import parse
from handlers.run.threads import SystemClock
from tests.handlers.aws import Client, Memory
from tests.handlers.lanes import run
from tests.handlers.scripted import numbered
from tests.handlers.servers import UNTIL_CLOSE, Peer, sends, serving

WAIT_S = 60.0


def given_up_requests_end() -> None:
    """Return once abandoned requests have ended, so that they do not write into another test's tables."""
    for thread in threading.enumerate():
        if thread.name == "store":
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_a_store_that_hangs_does_not_outlast_the_deadline(memory: Memory) -> None:
    """A connection abandons a store request that does not return, and ends before the function is killed."""
    released = threading.Event()

    def hangs(call: Callable[..., Any], **parameters: Any) -> Any:
        assert released.wait(WAIT_S)
        return call(**parameters)

    store = memory.store(Client(memory.dynamodb, "put_item", hangs))
    with serving(sends(UNTIL_CLOSE, numbered(1), then=Peer.wait_until_gone)) as server:
        profile = parse("demo", {"address": server.address, "framing": "sse", "allow_private": True}, {})
        report = run(profile, store, lasts_ms=3000, margin_ms=2600)
        assert report.outcome.error == "StoreUnavailable"
        assert server.peers[0].gone.wait(WAIT_S)
    released.set()
    given_up_requests_end()


def test_the_clock_starts_at_the_wall_clock_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock starts at the wall clock's time and goes forward, even if the wall clock is set back by an hour."""
    before_ms = time.time_ns() // 1_000_000
    clock = SystemClock()
    instants = [clock.now_ms() for _ in range(1000)]
    assert before_ms <= instants[0] <= time.time_ns() // 1_000_000 + 1
    wall_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns - 3_600 * 10**9)
    instants.append(clock.now_ms())
    assert instants == sorted(instants)
    assert instants[-1] < before_ms + 3_000_000
