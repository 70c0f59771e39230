"""The compiled template comes from the cache or from a new run of osls; if both fail there is none."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.harness import descendants
from local import stages
from local.service import osls
from local.terminal import UserError
from tests.deploy.account import Account
from tests.local.support import until
from tests.projects import with_settings


def copied(folder: Path) -> Path:
    """Return the folder with a copy of what the template is made of."""
    osls.copy_sources(stages.ROOT, folder)
    return folder


def cache(root: Path) -> list[str]:
    folder = root / ".streamkeeper-build"
    # osls has its own folder there, .serverless.
    return sorted(path.name for path in folder.glob("[!.]*"))


def test_osls_runs_again_only_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reading does not run Node. After a setting has changed it does."""
    root = copied(tmp_path)
    # The same files make the same template.
    first = osls.template("test")
    osls.kept_template("test", root).parent.mkdir()
    shutil.copy(osls.kept_template("test", stages.ROOT), osls.kept_template("test", root))
    monkeypatch.setenv("PATH", "")
    assert osls.template("test", root) == first
    with_settings(root, memory_mb=512)
    with pytest.raises(UserError, match=r"^Node is missing: install Node 20 or later, then run `make setup`\.$"):
        osls.template("test", root)


@pytest.mark.long
def test_a_packaging_that_was_killed_disturbs_no_other(tmp_path: Path) -> None:
    """Its folder is removed although an orphaned Node still works in it.

    A change's template replaces the old one, but not that of the stage test-eu.
    """
    root = copied(tmp_path)
    command = "import sys, pathlib; from local.service import osls; osls.template('test', pathlib.Path(sys.argv[1]))"
    killed = subprocess.Popen([sys.executable, "-c", command, str(root)], cwd=stages.ROOT)
    assert until(lambda: descendants(killed.pid))
    killed.kill()
    killed.wait(60)
    assert len(cache(root)) == 1
    other = osls.kept_template("test-eu", root)
    other.touch()
    for memory_mb in (128, 512):
        with_settings(root, memory_mb=memory_mb)
        template = osls.template("test", root)
        assert template["Resources"]["ConnectionManagerLambdaFunction"]["Properties"]["MemorySize"] == memory_mb
        assert cache(root) == sorted([osls.kept_template("test", root).name, other.name])


@pytest.mark.long
def test_a_stages_own_delivering_profiles_pass_the_check_of_sinks() -> None:
    """In a run of a stage for AWS, the check does not refuse the wildcards that stand for the sinks of a folder."""
    assert "DeliveryMapping" in osls.template("dev", delivers=True)["Resources"]


def test_a_missing_deploy_tool_is_one_sentence(tmp_path: Path) -> None:
    """Without the deploy tool the sentence says what to do, and nothing is left behind."""
    root = copied(tmp_path)
    (root / "node_modules").unlink()
    with pytest.raises(UserError, match=r"^The deploy tool is missing: run `make setup`\.$"):
        osls.template("local", root)
    assert cache(root) == []


@pytest.mark.long
def test_a_stage_of_the_laptop_is_not_deployed(tmp_path: Path) -> None:
    """Its zip has no requirements, and its profiles lead to the laptop; AWS gets no request."""
    run = Account("http://127.0.0.1:1").sls(copied(tmp_path), "deploy", "--stage", "test")
    refused = "The stage test is for a laptop and cannot be deployed: deploy dev, prod, or a stage of your own "
    assert (run.code, refused + "(docs/deploy.md)." in run.output) == (1, True), run.output


MACHINE = "statemachines/connections.asl.yml"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda path: path.unlink(), f"{MACHINE} cannot be read: No such file or directory."),
        (lambda path: path.write_text(""), f"{MACHINE} must contain an object with StartAt and States."),
        (lambda path: path.write_text("a: [1"), f"{MACHINE} is neither YAML nor JSON: "),
        (lambda path: replaced(path, "Next: Already running", "Next: Nowhere"), f"{MACHINE}: /States/"),
        (lambda path: replaced(path, "Type: Succeed\n", "Type: Succeeed\n"), f"{MACHINE}: /States/"),
    ],
)
def test_a_broken_machine_file_is_one_sentence(tmp_path: Path, change: Callable[[Path], Any], sentence: str) -> None:
    """A machine file that cannot be read or breaks a rule is named with the place, before osls is asked."""
    root = copied(tmp_path)
    change(root / MACHINE)
    with pytest.raises(UserError) as refusal:
        osls.template("local", root)
    assert str(refusal.value).startswith(sentence)
    assert (str(refusal.value).count("\n"), str(tmp_path) in str(refusal.value), cache(root)) == (0, False, [])


def replaced(path: Path, old: str, new: str) -> None:
    """Write the file with the first `old` replaced."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.long
def test_what_osls_refuses_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """osls's reason is one line, and nothing is left behind. It comes without a home that can be written, too."""
    monkeypatch.setenv("HOME", "/dev/null/home")
    root = copied(tmp_path)
    with (root / "serverless.yml").open("a") as file:
        file.write("nonsense: true\n")
    with pytest.raises(UserError) as refusal:
        osls.template("local", root)
    assert str(refusal.value).startswith("`sls package --stage local` failed: ")
    assert ("nonsense" in str(refusal.value), "\n" in str(refusal.value), cache(root)) == (True, False, [])
