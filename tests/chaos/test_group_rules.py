"""The rules of chaos where they read a group otherwise than a stream alone: each still has its teeth."""

from dataclasses import replace

import pytest

from handlers.group import keeping
from local.chaos.group_schedule import generate_groups
from local.chaos.simulate import run_schedule


def broken() -> set[str]:
    """The rules that a stream breaks whose function is refused by the store, and then again and again by its peer."""
    schedule = generate_groups(1029)
    alone = replace(schedule, group=tuple(one for one in schedule.group if one.name == "m11"))
    return {violation.kind for violation in run_schedule(alone).violations}


def test_a_function_that_rests_as_the_machine_does_begins_a_new_row() -> None:
    """The first try behind such a rest was put off by chance, and the one after it comes at once."""
    assert broken() == set()


def test_a_function_whose_rests_are_not_drawn_is_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the rest itself is what is looked at."""
    monkeypatch.setattr(keeping, "rest_bounds_s", lambda *_of: (1, 1))
    assert "in-step" in broken()
