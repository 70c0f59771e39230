"""The cost of the delivery follows from how often its function is called, and from what the sinks promise."""

import math

import pytest

from local.costs import delivery_costs, month, prices, stage_costs
from local.costs.delivery_costs import DeliveryLoad
from local.costs.prices import GB, MILLION, MONTH_S

LISTED = prices.read()
SETTINGS = month.read_scenario("prod").settings
SQS, BOTH = ("sqs",), ("sqs", "eventbridge")


def load_of(*, streams: int = 1, writes_per_s: float = 1, event_bytes: int = 200) -> DeliveryLoad:
    """Returns a flow in which each write has one event."""
    return DeliveryLoad(streams, writes_per_s, 1, event_bytes)


def test_the_delivery_calls_follow_from_the_polls_that_find_events() -> None:
    """The function is called four times a second if there is always something, and never with more than a batch."""
    called = delivery_costs.noting_calls(load_of())
    assert called.per_s == pytest.approx(4 * (1 - math.exp(-1 / 4)))
    assert called.per_s * called.writes == pytest.approx(1)
    assert delivery_costs.noting_calls(load_of(writes_per_s=20)).per_s == pytest.approx(4, rel=0.01)
    assert delivery_costs.noting_calls(load_of(writes_per_s=2000)).per_s == 8
    assert delivery_costs.noting_calls(load_of(writes_per_s=0)).per_s == 0
    assert [
        round(delivery_costs.noting_calls(load_of(streams=count, writes_per_s=5)).per_s, 1) for count in (1, 4, 400)
    ] == [*(2.9, 11.4, 16.0)]


def test_a_lone_event_costs_one_write_if_it_is_sent_at_once() -> None:
    """Its arrival costs a write and a read; if a worker sends the event, also the bell, the place, its deletion."""
    one, two, slow = (delivery_costs.count_wake(kinds, 1, 200, ms) for kinds, ms in ((SQS, 10), (BOTH, 10), (SQS, 400)))
    assert (one.write_units, one.read_units, one.requests) == (1, 1, {"sqs": [[message_bytes(one)]]})
    assert (one.immediate_requests, one.finished_sinks, one.bells, two.write_units, two.finished_sinks) == (
        1,
        1,
        0,
        1,
        2,
    )
    assert (slow.write_units, slow.finished_sinks, slow.bells) == (4, 0, 1)


def test_requests_that_would_take_too_long_are_left_to_a_worker() -> None:
    """The noting call does not make a queue's 100 requests one after the other, but makes the ten of an event bus."""
    queue, bus = (delivery_costs.count_wake((kind,), 100, 200, 10) for kind in BOTH)
    assert (queue.immediate_requests, queue.bells, bus.immediate_requests, bus.bells) == (0, 1, 10, 0)
    assert queue.write_units < 12
    assert queue.read_units < 60


def message_bytes(wake: delivery_costs.WakeUsage) -> int:
    """Returns the size of the only message."""
    ((size,),) = wake.requests["sqs"]
    assert size > 200
    return size


@pytest.mark.parametrize(("kind", "usd"), [("eventbridge", 1.0), ("sqs", 0.5)])
def test_a_sink_is_paid_by_the_event(kind: str, usd: float) -> None:
    """A queue takes one event of an ordered stream per request; a bus bills each event, however they are sent."""
    for rate in (0.1, 1, 7.3):
        parts = delivery_costs.stream_month_usd([kind], load_of(writes_per_s=rate), SETTINGS, LISTED)
        assert parts["sinks"] == pytest.approx(rate * MONTH_S / MILLION * usd, rel=1e-9)
        assert parts["delivery"] > 0


