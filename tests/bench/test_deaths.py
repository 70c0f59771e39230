"""The benchmark of deaths: what a gap consists of, and a short run, in which nothing is lost."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bench.death_parts import Death, Parts, parts
from bench.deaths import KILLED, TIMED_OUT, main

DEATH = Death(signalled_ms=900.0, closed_ms=1_000.0, opened_ms=4_000.0)


def event(number: int, at_ms: int, kind: str, previous: int, execution: str = "e", **details: Any) -> dict[str, Any]:
    """An event of a history as boto3 returns it."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return {"id": number, "timestamp": at, "type": kind, "previousEventId": previous, "execution": execution} | details


def entered(number: int, at_ms: int, name: str, previous: int) -> dict[str, Any]:
    return event(number, at_ms, "TaskStateEntered", previous, stateEnteredEventDetails={"name": name})


def failed(number: int, at_ms: int, error: str, previous: int) -> dict[str, Any]:
    return event(number, at_ms, "TaskFailed", previous, taskFailedEventDetails={"error": error})


HISTORY = [
    entered(1, 0, "Connect A", 0),
    event(2, 1, "TaskScheduled", 1),
    entered(3, 500, "Connect B", 0),
    failed(4, 1_020, KILLED, 2),
    entered(5, 1_030, "Connect B", 3),
    entered(6, 3_020, "Connect A", 4),
]


def test_the_parts_of_a_gap_are_the_gap() -> None:
    """The lane of the dead one counts, and the function that started last before the opening."""
    found = parts(DEATH, KILLED, HISTORY, [400.0, 3_500.0, 4_100.0])
    assert found == Parts(told=20.0, rest=2_000.0, start=480.0, open=500.0)
    assert found.told + found.rest + found.start + found.open == DEATH.gap_ms


@pytest.mark.parametrize("signalled_ms", [900.0, 1_500.0])
def test_what_the_machine_was_not_told_is_not_proved(signalled_ms: float) -> None:
    """Another error proves nothing, nor does one from before the signal."""
    kind = TIMED_OUT if signalled_ms == 900.0 else KILLED
    assert parts(Death(signalled_ms, 1_000.0, 4_000.0), kind, HISTORY, [3_500.0]) is None


@pytest.mark.long
def test_each_kind_of_death_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Real processes are killed and time out; the machine hears of it by name. How long it takes is a goal's."""
    assert main(["--json", "--deaths", "4"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    seen = [(row["policy"], row["gaps"]["count"] + row["unproved"], row["lost"]) for row in rows]
    assert seen == [(KILLED, 2, 0), (TIMED_OUT, 2, 0)]
    assert any(row["gaps"]["count"] for row in rows)
