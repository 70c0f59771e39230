"""The pages quote what the command prints now, and every amount follows from the usage."""

import itertools
import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from handlers.profile.deliver_field import KINDS
from local.checkout import ROOT
from local.cli import main
from local.costs import cost_pages, counted_run, model, month, prices, stage_costs
from local.costs.cost_pages import IDLE, QuotedCosts
from local.costs.counted_run import NAMES
from local.costs.model import PARTS, Costs, Load, Usage
from local.costs.month import MonthUsage, MonthUsages
from local.costs.prices import CHARGES, MILLION, MONTH_S
from local.costs.steady_upstream import LATE_MS, SteadyUpstream
from local.generated_pages import outdated_files
from states_language.clock import VirtualClock

LISTED = prices.read()
# In place of a replay's result; the pages are compared with a real one.
MONTHS = MonthUsages(MonthUsage(6_500, 2_640_000_000, 3_100, 14), MonthUsage(6_000, 5_256_000_000, 6_000, 2))
SOURCE = month.read_scenario("prod")
COUNTED = model.count_load
A_PRICE = f"write NAME=USD, with NAME one of {', '.join(sorted({'kinesis.stream_hour', *dict(CHARGES.values())}))}"


@pytest.fixture(scope="module")
def quoted() -> QuotedCosts:
    """The amounts that the pages must quote, from a replayed month."""
    return cost_pages.compute_quoted_costs()


@cache
def count_usage(load: Load) -> Usage:
    """Returns the counts of the load; the stream without events is counted once for all loads with the same storage."""
    still = replace(load, events_per_s=0, event_bytes=200)
    return COUNTED(SOURCE, load, None if load == still else count_usage(still))


def compute_costs(settings: dict[str, Any] | None = None, *, streams: int = 1, **load: Any) -> Costs:
    """Returns the costs of a load, by default of a lone stream without events."""
    asked = replace(IDLE, **load)
    changed = {**SOURCE.settings, **(settings or {})}
    return model.price_load(changed, MONTHS, replace(asked, streams=streams), count_usage(asked), LISTED)


def test_the_page_quotes_the_requests_of_an_idle_stream() -> None:
    """docs/costs.md quotes the parts that need no replay of a month as they are now; a long test compares all pages."""
    found = compute_costs().stream_month
    table = (ROOT / "docs" / "costs.md").read_text(encoding="utf-8").partition("<!-- cost: stream -->")[2]
    rows = (line.split("|") for line in table.partition("<!-- /cost -->")[0].splitlines())
    said = {row[1].strip().replace(" ", "_"): row[2].strip() for row in rows if len(row) > 3}
    parts = ("control_writes", "reads", "storage", "watch")
    assert {part: said[part] for part in parts} == {part: f"{found[part]:.2f}" for part in parts}


@pytest.mark.long
def test_the_pages_quote_the_amounts_of_the_command(quoted: QuotedCosts) -> None:
    """The pages are as `python -m local.costs.cost_pages` writes them."""
    assert sorted(path.name for path in outdated_files(cost_pages.page_files(quoted))) == []


@pytest.mark.long
def test_a_stream_of_a_function_with_a_hundred_costs_cents(quoted: QuotedCosts) -> None:
    """A stream that shares its function with 99 costs ten cents a month at an event a minute, fifty at an event a
    second. Backups and the tables' key are not included.

    If each minute has its event, the second search for gaps (decision 107) adds a quarter of a cent.
    """
    plain = replace(SOURCE, settings={**SOURCE.settings, "point_in_time_recovery": False})
    listed = LISTED.with_price("kms", "million_requests", 0)
    found = model.costs_of_loads(plain, month.replay_months(plain), cost_pages.GROUP_LOADS, listed)
    minute, by_the_clock, second = (one.stream_month["sum"] for one in found[1:])
    assert (minute <= 0.10, by_the_clock <= 0.1026, second <= 0.50) == (True, True, True)
    # The price of a function is shared, that of stored events is not.
    shared, alone = quoted.together[3].stream_month, quoted.alone["packed"].stream_month
    assert shared["lambda"] == pytest.approx(alone["lambda"] / 100, rel=0.03)
    assert shared["events"] == pytest.approx(alone["events"], rel=0.03)


def test_the_parts_are_all_there_and_make_the_sum() -> None:
    """The sum has every part; a part that costs nothing is 0, and without events there is no price of a million."""
    found = compute_costs()
    assert tuple(found.stream_month) == (*PARTS, "sum")
    assert found.stream_month["sum"] == pytest.approx(sum(found.stream_month[part] for part in PARTS), abs=1e-12)
    assert (found.stream_month["events"], found.stream_month["metrics"]) == (0, 0)
    assert (found.million_events, found.million_storage_usd) == (None, None)
    gb_s = 2_640_000 * 128 / 1024
    assert found.stream_month["lambda"] == pytest.approx(gb_s * 0.0000133334 + 3_100 * 0.20 / MILLION)
    assert found.stream_month["step_functions"] == pytest.approx(6_500 * 25 / MILLION)


