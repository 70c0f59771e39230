"""When two hot connections that began together get apart, in lanes that hold nothing but their times."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from handlers.handover.deadlines import parts_at_ms

LIFE_MS = 10_000


@dataclass
class Lane:
    """One of two hot lanes: its connection's fence and claim, and since when it sees a newer one connected."""

    fence: int
    claimed_ms: int
    newer_ms: int | None = None

    @property
    def leaves_ms(self) -> int:
        """When it leaves by itself."""
        latest_ms = self.claimed_ms + LIFE_MS
        parts_ms = None if self.newer_ms is None else parts_at_ms(self.claimed_ms, latest_ms, self.newer_ms)
        return latest_ms if parts_ms is None else parts_ms


@given(st.integers(0, LIFE_MS), st.integers(0, LIFE_MS // 4), st.lists(st.integers(0, LIFE_MS // 4), min_size=4))
def test_two_hot_connections_get_apart_within_one_life_and_stay_apart(
    second_ms: int, seen_ms: int, starts_ms: list[int]
) -> None:
    """However near they began, and though a start takes up to a quarter of a life, after the first none hits another.

    The first end is within a life. At each later one the other lane is connected until the one that ended is again.
    """
    older, newer = Lane(1, 0, second_ms + seen_ms), Lane(2, second_ms)
    for count, start_ms in enumerate(starts_ms):
        ends, stays = sorted((older, newer), key=lambda lane: lane.leaves_ms)
        back_ms = ends.leaves_ms + start_ms
        assert ends.leaves_ms <= ends.claimed_ms + LIFE_MS
        if count:
            assert back_ms <= stays.leaves_ms
        fence = max(older.fence, newer.fence) + 1
        older, newer = Lane(stays.fence, stays.claimed_ms, back_ms), Lane(fence, back_ms)


def test_only_the_near_are_moved_apart() -> None:
    """Seen within a quarter of its life, the newer one has half a life before the older goes; else it goes as ever."""
    assert parts_at_ms(1_000, 9_000, 1_000) == 5_000
    assert parts_at_ms(1_000, 9_000, 2_999) == 6_999
    assert parts_at_ms(1_000, 9_000, 3_000) is None
