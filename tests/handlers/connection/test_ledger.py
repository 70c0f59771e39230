"""The gaps from the ledger's records, compared with a count of each millisecond."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.evidence import Known, Record, known, records
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap
from handlers.connection.ledger import corrected, gaps, unasked

DEAD_AFTER_MS = 5
NOW = 100_000


def connection(fence: int, opened_ms: int, closed_ms: int | None, **more: Any) -> Record:
    """Return a connection that asked from a cursor and closed at a given instant."""
    seen_ms = NOW if closed_ms is None else closed_ms
    return Record(fence, opened_ms, seen_ms, closed_ms, "" if closed_ms is None else "reset", True, **more)


def history(steps: list[tuple[int, int, int | None]]) -> list[Record]:
    """Draw connections as they would be recorded: each one's distance from the one before, length and reach."""
    written: list[Record] = []
    opened_ms = 0
    for fence, (after_ms, lasted_ms, reach_ms) in enumerate(steps, 1):
        opened_ms += after_ms
        before = known(written)
        since_ms, wait_ms = before.at_ms, before.behind_ms(fence - 1, opened_ms)
        live_ms = opened_ms + (wait_ms or 0)
        ended_ms = opened_ms + lasted_ms
        written.append(connection(fence, opened_ms, ended_ms, reach_ms=reach_ms, since_ms=since_ms, live_ms=live_ms))
        opened_ms = ended_ms
    return written


closed = st.builds(
    lambda fence, opened, lasted: connection(fence, opened, opened + lasted),
    st.integers(1, 9),
    st.integers(0, 60),
    st.integers(0, 15),
)
steps = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 60), st.sampled_from([None, None, 15, 40])), min_size=1, max_size=9
)


@given(st.lists(closed, max_size=6))
def test_gaps_are_the_milliseconds_between_connections_that_none_covers(between: list[Record]) -> None:
    """The gaps hold exactly the unconnected milliseconds from the first opening to the last."""
    first = min((r.opened_ms for r in between), default=0)
    last = max((r.opened_ms for r in between), default=0)
    missed = [at for at in range(first, last) if not any(r.opened_ms <= at < r.seen_ms for r in between)]
    assert [at for gap in gaps(between, NOW, DEAD_AFTER_MS) for at in range(gap.from_ms, gap.to_ms)] == missed


@given(st.lists(st.tuples(closed, st.integers(0, 30)), max_size=6))
def test_answers_that_were_noticed_late_make_gaps_longer_alone(between: list[tuple[Record, int]]) -> None:
    """Whatever was heard before a connection counted as answered, each instant that lay in a gap still does."""
    brief = [replace(record, seen_ms=record.opened_ms, closed_ms=record.opened_ms) for record, _ in between[:2]]
    between = [*zip(brief, (late_ms for _, late_ms in between), strict=False), *between[2:]]
    late = [replace(record, heard_ms=record.opened_ms - late_ms) for record, late_ms in between]

    def missed(records: list[Record]) -> set[int]:
        return {at for gap in gaps(records, NOW, DEAD_AFTER_MS) for at in range(gap.from_ms, gap.to_ms)}

    assert missed(late) >= missed([record for record, _ in between])


@given(steps)
def test_no_instant_that_an_upstream_may_have_forgotten_is_told_as_brought(
    taken: list[tuple[int, int, int | None]],
) -> None:
    """The upstream keeps so much and sends it as slowly as is assumed; what never came is in an open gap."""
    written = history(taken)
    never_came: set[int] = set()
    due_ms = written[0].opened_ms  # the oldest instant that has not come
    for record in written:
        kept_ms = 0 if record.reach_ms is None else record.opened_ms - record.reach_ms
        never_came |= set(range(due_ms, min(kept_ms, record.opened_ms)))
        due_ms = max(due_ms, min(kept_ms, record.opened_ms))
        # It sends two milliseconds' worth in one, until it has nothing left.
        for at_ms in range(record.opened_ms, record.last_ms):
            due_ms = min(at_ms + 1, due_ms + 2)
    after = connection(99, written[-1].last_ms, None, since_ms=known(written).at_ms)
    open_gaps = [gap for gap in gaps([*written, after], NOW, DEAD_AFTER_MS) if gap.state != DELIVERED]
    told = {at for gap in open_gaps for at in range(gap.from_ms, gap.to_ms)}
    assert never_came <= told
    assert all(gap.to_ms > gap.from_ms for gap in open_gaps)
    assert len(told) == sum(gap.to_ms - gap.from_ms for gap in open_gaps)


