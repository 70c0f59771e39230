"""A server that is restarted and counts from 1 again, in the whole service."""

import select

import pytest

from tests.examples import one_in
from tests.handlers.servers import CHUNKED, Peer, Script
from tests.local.support import until
from tests.local_run import LocalRun

RESTARTED = "its ids start over: new events with known ids are "


def life(which: int, *ids: int, stays: bool = False) -> Script:
    """One life of the server: it sends these ids and ends, or stays and sends only heartbeats."""

    def play(peer: Peer) -> None:
        peer.send(CHUNKED)
        for one in ids:
            peer.send_chunk(f"id: {one}\ndata: {which}-{one}\n\n".encode())
        while stays and not select.select([peer.connection], [], [], 0.5)[0]:
            peer.send_chunk(b":\n\n")

    return play


@pytest.mark.parametrize(
    ("stream", "how", "stored"),
    one_in(
        2,
        [
            ("epochs:restarted", "stored under new keys", ["0-1", "0-2", "0-3", "1-1", "1-2", "1-3", "1-4"]),
            ("scripted:restarted", 'not stored unless on_conflict is "epoch"', ["0-1", "0-2", "0-3", "1-4"]),
        ],
    ),
)
def test_a_restarted_server_is_reported_and_its_events_follow_on_conflict(
    local_run: LocalRun, stream: str, how: str, stored: list[str]
) -> None:
    """Each event is stored once, after the earlier ones, whichever connection brings it; then the stream is quiet."""
    again = life(1, 1, 2, 3, 4)
    local_run.script(stream, life(0, 1, 2, 3), again, again, life(1, 1, 2, 3, 4, stays=True))
    local_run.post(stream)
    expected = {"status": "running", "reason": RESTARTED + how}
    assert until(lambda: expected.items() <= local_run.ask("GET", stream)[1].items(), 60), local_run.log
    shown = local_run.ask("GET", stream)[1]
    assert shown["ids_restarted_at"] is not None
    assert until(lambda: f"ALERT: {stream}: {RESTARTED}{how}" in local_run.log, 20), local_run.log
    is_lost = how.startswith("not stored")
    # Two connections may have lost the same events; then the verdict counts gaps and not events.
    assert until(lambda: ("events lost" in local_run.ask("GET", stream)[1]["verdict"].lower()) == is_lost, 20), (
        local_run.log
    )
    assert until(lambda: [event["data"] for event in local_run.events(stream)] == stored, 20), local_run.log
    assert shown["last_event_at"] is not None
    assert until(lambda: local_run.ask("GET", stream)[1]["pace"]["silent_ms"] > 2_000, 20), local_run.log

    def is_listed() -> bool:
        """Returns whether the list shows the same; between two connections it shows why there is none."""
        shown = local_run.ask("GET", stream)[1]
        same = {name: shown[name] for name in ("stream", "last_event_at")} | expected
        return any(same.items() <= one.items() for one in local_run.ask("GET", "")[1]["streams"])

    assert until(is_listed, 20), local_run.log
