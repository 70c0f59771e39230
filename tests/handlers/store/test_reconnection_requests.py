"""The requests of a reconnection in place, counted at the client that sends them.

All requests of the control table count, from the loss of a connection until the next one stores its first event; the
opening of the upstream is listed among them. The events themselves are in the other table; the end of a log is read
first.
"""

from typing import Any

import pytest

from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.steps import Invocation
from handlers.profile.parse import parse
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.aws import CountingClient
from tests.handlers.connection.managers import event
from tests.handlers.scripted import Script, World, plain_store

LOST_MS = 60_500
UPSTREAM = "upstream"
# The record of the connection, its release with the cursor, the claim, the mark.
IN_PLACE = ["connection#000000000001", "lease", "lease", UPSTREAM, "lease"]
RETRY = b"retry: 2000\n\n"
POLICIES: dict[str, dict[str, Any]] = {
    "evicts": {"overlap": "evicts"},
    "tolerates": {"overlap": "tolerates"},
    "forbids": {"overlap": "forbids"},
    "hot": {"overlap": "tolerates", "standby": "hot"},
}


def requested(*tries: Script, retry: bytes = b"", **fields: Any) -> list[str]:
    """Return the requested records of the control table in order, with the openings of the upstream.

    The `tries` come between the lost connection and the connection that brings an event.
    """
    scripts: list[Script] = [
        [(0, Opened(200)), (10, Chunk(retry + event(1))), (LOST_MS - 20, Closed("reset"))],
        *tries,
        [(0, Opened(200)), (0, Chunk(event(2))), (20, Chunk(b"event: end\ndata: x\n\n"))],
    ]
    sent: list[tuple[int, str, str]] = []

    def note(_name: str, asked: dict[str, Any]) -> None:
        sent.append(
            (performer.now_ms, asked.get("TableName", "events"), asked.get("Key", {}).get("SK", {}).get("S", ""))
        )

    def opens(_stream: str) -> Script:
        sent.append((performer.now_ms, UPSTREAM, UPSTREAM))
        return scripts.pop(0)

    performer = World(plain_store(CountingClient(MemoryDynamoDB("events", "control"), note)), opens)
    profile = parse(
        "demo",
        {"address": "https://upstream.invalid", "framing": "sse", "end": {"event": "end"}, "reconnect_tries": 5}
        | fields,
        {},
    )
    performer.run(profile, Invocation("demo", "A", "", "r1", 900_000, 20_000, 2_000, 5_000, 28_000))
    after = [(table, record) for at_ms, table, record in sent if at_ms >= LOST_MS - 20]
    tables = [table for table, _ in after]
    stored = tables.index("events", max(at for at, table in enumerate(tables) if table == UPSTREAM))
    return [record for table, record in after[:stored] if table != "events"]


@pytest.mark.parametrize("store", [{"store": "items"}, {"store": "log", "flush_s": 0}], ids=["items", "log"])
@pytest.mark.parametrize("retry", [b"", RETRY], ids=["at once", "after a rest"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_reconnection_in_place_is_four_requests(policy: str, retry: bytes, store: dict[str, Any]) -> None:
    """A reconnection is four requests for any policy and store, with or without a back-off.

    The release notes the back-off, the claim takes the try, and the mark ends it.
    """
    assert requested(retry=retry, **POLICIES[policy], **store) == IN_PLACE


@pytest.mark.parametrize("policy", POLICIES)
def test_a_longer_back_off_reads_the_lease_for_a_stop(policy: str) -> None:
    """A longer back-off reads the lease every two seconds, as often as the stage does, so that a stop ends it."""
    rest = ["connection#000000000001", "lease", "lease", "lease", "lease", UPSTREAM, "lease"]
    assert requested(retry=b"retry: 5000\n\n", **POLICIES[policy]) == rest


@pytest.mark.parametrize("retry", [b"", RETRY], ids=["at once", "after a rest"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_try_after_a_failed_one_is_four_requests_too(policy: str, retry: bytes) -> None:
    """A failed try costs four requests: its record, the back-off, the next claim and the mark."""
    failure: Script = [(0, Opened(503))]
    asked = requested(failure, failure, retry=retry, backoff={"http": {"start_s": 1}}, **POLICIES[policy])
    tries = [["connection#00000000000" + number, "lease", "lease", UPSTREAM] for number in "123"]
    assert asked == [*tries[0], *tries[1], *tries[2], "lease"]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_unanswered_connection_reads_the_lease_once_more(policy: str) -> None:
    """The lease may show a connected successor, which explains the end. If two are forbidden, the release shows it."""
    failure: Script = [(0, Closed("refused"))]
    asked = requested(failure, retry=RETRY, **POLICIES[policy])
    read = [] if policy == "forbids" else ["lease"]
    assert asked == [*IN_PLACE[:-1], "connection#000000000002", *read, "lease", "lease", UPSTREAM, "lease"]
