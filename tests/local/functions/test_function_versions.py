"""Versions of local functions are like Lambda's: copies that do not change."""

from dataclasses import replace
from pathlib import Path

import pytest

from local.functions.created_functions import LATEST, Versions
from local.stack import Alias, Function

FUNCTION = Function("manager", "handlers/manager.handler", 8, 128, {"WAIT_S": "4"})


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A function's code."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "manager.py").write_text("old")
    return tmp_path / "code"


def test_a_version_keeps_code_and_variables(tmp_path: Path, code: Path) -> None:
    """A version is not changed by later deployments; publishing the same again makes none, even after a restart."""
    versions = Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)])
    assert versions.publish(FUNCTION, code) == "1"
    (code / "manager.py").write_text("new")
    later = replace(FUNCTION, environment={"WAIT_S": "9"})
    versions = Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)])
    assert (versions.publish(later, code), versions.publish(later, code)) == ("2", "2")
    kept = [versions.find("manager", number) for number in ("1", "2", "3")]
    assert [one and (one[0].environment["WAIT_S"], (one[1] / "manager.py").read_text()) for one in kept] == [
        ("4", "old"),
        ("9", "new"),
        None,
    ]


def test_an_alias_leads_to_versions_that_exist(tmp_path: Path, code: Path) -> None:
    """An alias points to existing versions only; its version survives a restart, whatever the template says."""
    versions = Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)])
    assert (versions.resolve("manager", "stable"), versions.is_pinned) == (LATEST, False)
    versions.publish(FUNCTION, code)
    answers = (("stable", "1"), ("stable", "7"), ("other", "1"))
    assert [versions.set_alias("manager", name, number) for name, number in answers] == [True, False, False]
    assert versions.is_pinned
    assert Versions(tmp_path / "versions", [Alias("manager", "stable", LATEST)]).resolve("manager", "stable") == "1"
