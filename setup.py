"""Builds the wheel: beside the packages it gets the project's own files, and the interpreter.

`make wheel` sets STREAMKEEPER_TEMPLATES to a folder of templates that osls has compiled; without them `run` needs a
checkout, and all else works. An editable installation has the files where they are.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# What the verbs read, by its path in the checkout; local/checkout.py finds it again.
FILES = ("env/*.yml", "env/*.json", "env/streams/*.toml", "statemachines/*.asl.yml", "packaging/resources/*.yml")
INTERPRETER = Path("states-language", "src", "states_language")


class Build(build_py):
    """Copies them into the wheel."""

    def run(self) -> None:
        """Builds what setuptools does, and adds to it."""
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib)
        for pattern in FILES:
            for path in Path().glob(pattern):
                self._copy(path, built / "local" / "project" / path)
        for path in Path(os.environ.get("STREAMKEEPER_TEMPLATES", "no templates")).glob("*.json"):
            self._copy(path, built / "local" / "project" / "templates" / path.name)
        for path in (path for path in INTERPRETER.rglob("*") if path.is_file() and path.suffix != ".pyc"):
            self._copy(path, built / path.relative_to(INTERPRETER.parent))

    def _copy(self, path: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


setup(cmdclass={"build_py": Build})
