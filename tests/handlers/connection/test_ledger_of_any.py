"""The gaps from the ledger's records, compared with a count of each millisecond, for any connections."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.evidence import Record, sum_of_records
from handlers.connection.gap_record import DELIVERED
from tests.handlers.connection.ledgers import connection, ledger


def history(steps: list[tuple[int, int, int | None]]) -> list[Record]:
    """Return the records of drawn connections: each one's distance from the one before, length and reach."""
    written: list[Record] = []
    opened_ms = 0
    for fence, (after_ms, lasted_ms, reach_ms) in enumerate(steps, 1):
        opened_ms += after_ms
        before = sum_of_records(written)
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
    assert [at for gap in ledger(*between) for at in range(gap.from_ms, gap.to_ms)] == missed


@given(st.lists(st.tuples(closed, st.integers(0, 30)), max_size=6))
def test_answers_noticed_late_make_no_gap_shorter(between: list[tuple[Record, int]]) -> None:
    """If some answers are noticed late, each instant that lay in a gap still lies in one."""
    brief = [replace(record, seen_ms=record.opened_ms, closed_ms=record.opened_ms) for record, _ in between[:2]]
    between = [*zip(brief, (late_ms for _, late_ms in between), strict=False), *between[2:]]
    late = [replace(record, heard_ms=record.opened_ms - late_ms) for record, late_ms in between]

    def missed(records: list[Record]) -> set[int]:
        return {at for gap in ledger(*records) for at in range(gap.from_ms, gap.to_ms)}

    assert missed(late) >= missed([record for record, _ in between])


@given(steps)
def test_no_instant_that_an_upstream_may_have_forgotten_counts_as_delivered(
    taken: list[tuple[int, int, int | None]],
) -> None:
    """The upstream keeps and sends as little as is assumed: every instant that never came lies in an open gap."""
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
    after = connection(99, written[-1].last_ms, None, since_ms=sum_of_records(written).at_ms)
    open_gaps = [gap for gap in ledger(*written, after) if gap.state != DELIVERED]
    told = {at for gap in open_gaps for at in range(gap.from_ms, gap.to_ms)}
    assert never_came <= told
    assert all(gap.to_ms > gap.from_ms for gap in open_gaps)
    assert len(told) == sum(gap.to_ms - gap.from_ms for gap in open_gaps)


@given(steps)
def test_a_delivered_instant_has_come_and_stays_delivered(taken: list[tuple[int, int, int | None]]) -> None:
    """A delivered instant has come, and stays delivered, if the upstream keeps and sends as little as is assumed."""
    written: list[Record] = []
    never_came: set[int] = set()
    delivered: set[int] = set()
    at_ms = due_ms = 0
    for fence, (after_ms, lasted_ms, reach_ms) in enumerate(taken, 1):
        at_ms += after_ms
        due_ms = at_ms if fence == 1 else due_ms  # nothing was due before the first
        before, kept_ms = sum_of_records(written), 0 if reach_ms is None else at_ms - reach_ms
        never_came |= set(range(due_ms, min(kept_ms, at_ms)))
        due_ms = max(due_ms, min(kept_ms, at_ms))
        live_ms = at_ms + (before.behind_ms(fence - 1, at_ms) or 0)
        now = connection(fence, at_ms, None, reach_ms=reach_ms, since_ms=before.at_ms, live_ms=live_ms)
        for ended_by in ("", "", "stopped"):
            closed_ms = at_ms if ended_by else None
            now = replace(now, seen_ms=at_ms, heard_ms=at_ms, closed_ms=closed_ms, ended_by=ended_by)
            told = [gap for gap in ledger(*written, now, now_ms=at_ms) if gap.state == DELIVERED]
            before_ms, delivered = delivered, {ms for gap in told for ms in range(gap.from_ms, gap.to_ms)}
            assert before_ms <= delivered <= set(range(due_ms)) - never_came
            for _ in range(0 if ended_by else lasted_ms // 2):
                at_ms, due_ms = at_ms + 1, min(at_ms + 1, due_ms + 2)
        written.append(now)


@given(steps)
def test_no_gap_is_open_if_the_upstream_forgets_nothing(taken: list[tuple[int, int, int | None]]) -> None:
    """If the upstream forgets nothing, the open connection has requested everything, so each gap is delivered."""
    written = history([(after_ms, lasted_ms, None) for after_ms, lasted_ms, _ in taken])
    now = connection(99, written[-1].last_ms + 7, None, since_ms=sum_of_records(written).at_ms)
    assert all(gap.state == DELIVERED for gap in ledger(*written, now))


@given(steps)
def test_the_instant_until_which_everything_is_known_never_moves_back(taken: list[tuple[int, int, int | None]]) -> None:
    """No connection resumes from an earlier instant than the one before; unread records change nothing."""
    written = history(taken)
    instants = [sum_of_records(written[:count]).at_ms or 0 for count in range(1, len(written) + 1)]
    assert instants == sorted(instants)
    assert sum_of_records(written[-2:]).at_ms == sum_of_records(written).at_ms
