"""Gaps from the ledger's records, against a count millisecond by millisecond."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.ledger import Gap, Record, gaps

DEAD_AFTER_MS = 5
closed = st.builds(
    lambda fence, opened, lasted: Record(fence, opened, opened + lasted, opened + lasted, "reset", True),
    st.integers(1, 9),
    st.integers(0, 60),
    st.integers(0, 15),
)


@given(st.lists(closed, max_size=6))
def test_gaps_are_the_milliseconds_between_connections_that_none_covers(records: list[Record]) -> None:
    """The gaps hold exactly the milliseconds from the first opening to the last in which nothing was connected."""
    first = min((r.opened_ms for r in records), default=0)
    last = max((r.opened_ms for r in records), default=0)
    missed = [at for at in range(first, last) if not any(r.opened_ms <= at < r.seen_ms for r in records)]
    assert [at for gap in gaps(records, 1_000, DEAD_AFTER_MS) for at in range(gap.from_ms, gap.to_ms)] == missed


def test_a_killed_connection_covers_until_it_was_last_seen() -> None:
    """Silent for longer than dead_after_ms it counts as killed; before that nothing is said of what follows it."""
    killed = Record(fence=1, opened_ms=0, seen_ms=40, closed_ms=None, ended_by="", resumed=False)
    after = Record(fence=2, opened_ms=43, seen_ms=90, closed_ms=None, ended_by="", resumed=True)
    assert gaps([killed, after], 45, DEAD_AFTER_MS) == []
    assert gaps([killed, after], 46, DEAD_AFTER_MS) == [Gap(2, 40, 43, "unrecorded", closed_by_cursor=True)]


def test_an_open_connection_covers_all_that_follows() -> None:
    """While a connection is open, later ones end no gap."""
    open_one = Record(fence=1, opened_ms=0, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    short = Record(fence=2, opened_ms=50, seen_ms=60, closed_ms=60, ended_by="reset", resumed=False)
    later = Record(fence=3, opened_ms=80, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    assert gaps([later, short, open_one], 100, DEAD_AFTER_MS) == []


def test_a_gap_that_is_longer_than_the_upstream_goes_back_is_not_closed() -> None:
    """Asked for what came since, an upstream with a reach gives the end of a long gap, and says nothing of the rest."""
    before = Record(fence=1, opened_ms=0, seen_ms=10, closed_ms=10, ended_by="reset", resumed=False)
    for reach_ms, closed in ((None, True), (30, True), (29, False)):
        after = Record(fence=2, opened_ms=40, seen_ms=50, closed_ms=None, ended_by="", resumed=True, reach_ms=reach_ms)
        assert gaps([before, after], 50, DEAD_AFTER_MS) == [Gap(2, 10, 40, "reset", closed_by_cursor=closed)]
