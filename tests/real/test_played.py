"""Providers that the service itself plays, followed by both lanes as docs/profiles.md says.

Their stream ids hold what a segment of a path can hold.
"""

import re
from urllib.parse import quote as percent_encode

from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun

STREAMS = ("couchdb:a/b+c==%2F😀'$\"\\#", "etcd:config/*")


def quote(stream_id: str) -> str:
    """The id as one segment of a path."""
    return percent_encode(stream_id, safe="")


def numbers(service: Service, stream_id: str) -> list[int]:
    """The numbers of the stored events, in order."""
    events = (event["data"] for event in service.events(quote(stream_id)))
    return sorted(int(max(re.findall("[0-9]+", text), key=len)) for text in events)


def was_handed_over(service: Service, stream_id: str) -> bool:
    """Whether a connection was taken over by its successor."""
    return any(record.get("ended_by") == "taken_over" for record in service.connections(stream_id))


def test_both_lanes_follow_a_provider_that_is_played(local_run: LocalRun) -> None:
    """After a handover and a stop each event is stored once, and none is missing. On a slow machine a successor may
    come late.
    """
    service = local_run
    for stream_id in STREAMS:
        service.post(quote(stream_id))
    for stream_id in STREAMS:
        assert until(lambda of=stream_id: was_handed_over(service, of), 30), service.log  # type: ignore[misc]
        service.ask("DELETE", quote(stream_id))
    for stream_id in STREAMS:
        assert service.reaches("stopped", quote(stream_id), within_s=10)
        stored, status = numbers(service, stream_id), service.ask("GET", quote(stream_id))[1]
        assert stored == list(range(stored[0], stored[-1] + 1))
        assert status["counts"]["stored"] == len(stored)
        assert all(gap["state"] == "delivered" for gap in status["coverage"]["gaps"])
