"""The rules of chaos where they read a group otherwise than a stream alone: each still has its teeth."""

from dataclasses import replace

import pytest

from handlers.group import keeping
from local.chaos.group_schedule import generate_groups
from local.chaos.schedule import Fault, Schedule
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


def test_a_function_that_ends_after_a_refusal_leaves_no_stream_connected() -> None:
    """It releases at its end what it owes: its execution is aborted, and a POST takes a stream out of the group."""
    drops = (Fault(3_858, "truncation", 0, 10_076), Fault(5_999, "reorders", 10_805, 50_025))
    faults = (Fault(6_420, "throttles", 5_368, 41_462), Fault(8_008, "abort and post"))
    names = ("m0", "m1", "m2")
    streams = [
        Schedule(305_600 + at, "forbids", True, False, 3, False, 300, 300, () if at else drops, name=name, together=2)
        for at, name in enumerate(names)
    ]
    whole = Schedule(3_056, "tolerates", True, False, 0, False, 300, 300, faults, together=2, group=tuple(streams))
    result = run_schedule(whole)
    assert [line for line in result.log if "execution e1-1 starts" in line]
    assert result.violations == []
