"""A stream of a thousand events a second reaches each batch sink without falling behind, in virtual time."""

from collections.abc import Mapping, Sequence

import pytest

from handlers.deliver import contract
from handlers.deliver.contract import Message, Refusal
from handlers.profile.deliver_field import Target
from local.costs.delivered import records
from local.simulation.virtual_delivery import VirtualDelivery, side_by_side
from tests.handlers.deliver.records import NOW_MS
from tests.handlers.deliver.stage import Stage, Watched

# A request to a table and one to a sink; what a processor takes for an event (docs/bench.md), on a whole core.
TABLE_MS, SINK_MS, EVENT_MS = 10, 30, 0.3
SECONDS, POLL_MS, EVENTS = 6, 250, 250
BATCH = {
    "sqs": Target("sqs", "a.fifo", in_order=False),
    "sqs in order": Target("sqs", "a.fifo", batch=100),
    "kinesis": Target("kinesis", "a", in_order=False),
    "kinesis in order": Target("kinesis", "a", batch=100),
    "eventbridge": Target("eventbridge", "a"),
    "firehose": Target("firehose", "a"),
    "lambda": Target("lambda", "a"),
    "s3": Target("s3", "a"),
    "webhook": Target("webhook", "https://a.invalid/", batch=100),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(BATCH))
def test_a_thousand_events_a_second_are_delivered(kind: str) -> None:
    """An event that is noted after six seconds still arrives within one."""
    stage, target = Stage(BATCH[kind]), BATCH[kind]
    late_ms: list[int] = []

    def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
        stage.clock.now_ms += SINK_MS + round(EVENT_MS * len(batch))
        late_ms.extend(stage.clock.now_ms - noted_ms[int(one.key)] for one in batch)
        return {}

    def slow() -> None:
        stage.clock.now_ms += TABLE_MS

    sending = contract.promised(target), send
    stage.virtual = VirtualDelivery(
        Watched(stage.client, slow), "events", stage.clock, lambda _stream: [target], lambda _target: sending,
        lambda _letter: True, KeyboardInterrupt, tables=stage.client, each=side_by_side(stage.clock),
    )  # fmt: skip
    made = records(["a"], SECONDS * 1000, 200)
    noted_ms: dict[int, int] = {}
    for first in range(0, len(made), EVENTS):
        at_ms, part = NOW_MS + first // EVENTS * POLL_MS, made[first : first + EVENTS]
        noted_ms |= dict.fromkeys(range(first, first + EVENTS), at_ms)
        for record in part:
            stage.client.put_item(TableName="events", Item=record["dynamodb"]["NewImage"])
        stage.virtual.at(at_ms, lambda part=part: stage.virtual.delivery.note(part))  # type: ignore[misc]
    stage.virtual.run(NOW_MS + 60_000)
    assert len(late_ms) == SECONDS * 1000
    assert max(late_ms[-EVENTS:]) < 1_000
