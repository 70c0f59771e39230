"""Garbage collection is off while virtual time runs, and on again afterwards."""

import gc

import pytest

from local import collection, stages
from local.cli import main

SCENARIO = str(stages.ROOT / "tests" / "timelines" / "handover.yml")
VERBS = (
    ("replay", SCENARIO, "--json"),
    ("compare", "--hours", "2", "--strategy", "streamkeeper"),
)


def test_nobody_looks_within() -> None:
    """It is off within the block, even if blocks overlap, and on afterwards, whatever was raised."""
    with collection.paused():
        with collection.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), collection.paused():
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.parametrize("arguments", VERBS, ids=lambda arguments: arguments[0])
def test_a_verb_leaves_the_process_as_it_was(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Afterwards the process collects again; otherwise the tests beside it would keep all their objects."""
    frozen = gc.get_freeze_count()  # what pytest collected (`tests/conftest.py`)
    assert main(list(arguments)) == 0
    assert gc.isenabled()
    # What is frozen may be freed, but no more of it is.
    assert gc.get_freeze_count() <= frozen
    assert capsys.readouterr().out
