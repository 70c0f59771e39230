"""What a function asks for its group as a whole: a beat in time, whatever a look between two beats has found."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.group.duties import LOOK_LEAST_MS, Duties, Look, ReadMembers, ReadRecords, SendBeat
from handlers.group.group_lease import Beat, GroupLease
from handlers.group.roster import Roster

EVERY_MS, OFTEN_MS, DEADLINE_MS = 4_000, 2_000, 900_000
LOOK_MS = EVERY_MS // 2
MINE = Beat(1, 0, DEADLINE_MS)
OTHERS = Beat(2, 0, DEADLINE_MS)
ALONE = {"r1": MINE}
BESIDE = {"r1": MINE, "r2": OTHERS}


def begun(every_ms: int = EVERY_MS, lease: GroupLease | None = None) -> Duties:
    """Those of a function that has beaten at 0, and has read its members and its records."""
    lease = lease or GroupLease(1, "E", version=3, beats=ALONE)
    duties = Duties(Roster(1, "E", DEADLINE_MS), 1, every_ms, OFTEN_MS)
    duties.claimed(lease, 0)
    assert duties.next(0) == SendBeat()
    duties.answered(0, lease)
    assert duties.next(0) == ReadMembers(3)
    duties.answered(0, {"a": "joined"})
    assert duties.next(0) == ReadRecords()
    duties.read()
    assert duties.next(0) is None
    return duties


def asked(duties: Duties, now_ms: int) -> object:
    """What is asked for then, and nothing a millisecond before."""
    assert duties.due_ms == now_ms
    assert duties.next(now_ms - 1) is None
    return duties.next(now_ms)


def test_a_later_version_brings_the_beat_forward() -> None:
    """The beat's own answer says who is there; the next look is as long after it."""
    duties, lease = begun(), GroupLease(1, "E", version=4, beats=ALONE)
    assert asked(duties, LOOK_MS) == Look()
    duties.answered(LOOK_MS + 5, 4)
    assert asked(duties, LOOK_MS + 5) == SendBeat()
    duties.answered(LOOK_MS + 9, lease)
    assert duties.next(LOOK_MS + 9) == ReadMembers(4)
    duties.answered(LOOK_MS + 9, {"a": "joined", "b": "joined"})
    assert duties.next(LOOK_MS + 9) == ReadRecords()
    duties.read()
    assert asked(duties, 2 * LOOK_MS + 9) == Look()


@pytest.mark.parametrize("seen", [3, 2, 0, None])
def test_any_other_look_changes_nothing(seen: int | None) -> None:
    """The same version, one that is older than what is known, none at all, or a read that failed."""
    duties = begun()
    assert asked(duties, LOOK_MS) == Look()
    duties.answered(LOOK_MS + 5, seen)
    assert asked(duties, EVERY_MS) == SendBeat()


@given(st.lists(st.sampled_from([0, 3, 4, None]), max_size=12), st.integers(0, 900))
def test_a_beat_is_never_late(looks: Sequence[int | None], late_ms: int) -> None:
    """Whatever looks say, and however long each takes: two beats are at most so far apart, and a look is between."""
    duties, lease, beaten_ms = begun(), GroupLease(1, "E", version=3, beats=ALONE), 0
    for seen in looks:
        now_ms = duties.due_ms
        assert (now_ms, duties.next(now_ms)) == (beaten_ms + LOOK_MS, Look())
        duties.answered(now_ms + late_ms, seen)
        now_ms = duties.due_ms
        assert duties.next(now_ms) == SendBeat()
        assert now_ms == (beaten_ms + LOOK_MS + late_ms if seen == 4 else beaten_ms + EVERY_MS)
        beaten_ms = now_ms
        duties.answered(now_ms, lease)


@pytest.mark.parametrize(
    ("every_ms", "beats"), [(2 * LOOK_LEAST_MS - 1, ALONE), (EVERY_MS, BESIDE)], ids=["soon", "beside"]
)
def test_nobody_looks_where_the_next_beat_is_as_near(every_ms: int, beats: dict[str, Beat]) -> None:
    """Nor beside a newer function, for whoever joins is that one's."""
    duties = begun(every_ms, GroupLease(2, "E", version=3, beats=beats))
    assert asked(duties, min(every_ms, OFTEN_MS)) == SendBeat()
