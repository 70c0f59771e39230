"""The token bucket before the requests to Step Functions."""

from hypothesis import example, given
from hypothesis import strategies as st

from handlers.aws.executions import Pace


@given(st.integers(1, 50), st.sampled_from([0.5, 5.0, 10.0]), st.lists(st.floats(0, 100), min_size=1, max_size=200))
@example(1, 5.0, [100.0, 0.0, 0.0])
@example(3, 0.5, [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
def test_requests_never_exceed_content_and_refills(at_once: int, a_second: float, idle_s: list[float]) -> None:
    """In any span of time, requests are at most the bucket's content plus what refilled."""
    now_s = 0.0

    def sleep(length_s: float) -> None:
        nonlocal now_s
        now_s += length_s

    pace = Pace(at_once, a_second, lambda: now_s, sleep)
    sent_s: list[float] = []
    for wait_s in idle_s:
        now_s += wait_s
        pace.take()
        sent_s.append(now_s)
    for first, began_s in enumerate(sent_s):
        for last in range(first, len(sent_s)):
            assert last - first + 1 <= at_once + (sent_s[last] - began_s) * a_second + 1e-6


def test_a_full_bucket_lets_requests_pass_at_once() -> None:
    """Requests up to the bucket's content are sent at once, and the next after a refill."""
    slept: list[float] = []
    pace = Pace(3, 5.0, lambda: 0.0, slept.append)
    for _ in range(3):
        pace.take()
    assert slept == []
    pace.take()
    assert slept == [0.2]
