"""A plan keeps the rules of packaging, of the cost model and of the measurements."""

import re
from dataclasses import replace
from typing import Any

import pytest

from handlers.connection.inputs import MOST_PARTITIONS
from local import stages
from local.cli import main
from local.costs import model, month, prices, stage_costs
from local.costs.counted_run import NAMES, RunCounts
from local.costs.model import Load, Usage
from local.costs.month import MonthUsage, MonthUsages
from local.costs.request_meter import Count, Counts, Kind
from local.scale import plan_command, planning
from local.scale.fleet import Limit
from local.scale.planning import FunctionSize, PlanRequest, choose_function_size
from local.simulation.scenario import Scenario

PROD = stages.load("prod")
QUIET = PlanRequest(streams=1, events_per_s=0, event_bytes=200, connect_s=0.9, wait_s=5)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (QUIET, FunctionSize(128, 1, 1)),
        # As many as 128 MB hold: (0.85 * 128 - 31) / 0.35.
        (replace(QUIET, streams=10_000), FunctionSize(128, 222, 1)),
        # An upstream so slow that a handover opens 8 a second for 12 s.
        (replace(QUIET, streams=10_000, connect_s=28.5), FunctionSize(128, 96, 1)),
        # 128 MB are planned for 1,714 events a second, and 17 streams leave more of that unused than 137 of 1,024 MB.
        (replace(QUIET, streams=1_000, events_per_s=100), FunctionSize(1024, 137, 1)),
        (replace(QUIET, events_per_s=1_700), FunctionSize(128, 1, 1)),
        (replace(QUIET, events_per_s=1_800), FunctionSize(256, 1, 1)),
        (replace(QUIET, events_per_s=23_600), FunctionSize(1769, 1, 1)),
        # More than a core: two connections, neither of which needs the whole of one.
        (replace(QUIET, events_per_s=23_800), FunctionSize(1024, 1, 2)),
    ],
)
def test_a_function_holds_what_it_can_read_hold_and_hand_over(asked: PlanRequest, expected: FunctionSize) -> None:
    """The cheapest function is chosen; a stream that no function can read is split."""
    found = choose_function_size(asked, PROD)
    assert found == expected
    rate = asked.events_per_s / found.connections * found.together
    assert rate <= stage_costs.most_events_per_s(found.memory_mb, asked.event_bytes) / planning.HEADROOM
    assert found.together <= stages.most_per_handover(PROD, round(1000 * asked.connect_s))


def test_a_rate_is_read_in_any_of_four_units(capsys: pytest.CaptureFixture[str]) -> None:
    """A rate without a unit is refused, because a stream of 5 events an hour would be planned for 5 a second."""
    said = {text: plan_command.read_rate(text) for text in ("100/s", "6/min", "36/h", "86,400/day")}
    assert said == {"100/s": 100, "6/min": 0.1, "36/h": 0.01, "86,400/day": 1}
    for text in ("x", "7", "-1/s", "0/s", "1/week", "1e9/s", "100001/s"):
        assert main(["plan", "--rate", text]) == 2
        assert re.fullmatch(rf"streamkeeper: --rate must be .+ at most, not '{text}'\.\n", capsys.readouterr().err)
    assert main(["plan", "--rate", "1/s", "--profile", "nobody"]) == 2
    assert capsys.readouterr().err.endswith("its file, and there is no profile 'nobody'.\n")
    assert (main(["plan"]), capsys.readouterr().err.endswith("100000/s at most.\n")) == (2, True)


def test_items_are_spread_by_what_a_partition_takes() -> None:
    """A partition takes 1,000 units a second, and an event one per begun KB; a log needs one partition."""
    one = Load(1, 1_000, 1_024, "items", None)
    loads = (one, replace(one, event_bytes=1_025), replace(one, keep=0.5), replace(one, events_per_s=1_001))
    assert [load.partitions for load in loads] == [1, 2, 1, 2]
    assert replace(one, events_per_s=90_000, store="log").partitions == 1
    most = {
        size: planning.planned_events_per_s(stage_costs.MB_PER_CORE, size) for size in (1, 200, 1_024, 1_025, 262_144)
    }
    assert all(replace(one, events_per_s=rate, event_bytes=size).partitions <= 30 for size, rate in most.items())
    assert MOST_PARTITIONS >= 30


