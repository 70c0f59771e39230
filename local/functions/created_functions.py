"""Keeps the functions that were created at the AWS endpoint, each an unpacked zip of Python.

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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from local.stack import Function

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
    """The functions in `folder`."""

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
