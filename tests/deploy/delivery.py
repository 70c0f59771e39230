"""The template of a project whose profiles deliver."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from local.service import osls
from local.stages import ROOT
from tests.deploy import node
from tests.harness import STAGE


def delivery_resources() -> dict[str, Any]:
    """Return the further resources of a stage whose profiles deliver, as their file has them."""
    found: dict[str, Any] = node.run("return require('./packaging/resources/delivery.cjs')")
    return found


def delivering(folder: Path, profiles: Mapping[str, str]) -> Path:
    """Return the folder with a copy of the project that also has these profiles, and its template."""
    folder.mkdir()
    osls.copy_sources(ROOT, folder)
    for name, text in profiles.items():
        (folder / "env" / "streams" / f"{name}.toml").write_text(text)
    osls.template(STAGE, folder)
    return folder
