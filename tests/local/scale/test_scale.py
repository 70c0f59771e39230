"""The page on scale is what its generator writes, and its promises about starts and the first limit hold."""

from dataclasses import replace

import pytest

from handlers.store.typed_values import DAY_S
from local import stages
from local.costs import month
from local.costs.counted_run import NAMES, RunCounts
from local.costs.model import Usage
from local.costs.request_meter import Count, Counts, Kind
from local.generated_pages import outdated_files
from local.scale import scale_page
from local.scale.fleet import REGIONS, cycle_of, limits_of_day, read_quotas, simulate_day
from local.scale.throttled_aws import FUNCTIONS, START, TRANSITIONS, TRANSITIONS_TO_CONNECT

FOUND = scale_page.read_counts()


@pytest.mark.cpu(4)
def test_the_page_quotes_the_counted_figures() -> None:
    """The page is as `python -m local.scale.scale_page` writes it."""
    assert outdated_files(scale_page.page_files()) == {}


@pytest.mark.long
@pytest.mark.cpu(20)
def test_the_counted_figures_are_up_to_date() -> None:
    """The figures are as `python -m local.scale.scale_page --count` writes them."""
    assert scale_page.count_again() == FOUND


def test_functions_at_a_time_are_the_first_limit() -> None:
    """A thousand groups, some with a second function, are more than an account allows by default."""
    one = simulate_day(scale_page.GROUPS, FOUND.cycle, 600)
    assert scale_page.limits_table(FOUND, one)[2].startswith("| functions at a time | 1,000 |")
    assert scale_page.GROUPS < one.most_functions <= 2 * scale_page.GROUPS
    # Half as many groups are below every quota.
    half = scale_page.limits_table(FOUND, simulate_day(scale_page.GROUPS // 2, FOUND.cycle, 600))
    assert all(int(row.rsplit(" ", 2)[1].rstrip("%")) < 100 for row in half[2:])


def test_the_figures_of_a_day_follow_from_its_groups() -> None:
    """Each group hands over once a cycle and renews once; only groups that begin at once meet in one second."""
    cycle = replace(FOUND.cycle, jitter_s=0)
    together, apart = simulate_day(50, cycle, 0), simulate_day(50, cycle, cycle.length_s)
    assert together.handovers == 50 * (int(DAY_S / cycle.length_s) + 1)
    assert (together.renewals, together.most_starts, together.most_opening) == (50, 50, 50)
    assert together.most_functions == 100
    # A hundred entries of each group, in the eleven seconds in which its streams open.
    assert together.most_partition_units == pytest.approx(50 * 100 / 11)
    even_s = cycle.even_units / cycle.length_s
    assert together.most_control_units == pytest.approx(50 * ((cycle.control_units - cycle.even_units) / 11 + even_s))
    assert apart.most_opening < 10
    assert apart.control_units_per_s == pytest.approx(50 * cycle.control_units / cycle.length_s)


def test_a_group_writes_its_heartbeats_all_the_time() -> None:
    """A heartbeat each four seconds, nearly all writes of a small group, is spread over the cycle."""
    control = NAMES["control_table"]
    kinds = {Kind(control, "UpdateItem", "lease"): Count(224, 224), Kind(control, "PutItem", "connection"): Count(3, 6)}
    idle, used = RunCounts(Counts(kinds), 849_000, 0, [], streams=3), month.MonthUsage(6_500, 0, 3_149, 14)
    cycle = cycle_of(month.read_scenario("prod"), Usage(idle, idle, functions=1.01), used)
    assert (cycle.control_units, cycle.even_units, cycle.ledger_index_units) == (230, 212, 3)


@pytest.mark.parametrize("region", REGIONS)
def test_ten_thousand_streams_in_two_minutes_are_below_every_quota(region: str) -> None:
    """Each of 10,000 streams has an execution and a function of its own, behind prod's API."""
    a_second, listed = 10_000 / 120, read_quotas()
    asked = dict.fromkeys(("api", START, FUNCTIONS), a_second) | {TRANSITIONS: TRANSITIONS_TO_CONNECT * a_second}
    assert {name: rate for name, rate in asked.items() if rate >= listed[name]["refill"][region]} == {}
    assert a_second < int(stages.load("prod")["api_requests_per_s"])


def test_every_quota_names_its_source_and_its_use_in_a_day() -> None:
    """The source is a page of AWS, with the day it was read. How fast Lambda adds environments is no quota of a day."""
    listed = read_quotas()
    assert listed.pop("as_of") == "2026-01"
    assert all(one["source"].startswith("https://docs.aws.amazon.com/") for one in listed.values())
    used = limits_of_day(simulate_day(10, FOUND.cycle, 600), FOUND.cycle, 600, 200)
    assert {one.name for one in used} | {FUNCTIONS} == {*listed, "own_api"}
