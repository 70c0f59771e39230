"""Draws what the delivery of a schedule meets: its sinks, how Lambda calls it, and the faults of both.

Drawn apart from the seed's other numbers, so that all else of a schedule is as it is without. Invariant: the same seed
gives the same plan.
"""

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from handlers.profile.deliver_field import Target
from handlers.profile.secret_references import Reference

# How many of the schedules deliver.
DELIVERS = 0.3
HOUR_MS = 3_600_000
# Of each kind how often it is drawn, and for how long it lasts: nothing for what is over at once.
KINDS: dict[str, tuple[int, tuple[int, ...]]] = {
    "kill": (6, ()),
    "part": (3, (2_000, 20_000, 90_000)),
    "no answers": (3, (2_000, 20_000)),
    "away": (2, (30_000, HOUR_MS, HOUR_MS, 26 * HOUR_MS)),
    "hang": (2, (30_000, HOUR_MS)),
    "slow sink": (1, (30_000,)),
    "lost bells": (2, (5_000, 30_000)),
    "redeploy": (2, ()),
    "no queue": (2, (30_000, HOUR_MS)),
    "split": (2, ()),
}
MOST_FAULTS = 5
FIRST_MS, LAST_MS = 2_000, 90_000
# One queue drops duplicates of a group, one of all its messages.
TARGETS = (
    Target("sqs", "groups.fifo"),
    Target("sqs", "whole.fifo"),
    Target("sqs", "groups.fifo", in_order=False),
    Target("kinesis", "stream"),
    Target("kinesis", "stream", in_order=False),
    Target("eventbridge", "bus"),
    Target("firehose", "stream"),
    Target("s3", "bucket", prefix="raw/"),
    Target("lambda", "function"),
    *(
        Target("webhook", "https://hook.invalid/events", secret=Reference("secret", "hook"), **more)
        for more in ({}, {"in_order": False}, {"batch": 10, "wait_ms": 1_000})
    ),
)


class SinkFault(NamedTuple):
    """A fault of the delivery: when it begins, and for how long it lasts; `value` is what its own numbers come from.

    It chooses the sink, too, where the fault is a sink's.
    """

    at_ms: int
    kind: str
    for_ms: int
    value: int

    def __str__(self) -> str:
        lasting = f" for {self.for_ms / 1000:g} s" if self.for_ms else ""
        return f"{self.at_ms / 1000:.3f} s {self.kind}{lasting} ({self.value})"


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """Where the events of a run's streams go, in batches of how many records, and what goes wrong.

    `has_poison`: the sinks will never take some of the events.
    """

    seed: int
    targets: tuple[Target, ...]
    batch_size: int
    has_poison: bool
    faults: tuple[SinkFault, ...]

    def victim(self, fault: SinkFault) -> str:
        """Returns the label of the sink that the fault is of."""
        return self.targets[fault.value % len(self.targets)].label

    def __str__(self) -> str:
        sinks = ", ".join(target.label + ("" if target.in_order else " (unordered)") for target in self.targets)
        poison = ", some of them poison" if self.has_poison else ""
        return "\n  ".join([f"delivers to {sinks}{poison}, {self.batch_size} records at most", *map(str, self.faults)])


def draw(seed: int) -> DeliveryPlan | None:
    """Returns the plan of a seed; None where its streams deliver nothing."""
    drawn = random.Random(f"delivery {seed}")
    if drawn.random() >= DELIVERS:
        return None
    several = drawn.sample(TARGETS, drawn.choice((1, 2, 3)))
    faults = []
    for kind in drawn.choices(list(KINDS), [often for often, _ in KINDS.values()], k=drawn.randrange(MOST_FAULTS + 1)):
        at_ms = drawn.randrange(FIRST_MS, LAST_MS)
        faults.append(SinkFault(at_ms, kind, drawn.choice(KINDS[kind][1] or (0,)), drawn.randrange(1 << 16)))
    return DeliveryPlan(
        seed,
        # Two sinks of one name would be one.
        tuple({target.label: target for target in several}.values()),
        batch_size=drawn.choice((5, 20, 100)),
        has_poison=drawn.random() < 0.4,
        faults=tuple(sorted(faults)),
    )


def shorter(plan: DeliveryPlan) -> list[DeliveryPlan]:
    """Returns the plans with one fault or one sink less, or without poison."""
    faults, targets = plan.faults, plan.targets
    fewer = [replace(plan, faults=faults[:at] + faults[at + 1 :]) for at in range(len(faults))]
    fewer += [replace(plan, targets=(target,)) for target in targets if len(targets) > 1]
    return [*fewer, replace(plan, has_poison=False)] if plan.has_poison else fewer
