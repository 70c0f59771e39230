"""Streams that an upstream refuses for a while or for good, and more streams than a bound on their functions allows.

Through the whole local service, whose connection managers are bounded by the setting, and on real sockets.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.handlers.servers import CHUNKED, Peer, serving
from tests.harness import Service, running
from tests.local.support import until
from tests.projects import changed
from tests.real.test_redeploy import copied
from tests.real.test_redrive import counted, waiting

REFUSED = ("demo:401", "demo:403", "demo:404")
FINAL = "brief:final"
FIRST, SECOND, THIRD = "demo:1", "demo:2", "demo:3"
AWAY = f"ALERT: {THIRD} has been without a connection for "


class Upstream:
    """It refuses two connections of each stream in REFUSED by the status of its name, and all of FINAL."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def __call__(self, peer: Peer) -> None:
        name = peer.request.split()[1].decode().rpartition("%3A")[2]
        self._asked[name] += 1
        if name == "final" or (len(name) == 3 and self._asked[name] <= 2):
            peer.send(f"HTTP/1.1 {'403' if name == 'final' else name} X\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            peer.send(CHUNKED)
            peer.chunk(b"id: 1\ndata: one\n\n")
            peer.wait_until_gone()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A run with room for two functions, and with a profile `brief` of which a refusal is final after three seconds."""
    folder = tmp_path_factory.mktemp("concurrency")
    project = folder / "project"
    settings = copied(project) / "env" / "test.yml"
    for wanted in (
        ("connection_concurrency: 0 ", "connection_concurrency: 2 "),
        ("function_timeout_s: 8 ", "function_timeout_s: 60 "),
        ("wait_s: 4 ", "wait_s: 50 "),
        ("renew_after: 1 ", "renew_after: 115 "),
    ):
        changed(settings, wanted)
    profile = (project / "env" / "streams" / "demo.toml").read_text()
    brief = profile.replace("\noverlap = ", '\nreject_after = "3s"\noverlap = ')
    (project / "env" / "streams" / "brief.toml").write_text(brief)
    with serving(Upstream()) as server, running(folder, project, UPSTREAM_DEMO=server.address) as service:
        yield service


def is_connected(service: Service, stream: str) -> bool:
    return str(service.ask("GET", stream)[1]["status"]) == "running"


@pytest.mark.parametrize("stream", REFUSED)
def test_a_refusal_that_passes_ends_nothing(service: Service, stream: str) -> None:
    """The third try is answered, and the stream runs without anybody's help."""
    service.post(stream)
    assert until(lambda: is_connected(service, stream), 10), service.log
    refusals = [one["http_status"] for one in service.connections(stream) if one.get("http_status")]
    assert refusals == [int(stream[-3:])] * 2
    service.ask("DELETE", stream)
    assert until(lambda: service.ask("GET", stream)[1]["status"] == "stopped", 10), service.log


def test_a_refusal_that_goes_on_is_final_once(service: Service) -> None:
    """After so long: one message in the queue, and one line that the alarm counts."""
    service.post(FINAL)
    assert until(lambda: service.ask("GET", FINAL)[1]["status"] == "rejected", 15), service.log
    says = r"StreamRejected: the upstream answered 403 for (\d+) s: a retry cannot help\n"
    assert [int(lasted_s) >= 3 for lasted_s in re.findall(says, service.log)] == [True]
    assert until(lambda: waiting(service) == 1, 10), service.log
    assert counted(service.folder) == 1


def test_who_finds_no_room_is_named_and_connects_when_there_is_room(service: Service) -> None:
    """Of three streams two are connected; the third is in an alert, and connects once one of them is stopped."""
    for stream in (FIRST, SECOND):
        service.post(stream)
        assert until(lambda stream=stream: is_connected(service, stream), 10), service.log  # type: ignore[misc]
    service.post(THIRD)
    assert until(lambda: AWAY in service.log, 10), service.log
    assert re.search("demo:3: lane [AB] cannot connect: Rate Exceeded", service.log)
    assert service.ask("GET", THIRD)[1]["status"] == "starting"
    service.ask("DELETE", FIRST)
    assert until(lambda: is_connected(service, THIRD), 10), service.log
    assert is_connected(service, SECOND)
