"""The verdict describes a stream in a sentence or two, and the three figures agree with each other."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.api.answers import to_iso
from handlers.api.connection_records import Connection, Connections, Records
from handlers.api.figures import coverage, percent
from handlers.api.status_words import status
from handlers.api.verdict import length_words, with_instant
from handlers.connection.gap_record import DELIVERED, FAILED, LOST, OPEN, Gap, Repair
from handlers.connection.lease import Lease
from tests.examples import examples
from tests.handlers.api.shown import DEAD_AFTER_MS, MINE, NOW, OTHER, connection, shown
from timeline import coverage as timeline

RESET: dict[str, Any] = {"ended_by": "reset", "error": "StreamDropped"}
REFUSED: dict[str, Any] = {"ended_by": "refused", "error": "StreamDropped", "http_status": 401}
OVER: dict[str, Any] = {"execution": "", "ended_at_ms": 900_000}
STOP: dict[str, Any] = {"stop": True, "stop_at_ms": 800_000}
STOPPED = OVER | STOP | {"ending": "StreamEnded", "ending_cause": "stopped"}
FIRST = connection(1, "B", 100_000, 700_000, **RESET)
EARLY = connection(1, "B", 1, 9_000, **RESET)
# CLOSES resumes and closes the gap before it; LEAVES does not resume and leaves it open.
CLOSES, LEAVES = connection(2, "A", 712_000, since_ms=700_000), connection(2, "A", 712_000, resumed=False)
WHOLE, TRIED = connection(1, "B", 100_000), connection(2, "A", None, claimed_ms=999_000, **REFUSED)
GONE = "its execution has left no trace for ten minutes: it may be dead, or Lambda has no room for its functions"


def announced(events: int | None, number: int = 1, cause: str = "announced_by_upstream") -> Gap:
    """Return an announced loss of two seconds with this number of events."""
    return Gap(1, 500_000 + 5_000 * number, 502_000 + 5_000 * number, cause, LOST, number, events)


def lost(*gaps: Gap) -> dict[str, Any]:
    """Return recorded losses as a field of the records."""
    return {"losses": gaps}


CONNECTED = [
    ([WHOLE], {}, "Connected 15 min. Nothing lost."),
    ([FIRST, CLOSES], {}, "Connected 4 min 48 s. Nothing lost: 1 gap, delivered later."),
    (
        [EARLY, connection(2, "B", 9_500, 700_000, **RESET, since_ms=9_000), replace(CLOSES, fence=3)],
        {},
        "Connected 4 min 48 s. Nothing lost: 2 gaps, all delivered later.",
    ),
    (
        [WHOLE],
        lost(replace(announced(3), repair=Repair(*announced(3).span, FAILED))),
        "Connected 15 min. 3 events lost, as the upstream reports. 1 gap of 2 s could not be repaired.",
    ),
    ([FIRST, LEAVES], {}, "Connected 4 min 48 s. 1 gap of 12 s is not proved complete yet."),
    (
        [EARLY, connection(2, "B", 9_500, 700_000, **RESET, resumed=False), replace(LEAVES, fence=3)],
        {},
        "Connected 4 min 48 s. 2 gaps of 12 s in all are not proved complete yet.",
    ),
    # The record was written just now, but the events of the last 49 s are not stored.
    (
        [connection(1, "B", 100_000, seen_ms=NOW - 49_000, saved_ms=NOW)],
        {},
        "Connected 15 min. What came in the last 49 s is not stored yet. Nothing lost before that.",
    ),
    (
        [FIRST, replace(LEAVES, seen_ms=NOW - 49_000, saved_ms=NOW)],
        {},
        "Connected 4 min 48 s. What came in the last 49 s is not stored yet. 1 gap of 12 s is not proved complete yet.",
    ),
    # Older connections may be left out.
    ([WHOLE], {"is_all": False}, "Connected at least 15 min. Nothing lost in the last 15 min."),
    # Losses that the upstream announced, with a number and without.
    ([WHOLE], lost(announced(1)), "Connected 15 min. 1 event lost, as the upstream reports."),
    ([WHOLE], lost(announced(1), announced(1_200, 2)), "Connected 15 min. 1,201 events lost, as the upstream reports."),
    (
        [WHOLE],
        lost(announced(12), announced(None, 2)),
        "Connected 15 min. Events lost in 2 gaps of 4 s in all, as the upstream reports.",
    ),
    # Two connections were open at once: overlapping losses may be of the same events.
    (
        [connection(1, "A", 100_000), replace(WHOLE, fence=2)],
        lost(announced(3), replace(announced(4), fence=2, from_ms=506_999)),
        "Connected 15 min. Events lost in 2 gaps of 2 s in all, as the upstream reports.",
    ),
    (
        [connection(1, "A", 100_000), replace(WHOLE, fence=2)],
        lost(announced(3), replace(announced(4, 2), fence=2, from_ms=507_000)),
        "Connected 15 min. 7 events lost, as the upstream reports.",
    ),
    ([WHOLE], lost(announced(None, 1, "not_stored")), "Connected 15 min. Events lost in 1 gap of 2 s."),
    (
        [FIRST, LEAVES],
        lost(announced(12)),
        "Connected 4 min 48 s. 12 events lost, as the upstream reports. 1 gap of 12 s is not proved complete yet.",
    ),
    # The queue has only the beginning of an event that was too long for its profile, so it may be lost.
    ([replace(WHOLE, dead_lettered=2)], {}, "Connected 15 min. 2 events went to the dead-letter queue."),
    (
        [replace(FIRST, dead_lettered=1), LEAVES],
        {},
        "Connected 4 min 48 s. 1 event went to the dead-letter queue. 1 gap of 12 s is not proved complete yet.",
    ),
    ([WHOLE], {"damage": ("fence",)}, "Connected 15 min. Its lease cannot be read whole: fence. Nothing lost."),
]
NOT_CONNECTED = [
    ([FIRST], {}, "Away 5 min: reset. Nothing lost before that."),
    ([FIRST, TRIED], {}, "Away 5 min: 401 Unauthorized. Nothing lost before that."),
    (
        [FIRST, TRIED],
        {"keeps_ms": 600_000},
        "Away 5 min: 401 Unauthorized. 0 events lost so far; the upstream keeps 10 min.",
    ),
    (
        [EARLY, connection(2, "B", 9_500, 700_000, **RESET, since_ms=9_000)],
        {"keeps_ms": 300_000},
        "Away 5 min: reset. 0 events lost so far: 1 gap, delivered later; the upstream keeps 5 min.",
    ),
    (
        [replace(FIRST, dead_lettered=1), TRIED],
        {"keeps_ms": 600_000},
        "Away 5 min: 401 Unauthorized. 1 event went to the dead-letter queue."
        " 0 events lost so far; the upstream keeps 10 min.",
    ),
    (
        [FIRST],
        {"keeps_ms": 299_999},
        "Away 5 min: reset. Nothing lost before that. The upstream keeps 4 min 59 s: what it sent before may be lost.",
    ),
    (
        [FIRST],
        lost(announced(12)) | {"keeps_ms": 600_000},
        "Away 5 min: reset. 12 events lost, as the upstream reports; the upstream keeps 10 min.",
    ),
    (
        [EARLY, connection(2, "B", 9_500, 999_000, **RESET, resumed=False)],
        {},
        "Away 1 s: reset. 1 gap of 500 ms is not proved complete yet.",
    ),
    (
        [connection(1, "B", 1, seen_ms=900_000, deadline_ms=NOW)],
        {"expires_at_ms": 0},
        "Away 1 min 40 s: its function is slow, paused or gone. Nothing lost before that.",
    ),
    ([], {"started_at_ms": NOW - 1}, "Starting: the upstream has not answered yet."),
    ([TRIED], {"connected_token": 0}, "Not connected yet: 401 Unauthorized."),
    ([connection(1, "B", 1, 2, **RESET)], {}, f"Unknown: {GONE}. Nothing lost before that."),
]
# No later connection can close an open gap.
NOT_ASKED = [
    ([replace(FIRST, ended_by="stopped", error="")], STOP, "Stopping on request. Nothing lost."),
    ([FIRST], STOPPED, "Stopped on request. 1 gap of 1 min 40 s is not proved complete."),
    (
        [replace(FIRST, ended_by="ended", error="")],
        OVER | {"ending": "StreamEnded"},
        "Ended: the upstream ended the stream. Nothing lost.",
    ),
    (
        [FIRST, replace(TRIED, error="StreamRejected", claimed_ms=899_000)],
        OVER | {"ending": "StreamRejected"},
        "Rejected: 401 Unauthorized. 1 gap of 3 min 20 s is not proved complete.",
    ),
    ([], OVER | {"ending": "InvalidRequest", "ending_cause": "No such profile"}, "Rejected: No such profile."),
    (
        [FIRST],
        OVER | {"ending": "StreamBroken", "ending_cause": "It was cut off"},
        "Broken: It was cut off. 1 gap of 3 min 20 s is not proved complete.",
    ),
    # This stream is still wanted, although it is not tried.
    (
        [FIRST],
        OVER | {"ending": "RenewalFailed"},
        "Broken: the last execution failed: RenewalFailed. Nothing lost before that.",
    ),
]


@pytest.mark.parametrize(("connections", "more", "words"), CONNECTED + NOT_CONNECTED + NOT_ASKED)
def test_each_state_of_a_stream_has_its_verdict(
    connections: list[Connection], more: dict[str, Any], words: str
) -> None:
    """The verdict tells whether a stream is connected, how long, why not, and what was lost; it names no instant."""
    assert shown(*connections, **more)["verdict"] == words


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ("Away 2 min 3 s: 401 Unauthorized. Nothing lost.", "Away since 16:08: 401 Unauthorized. Nothing lost."),
        ("Away 2 min.", "Away since 16:08."),
        ("Away 2.5 s: reset. Nothing lost.", "Away since 16:08: reset. Nothing lost."),
        ("Away: reset.", "Away: reset."),
        ("Connected 2 min.", "Connected 2 min."),
        ("Stopped on request. Nothing lost.", "Stopped on request at 16:08. Nothing lost."),
        ("Broken: the last execution failed.", "Broken at 16:08: the last execution failed."),
    ],
)
def test_a_viewer_puts_the_instant_in_place_of_a_length(words: str, drawn: str) -> None:
    """A viewer replaces the length of something that goes on with its instant, wherever the verdict has one."""
    assert with_instant(words, "16:08") == drawn


@pytest.mark.parametrize(
    ("connections", "more", "since_ms"),
    [
        ([FIRST, connection(2, "A", 699_000, 800_000), connection(3, "B", 799_000)], {}, 100_000),
        ([FIRST, CLOSES], {}, 712_000),
        ([WHOLE], {"is_all": False}, None),
        ([FIRST, TRIED], {}, 700_000),
        ([TRIED], {"connected_token": 0, "started_at_ms": 990_000}, 990_000),
        ([TRIED], {"connected_token": 1, "started_at_ms": 990_000}, None),
        ([], {"started_at_ms": NOW - 1}, NOW - 1),
        ([FIRST], STOPPED, 800_000),
        ([FIRST], OVER | {"ending": "RenewalFailed"}, 900_000),
    ],
)
def test_the_instant_of_a_verdict_is_a_field_beside_it(
    connections: list[Connection], more: dict[str, Any], since_ms: int | None
) -> None:
    """The verdict's instant is null if older records could change it; for a stream never connected it is the start."""
    assert shown(*connections, **more)["since_at"] == to_iso(since_ms)


