"""Compiles the CloudFormation template of a stage with osls, so that the local service reads what is deployed.

A template is kept and used until one of its source files changes. A wheel contains those that were made with it.
Invariants: a kept template belongs to the files whose hash is in its name; a failed run leaves nothing behind, and the
next run removes what a killed one left.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from local import checkout, stages
from local.terminal import UserError
from states_language import DefinitionError, load, read_definition

# All sources of the template. handlers/ is not one, except for the problems that API Gateway answers with: the template
# names the zip, not its contents.
PROBLEMS = "handlers/api/problems.json"
SOURCES = ("serverless.yml", "package-lock.json", "env", "packaging", "statemachines", PROBLEMS)
COMPILED = "cloudformation-template-update-stack.json"
OSLS = Path("node_modules", "osls", "bin", "serverless.js")
# Node's options. In its three seconds of work, optimizing code costs more (a seventh) than it gains.
COMMAND = ("--no-opt", str(OSLS))
TIME_LIMIT_S = 300
_UNFINISHED = "tmp"
# How many digits of its hash the name of a kept template has.
_DIGITS = 16
# A profile with a sink of each kind, for the template of a run whose own profiles deliver to any sink.
_ANY_SINKS = {
    f"env/streams/{name}.toml": f'deliver = {{ {kind} = "{target}" }}\n'
    for name, kind, target in (
        *((f"any-{kind}", kind, "*") for kind in ("sqs", "eventbridge", "kinesis", "firehose", "s3", "lambda")),
        *((f"any-{kind}", "secret", f"${{{kind}:*}}") for kind in ("secret", "ssm")),
    )
}
TEMPLATES = "templates"
_DEFINITION = re.compile(r"^\s*definition:\s*\$\{file\(([^)]+)\)\}", re.MULTILINE)


def template(stage: str, root: Path = stages.ROOT, *, delivers: bool = False) -> dict[str, Any]:
    """Returns the compiled template of `stage` in the project at `root`: the kept one if no source has changed.

    If it `delivers`, it also delivers for profiles outside env/streams. A new one takes some seconds. Raises UserError
    if settings or machines are invalid, Node is missing or osls fails.
    """
    cached = kept_template(stage, root, delivers=delivers)
    if not cached.is_file():
        stage_settings = stages.load(stage, root=root)
        for definition in _DEFINITION.findall((root / "serverless.yml").read_text(encoding="utf-8", errors="replace")):
            _check_machine(root, definition, stage_settings, stages.names(stage))
        _package(stage, root, cached, _ANY_SINKS if delivers else {})
    compiled: dict[str, Any] = json.loads(cached.read_text())
    if delivers:
        mapping = compiled["Resources"]["DeliveryMapping"]["Properties"]
        # The function drops what no sink needs.
        mapping["FilterCriteria"] = {"Filters": [{"Pattern": '{"eventName": ["INSERT", "MODIFY"]}'}]}
    return compiled


def check(stage: str, root: Path = stages.ROOT) -> None:
    """Raises UserError if the settings of `stage` are invalid; those of a kept template were valid."""
    if kept_template(stage, root).is_file():
        return
    stages.load(stage, root=root)
    if not (root / "serverless.yml").is_file():
        raise checkout.needs_checkout(f"`streamkeeper run` of the stage {stage!r}")


def kept_template(stage: str, root: Path, *, delivers: bool = False) -> Path:
    """Returns the path of the kept template of `stage` for the present files."""
    name = f"{stage}+any" if delivers else stage
    if not (root / "serverless.yml").is_file():
        return root / TEMPLATES / f"{name}.json"
    return root / ".streamkeeper-build" / f"{name}-{_fingerprint(root)}.json"


def copy_sources(root: Path, folder: Path) -> None:
    """Copies all sources of the template of the project at `root` into `folder`.

    osls works in `.serverless` beside serverless.yml and empties it first, so two packagings must not share a folder.
    """
    for source in SOURCES:
        (folder / source).parent.mkdir(parents=True, exist_ok=True)
        if (root / source).is_dir():
            shutil.copytree(root / source, folder / source)
        else:
            shutil.copy(root / source, folder / source)
    (folder / "node_modules").symlink_to(root / "node_modules")


def _fingerprint(root: Path) -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        top = root / source
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for path in files:
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_DIGITS]


def _package(stage: str, root: Path, target: Path, extra_files: Mapping[str, str]) -> None:
    """Packages the project with the further texts in `extra_files`, by path."""
    if (node := shutil.which("node")) is None:
        raise UserError("Node is missing: install Node 20 or later, then run `make setup`.")
    if not (root / OSLS).is_file():
        raise UserError("The deploy tool is missing: run `make setup`.")
    target.parent.mkdir(exist_ok=True)
    with _lock(target.parent) as lock, tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=target.parent) as name:
        if target.is_file():
            return  # made by another process while this one waited
        folder = Path(name)
        copy_sources(root, folder)
        for path, text in extra_files.items():
            (folder / path).write_text(text, encoding="utf-8")
        _run([node, *COMMAND, "package", "--stage", stage], folder, stage, lock, any_sinks=bool(extra_files))
        for old in target.parent.glob(f"{target.name.rpartition('-')[0]}-{'[0-9a-f]' * _DIGITS}.json"):
            old.unlink(missing_ok=True)
        # Renamed, so that another process never reads half a template.
        os.replace(folder / ".serverless" / COMPILED, target)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[int]:
    """Waits until no other process packages, removes what a killed one left, and yields the lock's descriptor."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield lock
    finally:
        os.close(lock)


def _check_machine(
    root: Path, name: str, stage_settings: Mapping[str, stages.Setting], names: Mapping[str, str]
) -> None:
    """Raises UserError if the interpreter refuses the machine; it names the place, which osls often does not."""
    try:
        load(stages.resolve(read_definition(root / name), stage_settings, names))
    except DefinitionError as problem:
        rule = " ".join(problem.rule.replace(f"{root}/", "").split())
        place = f"{name}: " if name not in rule else ""
        raise UserError(f"{place}{problem.pointer + ': ' if problem.pointer != '/' else ''}{rule}.") from None
    except UserError as problem:
        raise UserError(f"{name}: {problem}") from None


def _run(command: list[str], folder: Path, stage: str, lock: int, any_sinks: bool) -> None:
    # Nothing of the user's environment may change the template. osls keeps files in the home, which may be read-only.
    environment = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
    environment |= {"HOME": str(folder.parent)} | ({"STREAMKEEPER_ANY_SINKS": "yes"} if any_sinks else {})
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
            # A child that outlives this process still works in the folder.
            pass_fds=(lock,),
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"`sls package --stage {stage}` did not finish in {TIME_LIMIT_S} seconds.") from None
    if run.returncode != 0:
        raise UserError(f"`sls package --stage {stage}` failed: {error_of(run.stdout)}")


def error_of(output: str) -> str:
    """The text that osls printed after `Error:`, on one line and without the stack."""
    lines = [line.strip() for line in output.partition("Error:")[2].splitlines() or output.splitlines()]
    sentences = [line for line in lines if line and not line.startswith("at ")]
    return " ".join(sentences)[:500] or "it said nothing."
