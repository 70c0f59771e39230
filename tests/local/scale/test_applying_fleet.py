"""The product's own turns and machine apply a document in virtual time, behind AWS's limits."""

from dataclasses import replace

import pytest

from local.scale import scale_page
from local.scale.throttled_aws import START, read_apply_result, simulate_apply


@pytest.mark.cpu(4)
def test_refused_starts_and_writes_are_tried_again() -> None:
    """All streams start, though a partition refuses most requests and only two starts a second are allowed."""
    limits = scale_page.limits_of_streams()
    grouped = simulate_apply(120, 20, replace(limits, partition_writes=25))
    assert (grouped.left, grouped.refused > 0, grouped.groups >= 6) == (0, True, True)
    alone = simulate_apply(60, 1, replace(limits, rates={**limits.rates, START: (2, 2)}))
    assert (alone.left, alone.refused > 0, 29 <= alone.over_after_s < 200) == (0, True, True)


def test_a_hundred_thousand_streams_are_applied_within_a_quarter_of_an_hour() -> None:
    """As counted (`python -m local.scale.scale_page --count`): in groups of a hundred, with none left."""
    found = read_apply_result()
    assert (found.streams, found.per_function, found.left, found.functions_refused) == (100_000, 100, 0, 0)
    assert found.over_after_s <= 900
    assert 1000 <= found.groups < 1100
    assert found.most_starts <= 150
    assert found.most_partition_units <= 1000
