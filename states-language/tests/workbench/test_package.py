"""The package as shipped: its metadata, its pages, and a wheel and an sdist that work in an empty environment."""

import re
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import states_language
from states_language import TaskFailure
from states_language.testing import in_turn, run_machine
from states_language.workbench import files as functions

FOLDER = Path(__file__).parents[2]
README = (FOLDER / "README.md").read_text(encoding="utf-8")
PAGES = [FOLDER / "README.md", FOLDER / "CHANGELOG.md", *(FOLDER / "docs").glob("*.md")]


def test_each_relative_link_of_a_page_is_a_file_of_this_folder() -> None:
    """The sdist has this folder only, so a relative link out of it would be broken."""
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                target = (page.parent / link).resolve()
                assert target.is_relative_to(FOLDER), f"{page.name}: {link}"
                assert target.is_file(), f"{page.name}: {link}"


def test_the_readmes_example_runs_as_it_is_shown(tmp_path: Path) -> None:
    """The README's definition and the test beside it run as shown."""
    shown = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "order.asl.yml").write_text(shown[0], encoding="utf-8")
    functions = {"charge": in_turn(TaskFailure("Busy"), {"paid": True}), "dynamodb:putItem": {}}
    run = run_machine(tmp_path / "order.asl.yml", {"id": 7}, functions=functions)
    run.assert_path("Charge", "Store")
    run.assert_output({"paid": True})
    assert yaml.safe_load(shown[0])["StartAt"] == "Charge"


def test_the_metadata_says_what_is_tested() -> None:
    """The version is the package's; the Pythons are all from the first to the last named one."""
    project: dict[str, Any] = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", states_language.__version__)
    changes = (FOLDER / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {states_language.__version__}" in changes
    assert (FOLDER / "src" / "states_language" / "py.typed").is_file()


def _run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.cpu(400)
def test_wheel_and_sdist_work_in_an_empty_environment(tmp_path: Path) -> None:
    """twine checks wheel and sdist, the wheel runs alone and the sdist's tests pass. Needs a package index."""
    tools, dist = tmp_path / "tools", tmp_path / "dist"
    _run(sys.executable, "-m", "venv", tools, cwd=tmp_path)
    _run(tools / "bin" / "pip", "install", "--quiet", "build", "twine", cwd=tmp_path)
    _run(tools / "bin" / "python", "-m", "build", "--outdir", dist, FOLDER, cwd=tmp_path)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    _run(tools / "bin" / "python", "-m", "twine", "check", "--strict", wheel, sdist, cwd=tmp_path)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"states_language/py.typed", "pytest_states_language/__init__.py"} <= names
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert (source / "docs" / "testing.md").is_file()
    empty = tmp_path / "empty"
    _run(sys.executable, "-m", "venv", empty, cwd=tmp_path)
    _run(empty / "bin" / "pip", "install", "--quiet", wheel, cwd=tmp_path)
    (tmp_path / "m.asl.json").write_text('{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}', encoding="utf-8")
    assert "SUCCEEDED" in _run(empty / "bin" / "python", "-m", "states_language", "run", "m.asl.json", cwd=tmp_path)
    _run(empty / "bin" / "pip", "install", "--quiet", f"{source}[server,fuzz,pytest,test]", cwd=tmp_path)
    # Less what measures CPU time: others may run beside this.
    said = _run(empty / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=source)
    assert " passed" in said


PAGE = (Path(__file__).parents[2] / "docs" / "command.md").read_text(encoding="utf-8")


def test_the_example_of_functions_can_be_read(tmp_path: Path) -> None:
    """`run` accepts the file of functions that the page shows."""
    text = "    resize-image:" + PAGE.partition("    resize-image:")[2].partition("\n\n")[0]
    (tmp_path / "f.yml").write_text(textwrap.dedent(text))
    given = functions.read_answers(str(tmp_path / "f.yml"))
    assert {name: len(answer.answers) for name, answer in given.items()} == {
        "resize-image": 2,
        "dynamodb:putItem": 1,
        "slow-report": 1,
    }
