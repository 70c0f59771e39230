"""Which changes after a handover count as worse than before it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.store.typed_values import Item, instant_text, typed_item
from handlers.upgrade.health import Limits, State, Stream, Stretch, judge_return, judge_wave, reason_if_worse
from handlers.upgrade.upgrade_items import MARK, Lost, loss_gap, stretches, to_stream, was_ended

LIMITS = Limits(answer_ms=60_000, away_ms=10_000, watch_ms=900_000)
BEFORE = Stretch(length_ms=600_000, connections=1, frames=600, kept=600, memory_mb=60)
AFTER = Stretch(length_ms=60_000, connections=1, frames=60, kept=60, memory_mb=60)
WELL = Stream("demo:1", 61_000, before=BEFORE, after=AFTER)
WATCHED = replace(WELL, asked_ms=900_000)


def after(**changes: int) -> Stream:
    """Return a stream that is well except for these numbers after its handover."""
    return replace(WELL, after=replace(AFTER, **changes))


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (replace(WELL, has_handed_over=False), "it has not handed over for 61 s"),
        (replace(WELL, away_ms=11_000), "it has not been connected for 11 s"),
        (replace(WELL, failures=3), "3 failures to connect in a row"),
        (replace(WELL, is_ours=False, ending="InvalidRequest"), "its execution ended by InvalidRequest"),
        (after(killed=2), "2 functions were killed"),
        (after(errors=2), "2 connections ended by an error"),
        (after(dead_lettered=2), "2 events were dead-lettered"),
        (after(kept=0), "60 events came and none is stored"),
        (after(memory_mb=93), "a function took 93 MB of memory, and 60 before"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_stream_that_is_worse_has_a_reason(stream: Stream, reason: str) -> None:
    """Each fault of a version shows in the records as a reason; in a small wave one such stream is enough."""
    assert reason_if_worse(stream, LIMITS) == reason
    assert judge_wave([stream, WELL, WELL], LIMITS).state is State.WORSE


@pytest.mark.parametrize(
    "stream",
    [
        WELL,
        replace(WELL, has_handed_over=False, asked_ms=59_000),
        replace(WELL, has_handed_over=False, was_away=True),
        replace(WELL, away_ms=99_000, was_away=True),
        replace(WELL, failures=2),
        replace(WELL, failures=6, had_failures=3),
        replace(WELL, is_ours=False, away_ms=99_000),
        replace(WELL, ending="StreamEnded"),
        after(killed=1),
        replace(WELL, before=replace(BEFORE, errors=4), after=replace(AFTER, errors=9)),
        after(frames=1, kept=0),
        after(length_ms=59_000, kept=0),
        after(memory_mb=92),
        replace(after(memory_mb=900), before=replace(BEFORE, memory_mb=0)),
        replace(after(memory_mb=150), before=replace(BEFORE, memory_mb=100)),
    ],
)
def test_chance_and_earlier_faults_do_not_count_as_worse(stream: Stream) -> None:
    """A stream is not worse by a single failure, as bad as before, stopped, or still in its time for the handover."""
    assert reason_if_worse(stream, LIMITS) == ""


COUNTS = st.integers(0, 1000)
STRETCHES = st.builds(
    Stretch, length_ms=st.integers(1, 10**6), connections=COUNTS, errors=COUNTS, killed=COUNTS, frames=COUNTS,
    kept=COUNTS, dead_lettered=COUNTS, memory_mb=COUNTS,
)  # fmt: skip


@given(STRETCHES)
def test_a_stream_that_goes_on_as_before_is_never_worse(stretch: Stretch) -> None:
    """A stream with the same numbers before and after its handover is never worse."""
    assert reason_if_worse(replace(WELL, before=stretch, after=stretch), LIMITS) == ""


def test_a_wave_is_well_once_it_was_watched() -> None:
    """A wave is well only once it was watched for its full time; a stopped stream does not hold it up."""
    assert judge_wave([WELL, WATCHED], LIMITS).state is State.WAITING
    assert judge_wave([WATCHED, replace(WELL, is_ours=False)], LIMITS).state is State.WELL
    assert judge_wave([], LIMITS).state is State.WELL


def test_one_stream_in_fifty_may_be_worse_by_chance() -> None:
    """One worse stream in fifty may be chance, because upstreams fail with any version; two are the version's fault."""
    bad = replace(after(killed=5), asked_ms=900_000)
    assert judge_wave([bad, *[WATCHED] * 49], LIMITS).state is State.WELL
    assert judge_wave([bad, *[WATCHED] * 48], LIMITS).state is State.WORSE
    assert judge_wave([bad, replace(bad, stream_id="demo:2"), *[WATCHED] * 48], LIMITS).state is State.WORSE