@pytest.mark.parametrize(
    ("lasted_ms", "words"),
    [(0, "0 ms"), (999, "999 ms"), (2_970, "2.9 s"), (12_700, "12 s"), (3_601_000, "1 h"), (93_780_000, "1 d 2 h")],
)
def test_a_length_has_its_two_largest_units(lasted_ms: int, words: str) -> None:
    """A length has its two largest units; a second unit of zero is left out."""
    assert length_words(lasted_ms) == words


def test_a_percentage_is_rounded_down() -> None:
    """A percentage is rounded down to four digits, so that any missing millisecond can be seen."""
    assert [percent(*one) for one in ((3, 1), (10**12, 1), (7, 0), (0, 0))] == [66.6666, 99.9999, 100.0, 100.0]


# Connections in turn on two lanes: the milliseconds from the opening before to this one, its duration, the time after
# which it would have caught up (None: it requested nothing), and its silence at the end.
steps = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 400), st.none() | st.integers(0, 500), st.integers(0, 300)),
    min_size=1,
    max_size=6,
)
Steps = list[tuple[int, int, int | None, int]]
losses = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 300), st.none() | st.integers(0, 9)), max_size=3)


def figures(rows: list[Connection], gaps: list[Gap], now_ms: int, **lease: Any) -> Any:
    """Return the figures that are shown at this instant."""
    newest = len(rows)
    held: dict[str, Any] = {"execution": MINE, "fence": newest, "connected_token": newest, "expires_at_ms": now_ms + 1}
    records = Records(Lease(**held | lease), None, None, rows, gaps)
    connections = Connections(records, now_ms, DEAD_AFTER_MS)
    found = coverage(status(connections), connections, records)
    assert found is not None
    return found.as_json()


