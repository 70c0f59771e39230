"""The gaps in the ledger where connections die, are stopped or frozen, or learn that their cursor is gone."""

from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.evidence import Record, records
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap
from handlers.connection.ledger import correct_losses, is_delivered_elsewhere, is_unfounded
from tests.handlers.connection.ledgers import NOW, connection, ledger


def test_a_killed_connection_covers_until_it_was_last_seen() -> None:
    """A connection silent for `dead_after_ms` counts as killed; until then the ledger shows no gap after it."""
    killed = Record(fence=1, opened_ms=0, seen_ms=40, closed_ms=None, ended_by="", resumed=False)
    after = Record(fence=2, opened_ms=43, seen_ms=90, closed_ms=None, ended_by="", resumed=True)
    assert ledger(killed, after, now_ms=45) == []
    assert ledger(killed, after, now_ms=46) == [Gap(2, 40, 43, "unrecorded", DELIVERED)]


def test_the_unstored_bytes_of_a_killed_connection_are_a_gap_despite_an_earlier_stop() -> None:
    """The killed connection was good until 50 and read until 58; a stop at 40 by another clock changes nothing."""
    killed = Record(1, 0, 50, None, "", False, heard_ms=58)
    after = Record(2, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=40)
    assert ledger(killed, after) == [Gap(2, 50, 58, "unrecorded", OPEN)]
    # Whether it heard more after its last record is unknown.
    assert ledger(replace(killed, heard_ms=49), after) == [Gap(2, 50, 51, "unrecorded", OPEN)]
    assert ledger(replace(killed, closed_ms=50, ended_by="stopped"), after) == []


@pytest.mark.parametrize(("ended_by", "to_ms"), [("stalled", 80), ("stopped", 52)])
def test_a_stop_that_a_connection_outlived_does_not_end_its_gap(ended_by: str, to_ms: int) -> None:
    """The connection was last heard at 50, but recorded its end after the start at 54: it outlived the stop at 52."""
    silent = Record(1, 0, 50, 50, ended_by, False, heard_ms=50, saved_ms=70)
    after = Record(2, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=52, started_ms=54)
    assert ledger(silent, after) == [Gap(2, 50, to_ms, ended_by, OPEN)]


@pytest.mark.parametrize(("stopped_ms", "started_ms", "to_ms"), [(52, 78, 52), (44, 46, 80)])
def test_a_stop_ends_the_gap_after_connections_whose_records_have_expired(
    stopped_ms: int, started_ms: int, to_ms: int
) -> None:
    """Everything until 50 was stored, and no earlier record is left. A stop at 52 ends the gap; one at 44 does not."""
    only = Record(9, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=stopped_ms, started_ms=started_ms)
    assert ledger(only) == [Gap(9, 50, to_ms, "unrecorded", OPEN)]


@pytest.mark.parametrize(
    "ended",
    [
        {"closed_ms": 90, "ended_by": "reset"},
        {"closed_ms": None, "ended_by": ""},
        {"closed_ms": 90, "ended_by": "unrecorded"},  # as the control API reads the connection before
        {"closed_ms": 90, "ended_by": "cursor_expired"},  # as an event of the stream may say
    ],
)
def test_the_time_from_an_answer_until_its_frozen_function_resumes_is_a_gap(ended: dict[str, Any]) -> None:
    """The function stood still from 60 to 90, the first answer after a stop came, and then nothing more was read.

    If more was read after the answer, nothing is lost: the bytes were still in the socket.
    """
    before = Record(1, 0, 40, 40, "stopped", False, heard_ms=38)
    late = Record(2, 90, 90, resumed=False, heard_ms=60, stopped_ms=39, started_ms=50, **ended)
    after = Record(3, 95, NOW, None, "", False, since_ms=90, live_ms=95, heard_ms=NOW, stopped_ms=39, started_ms=50)
    cause = ended["ended_by"] or "unrecorded"
    assert ledger(before, late, after) == [Gap(3, 60, 95, cause, OPEN)]
    assert ledger(late, after) == [Gap(3, 60, 95, cause, OPEN)]
    assert ledger(late) == [Gap(2, 60, 90, cause, OPEN)]
    whole = replace(late, closed_ms=90, ended_by="ended")
    assert ledger(before, whole) == ledger(whole) == []
    read_on = replace(late, seen_ms=92, closed_ms=92, ended_by="reset", heard_ms=92)
    assert ledger(before, read_on, after) == [Gap(3, 92, 95, "reset", OPEN)]
    assert ledger(before, replace(late, seen_ms=92, saved_ms=NOW, closed_ms=None, ended_by="")) == []


