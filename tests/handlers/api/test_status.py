"""The status of a stream, computed from records alone."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import to_iso
from handlers.api.connection_records import Connection, Records
from handlers.api.last_error import Retries
from handlers.api.status import page
from handlers.api.status_words import UNHEARD_MS
from handlers.connection.backoff import Backoff
from handlers.connection.epochs import SHOWN_MS, Epoch
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap
from handlers.connection.lease import Lease
from tests.handlers.api.shown import DEAD_AFTER_MS, MINE, NOW, OTHER, connection, shown

IDS = st.lists(st.text("ab:", min_size=1, max_size=3), unique=True).map(sorted)


# Two connections; the second took over from the first without a gap.
WHOLE = {
    "since": "1970-01-01T00:01:40.000Z",
    "to_at": "1970-01-01T00:16:40.000Z",
    "reaches_start": True,
    "connected_since_at": "1970-01-01T00:01:40.000Z",
    "connections": 2,
    "connected_percent": 100.0,
    "complete_percent": 100.0,
    "waiting_since_at": None,
    "missing": {"intervals": 0, "seconds": 0.0, "events": 0},
    "overlap_ms": 2000,
    "gaps": [],
}


def ends(opened_ms: int, seen_ms: int, closed_ms: int | None) -> dict[str, str | None]:
    """Return when a lane's connection was opened, seen and closed, in the form of the answer."""
    return {"opened_at": to_iso(opened_ms), "seen_at": to_iso(seen_ms), "closed_at": to_iso(closed_ms)}


def test_a_running_stream_is_shown_whole() -> None:
    """The answer for a running stream has its holder, lanes, cursor, coverage and counts, as JSON."""
    body = shown(
        connection(1, "B", 100_000, 502_000, stored=400, duplicates=1),
        connection(2, "A", 500_000, stored=480, duplicates=3, dead_lettered=1),
        cursor="17",
        saved_ms=999_000,
        holder="A/request-2",
        started_at_ms=99_000,
    )
    assert body.pop("last_error") is None
    assert body.pop("bill")["since_at"] == body["started_at"]
    counts = {"connections": 2, "stored": 880, "duplicates": 4, "conflicts": 0, "left_out": 0, "dead_lettered": 1}
    assert body == {
        **dict.fromkeys(("stop_requested_at", "ended_at", "last_event_at", "ids_restarted_at")),
        **dict.fromkeys(("stuck_at_cursor", "budget")),
        "reason": "1 event went to the dead-letter queue",
        "stream": "demo",
        "status": "running",
        "verdict": "Connected 15 min. 1 event went to the dead-letter queue.",
        "since_at": "1970-01-01T00:01:40.000Z",
        "since_before_at": None,
        "execution": MINE,
        "generation": 1,
        "fence": 2,
        "started_at": "1970-01-01T00:01:39.000Z",
        "holder": {"lane": "A", "fence": 2, "request_id": "request-2"},
        "lanes": {
            "A": {"phase": "connected", "fence": 2, **ends(500_000, NOW, None), "ended_by": None},
            "B": {"phase": "waiting", "fence": 1, **ends(100_000, 502_000, 502_000), "ended_by": "taken_over"},
        },
        "cursor": {"value": "17", "saved_at": "1970-01-01T00:16:39.000Z"},
        "coverage": WHOLE,
        "counts": counts | {"at_least": False, "ends": {"taken_over": 1}},
        "open_gaps": 0,
        "open_gaps_at_least": False,
        "events_per_s": 0.978,
        "pace": {"silent_ms": None, "usual_every_ms": 1_022, "longest_pause_ms": None, "quiet_after_ms": None},
    }


LOSS = "3 events lost, as the upstream reports"
QUIET = "quiet: nothing new for 600 s, and that is not usual"
RESTARTED = "its ids start over: new events with known ids are "


