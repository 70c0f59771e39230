"""Two outages, the second during the first catch-up, with an upstream that keeps 200 seconds, on real sockets.

Only the clock is moved: in an outage, and while a connection lasts. It moves by minutes, so that the seconds of a busy
machine change nothing.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from handlers.api.last_error import Retries
from handlers.api.status import answer
from handlers.profile.parse import parse
from handlers.run.threads import SystemClock
from handlers.store.stream_records import StreamRecords
from tests.handlers.aws import CONTROL, EVENTS, Aws
from tests.handlers.lanes import run
from tests.handlers.servers import UNTIL_CLOSE, Peer, Script, Server, serving
from tests.local.support import until

STREAM = "demo"
KEEPS_MS, EVERY_MS = 200_000, 1_000
GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FOR_EVER_MS = 10_000_000


class MovedClock(SystemClock):
    """A real clock that can be moved forward."""

    def __init__(self) -> None:
        super().__init__()
        self.started_ms = super().now_ms()
        self._later_ms = 0

    def now_ms(self) -> int:
        """Return the time, plus the moves."""
        return super().now_ms() + self._later_ms

    def move_to(self, at_ms: int) -> None:
        """Move the clock to so long after the start, unless it is later."""
        self._later_ms += max(0, self.started_ms + at_ms - self.now_ms())


class Upstream:
    """An event every EVERY_MS since the start; for events older than KEEPS_MS it says `word`, or nothing."""

    def __init__(self, aws: Aws, clock: MovedClock, word: str) -> None:
        self.aws = aws
        self.clock = clock
        self.word = word

    @property
    def newest(self) -> int:
        """Return the newest event's number; it happened so many times EVERY_MS after the start."""
        return (self.clock.now_ms() - self.clock.started_ms) // EVERY_MS

    def opened(self) -> int:
        """Return how many connections have recorded an answer."""
        records = StreamRecords(self.aws.dynamodb, CONTROL).read(STREAM)
        return 0 if records is None else sum(one.opened_ms is not None for one in records.connections)

    def connection(self, until_ms: int, most: int = 10_000) -> Script:
        """Start a connection that sends at most `most` events after the cursor, and lasts until then."""

        def script(peer: Peer) -> None:
            cursor = re.search(rb"(?i)last-event-id: (\d+)", peer.request)
            first = self.newest + 1 if cursor is None else int(cursor[1]) + 1
            oldest = self.newest - KEEPS_MS // EVERY_MS
            if first < oldest and self.word:
                peer.send(GONE)
                return
            open_ones = self.opened() + 1  # before the answer: it may be written down at once
            peer.send(UNTIL_CLOSE)
            first = max(first, oldest)
            assert until(lambda: self.opened() == open_ones)
            self.clock.move_to(until_ms)
            for number in range(first, min(first + most, self.newest + 1)):
                peer.send(b"id: %d\ndata: %d\n\n" % (number, number))

        return script


def connect(aws: Aws, clock: MovedClock, server: Server, word: str, at_ms: int) -> None:
    """Open one connection so long after the start, until it ends."""
    resume: dict[str, Any] = {"header": "Last-Event-ID"} | ({} if word else {"reach_s": KEEPS_MS // 1000})
    table = {"address": server.address + "/{streamId}", "framing": "sse", "allow_private": True, "resume": resume}
    # The clock moves on by more than the usual minute while nothing is sent.
    table["stall_after_s"] = 900
    profile = parse(STREAM, table | ({"statuses": {"410": "expired"}} if word else {}), {})
    clock.move_to(at_ms)
    run(profile, aws.store(), lasts_ms=FOR_EVER_MS, clock=clock, request_id=f"r{at_ms}")


def told(aws: Aws, clock: MovedClock) -> list[tuple[float, float, str]]:
    """Return the gaps that GET shows, in seconds since the start, and the state of each."""
    records = StreamRecords(aws.dynamodb, CONTROL).read(STREAM)
    assert records is not None
    coverage = answer(STREAM, records, clock.now_ms(), 1_000, Retries(1_000, 1_000))["coverage"]
    since_s: Callable[[str], float] = lambda text: datetime.fromisoformat(text).timestamp() - clock.started_ms / 1000  # noqa: E731
    return [(since_s(gap["from_at"]), since_s(gap["to_at"]), gap["state"]) for gap in coverage["gaps"] if gap["to_at"]]


def missing(aws: Aws) -> list[int]:
    """Return the missing numbers between the first and the last stored one."""
    stored = {int(item["data"]) for item in aws.items(EVENTS, STREAM).values()}
    return [number for number in range(min(stored), max(stored)) if number not in stored]


@pytest.mark.parametrize(
    ("again_ms", "is_late", "word"),
    [
        (320_000, True, ""),
        (220_000, False, "410"),
        pytest.param(220_000, False, "", marks=pytest.mark.long),
        pytest.param(320_000, True, "410", marks=pytest.mark.long),
    ],
)
def test_what_is_lost_between_two_outages_lies_in_an_open_gap(
    aws: Aws, again_ms: int, is_late: bool, word: str
) -> None:
    """The gap that the first catch-up closed is open again if the second asks too late; otherwise nothing is lost."""
    clock = MovedClock()
    upstream = Upstream(aws, clock, word)
    scripts = [
        upstream.connection(50_000),
        upstream.connection(210_000, most=60),
        upstream.connection(again_ms + 5_000),
    ]
    scripts += [upstream.connection(again_ms + 600_000, most=10_000)]
    with serving(*scripts) as server:
        for at_ms in (0, 180_000, again_ms, again_ms + 6_000):
            connect(aws, clock, server, word, at_ms)
    lost, gaps = missing(aws), told(aws, clock)
    assert bool(lost) is is_late
    open_gaps = [(from_s, to_s) for from_s, to_s, state in gaps if state != "delivered"]
    assert bool(open_gaps) is is_late
    assert [n for n in lost if not any(a <= n * EVERY_MS / 1000 <= b for a, b in open_gaps)] == []
    # The items of the table are those that GET shows, delivered or open.
    items = [item for key, item in aws.items(CONTROL, STREAM).items() if key.startswith("gap#")]
    assert sorted(item["from_ms"] for item in items if item["state"] != "delivered") == [
        clock.started_ms + round(from_s * 1000) for from_s, _ in open_gaps
    ]
