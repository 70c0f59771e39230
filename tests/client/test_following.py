"""What a follower requests next: it gets every event once, whenever it is written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import at
from streamkeeper.following import LATE_MS, Following


def event(at_ms: int, number: int) -> dict[str, Any]:
    """Returns an event as a page has it, by when it came and how many came before it."""
    return {"position": f"{at_ms:015d}/{1:012d}/{number:012d}", "received_at": at(at_ms), "key": str(number)}


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, LATE_MS)), max_size=30),
    st.lists(st.integers(1, 4_000), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_every_event_is_new_once_though_it_is_written_late(
    came: list[tuple[int, int]], polls: list[int], limit: int
) -> None:
    """Events at any distance, each written up to 15 s after it came, requested at any time: each is taken once."""
    now_ms, written = 1_000_000, []
    for number, (wait_ms, late_ms) in enumerate(came):
        now_ms += wait_ms
        written.append((now_ms + late_ms, event(now_ms, number)))
    following, places = Following(), [""]
    taken: list[str] = []

    def poll(at_ms: int) -> None:
        while True:
            after = following.after(at_ms)
            there = sorted(e["position"] for when, e in written if when <= at_ms and e["position"] > after)
            shown = [e for e in (e for _, e in written) if e["position"] in there[:limit]]
            shown.sort(key=lambda one: str(one["position"]))
            page = {"events": shown, "next": there[limit - 1] if len(there) >= limit else None}
            taken.extend(one["key"] for one in following.take(page))
            places.append(following.place)
            if not following.is_behind:
                return

    at_ms = 1_000_000
    while at_ms < now_ms + LATE_MS:
        for wait_ms in polls:
            at_ms += wait_ms
            poll(at_ms)
    # What came last may be written until now; it is read again once more after that.
    for _ in range(12):
        at_ms += 1_000
        poll(at_ms)
    assert sorted(taken) == sorted(str(number) for number in range(len(came)))
    assert places == sorted(places)


def test_a_log_and_events_by_key_are_read_once() -> None:
    """The positions of neither show when an event came, so no request goes back; those of keys do not sort as text.

    M0E, of the key 3A, comes after MkE, of 2A.
    """
    log = [f"{number:015d}/{1:012d}/{0:012d}" for number in (7, 8)]
    for positions, more in ((log, {}), (["key.MkE", "key.M0E"], {"order": "by key, not by arrival"})):
        following = Following()
        for position in positions:
            shown = [{"position": position, "received_at": at(1_795_242_319_403), "key": "a"}]
            assert following.take({"events": shown, "next": None, **more}) == shown
            assert {following.place, *map(following.after, (0, 10**6, 10**9))} == {position}
