"""The gaps that later connections close: how far these were behind, and how much of that they brought.

A reach of 0 is a default resume, which vouches for nothing.
"""

from dataclasses import replace

import pytest

from handlers.connection.evidence import Known, Record, sum_of_records
from handlers.connection.gap_record import DELIVERED, OPEN, Gap
from handlers.connection.ledger import find_gaps, unrequested_gaps
from tests.handlers.connection.ledgers import DEAD_AFTER_MS, NOW, connection, ledger, open_spans


@pytest.mark.parametrize(
    ("fence", "came_ms", "behind_ms", "at_ms"), [(6, 90, 60, 70), (6, 125, 5, 125), (6, 70, 80, 60), (5, 125, 80, 60)]
)
def test_events_stored_by_an_older_open_connection_count_for_its_successors(
    fence: int, came_ms: int, behind_ms: int, at_ms: int
) -> None:
    """Connection 6 lacked 30 ms at 80; without what it stored since, each successor would be further behind."""
    after = Known(7, 60, 0, 85, ((6, 80, 30), (7, 85, 100))).with_stored_until(fence, came_ms)
    assert (after.behind_ms(6, 130), after.at_ms) == (behind_ms, at_ms)


def test_two_connections_answered_in_reverse_order_of_their_claims_leave_no_gap() -> None:
    """The newer one is answered first and evicted by the older. A default resume that is relieved so leaves no gap."""
    before = connection(1, 0, 30_000, reach_ms=0)
    older = connection(2, 30_060, 30_900, reach_ms=0, since_ms=29_000, live_ms=32_000)
    newer = connection(3, 30_000, 30_060, reach_ms=0, since_ms=29_000, live_ms=30_090)
    after = connection(4, 30_900, 50_000, reach_ms=0, since_ms=30_000, live_ms=33_000)
    assert ledger(before, older, newer, after, now_ms=60_000) == []


def test_a_successor_that_opens_before_the_backlog_has_come_makes_no_gap_longer() -> None:
    """Until the older connection ends, it brings the rest, so the ledger shows the original gap alone."""
    first, hole = connection(1, 0, 5_000, live_ms=0), Gap(2, 5_000, 55_000, "reset", DELIVERED)
    older = connection(2, 55_000, None, since_ms=5_000, live_ms=105_000)
    newer = connection(3, 99_000, None, since_ms=30_000, live_ms=168_000)
    afresh = replace(newer, resumed=False, live_ms=99_000)
    assert ledger(first, older, newer) == ledger(first, older, afresh) == [hole]
    broken = replace(older, closed_ms=NOW, ended_by="reset")
    assert ledger(first, broken, afresh) == [hole, Gap(3, 95_000, 99_000, "reset", OPEN)]


def test_a_connection_that_caught_up_closes_the_gap_despite_a_late_clock() -> None:
    """By a late clock the successor opened before its predecessor; what the predecessor brought still counts."""
    first = connection(1, 0, 40)
    second = connection(2, 60, 90, since_ms=40, live_ms=80)
    third = connection(3, 50, None, since_ms=40, live_ms=95)
    assert ledger(first, second, third) == [Gap(3, 40, 50, "reset", DELIVERED)]


@pytest.mark.parametrize(("reach_ms", "closed"), [(None, True), (30, True), (29, False), (0, False)])
def test_a_gap_is_delivered_if_the_upstreams_reach_covers_it(reach_ms: int | None, closed: bool) -> None:
    """A reach of None goes back to the cursor, one of 30 ms just covers the gap, and 0 vouches for nothing."""
    before = connection(1, 0, 10, since_ms=None, live_ms=0)
    after = connection(2, 40, None, reach_ms=reach_ms, since_ms=10, live_ms=70)
    told = ledger(before, after)
    assert told == [Gap(2, 10, 40, "reset", DELIVERED if closed else OPEN)]
    assert unrequested_gaps(told, [before, after], 2) == ([] if closed else told)
    # Gaps of other connections do not count, and neither does the moment of a handover.
    assert (
        unrequested_gaps(told, [before, after], 1)
        == unrequested_gaps([replace(told[0], cause="let_go")], [before, after], 2)
        == []
    )


def test_a_gap_that_was_requested_and_is_not_proved_yet_is_not_missing() -> None:
    """A gap that its connection requested in full is open but not missing: the next connection requests the rest."""
    before, after = connection(1, 0, 10, since_ms=None, live_ms=0), connection(2, 40, 50, since_ms=10, live_ms=70)
    told = ledger(before, after, connection(3, 90, 95, since_ms=10, live_ms=170))
    assert [gap.state for gap in told] == [OPEN, OPEN]
    assert unrequested_gaps(told, [before, after], 2) == []


