"""Copies of the project for tests that change it.

What one of them has made, the next need not make: a copy has the compiled files, and a template that was packaged in
this run is taken by every copy that is packaged of the same files, whichever process it is in.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from local.service import osls
from tests.harness import STAGE
from tests.local.support import PROJECT

ROOMS = ("handlers", "local", "streamkeeper", "timeline")


def copy_rooms(folder: Path, rooms: Iterable[str] = ROOMS) -> None:
    """Copies rooms of the project into a folder, with their compiled files: a copied source keeps its time."""
    # What another process is just compiling has another name until it is whole.
    ignored = shutil.ignore_patterns("*.pyc.*", "*.egg-info")
    for room in rooms:
        shutil.copytree(PROJECT / room, folder / room, ignore=ignored, dirs_exist_ok=True)


def copied(folder: Path) -> Path:
    """Returns the folder, with a copy of all that a run needs."""
    folder.mkdir(exist_ok=True)
    osls.snapshot(PROJECT, folder)
    copy_rooms(folder)
    return folder


def once(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Returns the folder, which the process that asks first makes while the others wait."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make(folder.with_suffix(".tmp")).rename(folder)
    return folder


def changed(path: Path, change: tuple[str, str]) -> None:
    """Replaces a text that is there once."""
    text = path.read_text()
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change))


def packaged(project: Path, run_folder: Path) -> Path:
    """Returns the project with the template of the stage of the tests, made once for all copies of the same files."""
    own = osls.kept(STAGE, project)
    shared = run_folder / "templates" / own.name
    shared.parent.mkdir(exist_ok=True)
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.is_file():
            osls.template(STAGE, project)
            shutil.copy(own, shared)
    own.parent.mkdir(exist_ok=True)
    shutil.copy(shared, own)
    return project
