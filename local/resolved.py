"""The compiled CloudFormation template of a stage, made by osls itself, so that the local run reads what is deployed.

Decides when osls has to run again. Does not know what is in the template.
Invariant: a template in the cache belongs to the files its name is the hash of; a failed run leaves nothing there.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from local import settings
from local.errors import UserError

# Everything the template is made of. handlers/ is not: the template names the zip, not its contents.
SOURCES = ("serverless.yml", "package-lock.json", "env", "packaging", "statemachines")
COMPILED = "cloudformation-template-update-stack.json"
TIME_LIMIT_S = 120


def template(stage: str, root: Path = settings.ROOT) -> dict[str, Any]:
    """The compiled template of `stage` in the project at `root`, from the cache if nothing it is made of has changed.

    Takes some seconds otherwise. Raises UserError when the settings are bad, Node is missing or osls fails.
    """
    settings.load(stage, root=root)
    cached = root / ".streamkeeper-build" / f"{stage}-{_fingerprint(root)}.json"
    if not cached.is_file():
        _package(stage, root, cached)
    compiled: dict[str, Any] = json.loads(cached.read_text())
    return compiled


def _fingerprint(root: Path) -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        top = root / source
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for path in files:
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _package(stage: str, root: Path, target: Path) -> None:
    node = shutil.which("node")
    osls = root / "node_modules" / "osls" / "bin" / "serverless.js"
    if node is None:
        raise UserError("Node is missing: install Node 20 or later, then run `make setup`.")
    if not osls.is_file():
        raise UserError("The deploy tool is missing: run `make setup`.")
    # Nothing of the user's environment may change the template.
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [node, str(osls), "package", "--stage", stage, "--package", folder]
        try:
            run = subprocess.run(
                command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=TIME_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"`sls package --stage {stage}` did not finish in {TIME_LIMIT_S} seconds.") from None
        if run.returncode != 0:
            raise UserError(f"`sls package --stage {stage}` failed: {_reason(run.stdout)}")
        for old in target.parent.glob(f"{stage}-*.json"):
            old.unlink(missing_ok=True)
        # A rename, so that another process never reads half a template.
        os.replace(Path(folder) / COMPILED, target)


def _reason(output: str) -> str:
    """What osls printed after `Error:`, on one line and without the stack."""
    lines = [line.strip() for line in output.partition("Error:")[2].splitlines() or output.splitlines()]
    told = [line for line in lines if line and not line.startswith("at ")]
    return " ".join(told)[:500] or "it said nothing."
