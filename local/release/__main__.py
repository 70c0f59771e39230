"""Makes the files of a release: `python -m local.release [FOLDER]`, which `make release` calls.

    streamkeeper-0.1.0.zip             the functions' code, for arm64
    streamkeeper-0.1.0.template.json   the CloudFormation template
    CHANGES.md                         the version's section of the changelog
    SHA256SUMS                         the checksums of the three

The version is that of pyproject.toml. Invariants: the same project gives the same bytes, in any folder; the folder has
no other file afterwards, and one that has something else is refused.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from local import stages
from local.release import release_template, variants
from local.service import osls
from local.stages import ROOT
from local.terminal import UserError, explain_os_errors

_FILE = re.compile(r"streamkeeper-.+\.(zip|template\.json)|CHANGES\.md|SHA256SUMS")
_COMMENT = re.compile(r"(?m)^(\w+):.*?  # (.+?)(?:; read (?:by|when) [^\n]*)?$")


def read_version(root: Path) -> str:
    """The project's version."""
    found: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return found


def changelog_section(root: Path, number: str) -> str:
    """The version's section of the changelog; raises UserError if there is none."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"(?ms)^## {re.escape(number)}\b.*?(?=^## |\Z)", text)
    if section is None:
        raise UserError(f"CHANGELOG.md has no section for the version {number}: write one before the release.")
    return section[0].rstrip() + "\n"


def empty_release_folder(folder: Path, *, remove: bool = True) -> Path:
    """The folder, made if it is missing, without the files of earlier releases; raises UserError.

    One that has something else is refused, and stays as it is.
    """
    with explain_os_errors(f"{folder} cannot hold a release"):
        folder.mkdir(parents=True, exist_ok=True)
        found = sorted(folder.iterdir())
    for path in found:
        if path.is_dir() or not _FILE.fullmatch(path.name):
            raise UserError(f"{folder} holds {path.name!r}, which is no file of a release: name another folder.")
    for path in found if remove else ():
        path.unlink()
    return folder


def make_release(root: Path, folder: Path) -> list[Path]:
    """Writes the release of the project at `root` into the folder, and returns its files; raises UserError."""
    empty_release_folder(folder, remove=False)  # before the minutes that packaging takes
    number = read_version(root)
    section = changelog_section(root, number)
    stage = stages.load("prod", root=root)
    with tempfile.TemporaryDirectory(prefix="streamkeeper-release") as name:
        project = Path(name)
        # A template does not depend on the code, and a quarter of the time goes into its zip: only one has it.
        osls.copy_sources(root, project)
        compiled = {
            each: package_template(project, variants.variant_settings(stage, each)) for each in variants.WITHOUT
        }
        second = package_template(project, variants.variant_settings(stage, second=True))
        add_code(root, project)
        compiled[""] = package_template(project, variants.variant_settings(stage), has_zip=True)
        artifact = (project / ".serverless" / "streamkeeper.zip").read_bytes()
    schema = json.loads((root / "env" / "settings.schema.json").read_text(encoding="utf-8"))
    comments = dict(_COMMENT.findall((root / "env" / "prod.yml").read_text(encoding="utf-8")))
    made = release_template.make_template(compiled, second, schema, stage, comments, number)
    files = {
        f"streamkeeper-{number}.zip": artifact,
        f"streamkeeper-{number}.template.json": (json.dumps(made, separators=(",", ":")) + "\n").encode(),
        "CHANGES.md": section.encode(),
    }
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())]
    files["SHA256SUMS"] = "".join(sums).encode()
    empty_release_folder(folder)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def add_code(root: Path, folder: Path) -> None:
    """Adds what the zip is made of to a copy of the sources of the template."""
    leave_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(root / "handlers", folder / "handlers", dirs_exist_ok=True, ignore=leave_out)
    for name in ("pyproject.toml", "requirements.txt"):
        shutil.copy(root / name, folder / name)
    kept = root / ".streamkeeper-build"
    kept.mkdir(exist_ok=True)
    (folder / kept.name).symlink_to(kept)


def package_template(
    project: Path, settings: Mapping[str, Any], stage: str = variants.STAGE, *, has_zip: bool = False
) -> dict[str, Any]:
    """The compiled template of a stage with these settings; raises UserError."""
    (project / "env" / f"{stage}.yml").write_text(json.dumps(dict(settings)))
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    only = {} if has_zip else {"STREAMKEEPER_TEMPLATE_ONLY": "1"}
    command = ["node", *osls.COMMAND, "package", "--stage", stage, "--region", "us-east-1"]
    run = subprocess.run(
        command,
        cwd=project,
        env=environment | only,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise UserError(f"`sls package` failed: {osls.error_of(run.stdout + run.stderr)}")
    compiled: dict[str, Any] = json.loads((project / ".serverless" / osls.COMPILED).read_text(encoding="utf-8"))
    return compiled


def main(arguments: list[str]) -> int:
    """Writes into the given folder, or into release/."""
    parser = argparse.ArgumentParser("python -m local.release", description="Makes the files of a release.")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=Path("release"))
    try:
        for path in make_release(ROOT, parser.parse_args(arguments).folder):
            print(f"{path}  {plural(path.stat().st_size, 'byte')}")
    except (UserError, variants.Clash) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
