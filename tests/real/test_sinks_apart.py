"""Sinks that hang, refuse or are slow, beside fifty healthy ones, through the whole local service.

Events are written into the tables as connections write them; everything behind is real: the tables' stream, the
function in its sandboxes, and a server on a socket.
"""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from handlers.store.event_items import event_item
from tests import projects
from tests.handlers.deliver import rigs
from tests.handlers.deliver.records import event
from tests.harness import Service, running
from tests.http_server import Answer, Request, answering
from tests.local.support import client, until

pytestmark = pytest.mark.long
SOUND = [f"sound:{number}" for number in range(50)]
SICK = ("hangs", "refuses", "slow")
PROFILE = 'address = "${UPSTREAM_DEMO}/demo"\nallow_private = true\nframing = "sse"\n'
WARM, ALONE, ROUNDS, EVERY_S = 3, 5, 8, 2.5
DELAY_S = 1.0


class Hooks:
    """A server with an address for each way to behave; `arrived` says when each event came."""

    def __init__(self) -> None:
        self.arrived: dict[tuple[str, str], float] = {}
        self.is_sick = True
        self.over = threading.Event()

    def answer(self, request: Request) -> Answer:
        """Answers as the path says."""
        way, one = request.path.strip("/"), json.loads(request.body)
        if self.is_sick and way == "hangs":
            self.over.wait(60)
            return Answer(503)
        if self.is_sick and way == "refuses":
            return Answer(500)
        if way == "slow":
            time.sleep(0.1)
        self.arrived.setdefault((one["stream"], one["key"]), time.time())
        return Answer(204)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hooks, Service, list[float], list[float]]]:
    """The service, while its sinks get an event every few seconds."""
    folder = tmp_path_factory.mktemp("apart")
    made = Hooks()
    with answering(made.answer) as url:
        streams = projects.copied(folder / "project") / "env" / "streams"
        for way in (*SICK, "sound"):
            hook = f'{{ webhook = "{url}/{way}", secret = "${{secret:hook}}", allow_private = true }}'
            (streams / f"{way}.toml").write_text(f"{PROFILE}deliver = {hook}\n")
        with running(folder, folder / "project") as service:
            endpoint = f"http://127.0.0.1:{service.port + 1}"
            client("secretsmanager", endpoint).create_secret(Name="/streamkeeper/test/hook", SecretString=rigs.SECRET)
            tables = client("dynamodb", endpoint)

            def lags(number: int, *streams: str) -> list[float]:
                """Stores an event of each stream; returns how long those of the fifty took, a minute at most."""
                stored_s: dict[str, float] = {}
                for stream_id in streams:
                    stored_s[stream_id] = time.time()
                    item = event_item(stream_id, 1, number, event(str(number), at_ms=round(time.time() * 1000)))
                    tables.put_item(TableName="streamkeeper-test-events", Item=item)
                time.sleep(EVERY_S)
                return [made.arrived.get((one, str(number)), stored_s[one] + 60) - stored_s[one] for one in SOUND]

            lags(0, *SOUND, *SICK)
            assert until(lambda: len(made.arrived) == len(SOUND) + 1, 120), service.log
            for number in range(ROUNDS + ALONE, ROUNDS + ALONE + WARM):
                lags(number, *SOUND)  # the first calls start sandboxes, which takes seconds
            beside = [lag for number in range(1, ROUNDS) for lag in lags(number, *SOUND, *SICK)]
            alone = [lag for number in range(ROUNDS, ROUNDS + ALONE) for lag in lags(number, *SOUND)]
            try:
                yield made, service, alone, beside
            finally:
                made.over.set()


def test_no_sink_delays_another(hooks: tuple[Hooks, Service, list[float], list[float]]) -> None:
    """One sink hangs, one answers 500, one takes 0.1 s: the events of the fifty others arrive without delay."""
    _, service, alone, beside = hooks
    for name, lags in (("alone", alone), ("beside", beside)):
        print(f"{name}: {len(lags)} events, median {_share(lags, 50):.2f} s, of 99 in 100 {_share(lags, 99):.2f} s")
    assert _share(beside, 99) < _share(alone, 99) + DELAY_S, service.log


def test_mended_sinks_get_every_event_although_a_function_was_killed(
    hooks: tuple[Hooks, Service, list[float], list[float]],
) -> None:
    """Waiting events arrive in their order, within a sweep and a back-off."""
    made, service, *_ = hooks
    service.kill()
    made.is_sick = False
    made.over.set()
    for one in SICK:
        assert until(lambda: sum(stream == one for stream, _ in made.arrived) == ROUNDS, 400), service.log  # noqa: B023
        assert [key for stream, key in made.arrived if stream == one] == [str(number) for number in range(ROUNDS)]


def _share(lags: list[float], percent: int) -> float:
    return sorted(lags)[len(lags) * percent // 100]