@pytest.mark.parametrize(
    ("fields", "more", "reason"),
    [
        ({"event_ms": 400_000, "pause_ms": 300_000}, {}, QUIET),
        ({"event_ms": 400_001, "pause_ms": 300_000}, {}, None),
        ({"event_ms": 400_000}, {}, None),
        ({"event_ms": 400_000, "pause_ms": 300_000}, {"group": "#1"}, None),
        ({"event_ms": 400_000, "pause_ms": 300_000}, {"logged_ms": 900_000}, None),
        ({"event_ms": 940_000, "expect_ms": 60_000}, {}, "quiet: nothing new for 60 s, and one is expected every 60 s"),
        ({"event_ms": 940_000, "expect_ms": 60_000}, {"group": "#1"}, None),
        ({}, {"epoch": Epoch(1, 5, 900_000, True)}, f"{RESTARTED}stored under new keys"),
        ({}, {"epoch": Epoch(0, 5, 900_000)}, f'{RESTARTED}not stored unless on_conflict is "epoch"'),
        ({}, {"epoch": Epoch(1, 5, NOW - SHOWN_MS, True)}, None),
        ({}, {"losses": (Gap(1, 600_000, 602_000, "announced_by_upstream", LOST, 1, 3),)}, LOSS),
    ],
)
def test_a_running_stream_with_a_problem_has_a_reason(
    fields: dict[str, Any], more: dict[str, Any], reason: str | None
) -> None:
    """A running stream has a reason if it is quiet, if the upstream's ids start over, or if events are lost."""
    lease = Lease(execution=MINE, fence=2, connected_token=2, expires_at_ms=NOW + 1)
    every = [connection(1, "B", 100_000, 502_000, **fields), connection(2, "A", 500_000, **fields)]
    records = replace(Records(lease, None, None, every), **more)
    found = page(["demo"], lambda _: records, 9, NOW, DEAD_AFTER_MS, Retries(1, 1), lambda: False)["streams"][0]
    assert (found["status"], found["reason"]) == ("running", reason)
    # The list has only the largest unit of a length, so that it seldom changes.
    short = (reason or "").partition(" for ")[0]
    assert found["verdict"] == f"Connected 15 min.{f' {short[:1].upper()}{short[1:]}.' if short else ''}"
    assert found["last_event_at"] == to_iso(max(fields.get("event_ms", 0), more.get("logged_ms", 0)) or None)
    assert found["ids_restarted_at"] == to_iso(records.epoch.since_ms or None)


KILLED = {"seen_ms": NOW - DEAD_AFTER_MS - 1}
UNHEARD = {"seen_ms": NOW - UNHEARD_MS - 1}


@pytest.mark.parametrize(
    ("connections", "lease", "status"),
    [
        ([], {"started_at_ms": NOW - 1}, "starting"),
        ([], {"started_at_ms": NOW - UNHEARD_MS}, "starting"),
        ([], {"started_at_ms": NOW - UNHEARD_MS - 1}, "unknown"),
        ([connection(1, "B", 1, 2, execution=OTHER, ended_by="stopped")], {"started_at_ms": NOW - 1}, "starting"),
        ([connection(1, "B", 1, 999_000, execution=OTHER)], {"started_at_ms": 1}, "reconnecting"),
        ([connection(1, "B", 1, 2, execution=OTHER, ended_by="stopped"), connection(2, "B", 3)], {}, "running"),
        ([connection(1, "B", 1, execution=OTHER)], {}, "running"),
        ([connection(1, "B", 1)], {"execution": ""}, "running"),
        ([connection(1, "B", 1, 999_000, ended_by="reset")], {}, "reconnecting"),
        ([connection(1, "B", 1, **KILLED)], {"expires_at_ms": NOW}, "reconnecting"),
        ([connection(1, "B", 1, **KILLED)], {}, "running"),
        ([connection(1, "B", 1)], {"expires_at_ms": NOW}, "running"),
        ([connection(1, "B", 1, **KILLED)], {"expires_at_ms": NOW + 1, "released_token": 1}, "reconnecting"),
        ([connection(1, "B", 1, 399_999, ended_by="reset")], {}, "unknown"),
        ([connection(1, "B", 1, **UNHEARD)], {"expires_at_ms": 5}, "unknown"),
        ([connection(1, "B", 1)], {"stop": True}, "stopping"),
        ([connection(1, "B", 1, 999_999, ended_by="stopped")], {"stop": True}, "stopping"),
        ([connection(1, "B", 1, 999_999, ended_by="stopped")], {"stop": True, "execution": ""}, "stopped"),
        ([connection(1, "B", 1, **UNHEARD)], {"stop": True, "expires_at_ms": 5}, "stopped"),
        ([], {"stop": True, "started_at_ms": NOW - 1}, "stopping"),
        ([], {"stop": True, "started_at_ms": NOW - UNHEARD_MS - 1}, "stopped"),
        ([connection(1, "B", 1, 2, ended_by="ended")], {"execution": "", "ending": "StreamEnded"}, "ended"),
        ([connection(1, "B", 1, 2, ended_by="refused")], {"execution": "", "ending": "StreamRejected"}, "rejected"),
        ([], {"execution": "", "ending": "InvalidRequest"}, "rejected"),
        ([], {"execution": "", "ending": "DynamoDB.SdkClientException"}, "broken"),
        ([connection(1, "B", 1, 2)], {"execution": "", "ending": "RenewalFailed"}, "broken"),
        ([], {"execution": ""}, "ended"),
        # An older end, and connections that outlive their execution.
        ([], {"ending": "StreamRejected", "started_at_ms": NOW - 1}, "starting"),
        ([connection(1, "B", 1)], {"execution": "", "stop": True}, "stopping"),
        ([connection(1, "B", 1)], {"execution": "", "ending": "StreamEnded", "ending_cause": "stopped"}, "stopping"),
    ],
)
def test_the_status_in_one_word(connections: list[Connection], lease: dict[str, Any], status: str) -> None:
    """Each state of a stream has its word; a holder lives as long as its lease, even if the stream is silent."""
    assert shown(*connections, **lease)["status"] == status


