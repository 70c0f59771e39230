"""Keeps the functions that were created at the AWS endpoint, each an unpacked zip of Python, and versions of functions.

    functions/resize/function.json             its description, and its newest code
    functions/resize/3f1c…/index.py            that code; replaced code stays beside it until the next start

Invariant: a function is complete on disk before it is known.
"""

import hashlib
import io
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from local.stack import Alias, Function

# Lambda's limit for an unpacked deployment package.
MOST_BYTES = 262_144_000
_FILE = "function.json"


class BadPackage(ValueError):
    """The zip cannot be unpacked; the message is a sentence."""


@dataclass(frozen=True)
class CreatedFunction:
    """A function, with more that Lambda's API shows; `code` names its folder and is the zip's SHA-256."""

    function: Function
    runtime: str
    role: str
    description: str
    modified: str
    size: int = 0
    code: str = ""


class CreatedFunctions:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._functions = {one.function.name: one for one in self._read()}

    def __iter__(self) -> Iterator[CreatedFunction]:
        return iter(sorted(self._functions.values(), key=lambda one: one.function.name))

    def get(self, name: str) -> CreatedFunction | None:
        """Returns the function of this name, or None."""
        return self._functions.get(name)

    def task_root(self, created: CreatedFunction) -> Path:
        """Returns the folder of its code."""
        return self._folder / created.function.name / created.code

    def put(self, created: CreatedFunction, package: bytes) -> CreatedFunction:
        """Saves the function with the code of this zip, and replaces one of the same name; raises BadPackage."""
        digest = hashlib.sha256(package).hexdigest()
        whole = replace(created, size=len(package), code=digest)
        # Each version of the code has its own folder, so running functions keep their files; later ones get the update.
        place = self.task_root(whole)
        if not place.is_dir():
            new = place.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            _unpack(package, new)
            new.replace(place)
        replace_json_file(place.with_name(_FILE), asdict(whole))
        self._functions[created.function.name] = whole
        return whole

    def delete(self, name: str) -> bool:
        """Removes the function; returns whether there was one."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        return self._functions.pop(name, None) is not None

    def _read(self) -> Iterator[CreatedFunction]:
        """Yields the functions of an earlier run; replaced code is deleted."""
        for file in self._folder.glob(f"*/{_FILE}"):
            try:
                table = json.loads(file.read_text(encoding="utf-8"))
                created = CreatedFunction(**{**table, "function": Function(**table["function"])})
            except (OSError, ValueError, TypeError, KeyError):
                continue
            for other in file.parent.iterdir():
                if other.is_dir() and other.name != created.code:
                    shutil.rmtree(other, ignore_errors=True)
            yield created


def replace_json_file(file: Path, data: Any) -> None:
    """Replaces a file by these data as JSON; a reader never sees half of it."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(data), encoding="utf-8")
    new.replace(file)


def _unpack(package: bytes, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise BadPackage(f"Unzipped size must be smaller than {MOST_BYTES} bytes")
            folder.mkdir(parents=True)
            archive.extractall(folder)  # it keeps no name that leads out of the folder
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        words = "Could not unzip uploaded file. Please check your file, then try to upload again."
        raise BadPackage(words) from problem


LATEST = "$LATEST"


class Versions:
    """The versions and aliases of the local functions, as Lambda keeps them: a version is a copy of code and settings.

        versions/state.json                                        the aliases, and the newest version of each function
        versions/streamkeeper-local-connection-manager/3/...       its code, with function.json

    Source: PublishVersion in the AWS Lambda API reference: nothing is published "if the function's configuration and
    code haven't changed since the last version". Invariants: a version never changes, even when the service restarts;
    an alias of the template keeps its version.
    """

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
