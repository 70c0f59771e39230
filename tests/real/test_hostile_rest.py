"""Gaps of a real run, whose REST addresses page, repeat, refuse, lag and lie: none is called repaired without proof."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from handlers.connection.effects import Progress, RecordLoss
from handlers.framing.events import StreamEvent
from handlers.store.event_items import StoragePolicy
from handlers.store.ledger_records import connection_item
from local.upstreams.clockwork import now_ms
from tests.console.page import listed, store
from tests.handlers.servers import Peer, serving
from tests.harness import Service, running
from tests.local.support import until
from tests.projects import copied

# It repeats in a real run what tests/handlers/repair shows.
pytestmark = pytest.mark.long
# Of twenty events the stream has brought two before a gap and two after it.
BROUGHT, MISSED = (5, 6, 15, 16), range(7, 15)
PROFILE = """
address = "${{UPSTREAM_REST}}/stream"
allow_private = true
framing = "ndjson"
key = "$.id"
resume = "none"
repair = {{ address = "${{UPSTREAM_REST}}/{name}?after={{after}}&before={{before}}", {more}, after_s = 0, pace_s = 0 }}
"""
LIST, CURSOR = 'items = "$"', 'items = "$.items", next = { cursor = "$.next", query = "cursor" }'
REPAIRED = {"pages": f'{LIST}, next = {{ number = "page" }}', "refuses": LIST, "lags": LIST}
# What stays open, and why.
OPEN = {
    "loops": (f"{CURSOR}, pages = 7", "partly", "the address does not have the first event after the gap"),
    "nothing": (LIST, "failed", "the address has neither the last event before the gap nor the first after it"),
    "elsewhere": (f'{LIST}, next = {{ link = "next" }}', "failed", "the next page is at another host"),
    "bomb": (LIST, "failed", "the answer has more than 8388608 bytes"),
}


class Rest:
    """The addresses; `asked` counts the requests of each."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, peer: Peer) -> None:
        """Answers a request."""
        target = urlsplit(peer.request.split()[1].decode())
        name, query = target.path.strip("/"), dict(parse_qsl(target.query))
        self.asked[name] += 1
        items = [{"id": n} for n in range(int(query["after"]), int(query["before"]) + 1)]
        status, body = self._said(name, items, int(query.get("page", 1)) - 1)
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\nLink: <http://127.0.0.1:1/>; rel=next\r\nRetry-After: 1\r\n"
        peer.send(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)

    def _said(self, name: str, items: list[dict[str, int]], page: int) -> tuple[str, Any]:
        first = 3 * page
        match name:
            case "pages":  # backwards, each with the last two of the page before, and one of them twice
                part = items[max(0, first - 2) : first + 3][::-1] if first < len(items) else []
                return "200 OK", [*part, *part[:1]]
            case "refuses":
                said: list[tuple[str, Any]] = [("429 X", []), ("503 X", []), ("200 OK", b"<html>down</html>")]
                return said[self.asked[name] - 1] if self.asked[name] <= len(said) else ("200 OK", items)
            case "lags":
                return "200 OK", items[:3] if self.asked[name] <= 2 else items
            case "loops":
                return "200 OK", {"items": items[:3], "next": "again"}
            case "elsewhere":
                return "200 OK", items[:3]
            case "bomb":
                return "200 OK", b"[" + b" " * 9_000_000 + b"]"
        return "200 OK", []


def with_a_gap(service: Service, name: str) -> None:
    """A stream that missed events a minute ago, and has no connection; its repair is requested."""
    own, lost_ms = store(service), now_ms() - 60_000
    own.ledger.record_loss(name, RecordLoss(1, 1, lost_ms, lost_ms + 1_000, "loss"))
    times = (lost_ms - 2_000, lost_ms - 1_000, lost_ms + 2_000, lost_ms + 3_000)
    brought = zip(BROUGHT, times, strict=True)
    events = [StreamEvent(str(n), f'{{"id": {n}}}', None, None, None, at_ms) for n, at_ms in brought]
    own.write(name, 1, 0, events, StoragePolicy())
    opened_ms, closed_ms = lost_ms - 4_000, lost_ms + 5_000
    over = Progress(1, opened_ms, opened_ms, closed_ms, closed_ms, "ended", live_ms=opened_ms)
    own.ledger.save(name, connection_item(over, lane="A", execution="e", request_id="r"))
    listed(service, [name], fence={"N": "1"})
    assert service.ask("POST", f"{name}/repair")[0] == 200


def test_what_a_hostile_address_says_is_not_taken_for_more(tmp_path: Path) -> None:
    """Gaps at honest addresses are repaired, with each event once; the others stay open, each with a reason."""
    project = copied(tmp_path / "project")
    fields = REPAIRED | {name: more for name, (more, _, _) in OPEN.items()}
    for name, more in fields.items():
        text = PROFILE.format(name=name, more=more)
        (project / "env" / "streams" / f"{name}.toml").write_text(text)
    with serving(Rest()) as server, running(tmp_path, project, UPSTREAM_REST=server.address) as service:
        for name in fields:
            with_a_gap(service, name)
        assert until(lambda: all(repair_of(service, name)[0] == "repaired" for name in REPAIRED), 120), service.log
        for name in REPAIRED:
            assert service.numbers(name, "") == sorted([*BROUGHT, *MISSED])
        assert until(lambda: all(repair_of(service, name)[1] for name in OPEN), 60), service.log
        assert {name: repair_of(service, name) for name in OPEN} == {name: said[1:] for name, said in OPEN.items()}
        # Two of them brought a part of what was missed.
        assert {name: service.numbers(name, "") for name in ("nothing", "bomb")} == {
            "nothing": list(BROUGHT), "bomb": list(BROUGHT),
        }  # fmt: skip
        service.check_permissions()


def repair_of(service: Service, name: str) -> tuple[str, str]:
    """The state of the stream's gap, and the reason."""
    (gap,) = service.ask("GET", f"{name}/gaps")[1]["gaps"]
    return gap["state"], gap.get("repair", {}).get("reason") or ""
