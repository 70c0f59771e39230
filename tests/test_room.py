"""`make test ROOM=store`: which tests a change can break, and which tests the minute leaves out."""

import subprocess
import sys
from pathlib import Path

import pytest

from local.stages import ROOT
from tests import room
from tests.local.support import environment


def test_a_room_is_named_as_a_folder_or_by_its_last_word() -> None:
    """A room may also be named as a module, with its suffix or without."""
    assert room.changed("store") == room.changed("handlers/store") == room.changed("handlers.store/")
    assert room.changed("handlers/store/control_record.py") == ["handlers.store.control_record"]
    assert "states_language.execution" in room.changed("states-language/src/states_language")
    assert room.changed("statemachines") == ["statemachines"]
    assert room.named("run") == "handlers.run"


def test_an_unknown_room_is_named_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence lists the rooms; for a word that may mean several rooms, it names them."""
    assert room.main(["nosuch"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("There is no room nosuch; there are ")
    assert " handlers/store," in said
    assert said.count("\n") == 1
    assert room.main(["command"]) == 2
    assert " or " in capsys.readouterr().err


def test_the_nearest_tests_come_first_with_those_of_the_whole_service() -> None:
    """First are the tests of the room itself, then others by the imports between, with those that start the service."""
    found = room.files("handlers/framing")
    first = [file.startswith("tests/handlers/framing/") for file in found]
    assert first == sorted(first, reverse=True)
    assert any(first)
    assert {"tests/real/test_renewal.py", "tests/test_cpu_budget.py"} & {*found} == {"tests/real/test_renewal.py"}


def test_a_module_that_is_loaded_by_its_name_is_reached() -> None:
    """A conftest loads `handlers.control`, and the delivery a sink by its kind; a module's own tests come first."""
    assert room.files("handlers/control")[0] == "tests/handlers/test_control.py"
    assert "tests/handlers/deliver/test_sinks.py" in room.files("handlers/deliver/sinks/kinesis.py")


def test_as_many_files_are_collected_as_fit_into_a_minute() -> None:
    """The first files are collected, and at least one."""
    found = room.files("store")
    near = room.nearest(found)
    assert near == found[: len(near)]
    assert 20 < len(near) < len(found)
    assert room.nearest(found[:1]) == found[:1]


NEVER_IN_TIME = """import pytest
import tests.room

tests.room.SERVICE_S = 1e12

@pytest.fixture
def local_run():
    raise RuntimeError("it was set up")
"""


@pytest.mark.parametrize(
    ("until_s", "left"),
    [(1.0, "4 tests of 2 files"), (1e11, "2 tests of 2 files")],
    ids=["all", "those of the service"],
)
def test_tests_that_come_too_late_are_counted(tmp_path: Path, until_s: float, left: str) -> None:
    """A test that would begin after the minute does not run, and the last lines say how many such tests there are.

    Those that need the local run begin earlier, so others may follow one that was left out.
    """
    (tmp_path / "conftest.py").write_text(NEVER_IN_TIME)
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text("def test_one():\n    pass\n\ndef test_two(local_run):\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.room", "-p", "no:cacheprovider"]
    own = environment(PYTHONPATH=str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    command += [f"--until={until_s}", "--farther=1", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=60, check=False)
    late = f"LEFT OUT {left} and all of 1 file farther away: `make test` runs them"
    assert late in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout
