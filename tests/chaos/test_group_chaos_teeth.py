"""Chaos with groups has teeth: each deliberate defect of what keeps many streams in one function is caught."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local.chaos import simulate
from local.chaos.invariants import violations
from local.chaos.schedule import Schedule
from tests.chaos.group_chaos_defects import DEFECTS, table
from tests.chaos.group_defect import GroupDefect

DOCUMENTED = Path(__file__).parents[2] / "docs" / "chaos.md"
MOST_SEEDS = 5


def kinds(schedule: Schedule, more_ms: int, replaced: Mapping[str, Any]) -> set[str]:
    """Which rules the schedule's run broke with that in place."""
    with pytest.MonkeyPatch.context() as patched:
        for name, replacement in replaced.items():
            patched.setattr(name, replacement)
        return {violation.kind for violation in violations(simulate.run_world(schedule, more_ms=more_ms))}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_deliberate_defect_of_groups_is_caught(defect: GroupDefect) -> None:
    """Within MOST_SEEDS seeds of its schedule one breaks the rule that it names, and is clean without it."""
    for seed in range(MOST_SEEDS):
        group = tuple(replace(one, seed=seed) for one in defect.like.group)
        schedule = replace(defect.like, seed=seed, group=group)
        shown = kinds(schedule, defect.more_ms, {**defect.always, **defect.replaced})
        if defect.shows_as in shown and not kinds(schedule, defect.more_ms, defect.always):
            print(f"caught by seed {seed}: {', '.join(sorted(shown))}")
            return
    pytest.fail(f"{MOST_SEEDS} seeds have not shown it")


def test_the_table_in_the_documentation_is_the_one_that_is_tested() -> None:
    """`python -m tests.chaos.group_chaos_defects` prints it."""
    assert table() in DOCUMENTED.read_text(encoding="utf-8")
