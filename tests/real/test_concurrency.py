"""Streams that an upstream refuses for a while or for good, through the whole local service on real sockets."""

import re

import pytest

from tests.examples import one_in
from tests.handlers.servers import Peer, chunks, refuses
from tests.local.support import until
from tests.local_run import LocalRun
from tests.real.test_redrive import ONE, counted, waiting

REFUSED = {f"scripted:{status}": status for status in (401, 403, 404)}
FINAL = "brief:final"


@pytest.mark.parametrize("stream", one_in(3, REFUSED))
def test_a_stream_survives_a_temporary_refusal(local_run: LocalRun, stream: str) -> None:
    """After two refusals the third try is answered, and the stream runs without another request to the API."""
    service = local_run
    service.script(stream, *[refuses(REFUSED[stream])] * 2, chunks(ONE, then=Peer.wait_until_gone))
    service.post(stream)
    assert service.reaches("running", stream, within_s=10), service.log
    refusals = [one["http_status"] for one in service.connections(stream) if one.get("http_status")]
    assert refusals == [REFUSED[stream]] * 2
    service.ask("DELETE", stream)
    assert service.reaches("stopped", stream, within_s=10), service.log


def test_a_lasting_refusal_rejects_the_stream_once(local_run: LocalRun) -> None:
    """After `reject_after` there is one message in the queue, and one line that the alarm counts."""
    service, before = local_run, counted(local_run.folder)
    service.script(FINAL, refuses(403))
    service.post(FINAL)
    assert service.reaches("rejected", FINAL, within_s=15), service.log
    says = r"StreamRejected: the upstream answered 403 for (\d+) s: a retry cannot help\n"
    assert [int(lasted_s) >= 3 for lasted_s in re.findall(says, service.log)] == [True]
    assert until(lambda: waiting(service) == 1, 10), service.log
    assert counted(service.folder) == before + 1
