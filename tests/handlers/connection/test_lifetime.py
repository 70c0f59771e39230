"""How long a connection stays, and how two hot connections move apart, with lanes that hold only instants."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.lease import Lease, LeaseView
from handlers.connection.lifetime import Lifetime, separate_at_ms
from handlers.connection.steps import Invocation
from tests.handlers.connection.managers import profile

LIFE_MS = 10_000


@dataclass
class Lane:
    """One of two hot lanes: its connection's fence and claim, and when it first saw a newer one connected."""

    fence: int
    claimed_ms: int
    newer_ms: int | None = None

    @property
    def leaves_ms(self) -> int:
        """Return when the lane leaves by itself."""
        latest_ms = self.claimed_ms + LIFE_MS
        parts_ms = None if self.newer_ms is None else separate_at_ms(self.claimed_ms, latest_ms, self.newer_ms)
        return latest_ms if parts_ms is None else parts_ms


@given(st.integers(0, LIFE_MS), st.integers(0, LIFE_MS // 4), st.lists(st.integers(0, LIFE_MS // 4), min_size=4))
def test_two_hot_connections_get_apart_within_one_life_and_stay_apart(
    second_ms: int, seen_ms: int, starts_ms: list[int]
) -> None:
    """Two hot connections may begin at any distance, and a start may take up to a quarter of a life.

    The first end is within one life. At each later end the other lane is connected until the one that ended is
    connected again.
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


def test_only_hot_connections_less_than_a_quarter_of_a_life_apart_are_moved_apart() -> None:
    """If the newer connects in the first quarter of the older's life, the older leaves half a life later."""
    assert separate_at_ms(1_000, 9_000, 1_000) == 5_000
    assert separate_at_ms(1_000, 9_000, 2_999) == 6_999
    assert separate_at_ms(1_000, 9_000, 3_000) is None


MINE, NEXT = Lease(execution="mine"), Lease(execution="next")


def test_a_connection_overlaps_only_once_with_another_execution() -> None:
    """The other execution's second lane may open while its first connects anew; the older one would be a third."""
    lifetime = lifetime_of()
    for lease, ends_ms in ((NEXT, 12_000), (MINE, 12_000), (NEXT, 10_000)):
        lifetime.begin_overlap(10_000, lease)
        assert lifetime.overlap_ends_ms == ends_ms
        lifetime.cancel_overlap()


def lifetime_of(*, is_hot: bool = False, ttl_ms: int = 20_000) -> Lifetime:
    """Return the lifetime of a connection that began at 0 and is killed at 100 s, with a margin of 8 s."""
    invocation = Invocation("demo", "A", "mine", "r1", 100_000, 8_000, 1_000, ttl_ms // 4, overlap_max_ms=2_000)
    lifetime = Lifetime(profile("tolerates", standby="hot" if is_hot else "cold"), invocation)
    lifetime.begin(0)
    return lifetime


@given(st.sampled_from(LeaseView), st.sampled_from(["mine", "next", ""]), st.integers(0, 120_000), st.booleans())
def test_a_connection_does_not_leave_while_another_is_on_its_way(
    view: LeaseView, execution: str, expires_ms: int, is_hot: bool
) -> None:
    """At its margin a lone connection leaves if no other has claimed, a hot one if the newer will stay."""
    lease = Lease(fence=5, connected_token=5, execution=execution, expires_at_ms=expires_ms)
    one = lifetime_of(is_hot=is_hot)
    assert not one.may_leave(50_000, lease, view)
    one.is_read_due(92_000)
    if one.should_stay(lease):
        assert one.may_leave(92_000, lease, view) == (view is LeaseView.TAKEN_OVER and expires_ms > 94_000)
    else:
        assert one.may_leave(92_000, lease, view) == (view is LeaseView.HOLDER and execution != "next")


@given(st.integers(1, 40_000), st.integers(0, 90_000))
def test_the_older_hot_connection_sees_that_a_newer_one_which_renews_will_stay(ttl_ms: int, now_ms: int) -> None:
    """A lease is renewed after a quarter of its length: that shows that its connection stays, however short it is."""
    older, newer = lifetime_of(is_hot=True, ttl_ms=ttl_ms), lifetime_of(is_hot=True, ttl_ms=ttl_ms)
    older.is_read_due(92_000)
    expires_ms = newer.expires_at_ms(now_ms)
    lease = Lease(fence=5, connected_token=5, execution="mine", expires_at_ms=expires_ms)
    renewed_ms = now_ms + ttl_ms // 4
    stays = renewed_ms + min(2_000, ttl_ms // 2) < expires_ms
    assert older.may_leave(renewed_ms, lease, LeaseView.TAKEN_OVER) == stays
    assert stays or expires_ms == 96_000 or ttl_ms < 4


def test_the_older_of_two_near_hot_connections_reads_the_lease_half_way() -> None:
    """A hot connection near a newer one reads the lease half-way, once; another newer one makes it decide again."""
    newer = Lease(fence=5, connected_token=5, execution="mine", expires_at_ms=200_000)
    one = lifetime_of(is_hot=True)
    assert not one.may_leave(1_000, newer, LeaseView.TAKEN_OVER)
    assert one.alarm_ms == 47_000
    assert one.is_read_due(47_000)
    assert one.alarm_ms == 92_000
    assert not one.may_leave(47_000, replace(newer, expires_at_ms=48_000), LeaseView.TAKEN_OVER)
    assert one.may_leave(47_000, newer, LeaseView.TAKEN_OVER)
    assert not one.may_leave(47_500, replace(newer, fence=6, connected_token=6), LeaseView.TAKEN_OVER)
    assert one.alarm_ms == 92_000
