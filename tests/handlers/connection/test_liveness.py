"""Until when a connection is known to be good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.record import BROKEN, Liveness
from tests.handlers.connection.managers import arrives


@given(st.lists(st.tuples(st.sampled_from(["sent", "stored", "unread", "quiet"]), st.integers(0, 50)), max_size=40))
def test_none_is_known_good_after_the_arrival_of_what_is_not_stored(steps: list[tuple[str, int]]) -> None:
    """Whatever waits, for the store or to be read, bounds what is seen; nothing makes it fall; quiet is connected."""
    liveness = Liveness()
    now_ms, seen_ms, waiting = 1_000, 1_000, []
    for step, ms in steps:
        now_ms += 10
        unread_ms = max(seen_ms, now_ms - ms) if step == "unread" else None
        arrived_ms = max(seen_ms, now_ms - ms)
        arrives(liveness, now_ms, arrived_ms, unread_ms)
        if step == "sent":
            liveness.sent()
            waiting.append(arrived_ms)
        elif step == "stored" and waiting:
            liveness.stored()
            waiting.pop(0)
        before_ms, seen_ms = seen_ms, liveness.seen_ms(now_ms, seen_ms)
        unstored = [*waiting, *([] if unread_ms is None else [unread_ms])]
        assert seen_ms == max(before_ms, min([now_ms, *unstored]))
        assert all(seen_ms <= at_ms for at_ms in unstored)


@pytest.mark.parametrize("reason", [*sorted(BROKEN), "ended_by_upstream", "expired"])
def test_a_broken_connection_is_known_good_until_its_last_byte(reason: str) -> None:
    """A proper end is heard when it comes; of a break nobody knows when it was."""
    liveness = Liveness()
    arrives(liveness, 1_000, 900, None)
    assert liveness.heard() == 0
    arrives(liveness, 5_000, 4_000, None)
    assert liveness.until_ms(reason, 0) == (900 if reason in BROKEN else 4_000)
    assert liveness.until_ms(reason, 4_500) == 4_500


def test_half_an_event_is_missing_until_its_other_half_comes() -> None:
    """It happened after what was heard before its first byte, and so did what came with that."""
    liveness = Liveness()

    def hears(at_ms: int, *, ended_some: bool, is_inside: bool) -> int:
        arrives(liveness, at_ms, None, None)
        liveness.framed(liveness.heard(), ended_some=ended_some, is_inside=is_inside)
        return liveness.seen_ms(at_ms + 1, 0)

    assert hears(1_000, ended_some=True, is_inside=False) == 1_001
    assert hears(2_000, ended_some=True, is_inside=True) == 1_000
    assert hears(3_000, ended_some=False, is_inside=True) == 1_000
    assert hears(4_000, ended_some=True, is_inside=True) == 3_000
    assert hears(5_000, ended_some=True, is_inside=False) == 5_001


def test_what_comes_is_never_later_than_now() -> None:
    """Clocks that are read twice may differ by a millisecond."""
    liveness = Liveness()
    arrives(liveness, 1_000, 1_001, None)
    liveness.heard()
    assert liveness.heard_ms == 1_000