@pytest.mark.parametrize(
    ("before_ms", "short_ms", "after_ms", "open_gaps"),
    [
        (7_000, 7_300, 7_300, []),  # evicted, and relieved a moment later
        (6_900, 7_300, 7_300, [(6_900, 7_000)]),  # no connection was open for a while before it
        (7_000, 7_300, 7_700, [(7_000, 7_700)]),  # it broke off, and the next came later
        (7_000, 12_001, 12_001, [(7_000, 7_001)]),  # what it had not caught up with may be forgotten by now
    ],
)
def test_a_default_resume_that_is_relieved_leaves_nothing_open(
    before_ms: int, short_ms: int, after_ms: int, open_gaps: list[tuple[int, int]]
) -> None:
    """A relieved default resume was live, or its successor requests the same at once; a pause would stay open."""
    evicted = connection(1, 0, before_ms, live_ms=0)
    short = connection(2, 7_000, short_ms, reach_ms=0, live_ms=30_000)
    relief = connection(3, after_ms, None, reach_ms=0, live_ms=after_ms)
    assert open_spans(find_gaps([evicted, short, relief], 2 * NOW, 2 * NOW)) == open_gaps


@pytest.mark.parametrize(("live_ms", "open_gaps"), [(8_000, []), (73_000, [(7_000, 45_000)])])
def test_the_connection_that_relieves_a_default_resume_must_bring_the_rest(
    live_ms: int, open_gaps: list[tuple[int, int]]
) -> None:
    """If the relief breaks off too, its own successor must bring the rest, or a gap is open."""
    evicted = connection(1, 0, 7_000, live_ms=0)
    short = connection(2, 7_000, 7_300, reach_ms=0, live_ms=30_000)
    relief = connection(3, 7_200, 7_400, reach_ms=0, live_ms=20_000)
    last = connection(4, 7_350, 40_000, reach_ms=0, live_ms=live_ms)
    after = connection(5, 45_000, None, reach_ms=0, live_ms=45_000)
    told = find_gaps([evicted, short, relief, last, after], 2 * NOW, 2 * NOW)
    assert open_spans([gap for gap in told if gap.from_ms < 40_000]) == open_gaps


@pytest.mark.parametrize(("live_ms", "open_gaps"), [(68_000, []), (68_001, [(53_999, 54_000)])])
def test_a_default_resume_relieved_late_leaves_only_the_part_open_that_its_successor_lacks(
    live_ms: int, open_gaps: list[tuple[int, int]]
) -> None:
    """At the assumed speed the relieved connection still lacks some time; its successor requests 5 s back."""
    before = connection(1, 0, 44_000, live_ms=0)
    long = connection(2, 43_000, 61_000, reach_ms=0, since_ms=34_000, live_ms=live_ms)
    relief = connection(3, 59_000, 90_000, reach_ms=0, since_ms=43_000, live_ms=75_000)
    assert open_spans(ledger(before, long, relief, now_ms=99_000)) == open_gaps


def test_a_gap_is_open_until_a_connection_has_brought_it() -> None:
    """A connection that breaks off has brought a part. If the next one requests too late, the rest stays open."""
    first = connection(1, 0, 5_000, live_ms=0)
    second = connection(2, 18_000, None, reach_ms=20_000, since_ms=5_000, live_ms=31_000)
    for heard_ms, brought_ms, state in ((18_000, 5_000, OPEN), (24_499, 17_998, OPEN), (24_500, 18_000, DELIVERED)):
        shown = replace(second, seen_ms=30_000, heard_ms=heard_ms)
        assert ledger(first, shown, now_ms=30_000) == [Gap(2, 5_000, 18_000, "reset", state)]
        assert sum_of_records([first, shown]).at_ms == brought_ms
    broken = replace(second, closed_ms=21_000, seen_ms=21_000, ended_by="reset")
    assert ledger(first, broken, now_ms=99_000) == [Gap(2, 5_000, 18_000, "reset", OPEN)]
    after = sum_of_records([first, broken])
    assert (after.at_ms, after.behind_ms(2, 25_000)) == (11_000, 10_000 + 4_000)
    in_time = connection(3, 25_000, None, reach_ms=20_000, live_ms=39_000)
    assert [gap.state for gap in ledger(first, broken, in_time)] == [DELIVERED, DELIVERED]
    late = replace(in_time, opened_ms=32_000)
    assert ledger(first, broken, late) == [Gap(2, 5_000, 21_000, "reset", OPEN), Gap(3, 21_000, 32_000, "reset", OPEN)]


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_an_upstream_that_ends_each_connection_soon_leaves_nothing_open(heard: bool, is_stopped: bool) -> None:
    """Connections live 3 s with 2 s between. A gap is open only before a last one that heard nothing."""
    written: list[Record] = []
    for fence, opened_ms in enumerate(range(0, 500_000, 5_000), 1):
        before, ended_ms = sum_of_records(written), opened_ms + 3_000
        live_ms = opened_ms + (before.behind_ms(fence - 1, opened_ms) or 0)
        one = connection(fence, opened_ms, ended_ms, reach_ms=10_000, since_ms=before.at_ms, live_ms=live_ms)
        written.append(replace(one, ended_by="ended_by_upstream", heard_ms=ended_ms))
    last = replace(written[-1], ended_by="stopped", heard_ms=ended_ms if heard else opened_ms)
    written[-1] = last if is_stopped else replace(last, closed_ms=None, ended_by="")
    told = open_spans(ledger(*written, now_ms=ended_ms))
    assert told == ([] if heard else [(opened_ms - 2_000, opened_ms)])


