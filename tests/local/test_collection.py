"""Garbage is not looked for while virtual time runs, and is again afterwards."""

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
    """Within it is off, also behind another one; afterwards it is on, whatever was raised."""
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
    """A process that runs one goes on collecting: else the tests beside it keep all that they ever make."""
    frozen = gc.get_freeze_count()  # what pytest collected (`tests/conftest.py`)
    assert main(list(arguments)) == 0
    assert gc.isenabled()
    # What is frozen may be freed, but no more of it is.
    assert gc.get_freeze_count() <= frozen
    assert capsys.readouterr().out
