"""A process that was frozen: what it finds afterwards may have happened at any time since it last ran."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.reader import ABOVE_BYTES, ALONE, CHUNK_BYTES, Share, Upstream
from handlers.upstream.standstill import MOST_STILLS, STILL_S, Pulse, Ticker, elapsed_s
from local.checkout import ROOT
from tests.handlers.servers import CHUNKED, Peer, chunks, reading, sends, serving
from tests.handlers.upstream import standing_still

STILL_FOR_S = 0.2
STOPPED_S = 1.0


@given(st.lists(st.tuples(st.floats(0.001, 2), st.booleans()), max_size=3 * MOST_STILLS))
def test_a_pulse_knows_the_first_standstill_since_an_instant(steps: list[tuple[float, bool]]) -> None:
    """A pulse returns when the process last ran before a standstill, and never a later instant; many count as one."""
    now_s, stills = [0.0], []
    pulse = Pulse(lambda: now_s[0])
    ran_s = 0.0
    for pause_s, ticks in steps:
        now_s[0] += pause_s
        if now_s[0] - ran_s > STILL_S:
            stills.append((ran_s, now_s[0]))
        if ticks:
            pulse.tick()
        assert pulse.last_run_before_s(now_s[0]) is None
        ran_s = now_s[0] if ticks or now_s[0] - ran_s > STILL_S else ran_s
        for since_s in (0.0, now_s[0] / 2):
            known = [max(since_s, began_s) for began_s, ended_s in stills if ended_s > since_s]
            told_s = pulse.last_run_before_s(since_s)
            if len(stills) <= MOST_STILLS:
                assert told_s == next(iter(known), None)
            else:
                assert told_s is None or told_s <= known[0]


def upstream(address: str, pulse: Pulse, share: Share = ALONE) -> AbstractContextManager[Upstream]:
    request = UpstreamRequest("GET", address, {}, allow_private=True)
    return reading(request, stall_after_s=60, pulse=pulse, shares=share, joins=False)


# Bytes and the end of the body in one segment: a reader that finds only the bytes would wait for the end, which would
# be new then.
END = b"9\r\nmeanwhile\r\n0\r\n\r\n"


def begins_and_stands_still(reader: Upstream, pulse: Pulse) -> None:
    """Read what comes first, and let the process stand still."""
    assert isinstance(reader.get(60), Opened)
    assert reader.get(60) == Chunk(b"first")
    stands_still(pulse)


def stands_still(pulse: Pulse) -> None:
    """Let the process stand still."""
    pulse.tick()
    threading.Event().wait(STILL_FOR_S)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (sends(END), "ended_by_upstream"),
        (sends(END, then=Peer.wait_until_gone), "ended_by_upstream"),
        (Peer.reset, "reset"),
    ],
)
def test_a_close_may_have_come_since_the_process_last_ran(end: Callable[[Peer], None], reason: str) -> None:
    """Bytes and a close that are read after a freeze may be as old, so the connection is not known good meanwhile."""
    is_still = threading.Event()
    pulse = Pulse()
    with serving(chunks(b"first", is_still, then=end)) as server, upstream(server.address, pulse) as reader:
        begins_and_stands_still(reader, pulse)
        is_still.set()
        while not isinstance(arrival := reader.get(60), Closed):
            assert reader.taken_age_s >= STILL_FOR_S
        assert (arrival.reason, reader.taken_age_s >= STILL_FOR_S) == (reason, True)


def test_an_upstream_that_still_sends_was_connected_all_the_time() -> None:
    """Bytes that came during the standstill may be old; bytes for which the reader then had to wait are new."""
    is_still, goes_on = threading.Event(), threading.Event()
    script = chunks(b"first", is_still, b"meanwhile", goes_on, b"later", then=Peer.wait_until_gone)
    pulse = Pulse()
    with serving(script) as server, upstream(server.address, pulse) as reader:
        begins_and_stands_still(reader, pulse)
        # The thread that decides may ask before the reader runs: nothing waits at the socket.
        assert reader.unread_age_s is None
        stands_still(pulse)
        is_still.set()
        assert (reader.get(60), reader.taken_age_s >= STILL_FOR_S) == (Chunk(b"meanwhile"), True)
        with Ticker(pulse):
            threading.Event().wait(STILL_S / 2)
            goes_on.set()
            assert (reader.get(60), reader.taken_age_s < STILL_FOR_S) == (Chunk(b"later"), True)


def test_bytes_of_a_busy_upstream_are_not_old_for_ever() -> None:
    """Once more bytes are read than had come by the end of the standstill, the following bytes are new."""
    has_come, is_still, ran_s = threading.Semaphore(0), threading.Event(), [elapsed_s()]

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        is_still.wait(60)
        peer.send_chunk(b"meanwhile")
        assert all(has_come.acquire(timeout=60) for _ in (Opened, b"meanwhile"))
        peer.send(b"7d0\r\n%s\r\n" % bytes(2000) * (2 + ABOVE_BYTES // 2000))
        peer.wait_until_gone()

    share = Share(CHUNK_BYTES, 10 * ABOVE_BYTES, has_come.release)
    with serving(script) as server, upstream(server.address, Pulse(lambda: ran_s[-1]), share) as reader:

        def came_s() -> float:
            return elapsed_s() - reader.taken_age_s

        assert isinstance(reader.get(60), Opened)
        threading.Event().wait(STILL_FOR_S)
        ran_s.append(elapsed_s())
        is_still.set()
        assert (reader.get(60), came_s() < sum(ran_s) / 2) == (Chunk(b"meanwhile"), True)
        came = [came_s() for _ in range(2 + ABOVE_BYTES // 2000) if reader.get(60) == Chunk(bytes(2000))]
        assert came[-1] > sum(ran_s) / 2


Said = tuple[str, float, float | None]


@contextmanager
def process_at(address: str) -> Iterator[tuple[int, Iterator[Said]]]:
    """Yield a process that reads the upstream: its id, and what it prints about each arrival."""
    command = [sys.executable, "-m", standing_still.__name__, address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, (tuple(json.loads(line)) for line in process.stdout)
    assert process.returncode == 0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the process for at least `STOPPED_S`, and let it go on."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    began_s = time.monotonic()
    yield
    threading.Event().wait(began_s + STOPPED_S - time.monotonic())
    os.kill(pid, signal.SIGCONT)


def test_a_process_that_was_stopped_does_not_count_a_close_as_new() -> None:
    """The process gets SIGSTOP while the upstream resets; reads after SIGCONT may be from any time since."""
    is_stopped, sent = threading.Event(), threading.Event()

    def resets(peer: Peer) -> None:
        peer.reset()
        sent.set()

    with (
        serving(chunks(b"first", is_stopped, b"meanwhile", then=resets)) as server,
        process_at(server.address) as (pid, said),
    ):
        assert [next(said)[0] for _ in range(2)] == ["Opened", "Chunk"]
        with stopped(pid):
            is_stopped.set()
            assert sent.wait(60)
        read = list(said)
    assert read[-1][0] == "reset"
    assert all(taken_s >= STOPPED_S for _, taken_s, _ in read), read