def test_an_unfounded_gap_is_withdrawn_beside_a_loss_of_the_same_connection() -> None:
    """The older connection was good until 30, but its record was stored only after the newer one's refusal."""
    before = Record(2, 0, 30, 30, "ended_by_upstream", False)
    refused = records(Record(3, 30, 30, 30, "cursor_expired", False, since_ms=20), 30, 33)
    every = [before, *refused, Record(4, 40, NOW, None, "", False, since_ms=33)]
    told = ledger(*every)
    assert [(gap.span, gap.number, gap.state) for gap in told[:1]] == [((30, 34), 0, LOST)]
    assert is_unfounded(Gap(3, 20, 30, "unrecorded", OPEN), told, every)
    assert not is_unfounded(Gap(3, 20, 31, "unrecorded", OPEN), told, every)


LOSS = Gap(2, 50_000, 51_000, "announced_by_upstream", LOST, 1, 3)
BESIDE = Record(1, 0, 90_000, None, "", False, heard_ms=62_000)


@pytest.mark.parametrize(
    ("beside", "told", "is_delivered"),
    [
        (BESIDE, None, True),
        (replace(BESIDE, heard_ms=61_000), None, False),  # a notice of its own may be on its way
        (replace(BESIDE, opened_ms=40_001), None, False),
        (replace(BESIDE, resumed=True, since_ms=40_000, opened_ms=39_000, live_ms=40_000), None, True),
        (replace(BESIDE, resumed=True, since_ms=40_000, opened_ms=39_000, live_ms=40_001), None, False),
        (BESIDE, replace(LOSS, fence=1, from_ms=61_000, to_ms=61_500), False),
        (BESIDE, replace(LOSS, fence=1, from_ms=62_001, to_ms=62_500), True),
        (BESIDE, replace(LOSS, fence=3), True),
    ],
)
def test_a_loss_is_delivered_if_the_connection_beside_it_lost_nothing(
    beside: Record, told: Gap | None, is_delivered: bool
) -> None:
    """The connection beside it had caught up, received no notice of a loss then, and heard the upstream long after."""
    losses = [LOSS, *([] if told is None else [told])]
    own = Record(2, 10_000, 90_000, None, "", False, heard_ms=90_000)
    assert is_delivered_elsewhere(LOSS, losses, [beside, own]) == is_delivered
    assert not is_delivered_elsewhere(LOSS, losses, [beside, own], told_since=1)
    assert not is_delivered_elsewhere(replace(LOSS, cause="ids_restarted"), losses, [beside, own])