def drawn(given_steps: Steps, is_open: bool) -> tuple[list[Connection], int]:
    """Return the connections, the last of which is open or has ended, and a later instant."""
    rows, opened_ms, until_ms = list[Connection](), 1_000, 0
    for fence, (after_ms, lasted_ms, behind_ms, silent_ms) in enumerate(given_steps, 1):
        opened_ms += after_ms
        closed_ms = opened_ms + lasted_ms
        asked: dict[str, Any] = {"heard_ms": max(opened_ms, closed_ms - silent_ms)}
        if behind_ms is not None and until_ms:
            asked |= {"since_ms": until_ms, "live_ms": opened_ms + behind_ms}
        rows.append(connection(fence, "AB"[fence % 2], opened_ms, closed_ms, ended_by="reset", **asked))
        until_ms = max(until_ms, closed_ms)
    if is_open:
        rows[-1] = replace(rows[-1], closed_ms=None, ended_by="", seen_ms=until_ms + 50)
    return rows, until_ms + 50


@pytest.mark.parametrize(
    ("waits_ms", "complete"), [(DEAD_AFTER_MS, 100.0), (DEAD_AFTER_MS + 1, 99.111), (450_000, 50.0)]
)
def test_events_that_wait_to_be_stored_are_not_complete(waits_ms: int, complete: float) -> None:
    """Events that wait longer than a lease are not complete, although their function's record was just written."""
    body = shown(connection(1, "B", 100_000, seen_ms=NOW - waits_ms, saved_ms=NOW))["coverage"]
    since_at = None if complete == 100 else to_iso(NOW - waits_ms)
    assert (body["complete_percent"], body["connected_percent"], body["waiting_since_at"]) == (complete, 100, since_at)
    assert body["missing"] == {"intervals": 0, "seconds": 0, "events": 0}