@given(steps)
def test_what_is_told_as_delivered_has_come_and_stays_so(taken: list[tuple[int, int, int | None]]) -> None:
    """This holds at any instant, for an upstream that keeps so much and sends it as slowly as is assumed."""
    written: list[Record] = []
    never_came: set[int] = set()
    delivered: set[int] = set()
    at_ms = due_ms = 0
    for fence, (after_ms, lasted_ms, reach_ms) in enumerate(taken, 1):
        at_ms += after_ms
        due_ms = at_ms if fence == 1 else due_ms  # nothing was due before the first
        before, kept_ms = known(written), 0 if reach_ms is None else at_ms - reach_ms
        never_came |= set(range(due_ms, min(kept_ms, at_ms)))
        due_ms = max(due_ms, min(kept_ms, at_ms))
        live_ms = at_ms + (before.behind_ms(fence - 1, at_ms) or 0)
        now = connection(fence, at_ms, None, reach_ms=reach_ms, since_ms=before.at_ms, live_ms=live_ms)
        for ended_by in ("", "", "stopped"):
            closed_ms = at_ms if ended_by else None
            now = replace(now, seen_ms=at_ms, heard_ms=at_ms, closed_ms=closed_ms, ended_by=ended_by)
            told = [gap for gap in gaps([*written, now], at_ms, DEAD_AFTER_MS) if gap.state == DELIVERED]
            before_ms, delivered = delivered, {ms for gap in told for ms in range(gap.from_ms, gap.to_ms)}
            assert before_ms <= delivered <= set(range(due_ms)) - never_came
            for _ in range(0 if ended_by else lasted_ms // 2):
                at_ms, due_ms = at_ms + 1, min(at_ms + 1, due_ms + 2)
        written.append(now)


@given(steps)
def test_no_gap_is_open_where_the_upstream_forgets_nothing(taken: list[tuple[int, int, int | None]]) -> None:
    """Whatever broke off, the open connection has asked for all of it."""
    written = history([(after_ms, lasted_ms, None) for after_ms, lasted_ms, _ in taken])
    now = connection(99, written[-1].last_ms + 7, None, since_ms=known(written).at_ms)
    assert all(gap.state == DELIVERED for gap in gaps([*written, now], NOW, DEAD_AFTER_MS))


@given(steps)
def test_what_is_known_never_falls(taken: list[tuple[int, int, int | None]]) -> None:
    """Each connection asks from no earlier place than the one before; records out of sight change nothing."""
    written = history(taken)
    instants = [known(written[:count]).at_ms or 0 for count in range(1, len(written) + 1)]
    assert instants == sorted(instants)
    assert known(written[-2:]).at_ms == known(written).at_ms


@pytest.mark.parametrize(
    ("fence", "came_ms", "behind_ms", "at_ms"), [(6, 90, 60, 70), (6, 125, 5, 125), (6, 70, 80, 60), (5, 125, 80, 60)]
)
def test_an_older_connection_that_stays_open_is_known_by_what_it_stores(
    fence: int, came_ms: int, behind_ms: int, at_ms: int
) -> None:
    """At 80 it lacked 30 ms. If its successors knew no more than that, each would be further behind than the last."""
    after = Known(7, 60, 0, 85, ((6, 80, 30), (7, 85, 100))).heard(fence, came_ms)
    assert (after.behind_ms(6, 130), after.at_ms) == (behind_ms, at_ms)


def test_a_killed_connection_covers_until_it_was_last_seen() -> None:
    """After dead_after_ms of silence it counts as killed; until then nothing is said of the time after it."""
    killed = Record(fence=1, opened_ms=0, seen_ms=40, closed_ms=None, ended_by="", resumed=False)
    after = Record(fence=2, opened_ms=43, seen_ms=90, closed_ms=None, ended_by="", resumed=True)
    assert gaps([killed, after], 45, DEAD_AFTER_MS) == []
    assert gaps([killed, after], 46, DEAD_AFTER_MS) == [Gap(2, 40, 43, "unrecorded", DELIVERED)]


def test_what_a_killed_connection_had_read_is_a_gap_though_the_clock_of_a_stop_says_later() -> None:
    """It was good until 50 and heard more until 58; a stop at 40 by another clock does not change that."""
    killed = Record(1, 0, 50, None, "", False, heard_ms=58)
    after = Record(2, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=40)
    assert gaps([killed, after], NOW, DEAD_AFTER_MS) == [Gap(2, 50, 58, "unrecorded", OPEN)]
    # What it heard after its last record is known to nobody.
    unheard = replace(killed, heard_ms=49)
    assert gaps([unheard, after], NOW, DEAD_AFTER_MS) == [Gap(2, 50, 51, "unrecorded", OPEN)]
    closed = replace(killed, closed_ms=50, ended_by="stopped")
    assert gaps([closed, after], NOW, DEAD_AFTER_MS) == []


@pytest.mark.parametrize(("ended_by", "to_ms"), [("stalled", 80), ("stopped", 52)])
def test_a_stop_that_a_connection_outlived_has_ended_nothing(ended_by: str, to_ms: int) -> None:
    """By its own clock it was last heard at 50, before the stop at 52; its record was written after the start at 54."""
    silent = Record(1, 0, 50, 50, ended_by, False, heard_ms=50, saved_ms=70)
    after = Record(2, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=52, started_ms=54)
    assert gaps([silent, after], NOW, DEAD_AFTER_MS) == [Gap(2, 50, to_ms, ended_by, OPEN)]


@pytest.mark.parametrize(("stopped_ms", "started_ms", "to_ms"), [(52, 78, 52), (44, 46, 80)])
def test_the_gap_behind_connections_that_have_expired_ends_with_a_stop(
    stopped_ms: int, started_ms: int, to_ms: int
) -> None:
    """All until 50 was stored; after a start at 46 the upstream was away. No record is left of those before."""
    only = Record(9, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=stopped_ms, started_ms=started_ms)
    assert gaps([only], NOW, DEAD_AFTER_MS) == [Gap(9, 50, to_ms, "unrecorded", OPEN)]


@pytest.mark.parametrize(
    "ended",
    [
        {"closed_ms": 90, "ended_by": "reset"},
        {"closed_ms": None, "ended_by": ""},
        {"closed_ms": 90, "ended_by": "unrecorded"},  # as the control API reads the one before
        {"closed_ms": 90, "ended_by": "cursor_expired"},  # as an event of the stream may say
    ],
)
def test_what_came_between_an_answer_and_the_thaw_of_its_function_is_a_gap(ended: dict[str, Any]) -> None:
    """The function stood still from 60 to 90 while the first answer after a stop came, and then nothing more was read.

    An answer after which more was read loses nothing: that was still in the socket.
    """
    before = Record(1, 0, 40, 40, "stopped", False, heard_ms=38)
    late = Record(2, 90, 90, resumed=False, heard_ms=60, stopped_ms=39, started_ms=50, **ended)
    after = Record(3, 95, NOW, None, "", False, since_ms=90, live_ms=95, heard_ms=NOW, stopped_ms=39, started_ms=50)
    cause = ended["ended_by"] or "unrecorded"
    assert gaps([before, late, after], NOW, DEAD_AFTER_MS) == [Gap(3, 60, 95, cause, OPEN)]
    assert gaps([late, after], NOW, DEAD_AFTER_MS) == [Gap(3, 60, 95, cause, OPEN)]
    assert gaps([late], NOW, DEAD_AFTER_MS) == [Gap(2, 60, 90, cause, OPEN)]
    whole = replace(late, closed_ms=90, ended_by="ended")
    assert gaps([before, whole], NOW, DEAD_AFTER_MS) == gaps([whole], NOW, DEAD_AFTER_MS) == []
    read_on = replace(late, seen_ms=92, closed_ms=92, ended_by="reset", heard_ms=92)
    assert gaps([before, read_on, after], NOW, DEAD_AFTER_MS) == [Gap(3, 92, 95, "reset", OPEN)]
    reads = replace(late, seen_ms=92, saved_ms=NOW, closed_ms=None, ended_by="")
    assert gaps([before, reads], NOW, DEAD_AFTER_MS) == []


def test_two_that_were_answered_in_another_order_than_they_claimed_leave_nothing_open() -> None:
    """One evicts the other at once; a default resume that is relieved so leaves nothing open."""
    before = connection(1, 0, 30_000, reach_ms=0)
    older = connection(2, 30_060, 30_900, reach_ms=0, since_ms=29_000, live_ms=32_000)
    newer = connection(3, 30_000, 30_060, reach_ms=0, since_ms=29_000, live_ms=30_090)
    after = connection(4, 30_900, 50_000, reach_ms=0, since_ms=30_000, live_ms=33_000)
    assert gaps([before, older, newer, after], 60_000, DEAD_AFTER_MS) == []


def test_an_open_connection_covers_all_that_follows() -> None:
    """While a connection is open, later ones end no gap."""
    open_one = Record(fence=1, opened_ms=0, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    short = Record(fence=2, opened_ms=50, seen_ms=60, closed_ms=60, ended_by="reset", resumed=False)
    later = Record(fence=3, opened_ms=80, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    assert gaps([later, short, open_one], 100, DEAD_AFTER_MS) == []


def test_a_successor_that_opens_before_the_backlog_has_come_makes_no_gap_longer() -> None:
    """Until the older connection ends, it brings the rest; an answer at that moment shows the hole alone."""
    first, hole = connection(1, 0, 5_000, live_ms=0), Gap(2, 5_000, 55_000, "reset", DELIVERED)
    older = connection(2, 55_000, None, since_ms=5_000, live_ms=105_000)
    newer = connection(3, 99_000, None, since_ms=30_000, live_ms=168_000)
    afresh = replace(newer, resumed=False, live_ms=99_000)
    assert gaps([first, older, newer], NOW, DEAD_AFTER_MS) == gaps([first, older, afresh], NOW, DEAD_AFTER_MS) == [hole]
    broken = replace(older, closed_ms=NOW, ended_by="reset")
    assert gaps([first, broken, afresh], NOW, DEAD_AFTER_MS) == [hole, Gap(3, 95_000, 99_000, "reset", OPEN)]


def test_one_whose_events_wait_is_open_as_long_as_it_is_written_down() -> None:
    """It is known good until the first of them came, and is not dead for that; if it falls silent, it ended there."""
    waits = Record(fence=1, opened_ms=0, seen_ms=40, closed_ms=None, ended_by="", resumed=False, saved_ms=98)
    after = Record(fence=2, opened_ms=43, seen_ms=44, closed_ms=44, ended_by="reset", resumed=False)
    assert gaps([waits, after], 100, DEAD_AFTER_MS) == []
    assert [(gap.from_ms, gap.to_ms) for gap in gaps([waits, after], 104, DEAD_AFTER_MS)] == [(40, 43)]


def test_one_that_caught_up_has_proved_it_though_an_open_one_stands_before_it() -> None:
    """With a late clock, a successor opened before its predecessor; what the predecessor brought counts."""
    first = connection(1, 0, 40)
    second = connection(2, 60, 90, since_ms=40, live_ms=80)
    third = connection(3, 50, None, since_ms=40, live_ms=95)
    assert gaps([first, second, third], NOW, DEAD_AFTER_MS) == [Gap(3, 40, 50, "reset", DELIVERED)]


@pytest.mark.parametrize(("reach_ms", "closed"), [(None, True), (30, True), (29, False), (0, False)])
def test_a_gap_is_closed_where_the_upstream_still_has_what_came_in_it(reach_ms: int | None, closed: bool) -> None:
    """A connection asks from the last instant at which all was known; a reach of none vouches for nothing."""
    before = connection(1, 0, 10, since_ms=None, live_ms=0)
    after = connection(2, 40, None, reach_ms=reach_ms, since_ms=10, live_ms=70)
    told = gaps([before, after], NOW, DEAD_AFTER_MS)
    assert told == [Gap(2, 10, 40, "reset", DELIVERED if closed else OPEN)]
    assert unasked(told, [before, after], 2) == ([] if closed else told)
    # Others are not its own, and the moment of a handover is none.
    assert unasked(told, [before, after], 1) == unasked([replace(told[0], cause="let_go")], [before, after], 2) == []


def test_what_was_asked_for_and_is_not_proved_yet_is_not_missing() -> None:
    """The next connection asks for the rest."""
    before, after = connection(1, 0, 10, since_ms=None, live_ms=0), connection(2, 40, 50, since_ms=10, live_ms=70)
    told = gaps([before, after, connection(3, 90, 95, since_ms=10, live_ms=170)], NOW, DEAD_AFTER_MS)
    assert [gap.state for gap in told] == [OPEN, OPEN]
    assert unasked(told, [before, after], 2) == []


@pytest.mark.parametrize(
    ("before_ms", "short_ms", "after_ms", "open_gaps"),
    [
        (7_000, 7_300, 7_300, []),  # evicted, and relieved a moment later
        (6_900, 7_300, 7_300, [(6_900, 7_000)]),  # nobody was connected for a while before it
        (7_000, 7_300, 7_700, [(7_000, 7_700)]),  # it broke off, and the next came later
        (7_000, 12_001, 12_001, [(7_000, 7_001)]),  # what it had not caught up with may be forgotten by now
    ],
)
def test_a_default_resume_that_is_relieved_leaves_nothing_open(
    before_ms: int, short_ms: int, after_ms: int, open_gaps: list[tuple[int, int]]
) -> None:
    """It was live, or the next asks for the same at once; this fails if nobody was connected in between."""
    evicted = connection(1, 0, before_ms, live_ms=0)
    short = connection(2, 7_000, short_ms, reach_ms=0, live_ms=30_000)
    relief = connection(3, after_ms, None, reach_ms=0, live_ms=after_ms)
    told = [gap for gap in gaps([evicted, short, relief], 2 * NOW, 2 * NOW) if gap.state != DELIVERED]
    assert [(gap.from_ms, gap.to_ms) for gap in told] == open_gaps


@pytest.mark.parametrize(("live_ms", "open_gaps"), [(8_000, []), (73_000, [(7_000, 45_000)])])
def test_whoever_relieves_a_default_resume_has_to_bring_what_that_was_behind_with(
    live_ms: int, open_gaps: list[tuple[int, int]]
) -> None:
    """It broke off itself, and the next one has relieved it in turn, or has broken off as well."""
    evicted = connection(1, 0, 7_000, live_ms=0)
    short = connection(2, 7_000, 7_300, reach_ms=0, live_ms=30_000)
    relief = connection(3, 7_200, 7_400, reach_ms=0, live_ms=20_000)
    last = connection(4, 7_350, 40_000, reach_ms=0, live_ms=live_ms)
    after = connection(5, 45_000, None, reach_ms=0, live_ms=45_000)
    told = [gap for gap in gaps([evicted, short, relief, last, after], 2 * NOW, 2 * NOW) if gap.state != DELIVERED]
    assert [(gap.from_ms, gap.to_ms) for gap in told if gap.from_ms < 40_000] == open_gaps


@pytest.mark.parametrize(("live_ms", "open_gaps"), [(68_000, []), (68_001, [(53_999, 54_000)])])
def test_a_default_resume_that_is_relieved_late_leaves_open_only_what_its_successor_does_not_bring(
    live_ms: int, open_gaps: list[tuple[int, int]]
) -> None:
    """At the assumed speed it still lacks some time; the next one asks 5 s back."""
    before = connection(1, 0, 44_000, live_ms=0)
    long = connection(2, 43_000, 61_000, reach_ms=0, since_ms=34_000, live_ms=live_ms)
    relief = connection(3, 59_000, 90_000, reach_ms=0, since_ms=43_000, live_ms=75_000)
    told = [gap for gap in gaps([before, long, relief], 99_000, DEAD_AFTER_MS) if gap.state != DELIVERED]
    assert [(gap.from_ms, gap.to_ms) for gap in told] == open_gaps


def test_a_gap_is_open_until_a_connection_has_brought_it() -> None:
    """One that breaks off has brought a part; if the next asks too late for the rest, the rest stays open."""
    first = connection(1, 0, 5_000, live_ms=0)
    second = connection(2, 18_000, None, reach_ms=20_000, since_ms=5_000, live_ms=31_000)
    for heard_ms, brought_ms, state in ((18_000, 5_000, OPEN), (24_499, 17_998, OPEN), (24_500, 18_000, DELIVERED)):
        shown = replace(second, seen_ms=30_000, heard_ms=heard_ms)
        assert gaps([first, shown], 30_000, DEAD_AFTER_MS) == [Gap(2, 5_000, 18_000, "reset", state)]
        assert known([first, shown]).at_ms == brought_ms
    broken = replace(second, closed_ms=21_000, seen_ms=21_000, ended_by="reset")
    assert gaps([first, broken], 99_000, DEAD_AFTER_MS) == [Gap(2, 5_000, 18_000, "reset", OPEN)]
    after = known([first, broken])
    assert (after.at_ms, after.behind_ms(2, 25_000)) == (11_000, 10_000 + 4_000)
    in_time = connection(3, 25_000, None, reach_ms=20_000, live_ms=39_000)
    assert [gap.state for gap in gaps([first, broken, in_time], NOW, DEAD_AFTER_MS)] == [DELIVERED, DELIVERED]
    late = replace(in_time, opened_ms=32_000)
    assert gaps([first, broken, late], NOW, DEAD_AFTER_MS) == [
        Gap(2, 5_000, 21_000, "reset", OPEN),
        Gap(3, 21_000, 32_000, "reset", OPEN),
    ]


@pytest.mark.parametrize(
    ("closed_ms", "ended_by", "state"),
    [
        (None, "", OPEN),
        (None, "killed", OPEN),  # it is dead by then, and left no record of its end
        (32_000, "unrecorded", OPEN),  # the same, as the API has it
        (32_000, "stopped", OPEN),
        (32_000, "taken_over", DELIVERED),  # it is good until it was let go; nobody can know better
    ],
)
def test_a_stop_or_a_kill_in_a_silence_proves_nothing(closed_ms: int | None, ended_by: str, state: str) -> None:
    """It was last heard before it can have brought all, so nobody knows whether its peer lived on."""
    first = connection(1, 0, 5_000, live_ms=0)
    second = connection(2, 18_000, closed_ms, since_ms=5_000, live_ms=31_000, heard_ms=20_000)
    second = replace(second, seen_ms=32_000, ended_by="" if closed_ms is None else ended_by)
    now_ms = 99_000 if ended_by == "killed" else 32_000
    assert gaps([first, second], now_ms, DEAD_AFTER_MS) == [Gap(2, 5_000, 18_000, "reset", state)]


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_an_upstream_that_ends_each_connection_soon_leaves_nothing_open(heard: bool, is_stopped: bool) -> None:
    """Each lives 3 s, the next opens 2 s later. Only what the last may not have brought is open, stopped or not."""
    written: list[Record] = []
    for fence, opened_ms in enumerate(range(0, 500_000, 5_000), 1):
        before, ended_ms = known(written), opened_ms + 3_000
        live_ms = opened_ms + (before.behind_ms(fence - 1, opened_ms) or 0)
        one = connection(fence, opened_ms, ended_ms, reach_ms=10_000, since_ms=before.at_ms, live_ms=live_ms)
        written.append(replace(one, ended_by="ended_by_upstream", heard_ms=ended_ms))
    last = replace(written[-1], ended_by="stopped", heard_ms=ended_ms if heard else opened_ms)
    written[-1] = last if is_stopped else replace(last, closed_ms=None, ended_by="")
    told = [(gap.from_ms, gap.to_ms) for gap in gaps(written, ended_ms, DEAD_AFTER_MS) if gap.state != DELIVERED]
    assert told == ([] if heard else [(opened_ms - 2_000, opened_ms)])


def test_what_a_dead_peer_may_have_kept_back_is_made_up_for_as_well() -> None:
    """Released in a silence, it was good until its close; the next one is behind by the silence too."""
    heard = connection(1, 0, 15_000, live_ms=0, heard_ms=12_000)
    assert known([heard]).at_ms == 15_000
    assert known([heard]).behind_ms(1, 16_000) == 4_000
    # One that hears nothing makes up for nothing, however long it stays.
    silent = connection(2, 16_000, 19_000, since_ms=15_000, live_ms=24_000, heard_ms=16_000)
    assert known([heard, silent]).behind_ms(1, 20_000) == 8_000
    # One of a version that did not write down when it heard something was good until its close.
    assert known([replace(heard, heard_ms=None)]).behind_ms(1, 16_000) == 1_000


def test_an_answer_that_was_noticed_late_makes_the_next_connection_behind_only_once() -> None:
    """Its function stood still from its last bytes until it noticed the answer: that time lies after its cursor."""
    late = connection(2, 44_000, 44_000, since_ms=35_000, live_ms=53_000, heard_ms=38_000)
    assert known([late]).behind_ms(2, 45_000) == 45_000 - 35_000


def test_who_breaks_off_while_it_is_sent_what_a_dead_peer_kept_back_has_caught_up_with_nothing() -> None:
    """The upstream forgets what is older than 9 s; the peer had been dead for three when it was released."""
    first = connection(1, 0, 15_400, live_ms=0, heard_ms=12_400)
    asked = known([first])
    live_ms = 15_600 + (asked.behind_ms(1, 15_500) or 0) + 100
    second = connection(2, 15_600, 16_900, reach_ms=9_000, since_ms=asked.at_ms, live_ms=live_ms, heard_ms=16_800)
    third = connection(3, 31_000, None, reach_ms=9_000, since_ms=15_400, live_ms=90_000)
    told = [(gap.from_ms, gap.to_ms) for gap in gaps([first, second, third], NOW, DEAD_AFTER_MS)]
    # At twice the speed at which it happened, what it sent last was of 12.4 s + 2 * 1.2 s, so of 14.8 s.
    assert told == [(15_400, 16_900), (16_900, 31_000)]


def test_an_upstream_that_ended_the_stream_has_sent_all_of_it() -> None:
    """Its end comes after everything, however short the connection was."""
    ended = replace(connection(2, 40, 41, since_ms=10, live_ms=100), ended_by="ended")
    assert gaps([connection(1, 0, 10), ended], NOW, DEAD_AFTER_MS) == [Gap(2, 10, 40, "reset", DELIVERED)]


def test_what_the_upstream_has_forgotten_is_open_but_for_what_another_connection_covers() -> None:
    """The answer that the cursor is too old is a connection of no length; later events can be requested again."""
    refused = records(connection(2, 30, 30, since_ms=10, live_ms=None), None, 30)
    expired = records(replace(connection(2, 30, 30, since_ms=10), ended_by="cursor_expired"), None, 30)
    after = connection(3, 35, None, since_ms=30, live_ms=50)
    assert refused == []
    for closed_ms, told in ((10, [Gap(2, 10, 30, "cursor_expired", LOST, 0)]), (30, [])):
        first = connection(1, 0, closed_ms, live_ms=0)
        behind = Gap(3, 30, 35, "reset" if told == [] else "cursor_expired", DELIVERED)
        shown = gaps([first, *expired, after], NOW, DEAD_AFTER_MS)
        assert [gap for gap in shown if gap.state != DELIVERED] == told
        assert replace(shown[-1], cause=behind.cause) == behind


def test_a_connection_that_is_told_so_after_a_while_keeps_what_it_brought() -> None:
    """From the last sign of life to the notice nothing can be requested."""
    record = replace(connection(2, 20, 60, since_ms=10, live_ms=40), ended_by="cursor_expired")
    told = records(record, 20, 75)
    after = connection(3, 80, None, since_ms=75, live_ms=99)
    assert gaps([connection(1, 0, 10), *told, after], NOW, DEAD_AFTER_MS) == [
        Gap(2, 10, 20, "reset", DELIVERED),
        Gap(2, 60, 75, "cursor_expired", LOST, 0),
        Gap(3, 75, 80, "cursor_expired", DELIVERED),
    ]


def test_an_answer_that_begins_elsewhere_leaves_the_gap_open() -> None:
    """The gap's cause is the answer."""
    (told,) = records(Record(2, 40, NOW, None, "", False, since_ms=10, live_ms=40), 40, 40)
    assert gaps([connection(1, 0, 10), told], NOW, DEAD_AFTER_MS) == [Gap(2, 10, 40, "cursor_unknown", LOST)]


def test_a_gap_is_seen_though_the_connection_before_it_is_out_of_sight() -> None:
    """A long outage has more tries than anybody looks back over; the only record in sight has what was known then."""
    alone = connection(40, 90, None, reach_ms=50, since_ms=10, live_ms=200)
    assert gaps([alone], NOW, DEAD_AFTER_MS) == [Gap(40, 10, 90, "unrecorded", OPEN)]
    assert gaps([replace(alone, since_ms=None)], NOW, DEAD_AFTER_MS) == []


def test_one_that_breaks_off_beside_another_leaves_what_it_should_have_brought_open() -> None:
    """The other began afresh, so nobody brought what the first was behind with."""
    first, second = connection(1, 0, 10), connection(2, 20, 60, since_ms=10, live_ms=90)
    second = replace(second, ended_by="truncated")
    afresh = Record(3, 50, NOW, None, "", False, since_ms=10, live_ms=50)
    assert gaps([first, second, afresh], NOW, DEAD_AFTER_MS) == [
        Gap(2, 10, 20, "reset", DELIVERED),
        Gap(3, 30, 50, "truncated", OPEN),
    ]
    live = replace(second, live_ms=30)
    broken = connection(3, 55, 65, since_ms=58, live_ms=80)
    fresh = replace(afresh, fence=4, opened_ms=62)
    assert gaps([first, live, broken, fresh], NOW, DEAD_AFTER_MS) == [
        Gap(2, 10, 20, "reset", DELIVERED),
        Gap(4, 60, 62, "reset", OPEN),
    ]
    # The next one may open just then; and a gap that ends where such a time begins is a gap of its own.
    behind = connection(1, 16, 20, reach_ms=0, live_ms=41)
    assert gaps([behind, connection(2, 20, 21, live_ms=49)], NOW, DEAD_AFTER_MS) == [Gap(2, 16, 20, "reset", OPEN)]
    killed = replace(connection(3, 36, 44, live_ms=44, heard_ms=40), ended_by="")
    late = [connection(1, 37, 44, since_ms=31, live_ms=58), Record(2, 17, 20, 20, "reset", False), killed]
    assert gaps(late, NOW, DEAD_AFTER_MS) == [Gap(3, 20, 36, "reset", OPEN)]


def test_an_announced_loss_begins_no_later_than_it_was_recorded() -> None:
    """Only what a connection thought known of its predecessors moves it, if less of that is known by now."""
    losses = [Gap(2, at_ms, 95, "announced_by_upstream", LOST, at_ms) for at_ms in (70, 85)]
    second = connection(2, 90, 120, since_ms=80, live_ms=140)
    assert corrected(losses, [connection(1, 0, 100), second]) == losses
    earlier = corrected(losses, [connection(1, 0, 60), second])
    assert [(loss.from_ms, loss.to_ms) for loss in earlier] == [(60, 95), (85, 95)]


def test_two_gaps_before_one_opening_belong_to_two_connections() -> None:
    """The table has one gap of each connection, so the second would replace the first."""
    ends = ((3, 55_861, 85_153, 91_269), (4, 85_153, 87_237, 92_432), (5, 87_237, 122_978, 95_283))
    relieved = [
        connection(fence, opened, over, live_ms=live, since_ms=0, reach_ms=0) for fence, opened, over, live in ends
    ]
    first = Record(2, 35_458, 40_357, 40_357, "stopped", True, reach_ms=0, live_ms=59_399)
    found = gaps([first, *relieved], 123_000, 8_000)
    assert [(gap.fence, gap.from_ms, gap.to_ms) for gap in found] == [
        (3, 35_458, 55_861),
        (4, 79_037, 80_153),
        (5, 82_042, 82_237),
    ]
