"""Gaps are repaired in a real run, which enforces the permissions.

A played exchange drops connections and forgets its events; its REST address lags and refuses, and the function that
requests a page is killed meanwhile. The others are PouchDB's server, and json-server beside a played stream.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from local.upstreams.behaviours import TRADES
from tests.handlers.servers import CHUNKED, Peer
from tests.handlers.servers import serving as playing
from tests.harness import Service, running
from tests.local.support import until
from tests.projects import copied
from tests.real.test_couchdb import Database, NodeServer
from tests.real.upstream import serving

# It repeats in a real run what tests/handlers/repair and chaos show.
pytestmark = pytest.mark.long
STREAM = "demo-trades:a"


class Troubled:
    """The exchange, whose REST address refuses the first request and has the sender of the second killed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.asked: list[str] = []
        self.killed: list[int] = []
        self.service: Service | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] == "http" and scope["path"] == TRADES:
            self.asked.append(scope["query_string"].decode())
            if len(self.asked) == 1:
                headers = [(b"retry-after", b"1"), (b"content-length", b"0")]
                await send({"type": "http.response.start", "status": 429, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
            if len(self.asked) == 2 and self.service is not None:
                self.killed = [pid for pid in self.service.sandboxes() if _is_repair(pid)]
                for pid in self.killed:
                    os.kill(pid, signal.SIGKILL)
        await self._app(scope, receive, send)


def _is_repair(pid: int) -> bool:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return any(one.startswith(b"AWS_LAMBDA_FUNCTION_NAME=") and one.endswith(b"-repair") for one in variables)


def gaps(service: Service, stream: str) -> list[dict[str, Any]]:
    """Returns the gaps that the API shows."""
    shown: list[dict[str, Any]] = service.ask("GET", f"{stream}/gaps")[1]["gaps"]
    return shown


def repaired(service: Service, stream: str, count: int) -> bool:
    """Returns whether there are so many gaps, and all are repaired."""
    states = [gap["state"] for gap in gaps(service, stream)]
    return len(states) >= count and set(states) == {"repaired"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with profiles for PouchDB's feed, and for a stream whose trades json-server has in pages."""
    made = copied(tmp_path_factory.mktemp("repair") / "project")
    (made / "env" / "streams" / "couch.toml").write_text(
        'address = "${UPSTREAM_COUCH}/ledger/_changes?feed=continuous&since=now&heartbeat=1000"\n'
        'allow_private = true\nframing = "ndjson"\nkey = "$.seq"\nresume = "none"\nend = { absent = ["$.id"] }\n'
        'repair = { address = "${UPSTREAM_COUCH}/ledger/_changes?since={after}&limit=2", items = "$.results", '
        'key = "$.seq", next = { cursor = "$.last_seq", query = "since" }, after_s = 1, pace_s = 0 }\n'
    )
    (made / "env" / "streams" / "paged.toml").write_text(
        'address = "${UPSTREAM_PLAYED}/"\nallow_private = true\nframing = "sse"\nkey = "$.id"\nresume = "none"\n'
        'repair = { address = "${UPSTREAM_JSON}/trades?id_gte={after}&id_lte={before}&_sort=id&_page=1&_limit=2", '
        'items = "$", next = { link = "next" }, after_s = 1, pace_s = 0 }\n'
    )
    return made


@pytest.fixture
def database() -> Iterator[Database]:
    """A database that is empty."""
    server = Database()
    yield server
    server.close()


def test_every_trade_of_a_failing_exchange_is_stored_once(project: Path, tmp_path: Path) -> None:
    """Although the function is killed while it reads a page, every trade is stored once, and the gaps are repaired."""
    troubled: list[Troubled] = []

    def around(app: ASGIApp) -> ASGIApp:
        troubled.append(Troubled(app))
        return troubled[0]

    with (
        serving(around=around) as (upstreams, port),
        running(tmp_path, project, UPSTREAM_DEMO=f"http://127.0.0.1:{port}") as service,
    ):
        troubled[0].service = service
        service.post(STREAM)
        assert until(lambda: len(service.items("events", STREAM)) > 5, 30), service.log
        upstreams.drop(STREAM)
        assert until(lambda: repaired(service, STREAM, 1), 120), service.log
        assert troubled[0].killed
        ids = service.numbers(STREAM, "id")
        assert ids == list(range(ids[0], ids[-1] + 1))
        marked = [event for event in service.events(STREAM, 1000) if event.get("repaired")]
        assert len(marked) == sum(gap["repair"]["stored"] for gap in gaps(service, STREAM) if "repair" in gap) > 0
        assert service.ask("GET", STREAM)[1]["coverage"]["missing"]["intervals"] == 0
        # A repair by hand has no gap left.
        assert service.ask("POST", f"{STREAM}/repair")[1]["gaps"] == []
        assert service.typed("repair", STREAM).returncode == 0


def test_couchdbs_feed_repairs_the_gap_of_a_killed_function(project: Path, tmp_path: Path, database: Database) -> None:
    """The changes are fetched from the last one before the gap to the first one after it, two a page."""
    with running(tmp_path, project, UPSTREAM_COUCH=database.address) as service:
        stream = "couch"
        service.post(stream)
        assert service.reaches("running", stream, within_s=30), service.log
        database.write(3)
        assert until(lambda: len(service.items("events", stream)) == 3, 20), service.log
        # Only a later record proves that the connection was good when the changes came.
        assert until(lambda: _was_good_since(service.ask("GET", stream)[1]), 20), service.log
        killed = service.kill()
        database.write(7)
        assert until(lambda: service.ask("GET", stream)[1]["fence"] > 1, 30), service.log
        assert until(lambda: bool(set(service.sandboxes()) - set(killed)), 30), service.log
        assert until(lambda: _is_connected_again(service, stream, database), 60), service.log
        # Functions of seconds leave a gap at each of their ends, which only the next change closes.
        assert until(lambda: any(_has_brought(gap) for gap in gaps(service, stream)), 120), service.log
        numbers = service.numbers(stream, "seq")
        assert set(range(1, 11)) <= set(numbers)
        assert len(numbers) == len(set(numbers))


class Feed:
    """A stream that sends each trade to the open connections only, and remembers none; json-server has all of them."""

    def __init__(self) -> None:
        self.rest = NodeServer("json-server.cjs")
        self.trades: list[int] = []
        self.is_away = False

    def write(self, count: int) -> None:
        """Makes `count` more trades, numbered on."""
        for _ in range(count):
            trade = len(self.trades) + 1
            self.rest.send("POST", "/trades", {"id": trade})
            self.trades.append(trade)

    def play(self, peer: Peer) -> None:
        """Serves a connection, for as long as the stream is there."""
        sent = len(self.trades)
        if not self.is_away:
            peer.send(CHUNKED)
        while not self.is_away:
            new = self.trades[sent:]
            sent += len(new)
            peer.send_chunk(b":\n\n" + b"".join(b'data: {"id": %d}\n\n' % one for one in new))
            time.sleep(0.1)


def test_pages_of_json_server_repair_the_trades_of_a_gap(project: Path, tmp_path: Path) -> None:
    """Seven trades are made while the stream is away; pages of two, linked by a `Link` header, bring each once."""
    feed, stream = Feed(), "paged"
    try:
        with (
            playing(feed.play) as played,
            running(tmp_path, project, UPSTREAM_PLAYED=played.address, UPSTREAM_JSON=feed.rest.address) as service,
        ):
            service.post(stream)
            assert service.reaches("running", stream, within_s=30), service.log
            feed.write(3)
            assert until(lambda: len(service.items("events", stream)) == 3, 20), service.log
            assert until(lambda: _was_good_since(service.ask("GET", stream)[1]), 20), service.log
            before = service.ask("GET", stream)[1]["fence"]
            feed.is_away = True
            feed.write(7)
            assert until(lambda: service.ask("GET", stream)[1]["fence"] > before, 30), service.log
            feed.is_away = False
            assert until(lambda: _is_connected_again(service, stream, feed, before), 60), service.log
            assert until(lambda: any(_has_brought(gap, 7) for gap in gaps(service, stream)), 120), service.log
            assert until(lambda: service.numbers(stream, "id") == feed.trades, 30), service.log
            shown = service.ask("GET", f"{stream}/events?limit=1000")[1]["events"]
            marked = [json.loads(event["data"])["id"] for event in shown if event.get("repaired")]
            assert marked[:7] == list(range(4, 11))
    finally:
        feed.rest.close()


def _was_good_since(status: dict[str, Any]) -> bool:
    """Returns whether a connection is known to have been good when the last event came."""
    last_at = status["last_event_at"]
    return bool(last_at) and any((lane.get("seen_at") or "") > last_at for lane in status["lanes"].values())


def _has_brought(gap: dict[str, Any], least: int = 1) -> bool:
    """Returns whether the gap is repaired with at least so many events."""
    return bool(gap["state"] == "repaired" and gap["repair"]["stored"] >= least)


def _is_connected_again(service: Service, stream: str, upstream: Database | Feed, fence: int = 1) -> bool:
    """Writes until a change has come on a connection after `fence`: two of them show the end of the gap."""
    upstream.write(1)
    fences = [int(item["fence"]) for item in service.items("events", stream)]
    return sum(one > fence for one in fences) >= 2