def test_an_open_connection_covers_all_that_follows() -> None:
    """While a connection is open, later ones end no gap."""
    open_one = Record(fence=1, opened_ms=0, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    short = Record(fence=2, opened_ms=50, seen_ms=60, closed_ms=60, ended_by="reset", resumed=False)
    later = Record(fence=3, opened_ms=80, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    assert ledger(later, short, open_one, now_ms=100) == []


def test_a_connection_whose_events_wait_is_open_as_long_as_it_is_recorded() -> None:
    """A connection with waiting events is good until the first arrived, and dead only once its record is silent."""
    waits = Record(fence=1, opened_ms=0, seen_ms=40, closed_ms=None, ended_by="", resumed=False, saved_ms=98)
    after = Record(fence=2, opened_ms=43, seen_ms=44, closed_ms=44, ended_by="reset", resumed=False)
    assert ledger(waits, after, now_ms=100) == []
    assert [(gap.from_ms, gap.to_ms) for gap in ledger(waits, after, now_ms=104)] == [(40, 43)]


@pytest.mark.parametrize(
    ("closed_ms", "ended_by", "state"),
    [
        (None, "", OPEN),
        (None, "killed", OPEN),  # it is dead by then, and left no record of its end
        (32_000, "unrecorded", OPEN),  # the same, as the API has it
        (32_000, "stopped", OPEN),
        (32_000, "taken_over", DELIVERED),  # it is good until it was let go: no better proof exists
    ],
)
def test_a_stop_or_a_kill_in_a_silence_proves_nothing(closed_ms: int | None, ended_by: str, state: str) -> None:
    """The connection was last heard before it can have caught up, so whether its peer lived on is unknown."""
    first = connection(1, 0, 5_000, live_ms=0)
    second = connection(2, 18_000, closed_ms, since_ms=5_000, live_ms=31_000, heard_ms=20_000)
    second = replace(second, seen_ms=32_000, ended_by="" if closed_ms is None else ended_by)
    now_ms = 99_000 if ended_by == "killed" else 32_000
    assert ledger(first, second, now_ms=now_ms) == [Gap(2, 5_000, 18_000, "reset", state)]


def test_an_upstream_that_ended_the_stream_has_sent_all_of_it() -> None:
    """The end of the stream comes after all events, so the gap is delivered, however short the connection was."""
    ended = replace(connection(2, 40, 41, since_ms=10, live_ms=100), ended_by="ended")
    assert ledger(connection(1, 0, 10), ended) == [Gap(2, 10, 40, "reset", DELIVERED)]


def test_a_forgotten_interval_is_lost_except_where_another_connection_covers_it() -> None:
    """The refusal of a cursor is a connection of no length; events after it can be requested again."""
    refused = records(connection(2, 30, 30, since_ms=10, live_ms=None), None, 30)
    expired = records(replace(connection(2, 30, 30, since_ms=10), ended_by="cursor_expired"), None, 30)
    after = connection(3, 35, None, since_ms=30, live_ms=50)
    assert refused == []
    for closed_ms, told in ((10, [Gap(2, 10, 30, "cursor_expired", LOST, 0)]), (30, [])):
        first = connection(1, 0, closed_ms, live_ms=0)
        behind = Gap(3, 30, 35, "reset" if told == [] else "cursor_expired", DELIVERED)
        shown = ledger(first, *expired, after)
        assert [gap for gap in shown if gap.state != DELIVERED] == told
        assert replace(shown[-1], cause=behind.cause) == behind


def test_a_connection_whose_cursor_expires_later_keeps_what_it_brought() -> None:
    """If its cursor expires, an open connection loses only the time from its last sign of life to the notice."""
    record = replace(connection(2, 20, 60, since_ms=10, live_ms=40), ended_by="cursor_expired")
    told = records(record, 20, 75)
    after = connection(3, 80, None, since_ms=75, live_ms=99)
    assert ledger(connection(1, 0, 10), *told, after) == [
        Gap(2, 10, 20, "reset", DELIVERED),
        Gap(2, 60, 75, "cursor_expired", LOST, 0),
        Gap(3, 75, 80, "cursor_expired", DELIVERED),
    ]


def test_an_answer_that_does_not_begin_after_the_cursor_makes_the_gap_lost() -> None:
    """A gap before an answer that does not begin after the cursor is lost, with the cause `cursor_unknown`."""
    (told,) = records(Record(2, 40, NOW, None, "", False, since_ms=10, live_ms=40), 40, 40)
    assert ledger(connection(1, 0, 10), told) == [Gap(2, 10, 40, "cursor_unknown", LOST)]


def test_a_gap_is_found_although_the_record_of_the_connection_before_it_is_not_read() -> None:
    """A long outage has more tries than are read back; the one record that is read has what was known before."""
    alone = connection(40, 90, None, reach_ms=50, since_ms=10, live_ms=200)
    assert ledger(alone) == [Gap(40, 10, 90, "unrecorded", OPEN)]
    assert ledger(replace(alone, since_ms=None)) == []


def test_an_announced_loss_begins_no_later_than_it_was_recorded() -> None:
    """A loss moves to an earlier begin only if less is known of the predecessors by now than the connection knew."""
    losses = [Gap(2, at_ms, 95, "announced_by_upstream", LOST, at_ms) for at_ms in (70, 85)]
    second = connection(2, 90, 120, since_ms=80, live_ms=140)
    assert correct_losses(losses, [connection(1, 0, 100), second]) == losses
    earlier = correct_losses(losses, [connection(1, 0, 60), second])
    assert [(loss.from_ms, loss.to_ms) for loss in earlier] == [(60, 95), (85, 95)]