def phases(*connections: Connection, **lease: Any) -> dict[str, str]:
    """Return the phases by lane."""
    return {lane: shown["phase"] for lane, shown in shown(*connections, **lease)["lanes"].items()}


def test_the_phases_of_the_lanes() -> None:
    """A lane without a connection waits; a lane that claimed without a record connects; after a drop it reconnects."""
    assert phases(connection(1, "B", 1)) == {"A": "waiting", "B": "connected"}
    assert phases(fence=1, connected_token=0, holder="B/request-1", started_at_ms=NOW) == {
        "A": "waiting",
        "B": "connecting",
    }
    assert phases(connection(1, "B", 1), fence=2, connected_token=1, holder="A/r") == {
        "A": "connecting",
        "B": "connected",
    }
    assert phases(connection(1, "B", 1), connection(2, "A", 2)) == {"A": "connected", "B": "connected"}
    dropped = connection(1, "B", 1, 999_000, ended_by="reset")
    assert phases(dropped) == {"A": "waiting", "B": "reconnecting"}
    assert phases(dropped, fence=2, connected_token=1, holder="B/r") == {"A": "waiting", "B": "connecting"}
    assert phases(connection(1, "B", 1, **KILLED), expires_at_ms=NOW) == {"A": "waiting", "B": "reconnecting"}
    stopped = connection(1, "B", 1, 999_000, ended_by="stopped")
    assert phases(stopped, stop=True) == {"A": "waiting", "B": "ending"}
    assert phases(stopped, stop=True, execution="", holder="B/r") == {"B": "stopped"}


@pytest.mark.parametrize("ended_by", ["stopped", "ended", "reset", ""])
def test_a_lane_that_has_not_connected_since_the_last_start_waits(ended_by: str) -> None:
    """The end of a lane's connection before the last start does not count, because it belongs to another execution."""
    before = connection(1, "A", 1, 100_000, ended_by=ended_by, execution="the one before", claimed_ms=1)
    now = connection(2, "B", 900_000, claimed_ms=900_000)
    assert phases(before, now, started_at_ms=899_000) == {"A": "waiting", "B": "connected"}


def gap(from_ms: int, to_ms: int, cause: str, *, state: str = OPEN) -> dict[str, Any]:
    """Return a gap in the form of the answer."""
    length = {"length_ms": to_ms - from_ms, "state": state, "events": 0 if state == DELIVERED else None}
    return {"from_at": to_iso(from_ms), "to_at": to_iso(to_ms), "cause": cause, **length}


def test_gaps_have_their_lengths_and_causes() -> None:
    """A gap ends at the next answer; after a kill it begins at the last sign of life; a gap that goes on has no end."""
    coverage = shown(
        connection(1, "B", 0, 100_000, ended_by="reset"),
        connection(2, "B", None, claimed_ms=100_100, ended_by="refused"),
        connection(3, "B", 101_000, seen_ms=400_000),
        connection(4, "B", 410_000, 899_000, ended_by="stalled", resumed=False),
        expires_at_ms=0,
    )
    assert coverage["coverage"] == WHOLE | {
        "since": to_iso(0),
        "connected_since_at": None,
        "connections": 3,
        "connected_percent": 88.8,
        "complete_percent": 88.9,
        "missing": {"intervals": 2, "seconds": 111.0, "events": None},
        "overlap_ms": 0,
        "gaps": [
            gap(100_000, 101_000, "reset", state=DELIVERED),
            gap(400_000, 410_000, "unrecorded"),
            gap(899_000, NOW, "stalled") | {"to_at": None},
        ],
    }
    assert coverage["counts"]["ends"] == {"refused": 1, "reset": 1, "stalled": 1, "unheard": 1}
    assert coverage["last_error"]["at"] == to_iso(899_000)


@pytest.mark.parametrize(("lasted_ms", "rate"), [(1, None), (999, None), (1_000, 814.0)])
def test_a_pace_needs_a_connection_of_a_second(lasted_ms: int, rate: float | None) -> None:
    """A connection of less than a second has no pace: 814 events of backlog in 1 ms are not 814,000 a second."""
    assert shown(connection(1, "B", 1, 1 + lasted_ms, stored=814))["events_per_s"] == rate


