"""The page on scale says what its generator says, and what it promises of starts and of the first limit holds."""

from dataclasses import replace

import pytest

from local.generated_pages import outdated
from local.scale import scale_page
from local.scale.fleet import DAY_S, day, quotas
from local.scale.joining import start
from local.scale.throttled import API

FOUND = scale_page.counted()


@pytest.mark.cpu(4)
def test_the_page_quotes_what_was_counted() -> None:
    """`python -m local.scale.scale_page` writes it."""
    assert outdated(scale_page.files()) == {}


@pytest.mark.long
@pytest.mark.cpu(20)
def test_what_was_counted_is_what_is_counted_now() -> None:
    """`python -m local.scale.scale_page --count` writes it."""
    assert scale_page.count() == FOUND


def test_functions_at_a_time_are_the_first_limit() -> None:
    """A thousand groups with a function each, and some with a second, are more than an account has by default."""
    one = day(scale_page.GROUPS, FOUND.cycle, 600)
    rows = scale_page.limits(FOUND, one)
    assert rows[2].startswith("| functions at a time | 1,000 |")
    assert scale_page.GROUPS < one.most_functions <= 2 * scale_page.GROUPS
    # Half as many groups are below every quota.
    half = scale_page.limits(FOUND, day(scale_page.GROUPS // 2, FOUND.cycle, 600))
    assert all(int(row.rsplit(" ", 2)[1].rstrip("%")) < 100 for row in half[2:])


def test_a_day_is_what_its_groups_do() -> None:
    """Each hands over once a cycle and renews once; those that begin at once meet in one second, others do not."""
    cycle = replace(FOUND.cycle, jitter_s=0)
    together, apart = day(50, cycle, 0), day(50, cycle, cycle.length_s)
    assert together.handovers == 50 * (int(DAY_S / cycle.length_s) + 1)
    assert (together.renewals, together.most_starts, together.most_opening) == (50, 50, 50)
    assert together.most_functions == 100
    # A hundred entries of each group, in the eleven seconds in which its streams open.
    assert together.most_partition_units == pytest.approx(50 * 100 / 11)
    assert apart.most_opening < 10
    assert apart.control_units_per_s == pytest.approx(50 * cycle.control_units / cycle.length_s)


@pytest.mark.parametrize("region", ["large", "others"])
def test_ten_thousand_streams_start_below_every_quota(region: str) -> None:
    """Spread over two minutes, behind prod's API; at once the API refuses most of them, and all are started later."""
    limits = scale_page.limits_of_streams(region)
    spread = start(scale_page.STARTED, 120, limits)
    assert (spread.at_the_api, spread.refused, spread.busy, spread.functions_refused) == (0, 0, 0, 0)
    at_once = start(scale_page.STARTED, 0, limits)
    assert at_once.at_the_api > scale_page.STARTED
    # No sooner than the API lets them, and not much later.
    rate, burst = limits.rates[API]
    least_s = (scale_page.STARTED - burst) / rate
    assert least_s <= at_once.over_after_s < 2 * least_s + 60


def test_ten_requests_a_second_refuse_a_fleet() -> None:
    """Of ten thousand POSTs over 90 s to a stage with dev's throttle most are refused, for a quarter of an hour."""
    limits = scale_page.limits_of_streams()
    found = start(scale_page.STARTED, 90, replace(limits, rates={**limits.rates, API: (10, 20)}))
    assert found.at_the_api > 9 * scale_page.STARTED
    assert 998 <= found.over_after_s < 1100


def test_every_quota_names_its_source() -> None:
    """A page of AWS's, and when it was read."""
    listed = quotas()
    assert listed.pop("as_of") == "2026-01"
    assert all(one["source"].startswith("https://docs.aws.amazon.com/") for one in listed.values())
