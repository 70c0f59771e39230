"""What is written down of a connection."""

from handlers.connection.effects import Outcome
from handlers.connection.inputs import CursorRead, Written
from handlers.connection.record import Record

LEFT = Outcome("ConnectionExpired", "", "its time is over")
DEADLINE_MS = 900_000


def opened(saved_ms: int | None = 700) -> Record:
    """One that claimed at 1,000 ms, asked for what came since a cursor, and was answered at 1,500 ms."""
    record = Record(DEADLINE_MS)
    record.begins(1_000)
    record.fence = 3
    record.resumes(CursorRead("7", saved_ms), is_asked=True)
    record.liveness.begins_input(1_500, 1_400, None)
    record.opened(1_500)
    return record


def test_an_end_is_written_down_with_what_was_stored_until_then() -> None:
    """Before it is saved the record says nothing of an end; then it has the reason and the instant."""
    record = opened()
    record.sent(2, "9")
    record.liveness.begins_input(4_000, None, None)
    record.closes("expired", LEFT)
    assert (record.progress.ended_by, record.progress.closed_ms) == ("", 4_000)
    record.stored(Written(1, 1))
    saved = record.save(4_100, 9_000, is_open=False)
    assert (saved.cursor, saved.expires_at_ms) == ("9", 9_000)
    assert (saved.progress.ended_by, saved.progress.stored, saved.progress.duplicates) == ("expired", 1, 1)
    assert (record.saved_at_ms, saved.progress.seen_ms) == (4_100, 1_500)


def test_a_close_that_came_before_the_leaving_counts() -> None:
    """The upstream may have gone while the connection was about to leave; a later close moves nothing."""
    record = opened()
    record.liveness.begins_input(4_000, None, None)
    record.closes("expired", LEFT)
    record.liveness.begins_input(4_200, 3_900, None)
    record.closed("ended_by_upstream")
    assert record.closed_ms == 3_900
    record.liveness.begins_input(4_300, None, None)
    record.closed("closed_here")
    assert record.closed_ms == 3_900


def test_one_that_was_never_answered_has_no_close() -> None:
    """The ledger's record of it is a claim and no more."""
    record = Record(DEADLINE_MS)
    record.begins(1_000)
    record.liveness.begins_input(2_000, None, None)
    record.closes("refused", LEFT)
    record.closed("refused")
    assert (record.progress.opened_ms, record.progress.closed_ms, record.progress.seen_ms) == (None, None, 1_000)


def test_losses_are_numbered_and_begin_where_all_was_known() -> None:
    """Since the cursor was saved, or the claim where nobody knows when; after events, since the last was heard."""
    record = opened()
    first = record.lost_since_cursor(1_600, "cursor_unknown")
    assert (first.number, first.from_ms, first.to_ms, record.resumed) == (1, 700, 1_600, False)
    assert opened(None).cursor_expired(1_600, "", 1_400).from_ms == 1_000
    record.sent(1, "8")
    second = record.cursor_expired(3_100, "start", 2_500)
    assert (second.number, second.from_ms, second.cause) == (2, 2_500, "cursor_expired")
    record.stored(Written(1, 0))
    assert record.pending.take() == "start"
