"""Streams are started in turn, as fast as no request is refused; continuing at the saved place skips none."""

from collections import Counter
from itertools import pairwise

import pytest

from handlers.fleet.request_pacing import AT_ONCE, LEAST_AT_ONCE, TRIES, Outcome, Rate, RequestQueue, StreamRequest

NAMES = [f"s:{number:04d}" for number in range(400)]


def test_the_rate_grows_and_never_exceeds_its_bound() -> None:
    """Without a refusal the rate grows to its bound, and no second has more requests."""
    rate, sent = Rate(50, 0), Counter[int]()
    now_ms = 0
    while now_ms < 20_000:
        wait_ms = rate.take(now_ms)
        sent[now_ms // 1000] += wait_ms == 0
        now_ms += max(1, wait_ms)
    assert sent[0] < 30
    assert {sent[second] for second in range(5, 20)} <= {49, 50, 51}


def test_refusals_of_one_cause_halve_the_rate_once() -> None:
    """Refusals close together halve the rate once; then it grows slowly, and after a pause there is no burst."""
    rate = Rate(100, 0)
    for now_ms in range(0, 10_001, 10):
        rate.take(now_ms)
    assert rate.per_s == 100
    for now_ms in (10_001, 10_002, 11_900):
        rate.halve(now_ms)
    assert rate.per_s == 50
    for now_ms in range(12_001, 14_001, 10):
        rate.take(now_ms)
    assert 51 < rate.per_s < 54
    assert [rate.take(60_000) == 0 for _ in range(4)] == [True, True, False, False]


def test_a_stream_that_is_refused_too_often_is_left_with_the_reason() -> None:
    """A refused request is repeated after up to 1, 2, 4 ... 30 s, more slowly each time, and after eight tries its
    stream is left with the reason for the next round. The other streams are done meanwhile.
    """
    asks, now_ms = (
        RequestQueue(iter([StreamRequest("a", True), StreamRequest("b", False)]), Rate(1000, 0), lambda: 1.0),
        0,
    )
    tried_ms, per_s = list[int](), list[float]()
    while (due := asks.next_request(now_ms)) is not None:
        if not isinstance(due, StreamRequest):
            now_ms += due
        elif due.stream_id == "a":
            tried_ms.append(now_ms)
            before = asks.per_s
            asks.record_outcome(due, Outcome.REFUSED, f"no {due.tries}", now_ms)
            per_s.append(asks.per_s / before)
        else:
            asks.record_outcome(due, Outcome.DONE, "", now_ms)
    assert (asks.failed, asks.counts) == ({"a": f"no {TRIES - 1}"}, {"refused": TRIES, "stopped": 1})
    assert [later - earlier for earlier, later in pairwise(tried_ms)] == [1000, 2000, 4000, 8000, 16000, 30000, 30000]
    # The second refusal comes within two seconds of the first, so both have one cause.
    assert per_s == [0.5, 1, *[0.5] * (TRIES - 2)]
    assert asks.position == "b"


@pytest.mark.parametrize(("per_s", "most"), [(1, LEAST_AT_ONCE), (5, 5), (400, AT_ONCE)])
def test_as_many_requests_are_under_way_as_may_be_sent_in_a_second(per_s: float, most: int) -> None:
    """While no request is answered, as many are sent as the rate allows in a second, but at least 3 and at most 48."""
    rate, sent = Rate(per_s, 0), list[StreamRequest]()
    for now_ms in range(0, 60_000, 100):
        rate.take(now_ms)
    asks = RequestQueue((StreamRequest(name, True) for name in NAMES), rate, lambda: 1.0)
    for _ in range(200):
        due = asks.next_request(now_ms)
        if isinstance(due, StreamRequest):
            sent.append(due)
        else:
            assert due is not None
            now_ms += due
    assert len(sent) == most
