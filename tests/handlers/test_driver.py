"""One connection from claim to outcome, with real sockets on one side and the tables on the other."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.threads import SystemClock
from tests.handlers.aws import CONTROL, EVENTS, Client, Memory
from tests.handlers.lanes import run
from tests.handlers.scripted import numbered
from tests.handlers.servers import UNTIL_CLOSE, Peer, Server, sends, serving

STREAM = "demo"
WAIT_S = 60.0


def profile_of(server: Server, **fields: Any) -> Profile:
    table = {"address": server.address + "/{streamId}", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    return parse("demo", {**table, "allow_private": True, "overlap_s": 0.1, **fields}, {})


def given_up_requests_end() -> None:
    """Return once abandoned requests have ended, so that they do not write into another test's tables."""
    for thread in threading.enumerate():
        if thread.name == "store":
            thread.join(WAIT_S)
            assert not thread.is_alive()


def stored(memory: Memory) -> list[str]:
    return [item["data"] for item in sorted(memory.items(EVENTS, STREAM).values(), key=lambda item: item["position"])]


def ledger(memory: Memory, fence: int) -> dict[str, Any]:
    return {"duplicates": 0, "dead_lettered": 0} | memory.items(CONTROL, STREAM)[f"connection#{fence:012d}"]


def test_a_stream_that_the_upstream_closes_is_stored_whole(memory: Memory) -> None:
    """If the upstream closes, all events are stored in order, with the last one's cursor; the ledger has the end."""
    with serving(sends(UNTIL_CLOSE, numbered(1, 2), numbered(3) + b"data: unterminated")) as server:
        report = run(profile_of(server), memory.store())
    assert (report.outcome.error, report.outcome.message) == (
        "StreamDropped",
        "the stream was closed (ended_by_upstream)",
    )
    assert stored(memory) == ["1", "2", "3"]
    assert memory.store().read(STREAM).cursor == "3"
    record = ledger(memory, 1)
    counts = {"frames": 3, "stored": 3, "duplicates": 0}
    assert record | {"lane": "A", "request_id": "r1", "ended_by": "ended_by_upstream", **counts} == record
    assert record["unterminated_bytes"] == len(b"data: unterminated")
    assert record["claimed_ms"] <= record["opened_ms"] <= record["closed_ms"]
    lease = memory.store().read_lease(STREAM)
    assert (lease.fence, lease.connected_token, lease.released_token, lease.holder) == (1, 1, 1, "A/r1")
    assert report.connect_ms is not None


def test_a_store_that_hangs_does_not_outlast_the_deadline(memory: Memory) -> None:
    """A connection abandons a store request that does not return, and ends before the function is killed."""
    released = threading.Event()

    def hangs(call: Callable[..., Any], **parameters: Any) -> Any:
        assert released.wait(WAIT_S)
        return call(**parameters)

    store = memory.store(Client(memory.dynamodb, "put_item", hangs))
    with serving(sends(UNTIL_CLOSE, numbered(1), then=Peer.wait_until_gone)) as server:
        report = run(profile_of(server), store, lasts_ms=3000, margin_ms=2600)
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
