"""The answer shows how much of a stream's coverage and counts is known."""

import time
from typing import Any

import pytest

from handlers.api.connection_records import Connections, Records
from handlers.api.figures import known_gaps
from handlers.api.gaps import gap_page
from handlers.api.queries import PageRequest
from handlers.connection.effects import Progress
from handlers.connection.evidence import UNRECORDED
from handlers.connection.gap_record import DELIVERED, OPEN, Gap
from handlers.connection.lease import Lease
from handlers.store.ledger_records import gap_key
from handlers.store.stream_records import NEWEST, StreamRecords
from tests.handlers.api.shown import NOW, OTHER, connection, shown
from tests.handlers.aws import CONTROL, Memory, save_connection

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("given", "reaches"),
    [
        ({}, True),
        # Some connections were not read, or may have expired since the stream was started.
        ({"is_all": False}, False),
        ({"kept_since_ms": 1_001}, False),
        ({"kept_since_ms": 1_000}, True),
    ],
)
def test_coverage_says_whether_it_reaches_back_to_the_start(given: dict[str, Any], reaches: bool) -> None:
    """Coverage reaches back to the start if the records hold every connection since the POST."""
    coverage = shown(connection(7, "B", 2_000), started_at_ms=1_000, **given)["coverage"]
    assert coverage["reaches_start"] is reaches


@pytest.mark.parametrize(
    "end",
    [
        {"ended_by": "stopped"},
        {"ended_by": "ended"},
        {"ended_by": "refused", "error": "StreamRejected", "opened_ms": None},
    ],
)
def test_a_connection_from_before_the_start_shows_that_it_is_reached(end: dict[str, Any]) -> None:
    """A connection from before the start proves that coverage reaches it; the time between the two is no gap."""
    before = connection(6, "A", **({"opened_ms": 1_000} | end), closed_ms=1_500, claimed_ms=900)
    body = shown(before, connection(7, "B", 600_000), is_all=False, kept_since_ms=NOW)
    assert (body["coverage"]["reaches_start"], body["coverage"]["gaps"]) == (True, [])
    assert body["coverage"]["connections"] == 1


def test_a_gap_that_the_next_connection_did_not_close_is_open() -> None:
    """A gap stays open if one connection broke before it caught up, and the upstream does not reach back for the next.

    The status, also after a start, and the page of gaps agree.
    """
    broken = connection(1, "A", 4_733, 4_833, ended_by="reset", since_ms=2_733, live_ms=6_733, reach_ms=5_000)
    after = connection(2, "B", 8_946, since_ms=4_833, reach_ms=5_000)
    known = known_gaps("running", Connections(Records(Lease(), None, None, [broken, after]), NOW, 1 << 60))[0]
    assert [(gap.from_ms, gap.to_ms, gap.state) for gap in known] == [(4_733, 8_946, OPEN)]
    for started_at_ms in (1_000, 4_000):
        (gap,) = shown(broken, after, started_at_ms=started_at_ms)["coverage"]["gaps"]
        assert (gap["length_ms"], gap["state"]) == (4_213, OPEN)


@pytest.mark.parametrize(("started_at_ms", "connections", "gaps"), [(900, 2, 1), (2_500, 1, 0)])
def test_a_rejected_predecessor_begins_no_coverage(started_at_ms: int, connections: int, gaps: int) -> None:
    """A renewal after a rejection continues the coverage, unless a POST came after the rejection."""
    refused = {"ended_by": "refused", "error": "StreamRejected", "claimed_ms": 2_000}
    last, rejected = connection(1, "B", 1_000, 2_100), connection(2, "A", None, 2_200, **refused)
    after = connection(3, "B", 3_000, execution=OTHER, claimed_ms=2_600)
    coverage = shown(last, rejected, after, execution=OTHER, started_at_ms=started_at_ms)["coverage"]
    assert (coverage["connections"], len(coverage["gaps"])) == (connections, gaps)


