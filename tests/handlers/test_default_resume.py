"""The effect of an outage on a profile with only an address and framing = "sse", with servers on real sockets.

The functions and tables are real. Each connection below is one invocation, started one after the other.
"""

import re
import time
from typing import Any

import pytest

from handlers.api.last_error import Retries
from handlers.api.status import answer
from handlers.connection.steps import Report
from handlers.profile.parse import parse
from handlers.run.threads import SystemClock
from handlers.store.stream_records import StreamRecords
from tests.handlers.aws import CONTROL, EVENTS, Aws
from tests.handlers.lanes import run, start_lane
from tests.handlers.scripted import numbered
from tests.handlers.servers import UNTIL_CLOSE, Peer, Server, sends, serving
from tests.local.support import until

STREAM = "demo"
REFUSED = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n"


def stored(aws: Aws) -> list[str]:
    return [item["data"] for item in sorted(aws.items(EVENTS, STREAM).values(), key=lambda item: item["position"])]


def ledger(aws: Aws, fence: int) -> dict[str, Any]:
    return aws.items(CONTROL, STREAM)[f"connection#{fence:012d}"]


class Keeper:
    """A server that keeps its events, and knows or ignores Last-Event-ID; it ends each connection after its events.

    `miss` lets events come while no client is connected.
    """

    def __init__(self, *, resumes: bool, refuses: int = 0) -> None:
        self.asked: list[str | None] = []
        self.sent: list[int] = []
        self.newest = 0
        self._resumes = resumes
        self._refuses = refuses

    def __call__(self, peer: Peer) -> None:
        asked = re.search(rb"(?i)\r\nlast-event-id: ?(.*?)\r\n", peer.request)
        self.asked.append(asked[1].decode() if asked else None)
        if asked and self._refuses:
            peer.send(REFUSED % self._refuses)
            return
        behind = int(asked[1]) if asked and self._resumes else self.newest
        self.newest += 2
        numbers = range(behind + 1, self.newest + 1)
        self.sent += numbers
        peer.send(UNTIL_CLOSE + b"".join(map(numbered, numbers)))
        # If the answer ended in the millisecond of its arrival, the gap would begin with its arrival.
        time.sleep(0.01)

    def miss(self, count: int) -> None:
        """Let events come while no client is connected."""
        self.newest += count


def connect(server: Server, aws: Aws, **fields: Any) -> Report:
    """Run one invocation with a profile of only address, framing and `fields`."""
    table = {"address": server.address, "framing": "sse", "allow_private": True, **fields}
    return run(parse(STREAM, table, {}), aws.store(), lasts_ms=30_000)


def gaps(aws: Aws) -> list[tuple[str, str]]:
    """Return the cause and the state of each gap in the status that has ended."""
    records = StreamRecords(aws.dynamodb, CONTROL).read(STREAM)
    assert records is not None
    coverage = answer(STREAM, records, SystemClock().now_ms(), 8_000, Retries(25_000, 300_000))["coverage"]
    return [(gap["cause"], gap["state"]) for gap in coverage["gaps"] if gap["to_at"]]


# The server's answer to a cursor, the profile's `resume`, the Last-Event-ID of each request, whether the events of the
# outage come, and the gaps that are shown.
LOST, OPEN = [("cursor_expired", "lost"), ("cursor_expired", "open")], [("ended_by_upstream", "open")]
OUTAGES: dict[str, tuple[dict[str, Any], Any, list[str | None], bool, list[tuple[str, str]]]] = {
    "by default they are requested": ({"resumes": True}, None, [None, "2"], True, OPEN),
    # The gap stays open, as it does if the events come.
    "a server that ignores the header closes no gap": ({"resumes": False}, None, [None, "2"], False, OPEN),
    "a 410 drops the cursor, whoever wrote it": (
        {"resumes": True, "refuses": 410}, {"header": "Last-Event-ID"}, [None, "2", None], False, LOST,
    ),
    # With the default, it is unknown whether the server accepts the header.
    **{
        f"a {status} to the default": ({"resumes": True, "refuses": status}, None, [None, "2", None], False, LOST)
        for status in (400, 404, 410, 412, 431)
    },
    # A 401 may pass, so the cursor is kept and tried again.
    "a 401 is none of the cursor": ({"resumes": True, "refuses": 401}, None, [None, "2"], False, []),
    "none sends no cursor": ({"resumes": True}, "none", [None, None], False, OPEN),
}  # fmt: skip


@pytest.mark.parametrize("what", OUTAGES)
def test_the_effect_of_an_outage_depends_on_server_and_profile(what: str, aws: Aws) -> None:
    """The 48 events that come between two connections are stored or lie in a gap in the status; the stream goes on."""
    server_fields, resume, asked, come, shown = OUTAGES[what]
    keeper = Keeper(**server_fields)
    with serving(keeper) as server:
        for number in range(len(asked)):
            report = connect(server, aws, **({} if resume is None else {"resume": resume}))
            assert report.outcome.error == "StreamDropped"
            keeper.miss(0 if number else 48)
    assert keeper.asked == asked
    numbers = [number for number in range(1, keeper.newest + 1) if come or not 2 < number <= 50]
    assert (stored(aws), gaps(aws)) == ([str(number) for number in numbers], shown)
    assert asked[1] or ledger(aws, 2)["resumed"] is False


def test_a_profile_that_vouches_for_its_upstream_closes_the_gap(aws: Aws) -> None:
    """A profile that sets `resume` vouches that its upstream keeps events, so a resumed connection closes the gap."""
    with serving(Keeper(resumes=True)) as server:
        connect(server, aws, resume={"header": "Last-Event-ID"})
        connect(server, aws)
        connect(server, aws, resume={"header": "Last-Event-ID"})
    records = [ledger(aws, fence) for fence in (1, 2, 3)]
    assert [(record["resumed"], record.get("reach_ms")) for record in records] == [
        (False, None),
        (True, 0),
        (True, None),
    ]


def test_a_successor_whose_cursor_is_refused_begins_afresh_at_once(aws: Aws) -> None:
    """A successor whose cursor is refused reconnects without it at once; the older reads on, so there is no gap."""
    one, two = (sends(UNTIL_CLOSE, numbered(number), then=Peer.wait_until_gone) for number in (1, 2))
    with serving(one, sends(REFUSED % 410), two) as server:
        table = {"address": server.address, "framing": "sse", "allow_private": True, "overlap": "tolerates"}
        # The older connection's lease must hold while a slow machine answers two requests.
        older = start_lane(aws, profile := parse(STREAM, table, {}), STREAM, "A", progress_every_ms=4_000)
        assert until(lambda: aws.store().read(STREAM).cursor == "1")
        newer = start_lane(aws, profile, STREAM, "B", progress_every_ms=4_000)
        assert (older.last_report.outcome.error, len(older.reports)) == ("StreamTakenOver", 1)
        assert until(lambda: stored(aws) == ["1", "2"])
        assert gaps(aws) == []
        aws.stop(STREAM)
        assert (newer.last_report.outcome.status, newer.last_report.progress.resumed, len(newer.reports)) == (
            "stopped",
            False,
            1,
        )
        assert [b"last-event-id: 1" in peer.request.lower() for peer in server.peers] == [False, True, False]