def test_a_log_is_proposed_only_if_its_partition_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a log is cheaper but would be throttled, items are proposed, and the plan says why."""

    def counted(_source: Scenario, load: Load, _known: Usage | None = None) -> Usage:
        # Ten events: an item takes a unit per KB, a log compresses them.
        units = {"items": 200, "log": 27}[load.store]
        flow = RunCounts(Counts({Kind(NAMES["events_table"], "PutItem", "event"): Count(10, units)}), 10_000, 10, [])
        return Usage(replace(flow, counts=Counts()), flow)

    monkeypatch.setattr(
        month,
        "replay_months",
        lambda _: MonthUsages(MonthUsage(6_500, 2.64e9, 3_100, 14), MonthUsage(6_000, 5e9, 6_000, 2)),
    )
    monkeypatch.setattr(model, "count_load", counted)
    found = {rate: planning.make_plan("prod", replace(QUIET, events_per_s=rate, event_bytes=20_000),
                                      prices.read()) for rate in (370, 371)}  # fmt: skip
    profiles = [{"store": "log", "flush_s": 5}, {"store": "items", "partitions": 8}]
    assert [one.profile for one in found.values()] == profiles
    words = "a month, but a log has one partition, which takes 1,000 write units a second, and it needs 1,002."
    assert found[371].notes[-1].endswith(words)


@pytest.mark.long
def test_a_plan_has_the_price_of_the_command_cost() -> None:
    """The price is that of the proposed load and settings, and the log is the cheaper store."""
    found = planning.make_plan("prod", replace(QUIET, streams=4, events_per_s=2), prices.read())
    assert (found.settings, found.profile) == (
        {"memory_mb": 128, "streams_per_function": 4},
        {"store": "log", "flush_s": 5},
    )
    source = month.read_scenario("prod")
    loads = [Load(4, 2, 200, "log", 5, per_function=4)]
    (same,) = model.costs_of_loads(source, month.replay_months(source), loads, prices.read())
    assert found.costs.stream_month == same.stream_month
    busy = replace(found, asked=replace(found.asked, events_per_s=60_000))
    assert plan_command.plan_text(busy, "prod", "").startswith("4 streams at 60,000/s, events of 200 bytes")
    assert [(load.store, costs.stream_month["sum"] > same.stream_month["sum"]) for load, _, costs in found.others] == [
        ("items", True)
    ]
    assert found.as_json()["met_first"]["limit"] == "concurrency"
    assert found.limit_met_first[0].share == pytest.approx(1, abs=0.02)


def test_the_first_limit_is_found_for_any_number_of_streams() -> None:
    """The limit that is met first is found for one stream and for 100,000, also if fewer streams meet it already."""

    def limits_of(streams: int) -> list[Limit]:
        return [
            Limit("start_execution", "", 150, 1 + streams // 1_000), Limit("concurrency", "", 1_000, 20 + streams),
            Limit("handover", "", 10, 90), Limit("processor", "", 100, 0.1),
        ]  # fmt: skip

    assert [planning.limit_met_first(limits_of, streams)[0].name for streams in (1, 100_000)] == ["concurrency"] * 2
    assert [planning.limit_met_first(limits_of, streams)[1] for streams in (1, 100_000)] == [979, 980]
    busy = lambda _: [Limit("processor", "", 100, 70), Limit("concurrency", "", 10, 1)]  # noqa: E731
    assert planning.limit_met_first(busy, 5) == (Limit("processor", "", 100, 70), 5)


@pytest.mark.parametrize(
    ("profile", "needed", "words"),
    [
        ({}, 3, "write {name} into the profile's address and at least 3 of them into parts = [...]"),
        ({"profile": "etcd"}, 3, "The profile 'etcd' has no parts yet: write at least 3 equally busy parts"),
        ({"profile": "x", "parts": 2}, 3, "The profile 'x' has 2 parts: write at least 3 equally busy parts"),
        ({"profile": "x", "parts": 4}, 3, "The profile 'x' has 4 parts, which is enough if they are about as busy."),
        ({}, 17, "A stream is read in 16 parts at most: make several streams of it"),
    ],
)
def test_a_plan_says_how_a_stream_is_read_in_parts(profile: dict[str, Any], needed: int, words: str) -> None:
    """The plan says how many parts the stream takes, and what to do, by its profile if one is named."""
    assert words in planning._parts_advice(replace(QUIET, **profile), needed)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("etcd", ""),
        ("okx", ""),
        (
            "completions",
            "parts needs {name} in address, body or subscribe: otherwise each part would be the whole stream",
        ),
    ],
)
def test_a_plan_checks_parts_by_the_rules_of_profiles(name: str, why: str) -> None:
    """The plan's rules are those of `profile check` for a profile with parts."""
    said = plan_command.read_parts(name)
    assert said == {"profile": name, "parts": 0, "why_not_in_parts": f"the profile {name!r}: {why}" if why else ""}
    words = planning._parts_advice(replace(QUIET, **said), 3)
    assert words.startswith(
        "The profile cannot be read in parts: " if why else f"The profile {name!r} has no parts yet"
    )
