"""Which page a follower requests next, so that it gets every event once, however late it is written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import to_iso
from streamkeeper.following import LATE_MS, Following


def event(at_ms: int, number: int) -> dict[str, Any]:
    """Returns an event of a page, given when it arrived and how many events arrived before it."""
    return {"position": f"{at_ms:015d}/{1:012d}/{number:012d}", "received_at": to_iso(at_ms), "key": str(number)}


def page(events: list[dict[str, Any]], after: str, limit: int) -> dict[str, Any]:
    """Returns the page of these events after a position."""
    shown = sorted((one for one in events if one["position"] > after), key=lambda one: str(one["position"]))[:limit]
    return {"events": shown, "next": shown[-1]["position"] if len(shown) == limit else None}


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, LATE_MS)), max_size=30),
    st.lists(st.integers(1, 4_000), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(0, 2_000),
)
def test_every_event_is_taken_once_though_it_is_written_late(
    came: list[tuple[int, int]], polls: list[int], limit: int, takes_ms: int
) -> None:
    """Each event is written up to 15 s after its arrival. At any rate of events and polls, it is taken once."""
    now_ms = at_ms = 1_000_000
    written = []
    for number, (wait_ms, late_ms) in enumerate(came):
        now_ms += wait_ms
        written.append((now_ms + late_ms, event(now_ms, number)))
    following, places = Following(), [""]
    taken: list[str] = []

    def poll() -> None:
        nonlocal at_ms
        while True:
            there = [one for when, one in written if when <= at_ms]
            taken.extend(one["key"] for one in following.take(page(there, following.after(at_ms), limit), at_ms))
            places.append(following.place)
            at_ms += takes_ms
            if not following.is_behind:
                return

    while at_ms < now_ms + LATE_MS:
        for wait_ms in polls:
            at_ms += wait_ms
            poll()
    # What came last may be written until now; it is read again once more after that.
    for _ in range(13):
        at_ms += 1_000
        poll()
    assert sorted(taken) == sorted(str(number) for number in range(len(came)))
    assert places == sorted(places)


def test_a_reader_with_little_spare_capacity_misses_no_event() -> None:
    """It reads 25 of 20 new events a second, so it takes new events between the late ones, and misses neither."""
    written = [(50 * number + (0, 0, LATE_MS)[number % 3], event(50 * number, number)) for number in range(1_500)]
    following, taken = Following(), 0
    for now_ms in range(0, 200_000, 800):
        there = [one for when, one in written if when <= now_ms]
        taken += len(following.take(page(there, following.after(now_ms), 20), now_ms))
    assert taken == len(written)


@pytest.mark.parametrize("is_killed", [False, True])
def test_events_written_late_in_an_outage_are_read_after_it(*, is_killed: bool) -> None:
    """One in three of 5 events a second is written 15 s late. The API is away for two minutes; then a page has 4 s of
    events.

    A follower that is killed after that page resumes at its place and misses none.
    """
    written = [(200 * number + (0, 0, LATE_MS)[number % 3], event(200 * number, number)) for number in range(1_000)]
    following, taken, now_ms = Following(), set[str](), 0
    while now_ms < 230_000:
        after, is_away = following.after(now_ms), now_ms == 60_000
        now_ms += 120_000 if is_away else 0
        there = [one for when, one in written if when <= now_ms]
        taken |= {one["key"] for one in following.take(page(there, after, 20), now_ms)}
        if is_killed and is_away:
            following = Following(following.resume(following.place))
        now_ms += 500
    assert taken == {str(number) for number in range(1_000)}


def test_a_follower_reports_that_it_falls_behind() -> None:
    """A follower that takes 50 s of events in a minute falls behind; one at the end, or catching up, does not."""
    for step_ms, is_behind, noticed in (
        (830, True, [(60, 50), (60, 50)]), (990, True, []), (5_000, True, []), (830, False, []),
    ):  # fmt: skip
        following, told = Following(), []
        for second in range(125):
            one = event(1_000_000 + second * step_ms, second)
            following.take({"events": [one], "next": one["position"] if is_behind else None}, 0)
            told.append(following.slow(1000 * second))
        assert [each for each in told if each] == noticed


def test_a_log_and_events_by_key_are_read_once() -> None:
    """Positions of a log and of events by key do not show when an event arrived, so none is requested again.

    Positions by key do not sort as text: M0E (of the key 3A) comes after MkE (of 2A).
    """
    log = [f"{number:015d}/{1:012d}/{0:012d}" for number in (7, 8)]
    for positions, more in ((log, {}), (["key.MkE", "key.M0E"], {"order": "by key, not by arrival"})):
        following = Following()
        for position in positions:
            shown = [{"position": position, "received_at": to_iso(1_795_242_319_403), "key": "a"}]
            assert following.take({"events": shown, "next": position, **more}, 0) == shown
            assert following.slow(0) is None
            assert {following.place, *map(following.after, (0, 10**6, 10**9))} == {position}
