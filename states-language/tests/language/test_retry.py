"""Back-off compared with a model, and which Error Names a Retrier or Catcher matches."""

import random

from hypothesis import given
from hypothesis import strategies as st

from states_language.failures import StateError
from states_language.states.retry import Attempts, Retrier, is_error_named
from states_language.tasks.stubs import YEAR_MS

RETRIERS = st.builds(
    Retrier,
    errors=st.sampled_from([("A",), ("B",), ("A", "B"), ("States.TaskFailed",), ("States.Timeout",), ("States.ALL",)]),
    interval_s=st.integers(1, 100),
    max_attempts=st.integers(0, 4),
    backoff_rate=st.sampled_from([1.0, 1.5, 2.0, 10.0, 1e300]),
    max_delay_s=st.none() | st.integers(1, 300),
    jitter=st.just(False),
)
ERRORS = st.lists(st.sampled_from(["A", "B", "C", "States.Timeout"]), max_size=12)


@given(st.lists(RETRIERS, max_size=3), ERRORS)
def test_the_back_off_equals_a_plain_model_of_the_specification(retriers: list[Retrier], errors: list[str]) -> None:
    """The wait is interval times rate to the power of uses, capped. The first Retrier that matches decides alone."""
    attempts = Attempts(tuple(retriers))
    uses: list[list[str]] = [[] for _ in retriers]
    for error in errors:
        met = [i for i, retrier in enumerate(retriers) if is_error_named(retrier.errors, StateError(error))]
        expected = None
        if met and uses[met[0]].count(error) < retriers[met[0]].max_attempts:
            retrier, expected = retriers[met[0]], 1000.0 * retriers[met[0]].interval_s
            for _ in uses[met[0]]:
                expected *= retrier.backoff_rate
            expected = round(min(expected, YEAR_MS if retrier.max_delay_s is None else 1000 * retrier.max_delay_s))
            uses[met[0]].append(error)
        assert attempts.next_delay_ms(StateError(error, None), random.random) == expected
        if expected is None:
            break
    assert attempts.retries == sum(map(len, uses))


@given(RETRIERS, st.integers(0, 10), st.floats(0, 1, exclude_max=True))
def test_full_jitter_lies_between_nothing_and_the_whole_delay(retrier: Retrier, retries: int, chance: float) -> None:
    whole_ms = retrier.delay_ms(retries, lambda: chance)
    jittered = retrier._replace(jitter=True)
    assert 0 <= jittered.delay_ms(retries, lambda: chance) <= whole_ms
    assert jittered.delay_ms(retries, lambda: 0.0) == 0
    assert jittered.delay_ms(retries, lambda: 1 - 2**-53) == whole_ms


def test_any_error_has_a_name_and_its_case_counts() -> None:
    assert is_error_named(("States.ALL",), StateError(None))
    assert not is_error_named(("A",), StateError("a"))
