"""Many streams in one function, in a real run: they join and leave, its process is killed, and no event is lost."""

import json
import re
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.handlers.servers import CHUNKED, Peer, serving
from tests.harness import Service, running
from tests.local.support import until
from tests.projects import changed, renewing, with_settings

CALM = [f"demo:calm-{number}" for number in range(4)]
PLACES = 6
FLOODS, REFUSES, LATER = "demo:floods", "demo:refuses", "demo:later"


class Upstream:
    """Sends an event of each stream every 0.2 s, from the cursor on; it floods one stream, and refuses one for good."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def __call__(self, peer: Peer) -> None:
        name = peer.request.split()[1].decode().rpartition("%3A")[2]
        cursor = re.search(rb"Last-Event-ID: (\d+)", peer.request, re.IGNORECASE)
        if name == "refuses":
            peer.send(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
            return
        peer.send(CHUNKED)
        number = int(cursor[1]) if cursor else 0
        body = b"x" * (2000 if name == "floods" else 1)
        while True:
            number += 1
            peer.send_chunk(b"id: %d\ndata: %b\n\n" % (number, body))
            with self._lock:
                self.sent[name] = max(self.sent[name], number)
            # A flood is two thousand events a second, more than a function of a test can store.
            if name == "floods":
                time.sleep(0 if number % 100 else 0.05)
            elif number >= self.sent[name]:
                time.sleep(0.2)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A run whose functions keep six streams each, with handovers every few seconds, and room for one of them."""
    folder = tmp_path_factory.mktemp("groups")
    project = folder / "project"
    with_settings(renewing(project), streams_per_function=PLACES)
    changed(project / "env" / "streams" / "demo.toml", ("\nframing = ", "\nreject_after = 3\nframing = "))
    with (
        serving(Upstream()) as server,
        running(folder, project, UPSTREAM_DEMO=server.address, STREAMKEEPER_STREAMS="1") as service,
    ):
        yield service


def has_place(service: Service) -> bool:
    """Returns whether the function has counted its members, and recorded that there is a place."""
    (lease,), (groups,) = service.items("control", "#1", "lease"), service.items("control", "#", "groups")
    return int(lease["size"]) < PLACES and "open:#1" in groups


def is_whole(service: Service, stream: str, least: int) -> bool:
    """Returns whether all events up to the newest are stored, and at least so many."""
    found = service.numbers(stream, "")
    return len(found) >= least and found == [*range(1, len(found) + 1)]


def typed(service: Service, *arguments: str) -> str:
    """Returns what the command prints."""
    done = service.typed(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_seen(service: Service, kept: list[str]) -> None:
    """Checks that the list, the metrics and the execution's timeline show the streams by their function."""
    gone = [CALM[0], FLOODS, REFUSES]
    listed = typed(service, "list").splitlines()
    place = listed.index("")
    assert sorted(line.split()[1] for line in listed[1:place]) == sorted(gone)  # below the header
    assert re.fullmatch(rf"group #1(, lane [AB]( and [AB])?)?: \d of {len(kept)} running", listed[place + 1])
    assert sorted(line.split()[1] for line in listed[place + 2 :]) == sorted(kept)
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert f'streamkeeper_group_streams{{group="#1"}} {len(kept)}\n' in metrics
    for stream in kept:
        assert f'streamkeeper_stream_group{{stream="{stream}",group="#1"}} 1\n' in metrics
        assert f'streamkeeper_events_stored_total{{stream="{stream}"}} ' in metrics
    # A stream's gaps are recorded once the next connection has lasted for a while.
    execution = service.ask("GET", kept[0])[1]["execution"]
    assert until(lambda: all(service.items("control", stream, "gap#") for stream in kept), 60), service.log
    found = json.loads(typed(service, "timeline", "--execution", execution, "--json"))["group"]
    assert [(one["stream"], bool(one["gaps"])) for one in found["streams"]] == [(one, True) for one in sorted(kept)]
    said = typed(service, "timeline", "--execution", execution, "--width", "60")
    assert f"group #1: {len(kept)} of {len(kept)} streams in its functions had gaps" in said
    assert said.count("╳") >= len(kept)
    # The service prints lines about the streams; the group's own lease has no connection, and raises no alert.
    assert set(re.findall(r"group #1: .*?(demo:[a-z0-9-]+).* connected", service.log)) & set(kept)
    assert "ALERT: #1 " not in service.log


@pytest.mark.long
@pytest.mark.cpu(8)
def test_a_killed_function_of_six_streams_loses_no_event(service: Service) -> None:
    """Six streams share a function: one is refused, one floods, one joins, one leaves; then the function is killed."""
    for stream in [*CALM, FLOODS, REFUSES]:
        service.post(stream)
    assert service.reaches("running", *CALM), service.log
    assert {service.ask("GET", stream)[1]["group"] for stream in CALM} == {"#1"}
    # While an execution is renewed, the streams belong to two for a moment.
    assert until(lambda: len({service.ask("GET", stream)[1]["execution"] for stream in CALM}) == 1, 30), service.log
    assert service.reaches("rejected", REFUSES), service.log
    assert until(lambda: has_place(service), 30), service.log
    service.post(LATER)
    assert service.reaches("running", LATER), service.log
    # The machine has room for one function, and that is full.
    code, answer = service.ask("POST", "demo:beyond")
    assert (code, answer["title"]) == (503, "This machine holds no more streams")
    service.ask("DELETE", CALM[0])
    service.ask("DELETE", FLOODS)
    assert service.reaches("stopped", CALM[0]), service.log
    service.kill()
    kept = [*CALM[1:], LATER]
    before = {stream: len(service.numbers(stream, "")) for stream in kept}
    assert until(lambda: all(is_whole(service, stream, before[stream] + 5) for stream in kept), 90), service.log
    is_seen(service, kept)
    for stream in kept:
        service.ask("DELETE", stream)
    assert service.reaches("stopped", *kept), service.log
    listed = service.ask("GET", "")[1]["streams"]
    assert sorted(one["stream"] for one in listed) == sorted([*CALM, FLOODS, REFUSES, LATER])
