"""The gaps in the ledger where connections die, are stopped or frozen, or learn that their cursor is gone."""

from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.evidence import Record, records
from handlers.connection.gap_record import DELIVERED, LOST, OPEN, Gap
from handlers.connection.ledger import corrected, is_brought, is_unfounded
from tests.handlers.connection.ledgers import NOW, connection, ledger


def test_a_killed_connection_covers_until_it_was_last_seen() -> None:
    """After dead_after_ms of silence it counts as killed; until then nothing is said of the time after it."""
    killed = Record(fence=1, opened_ms=0, seen_ms=40, closed_ms=None, ended_by="", resumed=False)
    after = Record(fence=2, opened_ms=43, seen_ms=90, closed_ms=None, ended_by="", resumed=True)
    assert ledger(killed, after, now_ms=45) == []
    assert ledger(killed, after, now_ms=46) == [Gap(2, 40, 43, "unrecorded", DELIVERED)]


def test_what_a_killed_connection_had_read_is_a_gap_though_the_clock_of_a_stop_says_later() -> None:
    """It was good until 50 and heard more until 58; a stop at 40 by another clock does not change that."""
    killed = Record(1, 0, 50, None, "", False, heard_ms=58)
    after = Record(2, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=40)
    assert ledger(killed, after) == [Gap(2, 50, 58, "unrecorded", OPEN)]
    # What it heard after its last record is known to nobody.
    assert ledger(replace(killed, heard_ms=49), after) == [Gap(2, 50, 51, "unrecorded", OPEN)]
    assert ledger(replace(killed, closed_ms=50, ended_by="stopped"), after) == []


@pytest.mark.parametrize(("ended_by", "to_ms"), [("stalled", 80), ("stopped", 52)])
def test_a_stop_that_a_connection_outlived_has_ended_nothing(ended_by: str, to_ms: int) -> None:
    """By its own clock it was last heard at 50, before the stop at 52; its record was written after the start at 54."""
    silent = Record(1, 0, 50, 50, ended_by, False, heard_ms=50, saved_ms=70)
    after = Record(2, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=52, started_ms=54)
    assert ledger(silent, after) == [Gap(2, 50, to_ms, ended_by, OPEN)]


@pytest.mark.parametrize(("stopped_ms", "started_ms", "to_ms"), [(52, 78, 52), (44, 46, 80)])
def test_the_gap_behind_connections_that_have_expired_ends_with_a_stop(
    stopped_ms: int, started_ms: int, to_ms: int
) -> None:
    """All until 50 was stored; after a start at 46 the upstream was away. No record is left of those before."""
    only = Record(9, 80, NOW, None, "", False, since_ms=50, live_ms=80, stopped_ms=stopped_ms, started_ms=started_ms)
    assert ledger(only) == [Gap(9, 50, to_ms, "unrecorded", OPEN)]


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
    assert ledger(before, late, after) == [Gap(3, 60, 95, cause, OPEN)]
    assert ledger(late, after) == [Gap(3, 60, 95, cause, OPEN)]
    assert ledger(late) == [Gap(2, 60, 90, cause, OPEN)]
    whole = replace(late, closed_ms=90, ended_by="ended")
    assert ledger(before, whole) == ledger(whole) == []
    read_on = replace(late, seen_ms=92, closed_ms=92, ended_by="reset", heard_ms=92)
    assert ledger(before, read_on, after) == [Gap(3, 92, 95, "reset", OPEN)]
    assert ledger(before, replace(late, seen_ms=92, saved_ms=NOW, closed_ms=None, ended_by="")) == []


def test_a_gap_that_has_turned_out_to_be_none_is_withdrawn_beside_a_loss_of_the_same_connection() -> None:
    """The store was slow: the one before it was good until 30, and its record came after the next one's refusal."""
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
        (replace(BESIDE, heard_ms=61_000), None, False),  # what it was told may be on its way
        (replace(BESIDE, opened_ms=50_001), None, False),
        (replace(BESIDE, resumed=True, since_ms=40_000, opened_ms=49_000, live_ms=50_000), None, True),
        (replace(BESIDE, resumed=True, since_ms=40_000, opened_ms=49_000, live_ms=50_001), None, False),
        (BESIDE, replace(LOSS, fence=1, from_ms=61_000, to_ms=61_500), False),
        (BESIDE, replace(LOSS, fence=1, from_ms=62_001, to_ms=62_500), True),
        (BESIDE, replace(LOSS, fence=3), True),
    ],
)
def test_a_loss_is_delivered_if_the_connection_beside_it_lost_nothing(
    beside: Record, told: Gap | None, is_delivered: bool
) -> None:
    """It caught up before, was told of no loss at that time, and heard the upstream long after."""
    losses = [LOSS, *([] if told is None else [told])]
    own = Record(2, 10_000, 90_000, None, "", False, heard_ms=90_000)
    assert is_brought(LOSS, losses, [beside, own]) == is_delivered
    assert not is_brought(LOSS, losses, [beside, own], told_since=1)
    assert not is_brought(replace(LOSS, cause="ids_restarted"), losses, [beside, own])


