"""Chaos has teeth: each deliberate defect, switched on in this process only, is caught within a few schedules."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from handlers.store.connection_store import Store
from local.chaos import simulate
from local.chaos.invariants import violations
from local.chaos.schedule import Schedule, generate
from tests.chaos.chaos_defects import DEFECTS
from tests.chaos.defect import Defect

MOST_SEEDS = 120


def seeds(defect: Defect) -> Iterator[Schedule]:
    """The first schedules that the defect can show in at all."""
    if defect.like is not None:
        yield from (replace(defect.like, seed=seed) for seed in range(MOST_SEEDS))
        return
    schedules = (schedule for schedule in map(generate, range(100 * MOST_SEEDS)) if defect.among(schedule))
    yield from itertools.islice(schedules, MOST_SEEDS)


def kinds(schedule: Schedule, machine_of: simulate.Machines, more_ms: int) -> set[str]:
    """Which rules the schedule's run broke."""
    return {violation.kind for violation in violations(simulate.run_world(schedule, machine_of, more_ms))}


def switched_on(defect: Defect, patched: pytest.MonkeyPatch) -> None:
    """Puts the defect in place."""
    if defect.manager is not None:
        patched.setattr("handlers.connection.loop.Manager", defect.manager)
    if defect.store is not None:
        patched.setattr(Store, *defect.store)
    if defect.function is not None:
        patched.setattr(*defect.function)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_deliberate_defect_is_caught(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within MOST_SEEDS schedules one shows it in the way that it must, and is clean without it."""
    machine_of = simulate.machines(defect.machine)
    for count, schedule in enumerate(seeds(defect), 1):
        with monkeypatch.context() as patched:
            switched_on(defect, patched)
            shown = kinds(schedule, machine_of, defect.more_ms)
        if shown & defect.shows_as and not kinds(schedule, simulate.DEPLOYED, defect.more_ms):
            print(f"caught by schedule {count}: {', '.join(sorted(shown))}")
            return
    pytest.fail(f"{MOST_SEEDS} schedules have not shown it")