def test_a_silence_before_the_close_puts_the_next_connection_further_behind() -> None:
    """A connection released in a silence was good until its close; the next one is behind by the silence too."""
    heard = connection(1, 0, 15_000, live_ms=0, heard_ms=12_000)
    assert sum_of_records([heard]).at_ms == 15_000
    assert sum_of_records([heard]).behind_ms(1, 16_000) == 4_000
    # A connection that hears nothing makes up for nothing, however long it stays.
    silent = connection(2, 16_000, 19_000, since_ms=15_000, live_ms=24_000, heard_ms=16_000)
    assert sum_of_records([heard, silent]).behind_ms(1, 20_000) == 8_000
    # A connection whose version did not record `heard_ms` was good until its close.
    assert sum_of_records([replace(heard, heard_ms=None)]).behind_ms(1, 16_000) == 1_000


def test_an_answer_noticed_late_puts_the_next_connection_behind_only_once() -> None:
    """The function stood still from its last bytes until it noticed the answer; that time lies after its cursor."""
    late = connection(2, 44_000, 44_000, since_ms=35_000, live_ms=53_000, heard_ms=38_000)
    assert sum_of_records([late]).behind_ms(2, 45_000) == 45_000 - 35_000


def test_a_break_while_the_backlog_of_a_dead_peer_arrives_leaves_the_gap_open() -> None:
    """The upstream keeps 9 s; the first peer was dead for 3 s at its release, and the second broke off."""
    first = connection(1, 0, 15_400, live_ms=0, heard_ms=12_400)
    asked = sum_of_records([first])
    live_ms = 15_600 + (asked.behind_ms(1, 15_500) or 0) + 100
    second = connection(2, 15_600, 16_900, reach_ms=9_000, since_ms=asked.at_ms, live_ms=live_ms, heard_ms=16_800)
    third = connection(3, 31_000, None, reach_ms=9_000, since_ms=15_400, live_ms=90_000)
    told = [(gap.from_ms, gap.to_ms) for gap in ledger(first, second, third)]
    # At twice the speed at which they happened, the last events sent were of 12.4 s + 2 * 1.2 s = 14.8 s.
    assert told == [(15_400, 16_900), (16_900, 31_000)]


def test_a_connection_that_breaks_off_beside_one_begun_afresh_leaves_a_gap_open() -> None:
    """The connection beside it began afresh, so no connection brought what the broken one still lacked."""
    first, second = connection(1, 0, 10), connection(2, 20, 60, since_ms=10, live_ms=90)
    second = replace(second, ended_by="truncated")
    afresh = Record(3, 50, NOW, None, "", False, since_ms=10, live_ms=50)
    assert ledger(first, second, afresh) == [Gap(2, 10, 20, "reset", DELIVERED), Gap(3, 30, 50, "truncated", OPEN)]
    live = replace(second, live_ms=30)
    broken = connection(3, 55, 65, since_ms=58, live_ms=80)
    fresh = replace(afresh, fence=4, opened_ms=62)
    assert ledger(first, live, broken, fresh) == [Gap(2, 10, 20, "reset", DELIVERED), Gap(4, 60, 62, "reset", OPEN)]
    # The next connection may open just then; a gap that ends where such an interval begins stays separate.
    behind = connection(1, 16, 20, reach_ms=0, live_ms=41)
    assert ledger(behind, connection(2, 20, 21, live_ms=49)) == [Gap(2, 16, 20, "reset", OPEN)]
    killed = replace(connection(3, 36, 44, live_ms=44, heard_ms=40), ended_by="")
    late = [connection(1, 37, 44, since_ms=31, live_ms=58), Record(2, 17, 20, 20, "reset", False), killed]
    assert find_gaps(late, NOW, DEAD_AFTER_MS) == [Gap(3, 20, 36, "reset", OPEN)]


def test_two_gaps_before_one_opening_belong_to_two_connections() -> None:
    """The table holds one gap of each connection, so a second gap of the same one would replace the first."""
    ends = ((3, 55_861, 85_153, 91_269), (4, 85_153, 87_237, 92_432), (5, 87_237, 122_978, 95_283))
    relieved = [
        connection(fence, opened, over, live_ms=live, since_ms=0, reach_ms=0) for fence, opened, over, live in ends
    ]
    first = Record(2, 35_458, 40_357, 40_357, "stopped", True, reach_ms=0, live_ms=59_399)
    found = find_gaps([first, *relieved], 123_000, 8_000)
    assert [(gap.fence, gap.from_ms, gap.to_ms) for gap in found] == [
        (3, 35_458, 55_861),
        (4, 79_037, 80_153),
        (5, 82_042, 82_237),
    ]
