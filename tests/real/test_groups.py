"""Many streams in one function, in a real run: they join and leave, its process is killed, and nothing is lost."""

import os
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.handlers.servers import CHUNKED, Peer, serving
from tests.harness import Service, running
from tests.local.support import until
from tests.real.test_redeploy import changed, copied

CALM = [f"demo:calm-{number}" for number in range(6)]
FLOODS, REFUSES, LATER = "demo:floods", "demo:refuses", "demo:later"


class Upstream:
    """An event behind the cursor every 0.2 s of each stream; one floods, and one refuses for good."""

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
            peer.chunk(b"id: %d\ndata: %b\n\n" % (number, body))
            with self._lock:
                self.sent[name] = max(self.sent[name], number)
            if name != "floods" and number >= self.sent[name]:
                time.sleep(0.2)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A run whose functions keep eight streams each, with handovers every few seconds."""
    folder = tmp_path_factory.mktemp("groups")
    project = folder / "project"
    project.mkdir()
    settings = copied(project) / "env" / "test.yml"
    changed(settings, ("streams_per_function: 1 ", "streams_per_function: 8 "))
    with serving(Upstream()) as server, running(folder, project, UPSTREAM_DEMO=server.address) as service:
        yield service


def status(service: Service, stream: str) -> str:
    return str(service.ask("GET", stream)[1].get("status"))


def numbers(service: Service, stream: str) -> list[int]:
    return [int(item["SK"]) for item in service.items("events", stream)]


def is_whole(service: Service, stream: str, least: int) -> bool:
    """Whether all events up to the newest are stored, and so many at least."""
    found = sorted(numbers(service, stream))
    return len(found) >= least and found == [*range(1, len(found) + 1)]


def test_streams_share_a_function_and_its_death_loses_nothing(service: Service) -> None:
    """Eight streams in one group: one is refused, one floods, one joins and one leaves; then the function is killed."""
    for stream in [*CALM, FLOODS, REFUSES]:
        service.post(stream)
    assert until(lambda: all(status(service, stream) == "running" for stream in CALM), 60), service.log
    assert {service.ask("GET", stream)[1]["group"] for stream in CALM} == {"#1"}
    assert len({service.ask("GET", stream)[1]["execution"] for stream in CALM}) == 1
    assert until(lambda: status(service, REFUSES) == "rejected", 60), service.log
    service.post(LATER)
    assert until(lambda: status(service, LATER) == "running", 60), service.log
    service.ask("DELETE", CALM[0])
    service.ask("DELETE", FLOODS)
    assert until(lambda: status(service, CALM[0]) == "stopped", 60), service.log
    for pid in service.sandboxes():
        os.kill(pid, signal.SIGKILL)
    kept = [*CALM[1:], LATER]
    before = {stream: len(numbers(service, stream)) for stream in kept}
    assert until(
        lambda: all(is_whole(service, stream, before[stream] + 10) for stream in kept), 90
    ), service.log  # fmt: skip
    for stream in kept:
        service.ask("DELETE", stream)
    assert until(lambda: all(status(service, stream) == "stopped" for stream in kept), 60), service.log
    listed = service.ask("GET", "")[1]["streams"]
    assert sorted(one["stream"] for one in listed) == sorted([*CALM, FLOODS, REFUSES, LATER])