def test_streams_share_calls() -> None:
    """Events noted together share the answering call, ten places each; each stream makes its own requests to sinks."""
    one = delivery_costs.stream_month_usd(["sqs"], load_of(writes_per_s=5), SETTINGS, LISTED)
    many = delivery_costs.stream_month_usd(["sqs"], load_of(streams=400, writes_per_s=5), SETTINGS, LISTED)
    assert many["sinks"] == pytest.approx(one["sinks"])
    assert many["delivery"] < one["delivery"]
    # A stage's data stream costs the same by the hour, however many streams share it and send.
    silent = delivery_costs.stream_month_usd(["kinesis"], load_of(streams=9, writes_per_s=0), SETTINGS, LISTED)
    assert silent["sinks"] == pytest.approx(730 * 0.04 / 9)


def test_a_bucket_waits_for_large_objects() -> None:
    """A bucket gets one object a minute: at an event a second, a hundredth of the cost of a queue's requests."""
    parts = delivery_costs.stream_month_usd(["s3"], load_of(), SETTINGS, LISTED)
    assert parts["sinks"] == pytest.approx(MONTH_S / 61.13 / MILLION * 5, rel=0.01)
    assert parts["delivery"] < 1.1 * delivery_costs.stream_month_usd(["sqs"], load_of(), SETTINGS, LISTED)["delivery"]


@pytest.mark.parametrize(
    ("kind", "amount"),
    [
        *(("sqs", 3), ("eventbridge", 4), ("s3", 2), ("lambda", 2)),
        *(("kinesis", 100 * 1024 / GB), ("firehose", 22 * 5 * 1024 / GB), ("webhook", 100_500 / GB)),
    ],
)
def test_a_sink_bills_each_begun_unit(kind: str, amount: float) -> None:
    """SQS and EventBridge bill each begun 64 KB, Kinesis 1 KB of a record, Firehose 5 KB. A bucket and a function bill
    requests, a webhook the bytes that leave AWS.
    """
    usd = LISTED.usd(*prices.CHARGES[kind][0].split("."))
    assert prices.sink_usd(kind, [[200, 300], [100_000]], LISTED) == pytest.approx(amount * usd)


def test_the_log_and_the_metrics_are_paid_too() -> None:
    """A sweep runs each minute. A stage pays for two metrics, with metrics by profile for three for each sink and one
    for the lag, with metrics by stream for each stream's own.
    """
    free = prices.read().with_price("cloudwatch", "log_gb", 0)
    logged, unlogged = (
        delivery_costs.stream_month_usd(["sqs"], load_of(), SETTINGS, listed)["delivery"] for listed in (LISTED, free)
    )
    notes = 4 * (1 - math.exp(-1 / 4)) * MONTH_S
    figures = stage_costs.measurements()
    size = figures["delivery_log_bytes_per_call"] + figures["delivery_log_bytes_per_document"]
    assert logged - unlogged == pytest.approx(notes * size / GB * LISTED.usd("cloudwatch", "log_gb"), rel=1e-6)
    metric_usd = LISTED.usd("cloudwatch", "metric_month")
    for by, count in (("stage", 2), ("profile", 7), ("stream", 1)):
        fixed = delivery_costs.stage_fixed_usd(["sqs", "s3"], {**SETTINGS, "metrics_by": by}, LISTED)
        assert fixed["delivery_metrics"] == pytest.approx(count * metric_usd)
        by_stream = delivery_costs.stream_month_usd(["sqs", "s3"], load_of(), {**SETTINGS, "metrics_by": by}, LISTED)[
            "delivery"
        ]
        own = by_stream - delivery_costs.stream_month_usd(["sqs", "s3"], load_of(), SETTINGS, LISTED)["delivery"]
        assert own == pytest.approx(6 * metric_usd if by == "stream" else 0)
        assert fixed["delivery_alarms"] == pytest.approx(2 * LISTED.usd("cloudwatch", "alarm_month"))
        assert 0 < fixed["delivery_sweeps"] < 0.1
        # Five functions at a time use three tables with a key each, of which each asks every five minutes.
        assert fixed["delivery_keys"] == pytest.approx(5 * 3 * MONTH_S / 300 * 3 / MILLION)