def test_an_event_is_an_item_and_an_index_entry() -> None:
    """An event costs two write units, its item's and its index entry's, and a third if the item exceeds 1 KB."""
    million = [compute_costs(events_per_s=0.05, event_bytes=size) for size in (200, 1200)]
    events = [(found.million_events or {})["events"] for found in million]
    assert events == [pytest.approx(1.25, rel=0.02), pytest.approx(1.875, rel=0.01)]
    assert million[0].stream_month["events"] == pytest.approx(1.25 * 0.05 * MONTH_S / MILLION, rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize(("rate", "rel"), [(0.001, 0.1), (4_000, 0.01)])
def test_a_rare_or_a_dense_event_costs_as_much_as_another(rate: float, rel: float) -> None:
    """An event costs the same at any rate: a run is counted at a rate with some events, but too few for a minute."""
    asked: dict[str, Any] = {"events_per_s": rate, "event_bytes": 200}
    assert 0 < count_usage(replace(IDLE, **asked)).with_events.events < 11_000
    found = compute_costs(**asked)
    assert (found.million_events or {})["events"] == pytest.approx(1.25, rel=rel)
    assert found.stream_month["events"] == pytest.approx(1.25 * rate * MONTH_S / MILLION, rel=rel)


@pytest.mark.parametrize(("size", "units"), [pytest.param(200, 1, marks=pytest.mark.long), (1200, 2)])
def test_an_event_without_an_index_costs_its_item_only(size: int, units: int) -> None:
    """Without an index, an event costs half as many units below 1 KB, and one for each begun KB. Apart from the bytes
    of the entry, everything else is as with an order.
    """
    asked: dict[str, Any] = {"events_per_s": 0.05, "event_bytes": size}
    flow, ordered = (count_usage(replace(IDLE, **asked, order=order)).with_events for order in ("none", "index"))
    written, with_index = (one.counts.write_units(NAMES["events_table"]) for one in (flow, ordered))
    # At a handover some events come twice, and a refused write costs the units of the existing item.
    assert units * flow.events <= written <= units * flow.events * 1.02
    assert with_index - written == flow.events == ordered.events
    assert flow.counts.by_kind.keys() == ordered.counts.by_kind.keys()
    control, indexed = (NAMES["control_table"], ""), (NAMES["events_table"], "by-position")
    assert flow.counts.stored_bytes[control] == ordered.counts.stored_bytes[control]
    assert 0 == flow.counts.stored_bytes[indexed] < ordered.counts.stored_bytes[indexed]
    half = (compute_costs(**asked, order="none").million_events or {})["events"]
    assert half == pytest.approx(
        (compute_costs(**asked).million_events or {})["events"] * units / (units + 1), rel=0.01
    )


@pytest.mark.parametrize("store", ["items", "log"])
@pytest.mark.parametrize("flush_s", [None, 0.0, 0.02, 5.0, 60.0])
def test_no_counted_run_receives_more_than_some_hundred_megabytes(store: str, flush_s: float | None) -> None:
    """A counted run is limited in bytes for any size and rate of events: one second of 20 kB x 100,000 took minutes."""
    for size, rate in itertools.product((1, 200, 20_000, 262_144), (1e-6, 1, 1_000, 100_000)):
        load = Load(1, rate, size, store, flush_s if store == "log" else None)
        counted_per_s = max(min(rate, model.most_counted_per_s(load)), model.RAREST_PER_S)
        length_s = model._run_length_s(counted_per_s, 1, size, load.flush_s or 0) + counted_run.WARM_UP_MS / 1000
        assert counted_per_s * length_s * size < 12 * model.BYTES, (size, rate)


def test_an_event_that_is_left_out_costs_no_write() -> None:
    """If a quarter of the events is kept, writes cost a quarter; the stream itself costs the same."""
    found = [compute_costs(events_per_s=0.05, keep=keep).stream_month for keep in (1, 0.25)]
    assert found[1]["events"] == pytest.approx(found[0]["events"] / 4, rel=0.02)
    assert found[0]["lambda"] == found[1]["lambda"]


def test_a_million_events_in_a_log_cost_cents() -> None:
    """At 100/s of 200 bytes, readable within a second, a segment of a hundred events costs some six write units."""
    asked: dict[str, Any] = {"events_per_s": 100, "event_bytes": 200, "store": "log"}
    assert (compute_costs(**asked).million_events or {})["sum"] <= 0.05
    flow = count_usage(replace(IDLE, **asked)).with_events
    (puts,) = (count.requests for kind, count in flow.counts.by_kind.items() if kind.operation == "PutItem")
    assert puts == pytest.approx(flow.events / 100, rel=0.1)


def test_costs_follow_the_settings() -> None:
    """Memory, backups, retention and the grouping of metrics change the costs in proportion."""
    found = compute_costs(events_per_s=0.1)
    larger = compute_costs({"memory_mb": 256}, events_per_s=0.1).stream_month["lambda"]
    assert larger == pytest.approx(2 * found.stream_month["lambda"], rel=0.001)
    bare = compute_costs({"point_in_time_recovery": False}, events_per_s=0.1).stream_month["storage"]
    # The index, a quarter of what is stored, has no backup.
    assert found.stream_month["storage"] == pytest.approx(bare * (0.25 + 0.20 * 3 / 4) / 0.25, rel=0.05)
    longer = compute_costs({"keep_days": 60}, events_per_s=0.1).million_storage_usd
    # Twice, but for the counts of the events in the ledger, which is kept as long as before.
    assert longer == pytest.approx(2 * (found.million_storage_usd or 0), rel=0.008)
    assert found.stream_month["metrics"] == pytest.approx(0.30)
    by_profile = compute_costs({"metrics_by": "profile"}, events_per_s=0.1).stream_month["metrics"]
    assert by_profile == pytest.approx(6 * 0.30)
    less = {"metrics": pytest.approx(0.003), "sum": pytest.approx(found.stream_month["sum"] - 0.297)}
    assert compute_costs(events_per_s=0.1, streams=100).stream_month == found.stream_month | less


def test_the_page_of_a_stream_uses_the_commands_price_of_an_event() -> None:
    """The page's rates have an event's requests and storage, but no metric, whose cost has nothing to do with it."""
    idle, busy = compute_costs(), compute_costs(events_per_s=0.05, event_bytes=200)
    alone = {"idle": idle} | dict.fromkeys(("light", "unordered", "packed"), busy)
    rates = json.loads(cost_pages.rates(QuotedCosts(alone, [idle], {})))
    assert busy.million_events is not None
    usd = busy.million_events["sum"] + (busy.million_storage_usd or 0)
    assert set(rates["million_events_usd"].values()) == {round(usd, 4)}
    events_usd = busy.stream_month["sum"] - idle.stream_month["sum"] - busy.stream_month["metrics"]
    assert usd == pytest.approx(events_usd / (0.05 * MONTH_S) * MILLION)


def test_a_post_costs_the_api_and_an_express_execution() -> None:
    """A POST costs an API request, an execution of twice 100 ms with 64 MB, and the consistent read of a lease."""
    assert MILLION * stage_costs.post_usd(LISTED) == pytest.approx(3.50 + 1.00 + 0.2 / 16 * 16.67 + 0.125)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--events-per-s -1", "--events-per-s must be a number from 0 to 100000, not '-1'"),
        ("--events-per-s nan", "--events-per-s must be a number from 0 to 100000, not 'nan'"),
        ("--event-bytes 0", "--event-bytes must be a whole number from 1 to 262144, not '0'"),
        ("--streams 0", "--streams must be a whole number from 1 to 1000000, not '0'"),
        ("--streams ٣", "--streams must be a whole number from 1 to 1000000, not '٣'"),
        ("--per-function 501", "--per-function must be a whole number from 1 to 500, not '501'"),
        ("--store heap", "--store must be one of items, log, not 'heap'"),
        ("--order key", "--order must be one of index, none, not 'key'"),
        (
            "--store log --order none",
            "--order works only with --store items: a log is always in order, and has no index",
        ),
        ("--keep 2", "--keep must be a number from 0 to 1, not '2'"),
        ("--arrivals noon", "--arrivals must be one of random, clock, not 'noon'"),
        ("--flush-s 1", "--flush-s works only with --store log: an item is written at once"),
        ("--store log --flush-s 61", "--flush-s must be a number from 0 to 60, not '61'"),
        (
            "--events-per-s 5000",
            "--events-per-s: a function of 128 MB stores about 3,429 events of 200 bytes a second; "
            "spread them over more streams, or raise memory_mb",
        ),
        (
            "--events-per-s 100 --per-function 50",
            "--events-per-s: the 50 streams of a function of 128 MB have more than the about 3,429 events of 200 bytes "
            "a second that it stores; let fewer share it, or raise memory_mb",
        ),
        ("--stage nope", "There is no stage 'nope': env/nope.yml does not exist"),
        ("--deliver sns", f"--deliver must name kinds of sinks ({', '.join(KINDS)}), not 'sns'"),
        ("--price sqs.x=1", f"--price: 'sqs.x=1' is not a price: {A_PRICE}"),
        ("--price kinesis.gb_in=nan", f"--price: 'kinesis.gb_in=nan' is not a price: {A_PRICE}"),
    ],
)
def test_an_invalid_option_is_refused_with_one_sentence(
    options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid option is refused with one sentence that names it, and status 2."""
    assert main(["cost", *options.split()]) == 2
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", f"streamkeeper: {sentence}.\n")


def test_the_json_and_the_text_have_the_same_amounts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JSON has all parts, the text the sums; both have the note that a busy stream needs partitions."""
    monkeypatch.setattr(month, "replay_months", lambda _: MONTHS)
    monkeypatch.setattr(model, "count_load", lambda _, load: count_usage(replace(load, streams=1, events_per_s=0.1)))
    options = ["--events-per-s", "1200", "--streams", "3"]
    assert main(["cost", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["stage"], found["streams"], found["events_per_s"], found["store"]) == ("prod", 3, 1200, "items")
    assert found["fixed_month"] == pytest.approx(found["fixed_month_parts"]["sum"])
    assert found["million_events"] == pytest.approx(found["million_events_parts"]["sum"])
    assert found["stage_month"] == pytest.approx(found["fixed_month"] + 3 * found["stream_month"]["sum"])
    assert found["beside"]["fargate"] == pytest.approx(10.86, abs=0.005)
    assert "about 1000 such events a second" in found["notes"][0]
    assert main(["cost", *options]) == 0
    written = capsys.readouterr()
    lines = {line[:20].strip(): line[20:].split()[0] for line in written.out.splitlines() if line[20:32].strip()}
    assert lines["a stream"] == f"{found['stream_month']['sum']:.2f}"
    assert lines["together"] == f"{found['stage_month']:.2f}"
    assert lines["a million events"] == f"{found['million_events']:.2f}"
    assert "about 1000 such events a second" in written.err


def test_streams_share_functions_as_evenly_as_can_be(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven streams with three to a function are three, two and two; without --streams, as many as share a function."""
    together = [Load(streams, 0, 1, "items", None, per_function=3).group_size for streams in (1, 2, 3, 4, 7, 9)]
    assert together == [1, 2, 3, 2, 3, 3]
    monkeypatch.setattr(month, "replay_months", lambda _: MONTHS)
    monkeypatch.setattr(model, "count_load", lambda _, load: count_usage(load))
    assert main(["cost", "--per-function", "2", "--events-per-s", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["streams"], found["per_function"]) == (2, 2)
    assert found["stream_month"]["step_functions"] == pytest.approx(6_500 * 25 / MILLION / 2)
    assert main(["cost", "--per-function", "2", "--events-per-s", "0"]) == 0
    assert "2 streams of the stage prod, 2 in a function, each with no events" in capsys.readouterr().out


def test_a_clocks_events_come_at_their_times_and_a_little_late() -> None:
    """A clocked upstream sends one event in each interval, a little late, so the time between two events varies."""
    clock = VirtualClock(seed=1)
    upstream = SteadyUpstream(clock, 1 / 60, 200, 0, is_clocked=True)

    async def instants() -> list[int]:
        before = clock.now_ms()
        late: list[int] = []
        for tick in range(1, 31):
            await clock.sleep_until(before + tick * 60_000 - 1)
            assert upstream.count_sent() == tick - 1
            while upstream.count_sent() < tick:
                await clock.sleep_until(clock.now_ms() + 10)
            late.append(clock.now_ms() - before - tick * 60_000)
        return late

    late = clock.run(instants())
    assert max(late) <= LATE_MS + 10
    assert 0 < sum(after < before for before, after in itertools.pairwise(late)) < 29


def test_a_vpc_costs_its_endpoints() -> None:
    """Each subnet has four endpoints, and one for each sink with its own; a stage without a VPC pays nothing."""
    inside, kinds = {"vpc_subnet_ids": "subnet-0a1b2c3d,subnet-4e5f6a7b"}, ("sqs", "eventbridge", "kinesis")
    found, delivering = compute_costs(inside).fixed_month, compute_costs(inside, deliver=kinds).fixed_month
    assert found["vpc"] == pytest.approx(4 * 2 * 7.30)
    assert delivering["delivery_vpc"] == pytest.approx(2 * 2 * 7.30)
    assert found["sum"] == pytest.approx(compute_costs().fixed_month["sum"] + found["vpc"])
    assert {"vpc", "delivery_vpc"}.isdisjoint(compute_costs(deliver=kinds).fixed_month)
