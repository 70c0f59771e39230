"""The compiled template comes from the cache, or anew from osls, or not at all."""

from pathlib import Path

import pytest

from local import resolved, settings
from local.errors import UserError


def copied(folder: Path) -> Path:
    """The folder, filled with a copy of what the template is made of."""
    resolved.snapshot(settings.ROOT, folder)
    return folder


def cache(root: Path) -> list[str]:
    """What lies in the cache."""
    folder = root / ".streamkeeper-build"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_osls_runs_again_only_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reading needs no Node; a changed setting does, and its template replaces the old one."""
    root = copied(tmp_path)
    first = resolved.template("local", root)
    monkeypatch.setenv("PATH", "")
    assert resolved.template("local", root) == first
    monkeypatch.undo()
    settings_file = root / "env" / "local.yml"
    settings_file.write_text(settings_file.read_text().replace("memory_mb: 256", "memory_mb: 512"))
    second = resolved.template("local", root)
    memory = second["Resources"]["ConnectionManagerLambdaFunction"]["Properties"]["MemorySize"]
    assert memory == 512
    assert len(cache(root)) == 1


def test_a_missing_node_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Node, or without the deploy tool, the sentence says what to do, and nothing is left behind."""
    root = copied(tmp_path)
    (root / "node_modules").unlink()
    with pytest.raises(UserError, match=r"^The deploy tool is missing: run `make setup`\.$"):
        resolved.template("local", root)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"^Node is missing: install Node 20 or later, then run `make setup`\.$"):
        resolved.template("local", root)
    assert cache(root) == []


def test_a_broken_machine_file_is_one_sentence(tmp_path: Path) -> None:
    """A machine that is no valid Amazon States Language is refused by name, and nothing is left behind."""
    root = copied(tmp_path)
    path = root / "statemachines" / "connections.asl.yml"
    path.write_text(path.read_text().replace("Next: Already running", "Next: Nowhere"))
    with pytest.raises(UserError) as told:
        resolved.template("local", root)
    assert str(told.value).startswith("`sls package --stage local` failed: The state machine connections is invalid: ")
    assert "Nowhere" in str(told.value)
    assert "\n" not in str(told.value)
    assert cache(root) == []
