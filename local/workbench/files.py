"""Reads the files that the user names: definitions, and other JSON or YAML.

Variables such as `${self:custom.settings.wait_s}` in a definition are filled from the settings of a stage, as a replay
fills them. Invariant: a file without such a variable is read as it is, so definitions of other projects, with variables
of their own, can be read too.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from local import stages
from local.user_error import UserError
from states_language import DefinitionError, Machine, load, read_definition
from states_language.values import parse_json

STAGE = "local"
_VARIABLE = "${self:custom."


def definition(path: Path, stage: str) -> dict[str, Any]:
    """Return the definition in a file with its variables filled from env/<stage>.yml.

    Raises UserError where the file does not exist or names an unknown variable, DefinitionError where it is not a
    definition.
    """
    if not path.exists() or path.is_dir():
        raise UserError(f"{path}: there is no such file.")
    unresolved = read_definition(path)
    if _VARIABLE not in json.dumps(unresolved):
        return unresolved
    try:
        resolved: dict[str, Any] = stages.resolve(unresolved, stages.load(stage), stages.names(stage))
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None
    return resolved


def machine(path: Path, stage: str) -> Machine:
    """Return the machine in a file; raises UserError with the first problem where it does not load."""
    try:
        return load(definition(path, stage))
    except DefinitionError as problem:
        raise UserError(f"{path}: {problem}. `streamkeeper asl check {path}` lists all.") from None


def data(path: Path, what: str) -> Any:
    """Return the JSON or YAML in a file; raises UserError, in which `what` names the file's purpose."""
    try:
        text = path.read_text(encoding="utf-8")
        return parsed(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as problem:
        raise UserError(f"{what} {path} cannot be read: {problem.strerror}.") from None
    except RecursionError:
        raise UserError(f"{what} {path} is nested too deeply.") from None
    except (ValueError, yaml.YAMLError) as problem:
        raise UserError(f"{what} {path} is neither JSON nor YAML: {' '.join(str(problem).split())}.") from None


def parsed(text: str) -> Any:
    """Return the value of a JSON text; raises ValueError, for too deep nesting as well."""
    try:
        return parse_json(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
