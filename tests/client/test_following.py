"""What a follower requests next: it gets every event once, whenever it is written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import at
from streamkeeper.following import LATE_MS, Following


def event(at_ms: int, number: int) -> dict[str, Any]:
    """Returns an event as a page has it, by when it came and how many came before it."""
    return {"position": f"{at_ms:015d}/{1:012d}/{number:012d}", "received_at": at(at_ms), "key": str(number)}


def page(events: list[dict[str, Any]], after: str, limit: int) -> dict[str, Any]:
    """Returns the page of these events behind a position."""
    shown = sorted((one for one in events if one["position"] > after), key=lambda one: str(one["position"]))[:limit]
    return {"events": shown, "next": shown[-1]["position"] if len(shown) == limit else None}


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, LATE_MS)), max_size=30),
    st.lists(st.integers(1, 4_000), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(0, 2_000),
)
def test_every_event_is_new_once_though_it_is_written_late(
    came: list[tuple[int, int]], polls: list[int], limit: int, takes_ms: int
) -> None:
    """Events at any distance, each written up to 15 s after it came, however it is read: each comes once."""
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
            taken.extend(one["key"] for one in following.take(page(there, following.after(at_ms), limit)))
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


def test_a_slow_reader_gets_on() -> None:
    """Of 20 events a second it reads 25: it gets new ones between the late ones, and misses none of either."""
    written = [(50 * number + (0, 0, LATE_MS)[number % 3], event(50 * number, number)) for number in range(1_500)]
    following, taken = Following(), 0
    for now_ms in range(0, 200_000, 800):
        there = [one for when, one in written if when <= now_ms]
        taken += len(following.take(page(there, following.after(now_ms), 20)))
    assert taken == len(written)


def test_it_notices_that_it_falls_behind() -> None:
    """A follower that gets 50 s of events in a minute falls behind; one at the end, or that catches up, does not."""
    for step_ms, is_behind, noticed in (
        (830, True, [(60, 50), (60, 50)]), (990, True, []), (5_000, True, []), (830, False, []),
    ):  # fmt: skip
        following, told = Following(), []
        for second in range(125):
            one = event(1_000_000 + second * step_ms, second)
            following.take({"events": [one], "next": one["position"] if is_behind else None})
            told.append(following.slow(1000 * second))
        assert [each for each in told if each] == noticed


def test_a_log_and_events_by_key_are_read_once() -> None:
    """The positions of neither show when an event came, so no request goes back; those of keys do not sort as text.

    M0E, of the key 3A, comes after MkE, of 2A.
    """
    log = [f"{number:015d}/{1:012d}/{0:012d}" for number in (7, 8)]
    for positions, more in ((log, {}), (["key.MkE", "key.M0E"], {"order": "by key, not by arrival"})):
        following = Following()
        for position in positions:
            shown = [{"position": position, "received_at": at(1_795_242_319_403), "key": "a"}]
            assert following.take({"events": shown, "next": position, **more}) == shown
            assert following.slow(0) is None
            assert {following.place, *map(following.after, (0, 10**6, 10**9))} == {position}