@pytest.mark.parametrize(("beat_ms", "waits"), [(NOW - DEAD_AFTER_MS, False), (NOW - DEAD_AFTER_MS - 1, True)])
def test_a_groups_heartbeat_keeps_its_streams_from_counting_as_late(beat_ms: int, waits: bool) -> None:
    """A group's heartbeat vouches for all events until its lag before it, and does so for the time of a lease.

    Before, healthy streams were reported as late.
    """
    vouched = connection(1, "B", 100_000, seen_ms=beat_ms - DEAD_AFTER_MS, saved_ms=NOW, lag_ms=DEAD_AFTER_MS)
    assert (shown(vouched)["coverage"]["waiting_since_at"] is not None) is waits


@pytest.mark.parametrize(("caught_up_ms", "waits"), [(NOW, False), (NOW + 1, True)])
def test_a_connection_that_catches_up_does_not_hide_what_waits(caught_up_ms: int, waits: bool) -> None:
    """A successor that has not caught up does not hide events that an older connection has read and not stored."""
    stuck_ms = NOW - 2 * DEAD_AFTER_MS
    older = connection(1, "A", 100_000, seen_ms=stuck_ms, saved_ms=NOW)
    asked = {"resumed": True, "since_ms": stuck_ms, "live_ms": caught_up_ms, "heard_ms": NOW}
    body = shown(older, connection(2, "B", NOW - 100, seen_ms=NOW, saved_ms=NOW, **asked))["coverage"]
    assert body["waiting_since_at"] == (to_iso(stuck_ms) if waits else None)


