"""How many streams of a group open at a time."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.group.pacing import Pacing


def test_a_slow_upstream_delays_no_other_stream() -> None:
    """Two streams open at a time, and an opening that hangs counts only for a second."""
    pacing = Pacing(2, 1_000)
    pacing.record_begin("a", 0)
    pacing.record_begin("b", 0)
    assert (pacing.may_begin(0), pacing.due_ms(0)) == (False, 1_000)
    pacing.record_done("a")
    assert pacing.due_ms(200) is None
    pacing.record_begin("c", 200)
    assert pacing.due_ms(200) == 1_000
    assert [pacing.may_begin(now_ms) for now_ms in (999, 1_000)] == [False, True]


@given(st.integers(1, 4), st.integers(1, 50), st.lists(st.one_of(st.none(), st.integers(0, 40)), min_size=1))
def test_at_most_so_many_openings_are_young(at_once: int, young_ms: int, answers: list[int | None]) -> None:
    """At most `at_once` openings are young, and every stream begins, whenever upstreams answer and if they never do."""
    pacing, now_ms = Pacing(at_once, young_ms), 0
    began: dict[str, int] = {}
    for number, answered_ms in enumerate(answers):
        if (due_ms := pacing.due_ms(now_ms)) is not None:
            assert due_ms > now_ms
            now_ms = due_ms
        assert pacing.may_begin(now_ms)
        name = str(number)
        pacing.record_begin(name, now_ms)
        began[name] = now_ms
        if answered_ms is not None:
            now_ms += answered_ms
            pacing.record_done(name)
            del began[name]
        young = [one for one, since_ms in began.items() if now_ms - since_ms < young_ms]
        assert len(young) <= at_once
