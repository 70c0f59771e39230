"""Keeps versions and aliases of the local functions, as Lambda does: a version is a copy of code and configuration.

    versions/state.json                                        the aliases, and the newest version of each function
    versions/streamkeeper-local-connection-manager/3/...       its code, with function.json

Source: PublishVersion in the AWS Lambda API reference: nothing is published "if the function's configuration and code
haven't changed since the last version". Invariants: a version never changes, even when the service restarts; an alias
of the template keeps its version.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from local.functions.created_functions import replace_json_file
from local.stack import Alias, Function

LATEST = "$LATEST"


class Versions:
    """The versions in `folder`; `aliases` are those of the template."""

    def __init__(self, folder: Path, aliases: Iterable[Alias] = ()) -> None:
        self._folder = folder
        self._file = folder / "state.json"
        self._state: dict[str, dict[str, Any]] = {"aliases": {}, "newest": {}}
        if self._file.is_file():
            self._state = json.loads(self._file.read_text(encoding="utf-8"))
        for alias in aliases:
            self._state["aliases"].setdefault(f"{alias.function}:{alias.name}", alias.version)

    def publish(self, function: Function, task_root: Path) -> str:
        """Returns the version of the present function; a new one only if it differs from the newest version."""
        number, digest = self._state["newest"].get(function.name, (0, ""))
        now = _digest(function, task_root)
        if digest == now:
            return str(number)
        number += 1
        place = self._folder_of(function.name, str(number))
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(task_root, place, ignore=shutil.ignore_patterns("__pycache__"))
        (place / "function.json").write_text(json.dumps(asdict(function)), encoding="utf-8")
        self._state["newest"][function.name] = (number, now)
        self._save()
        return str(number)

    @property
    def is_pinned(self) -> bool:
        """Whether an alias names a version, so that streams do not run what is deployed before an upgrade."""
        return any(version != LATEST for version in self._state["aliases"].values())

    def alias(self, function: str, name: str) -> str | None:
        """Returns the version that an alias names; None if there is no such alias."""
        version: str | None = self._state["aliases"].get(f"{function}:{name}")
        return version

    def set_alias(self, function: str, name: str, version: str) -> bool:
        """Makes the alias name this version; returns whether both exist."""
        if self.alias(function, name) is None or (version != LATEST and self.find(function, version) is None):
            return False
        self._state["aliases"][f"{function}:{name}"] = version
        self._save()
        return True

    def resolve(self, function: str, qualifier: str) -> str:
        """Returns the version that a qualifier names; the qualifier itself if it is not an alias."""
        return self.alias(function, qualifier) or qualifier

    def find(self, function: str, version: str) -> tuple[Function, Path] | None:
        """Returns the function in that version, and the folder of its code; None if there is no such version."""
        place = self._folder_of(function, version)
        try:
            table = json.loads((place / "function.json").read_text(encoding="utf-8"))
        except OSError:
            return None
        return Function(**table), place

    def _folder_of(self, function: str, version: str) -> Path:
        return self._folder / function / version

    def _save(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_json_file(self._file, self._state)


def _digest(function: Function, task_root: Path) -> str:
    digest = hashlib.sha256(json.dumps(asdict(function), sort_keys=True).encode())
    for name, data in sorted(read_code_files(task_root).items()):
        digest.update(f"\0{name}\0".encode() + data)
    return digest.hexdigest()


def read_code_files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a function's code by their paths, without compiled ones."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