def test_an_outage_ends_at_the_stop_in_it() -> None:
    """An outage counts until the stop in it, even if its last connection closed later; the stopped time is no gap.

    A later gap counts, although its connections name the same stop.
    """
    for closed_ms, shown_gaps in ((2_000, [(2_000, 3_000), (9_600, 9_700)]), (3_010, [(9_600, 9_700)])):
        before = connection(1, "B", 1_000, closed_ms, ended_by="reset")
        after = [connection(2, "B", 9_500, 9_600, stopped_ms=3_000), connection(3, "B", 9_700, stopped_ms=3_000)]
        connections = Connections(Records(Lease(execution=OTHER), None, None, [before, *after]), NOW, 8_000)
        missed, away, _ = known_gaps("running", connections)
        assert ([(gap.from_ms, gap.to_ms) for gap in missed], away) == (shown_gaps, None)


@pytest.mark.parametrize(
    ("closed_ms", "ended_by", "is_gap"), [(3_090, "", False), (3_200, "stopped", False), (3_200, "", True)]
)
def test_a_stop_that_no_connection_saw_before_the_next_start_ends_no_outage(
    closed_ms: int, ended_by: str, is_gap: bool
) -> None:
    """If a start follows a stop before a connection saw the stop, the outage is a gap, also while it lasts."""
    before = connection(1, "B", 1_000, closed_ms, ended_by=ended_by)
    after = connection(2, "B", 9_500, stopped_ms=3_000, started_ms=3_100)
    lease = Lease(execution=OTHER, stopped_at_ms=3_000, started_at_ms=3_100)
    missed, _, _ = known_gaps("running", Connections(Records(lease, None, None, [before, after]), NOW, 8_000))
    _, away, _ = known_gaps("reconnecting", Connections(Records(lease, None, None, [before]), NOW, 8_000))
    assert ((9_500 in {gap.to_ms for gap in missed}), away is not None and away.to_ms == NOW) == (is_gap, is_gap)


def test_a_gap_that_was_none_is_not_shown_as_open() -> None:
    """A recorded gap is shown as delivered if the earlier connection's record proves that it lasted longer."""
    lasts = [(2_500, DELIVERED), (2_400, OPEN)]
    for closed_ms, state in lasts:
        held = [connection(1, "A", 1_000, closed_ms), connection(2, "B", 2_450, resumed=False)]
        connections = Connections(Records(Lease(execution=OTHER), None, None, held), NOW, 8_000)
        gap = Gap(2, 2_000, 2_450, UNRECORDED, OPEN)
        (told,) = gap_page("demo", "running", connections, [(gap_key(gap), gap)], (), PageRequest("", 5))["gaps"]
        assert told["state"] == state


def test_a_reader_knows_whether_it_has_all_records(memory: Memory) -> None:
    """Only the newest connections are read; at the limit there may be more, and expiry bounds the time they cover."""
    memory.put_control("demo", "lease", generation={"N": "1"})
    kept, records = memory.store(ledger_keep_days=2), StreamRecords(memory.dynamodb, CONTROL)
    for store, count, (is_all, expire) in (
        (memory.store(), 1, (True, False)),
        (memory.store(), NEWEST, (False, False)),
        (kept, NEWEST + 1, (False, True)),
    ):
        progress = Progress(fence=count, claimed_ms=1, seen_ms=time.time_ns() // 10**9 * 1000)
        save_connection(store, "demo", progress, lane="A", execution="", request_id=str(count))
        for fence in range(2, count):
            memory.put_control("demo", f"connection#{fence:012d}", fence={"N": str(fence)})
        read = records.read("demo")
        assert read is not None
        kept_since_ms = read.kept_since_ms
        assert sorted(one.fence for one in read.connections) == [*range(max(1, count - NEWEST + 1), count + 1)]
        assert (read.is_all, read.kept_since_ms > 0) == (is_all, expire)
    assert 2 * DAY_MS <= time.time_ns() // 1_000_000 - kept_since_ms < 3 * DAY_MS


def test_an_expired_record_is_hidden_until_it_is_gone(memory: Memory) -> None:
    """An expired record is hidden: DynamoDB deletes in any order, so a missing record would look like a gap."""
    memory.put_control("demo", "lease", generation={"N": "1"})
    for fence, ends_ms in ((1, 0), (2, 2 * DAY_MS)):
        expires = {"N": str((time.time_ns() // 1_000_000 + ends_ms) // 1000)}
        memory.put_control("demo", f"connection#{fence:012d}", fence={"N": str(fence)}, expires_at=expires)
    read = StreamRecords(memory.dynamodb, CONTROL).read("demo")
    assert read is not None
    assert [one.fence for one in read.connections] == [2]