def test_an_upstream_that_closes_every_three_seconds_is_complete() -> None:
    """If each connection delivers the events of the 2 s before it, 61 % is connected and nothing is missing."""
    times = [(5_000 * number, 5_000 * number + 3_000) for number in range(1, 26)]
    rows = [
        connection(fence, "A", opened_ms, closed_ms, ended_by="ended_by_upstream", heard_ms=closed_ms, reach_ms=600_000)
        for fence, (opened_ms, closed_ms) in enumerate(times, 1)
    ]
    asked = [replace(one, since_ms=(one.opened_ms or 0) - 2_000, live_ms=(one.opened_ms or 0) + 2_000) for one in rows]
    rows, now_ms = [rows[0], *asked[1:]], times[-1][1]
    for last, lease in (
        (replace(rows[-1], closed_ms=None, ended_by=""), {}),
        (replace(rows[-1], ended_by="stopped"), {"stop": True, "stop_at_ms": now_ms}),
    ):
        known = figures([*rows[:-1], last], [], now_ms, **lease)
        assert (known["connected_percent"], known["complete_percent"]) == (60.9756, 100.0)
        assert known["missing"] == {"intervals": 0, "seconds": 0.0, "events": 0}


@settings(max_examples=examples(300))
@given(steps, losses, st.booleans())
def test_the_three_figures_agree_with_the_milliseconds(
    given_steps: Steps, given_losses: list[tuple[int, int, int | None]], is_open: bool
) -> None:
    """The figures agree with counted milliseconds and with a timeline; complete and missing add up to the whole."""
    rows, now_ms = drawn(given_steps, is_open)
    gaps = [
        Gap(1, at_ms, at_ms + length_ms, "x", LOST, n, e) for n, (at_ms, length_ms, e) in enumerate(given_losses, 1)
    ]
    known = figures(rows, gaps, now_ms)
    ends = [(one.opened_ms or 0, now_ms if one.closed_ms is None else one.closed_ms) for one in rows]
    whole = set(range(min(from_ms for from_ms, _ in ends), now_ms))
    connected = whole & {at_ms for from_ms, to_ms in ends for at_ms in range(from_ms, to_ms)}
    assert known["connected_percent"] == len(connected) * 1_000_000 // max(1, len(whole)) / 10_000
    spans = [timeline.Connection("A", from_ms, to_ms, "reset") for from_ms, to_ms in ends]
    assert timeline.connected_percent(spans, timeline.gaps(spans, now_ms)) == known["connected_percent"]
    lacking = [gap for gap in known["gaps"] if gap["state"] in (OPEN, LOST)]
    missing = known["missing"]
    assert missing["intervals"] == len(lacking)
    complete_ms = max(0, len(whole) - round(missing["seconds"] * 1000))
    assert known["complete_percent"] == complete_ms * 1_000_000 // max(1, len(whole)) / 10_000
    assert (missing["seconds"] > 0) == (missing["intervals"] > 0) == (known["complete_percent"] < 100)
    numbers = [gap["events"] for gap in lacking]
    assert missing["events"] == (None if None in numbers else sum(numbers))
    assert all(gap["events"] == 0 for gap in known["gaps"] if gap["state"] == DELIVERED)


@settings(max_examples=examples(300))
@given(steps, st.booleans(), st.integers(1, 10**9), st.integers(1, 10**9))
def test_a_stop_and_the_next_start_change_no_history(
    given_steps: Steps, is_open: bool, later_ms: int, start_ms: int
) -> None:
    """A stop and a start leave the figures unchanged, until a connection begins a new count."""
    rows, now_ms = drawn(given_steps, is_open)

    def shares(now: int, **lease: Any) -> list[Any]:
        known = figures(rows, [], now, **lease)
        return [known[name] for name in ("since", "to_at", "connected_percent", "complete_percent", "missing")]

    before = shares(now_ms)
    if is_open:
        rows[-1] = replace(rows[-1], closed_ms=now_ms, ended_by="stopped")
    assert shares(now_ms, stop=True, stop_at_ms=now_ms) == before
    let_go = {"execution": "", "ending": "StreamEnded", "ending_cause": "stopped"}
    after_ms = now_ms + later_ms
    assert shares(after_ms, **let_go, ended_at_ms=now_ms + 1, stop=True, stop_at_ms=now_ms) == before
    start_ms += now_ms
    started = {"execution": OTHER, "started_at_ms": start_ms, "stopped_at_ms": now_ms}
    assert shares(start_ms + 5, **started) == before
    # A connection's clock may be late by less than half of the time between stop and start.
    opened_ms = start_ms - (start_ms - now_ms) // 2
    rows.append(connection(9, "A", opened_ms, None, execution=OTHER, since_ms=2, seen_ms=start_ms + 5))
    known = figures(rows, [], start_ms + 5, **started, connected_token=9)
    assert (known["since"], known["connections"], known["gaps"]) == (to_iso(opened_ms), 1, [])
