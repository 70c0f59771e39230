"""Thousands of streams join groups in virtual time, through the machine behind a POST and AWS's limits."""

from dataclasses import replace

import pytest

from local.scale import scale_page
from local.scale.joining import join
from local.scale.throttled import API, Limits

UNLIMITED = Limits(10**6, 10**6, dict.fromkeys(scale_page.limits_of_streams().rates, (10**6, 10**6)))


def test_posts_at_once_join() -> None:
    """Of many that see the same free place one gets it; all streams join, and no group is too large."""
    found = join(12, 3, 0, UNLIMITED)
    assert (found.throttled, found.refused > 12, found.over_after_s < 120) == (0, True, True)
    assert found.groups in range(4, 7)


@pytest.mark.cpu(4)
def test_a_start_that_is_spread_is_not_refused() -> None:
    """Eighty within 0.72 s are as many a second as ten thousand within ninety; at once, a partition refuses some."""
    limits = scale_page.limits_of_streams()
    spread, at_once = join(80, 40, 0.72, limits), join(80, 40, 0, replace(limits, partition_writes=50))
    assert (spread.throttled, spread.busy, spread.groups) == (0, 0, 2)
    assert spread.most_partition_units < limits.partition_writes / 2
    assert at_once.busy > 0
    assert at_once.over_after_s > spread.over_after_s - 0.72


def test_a_lost_answer_costs_a_post_and_no_stream() -> None:
    """A partition of five units a second refuses most requests; in the end each stream has joined."""
    tight = join(20, 3, 0, replace(UNLIMITED, partition_writes=5))
    assert tight.throttled >= tight.busy > 0
    assert tight.groups >= 7


def test_the_throttle_of_the_stage_refuses_first() -> None:
    """With one POST a second, nine of ten get 429 at once and cost AWS nothing; all join later."""
    found = join(10, 5, 0, replace(UNLIMITED, rates={**UNLIMITED.rates, API: (1, 1)}))
    assert (found.throttled, found.groups) == (0, 2)
    assert found.at_the_api == found.busy >= 9
    assert found.over_after_s >= 9