def test_a_gap_that_goes_on_has_the_cause_of_the_last_end() -> None:
    """A gap that goes on has the cause of the connection that ended last, even if that connection is the older one."""
    gaps = shown(
        connection(1, "A", 0, 900_000, ended_by="reset"),
        connection(2, "B", 500_000, 600_000, ended_by="stalled"),
        expires_at_ms=0,
    )["coverage"]["gaps"]
    assert gaps == [gap(900_000, NOW, "reset") | {"to_at": None}]


def test_a_loss_of_the_upstream_is_a_gap_beside_a_connection() -> None:
    """A loss that the upstream reported is listed among the gaps with its cause, and no instant counts twice."""
    coverage = shown(
        connection(1, "B", 100_000, 200_000, ended_by="reset"),
        connection(2, "A", 250_000, resumed=False),
        losses=[
            Gap(2, 500_000, 510_000, "announced_by_upstream", LOST, 1),
            # This loss begins before the first connection, and ends in the gap between the two.
            Gap(2, 50_000, 220_000, "cursor_expired", LOST, 2),
        ],
    )["coverage"]
    assert coverage["gaps"] == [
        gap(50_000, 220_000, "cursor_expired", state=LOST),
        gap(200_000, 250_000, "reset"),
        gap(500_000, 510_000, "announced_by_upstream", state=LOST),
    ]
    # Missing are 100 s to 250 s and 10 s more, of 900 s; in 50 s of it no connection was open.
    assert coverage["missing"] == {"intervals": 3, "seconds": 160.0, "events": None}
    assert (coverage["complete_percent"], coverage["connected_percent"]) == (82.2222, 94.4444)
    assert coverage["connected_since_at"] == to_iso(250_000)


def test_a_loss_from_before_the_last_start_is_not_of_this_coverage() -> None:
    """Losses and gaps from before the last start do not count in the coverage."""
    coverage = shown(
        connection(1, "B", 100_000, 200_000, ended_by="stopped"),
        connection(2, "A", 250_000),
        losses=[Gap(1, 150_000, 160_000, "announced_by_upstream", LOST, 1)],
    )["coverage"]
    assert (coverage["gaps"], coverage["complete_percent"]) == ([], 100.0)


@pytest.mark.parametrize(
    ("ends", "fields", "lease", "is_stuck"),
    [
        (3, {}, {}, True),
        (2, {}, {}, False),
        (3, {"stored": 1}, {}, False),
        (3, {}, {"execution": "", "ending": "StreamRejected", "ended_at_ms": NOW}, False),
    ],
)
def test_a_stream_that_is_stuck_at_its_cursor_is_shown_as_such(
    ends: int, fields: dict[str, Any], lease: dict[str, Any], is_stuck: bool
) -> None:
    """A stream is shown as stuck from its third equal end on, until it gets past the cursor or is no longer tried."""
    failed = connection(3, "A", NOW - 9_000, NOW - 8_000, ended_by="truncated", error="StreamDropped", **fields)
    answer = shown(failed, cursor="41", rest=Backoff(same_ends=ends, same_end="x"), **lease)
    expected = {"value": "41", "same_ends": ends, "ended_by": "truncated"}
    assert answer["stuck_at_cursor"] == (expected if is_stuck else None)
    words = f"{ends} connections in a row got nothing beyond the cursor: truncated"
    assert (answer["reason"] == words) is is_stuck


def test_the_end_of_a_stuck_stream_is_that_of_an_answered_connection() -> None:
    """A stuck stream shows the last end of an answered connection, because a refusal does not concern the cursor."""
    failed = connection(3, "A", NOW - 9_000, NOW - 8_000, ended_by="truncated", error="StreamDropped")
    refused = connection(4, "A", None, claimed_ms=NOW - 7_000, ended_by="refused", error="StreamDropped")
    for last in (refused, connection(4, "A", NOW - 7_000)):
        answer = shown(failed, last, cursor="41", rest=Backoff(same_ends=3, same_end="x"))
        assert answer["stuck_at_cursor"]["ended_by"] == "truncated"


@given(IDS, st.integers(1, 4), st.sets(st.text("ab:", min_size=1, max_size=3)), st.booleans())
def test_pages_hold_each_stream_once(ids: list[str], limit: int, gone: set[str], is_late: bool) -> None:
    """With any ids, limit and delay, the pages hold all streams in order, except those that were deleted meanwhile."""

    def read(stream_id: str) -> Records | None:
        return None if stream_id in gone else Records(Lease(), None, None, [])

    shown: list[str] = []
    after: str | None = ""
    while after is not None:
        asked = [one for one in ids if one > after][: limit + 1]
        answer = page(asked, read, limit, 0, 0, Retries(0, 0), lambda: is_late)
        assert len(answer["streams"]) <= limit
        shown += [one["stream"] for one in answer["streams"]]
        after = answer["next"]
    assert shown == [one for one in ids if one not in gone]
