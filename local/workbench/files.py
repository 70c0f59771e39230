"""Reading what the user names: definitions and other JSON or YAML.

Decides how a file becomes a definition that can be loaded: its `${self:custom...}` variables are filled as a replay
fills them. Knows no rule of the language. Invariant: a text without such a variable stays as it is, so that definitions
of other projects, with variables of their own, are taken as they are written.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from local import stages
from local.user_error import UserError
from states_language import DefinitionError, Machine, load
from states_language.definition.source import read_definition
from states_language.values import parse_json

STAGE = "local"
_VARIABLE = "${self:custom."


def definition(path: Path, stage: str) -> dict[str, Any]:
    """Return the definition in a file with its variables filled from env/<stage>.yml.

    Raises UserError where the file cannot be read or names a variable that does not exist, DefinitionError where it
    holds no definition.
    """
    if not path.exists() or path.is_dir():
        raise UserError(f"{path}: there is no such file.")
    found = read_definition(path)
    if _VARIABLE not in json.dumps(found):
        return found
    try:
        resolved: dict[str, Any] = stages.resolve(found, stages.load(stage), stages.names(stage))
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None
    return resolved


def machine(path: Path, stage: str) -> Machine:
    """Return the machine in a file; raises UserError with the first problem where it does not load."""
    try:
        return load(definition(path, stage))
    except DefinitionError as problem:
        raise UserError(f"{path}: {problem}. `streamkeeper asl check {path}` tells all.") from None


def data(path: Path, what: str) -> Any:
    """Return the JSON or YAML in a file; raises UserError naming `what` the file was to be."""
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
    """Return the value of a JSON text; raises ValueError, also for what is nested too deeply."""
    try:
        return parse_json(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