def test_a_wave_that_falls_silent_is_worse_and_one_stream_among_many_is_not() -> None:
    """A wave is worse if most of the streams that had events before have none, although nothing else fails."""
    silent = replace(after(frames=0, kept=0), asked_ms=900_000)
    # If nine events are expected, none may come by chance.
    rare = replace(silent, before=replace(BEFORE, kept=90))
    assert judge_wave([rare, rare], LIMITS).state is State.WELL
    assert judge_wave([silent, WATCHED, WATCHED], LIMITS).state is State.WELL
    verdict = judge_wave([silent, silent, WATCHED], LIMITS)
    assert (verdict.state, verdict.reasons) == (State.WORSE, {"": "2 of 3 streams that had events before have none"})


def test_events_that_a_version_counts_as_stored_must_exist() -> None:
    """A stream is silent if its newest stored event is from before the handover, except for half a minute."""
    says = replace(WATCHED, silent_ms=30_001)
    assert judge_wave([says, replace(says, silent_ms=60_000), WATCHED], LIMITS).reasons == {
        "": "2 of 3 streams that had events before have none"
    }
    # Nothing counts as missing before a handover's time has passed.
    young = replace(says, after=replace(AFTER, length_ms=59_000), silent_ms=59_000)
    stored = replace(WATCHED, silent_ms=30_000)
    assert judge_wave([stored, stored, young], LIMITS).reasons == {}


def test_streams_that_went_back_must_be_connected_again() -> None:
    """A new execution must connect each stream that went back, unless it was away before or was stopped."""
    gone = replace(WELL, has_handed_over=False)
    assert judge_return([WELL, replace(gone, was_away=True), replace(gone, is_ours=False)], LIMITS).state is State.WELL
    assert judge_return([gone], LIMITS).state is State.WAITING
    away = replace(WELL, away_ms=1)
    assert judge_return([away], LIMITS).reasons == {"demo:1": "it is not connected again"}
    assert judge_return([replace(away, asked_ms=71_000)], LIMITS).state is State.WORSE
    late = judge_return([WELL, replace(gone, asked_ms=71_000)], LIMITS)
    assert (late.state, late.reasons) == (State.WORSE, {"demo:1": "it has not handed over again"})


def asked(at_ms: int) -> Item:
    """Return the mark in the lease of a stream that was asked to hand over at this instant."""
    return {MARK: {"M": typed_item({"at_ms": at_ms, "execution": "old"})}}


def test_only_the_newest_connections_of_a_stream_may_be_alive() -> None:
    """A version that dies again and again leaves fresh records; only three connections may overlap at a handover."""
    rows = [typed_item({"fence": n, "claimed_ms": n, "seen_ms": 900, "execution": "new"}) for n in range(1, 7)]
    _, after = stretches(asked(0), [rows], 1_000, 60_000)
    assert (after.connections, after.killed) == (6, 3)


@pytest.mark.parametrize(("ended_ms", "is_later"), [(999, False), (1_000, True)])
def test_only_an_end_since_a_stream_was_asked_may_be_the_versions_fault(ended_ms: int, is_later: bool) -> None:
    """An end counts as the version's fault only if it came after the stream was asked to hand over.

    A stream that ended before it was asked to go back is waited for: its start has no execution yet.
    """
    ended = {"ending": "RenewalFailed", "ended_at": instant_text(ended_ms)}
    item = asked(1_000) | typed_item({"PK": "demo", **ended})
    assert (was_ended(item), to_stream(item, "", 2_000).is_ours) == (is_later, not is_later)


def test_a_loss_ends_no_earlier_than_it_began() -> None:
    """A loss does not end before it began, even if the connection that ends it opened earlier by another clock."""
    live = {"M": typed_item({"fence": 4, "seen_ms": 450, "opened_ms": 400, "execution": "new"})}
    gap, has_ended = loss_gap(asked(300), typed_item({"PK": "demo"}) | {"live": live}, Lost(500, 3), 900)
    assert (gap["from_ms"], gap["to_ms"], has_ended) == ({"N": "500"}, {"N": "500"}, True)
