"""Copies of the project for tests that change it.

Tests share work: a copy has the compiled files, and the template of the project.
"""

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from local.functions.created_functions import read_code_files
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
    osls.copy_sources(PROJECT, folder)
    copy_rooms(folder)
    return folder


def renewing(folder: Path) -> Path:
    """Returns the same, with executions that start their successor after the first cycle of a lane."""
    return with_settings(copied(folder), renew_after=1)


def with_settings(project: Path, stage: str = STAGE, of: str = "", /, **settings: object) -> Path:
    """Returns the copy, whose stage has the settings of a stage, by default its own, except for these."""
    text = (project / "env" / f"{of or stage}.yml").read_text()
    for name, value in settings.items():
        line = f"{name}: {json.dumps(value)}"
        text, count = re.subn(rf"(?m)^{name}: \S+", lambda _, line=line: line, text)  # type: ignore[misc]
        assert count == 1, name
    (project / "env" / f"{stage}.yml").write_text(text)
    return project


def once(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Returns the folder, which the first process makes while the others wait."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            make(folder.with_suffix(".tmp")).rename(folder)
    return folder


def kept(name: str, make: Callable[[Path], Path], made_by: str, *rooms: str) -> Path:
    """Returns a folder that packages a copy of the project, as `once` does; the next run uses it too.

    It is made again when a source of the template changes, a file of these rooms (or such a file itself), or the file
    `made_by`, which says how the copy differs.
    """
    of_rooms = [PROJECT / room for room in rooms]
    content = [sorted(read_code_files(one).items()) if one.is_dir() else one.read_bytes() for one in of_rooms]
    sources = osls.kept_template(STAGE, PROJECT).stem.encode() + Path(made_by).read_bytes()
    sources += repr(content).encode()
    place = PROJECT / ".streamkeeper-build" / "copies"
    place.mkdir(parents=True, exist_ok=True)
    folder = place / f"{name}-{hashlib.sha256(sources).hexdigest()[:16]}"

    def alone(new: Path) -> Path:
        for other in place.glob(f"{name}-*"):
            if other.is_dir():
                shutil.rmtree(other)
        return make(new)

    return once(folder, alone)


def changed(path: Path, change: tuple[str, str]) -> None:
    """Replaces a text that occurs once."""
    text = path.read_text()
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change))


def packaged(project: Path, stage: str = STAGE) -> Path:
    """Returns the copy with the project's template of a stage.

    It is the copy's own where nothing differs but profiles: of those that deliver nothing the template has the names
    alone, and a run knows those of its own.
    """
    osls.template(stage)
    own = osls.kept_template(stage, project)
    own.parent.mkdir(exist_ok=True)
    shutil.copy(osls.kept_template(stage, PROJECT), own)
    return project