def test_an_open_connection_covers_all_that_follows() -> None:
    """While a connection is open, later ones end no gap."""
    open_one = Record(fence=1, opened_ms=0, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    short = Record(fence=2, opened_ms=50, seen_ms=60, closed_ms=60, ended_by="reset", resumed=False)
    later = Record(fence=3, opened_ms=80, seen_ms=99, closed_ms=None, ended_by="", resumed=False)
    assert ledger(later, short, open_one, now_ms=100) == []


def test_one_whose_events_wait_is_open_as_long_as_it_is_written_down() -> None:
    """It is known good until the first of them came, and is not dead for that; if it falls silent, it ended there."""
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
        (32_000, "taken_over", DELIVERED),  # it is good until it was let go; nobody can know better
    ],
)
def test_a_stop_or_a_kill_in_a_silence_proves_nothing(closed_ms: int | None, ended_by: str, state: str) -> None:
    """It was last heard before it can have brought all, so nobody knows whether its peer lived on."""
    first = connection(1, 0, 5_000, live_ms=0)
    second = connection(2, 18_000, closed_ms, since_ms=5_000, live_ms=31_000, heard_ms=20_000)
    second = replace(second, seen_ms=32_000, ended_by="" if closed_ms is None else ended_by)
    now_ms = 99_000 if ended_by == "killed" else 32_000
    assert ledger(first, second, now_ms=now_ms) == [Gap(2, 5_000, 18_000, "reset", state)]


def test_an_upstream_that_ended_the_stream_has_sent_all_of_it() -> None:
    """Its end comes after everything, however short the connection was."""
    ended = replace(connection(2, 40, 41, since_ms=10, live_ms=100), ended_by="ended")
    assert ledger(connection(1, 0, 10), ended) == [Gap(2, 10, 40, "reset", DELIVERED)]


def test_what_the_upstream_has_forgotten_is_open_but_for_what_another_connection_covers() -> None:
    """The answer that the cursor is too old is a connection of no length; later events can be requested again."""
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


def test_a_connection_that_is_told_so_after_a_while_keeps_what_it_brought() -> None:
    """From the last sign of life to the notice nothing can be requested."""
    record = replace(connection(2, 20, 60, since_ms=10, live_ms=40), ended_by="cursor_expired")
    told = records(record, 20, 75)
    after = connection(3, 80, None, since_ms=75, live_ms=99)
    assert ledger(connection(1, 0, 10), *told, after) == [
        Gap(2, 10, 20, "reset", DELIVERED),
        Gap(2, 60, 75, "cursor_expired", LOST, 0),
        Gap(3, 75, 80, "cursor_expired", DELIVERED),
    ]


def test_an_answer_that_begins_elsewhere_leaves_the_gap_open() -> None:
    """The gap's cause is the answer."""
    (told,) = records(Record(2, 40, NOW, None, "", False, since_ms=10, live_ms=40), 40, 40)
    assert ledger(connection(1, 0, 10), told) == [Gap(2, 10, 40, "cursor_unknown", LOST)]


def test_a_gap_is_seen_though_the_connection_before_it_is_out_of_sight() -> None:
    """A long outage has more tries than anybody looks back over; the only record in sight has what was known then."""
    alone = connection(40, 90, None, reach_ms=50, since_ms=10, live_ms=200)
    assert ledger(alone) == [Gap(40, 10, 90, "unrecorded", OPEN)]
    assert ledger(replace(alone, since_ms=None)) == []


def test_an_announced_loss_begins_no_later_than_it_was_recorded() -> None:
    """Only what a connection thought known of its predecessors moves it, if less of that is known by now."""
    losses = [Gap(2, at_ms, 95, "announced_by_upstream", LOST, at_ms) for at_ms in (70, 85)]
    second = connection(2, 90, 120, since_ms=80, live_ms=140)
    assert corrected(losses, [connection(1, 0, 100), second]) == losses
    earlier = corrected(losses, [connection(1, 0, 60), second])
    assert [(loss.from_ms, loss.to_ms) for loss in earlier] == [(60, 95), (85, 95)]
