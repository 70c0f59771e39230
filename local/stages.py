"""Loads and checks the settings of a stage, and resolves the `${self:custom...}` variables of the machine files.

The rules are those of env/settings.schema.json. Invariant: settings from `load` or `complete` are complete,
within bounds and consistent.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from local import checkout, settings_schema
from local.terminal import UserError
from states_language import DefinitionError
from states_language.definition.source import parse_data

ROOT = checkout.ROOT
SERVICE = "streamkeeper"
UPSTREAMS = "upstreams"

Setting = int | str
# Settings that follow from others.
DERIVED = ("most_streams_per_function",)
# Readers of YAML disagree about these characters.
_CONTROL = re.compile(r"[\0-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
# streamkeeper-<stage>-events-<account>-<region> is a bucket, whose name has 63 characters at most. The longest region
# has 14.
_NAME = re.compile(r"[a-z][a-z0-9-]{0,14}")
_NAME_RULE = "A stage's name must be at most 15 lowercase letters, digits and hyphens, a letter first"
# libyaml's loader takes a tenth of the time, if PyYAML has it.
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VARIABLE = re.compile(r"\$\{self:custom\.(settings|names)\.([A-Za-z0-9_]+)\}")


def load(stage: str, overrides: Mapping[str, Any] | None = None, root: Path = ROOT) -> dict[str, Setting]:
    """Returns the settings of a stage: env/<stage>.yml with `overrides` in place of its own, checked and completed.

    Raises UserError if there is no such stage, the file is not YAML or a rule is broken.
    """
    check_name(stage)
    path = root / "env" / f"{stage}.yml"
    if not path.is_file():
        raise UserError(f"There is no stage {stage!r}: env/{stage}.yml does not exist.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        if _CONTROL.search(text):
            raise DefinitionError("/", "it has a tab or another control character")
        table = _parse_cached(text, path.name)
    except UnicodeDecodeError:
        raise UserError(f"env/{stage}.yml is not readable YAML: it is not UTF-8 text.") from None
    except DefinitionError as problem:
        reason = problem.rule.removeprefix(f"{path.name} is neither YAML nor JSON: ")
        raise UserError(f"env/{stage}.yml is not readable YAML: {reason}.") from None
    if not isinstance(table, dict):
        raise UserError(f"env/{stage}.yml must be a table of settings.")
    where = f"env/{stage}.yml with overrides" if overrides else f"env/{stage}.yml"
    return complete(table | dict(overrides or {}), where)


@cache
def _parse_cached(text: str, name: str) -> Any:
    """The content of a text, which is parsed only once; callers copy it."""
    return parse_data(text, name)


def check_name(stage: str) -> None:
    """Raises UserError for a name that a stage may not have."""
    if not _NAME.fullmatch(stage):
        raise UserError(f"{_NAME_RULE}, not {settings_schema.describe_value(stage)}.")


def complete(table: Mapping[str, Any], where: str, longest_s: int = 0) -> dict[str, Setting]:
    """Returns the settings in `table`, completed with those that follow from them.

    `most_streams_per_function` is how many streams a handover has time for. The optional `upstreams` are checked and
    left out. `where` names the table in messages; `longest_s` is as in `settings_schema.problem`. Raises UserError for
    the first broken rule.
    """
    if wrong := settings_schema.problem(table, longest_s):
        raise UserError(f"{where}: {wrong}.")
    # JSON Schema's whole numbers may have a fraction of zero.
    settings = {name: int(value) if isinstance(value, float) else value for name, value in table.items()}
    settings.pop(UPSTREAMS, None)
    return settings | {"most_streams_per_function": settings_schema.most_per_handover(settings)}


def names(stage: str) -> dict[str, str]:
    """Returns the names of a stage's resources, as in `custom.names` of serverless.yml."""
    prefix = f"{SERVICE}-{stage}"
    functions = ("manager", "control", "watch", "delivery", "upgrade", "fleet", "repair")
    return {f"connection_{name}": f"{prefix}-connection-{name}" for name in functions} | {
        "events_table": f"{prefix}-events",
        "control_table": f"{prefix}-control",
        "delivery_table": f"{prefix}-delivery",
        "dead_letter_queue": f"{prefix}-dead-letters",
        "connections": f"{prefix}-connections",
        "start": f"{prefix}-start",
        "upgrade": f"{prefix}-upgrade",
        "fleet": f"{prefix}-fleet",
        "alerts": f"{prefix}-alerts",
        "secrets": f"/{SERVICE}/{stage}/",
        "api_log": f"/aws/apigateway/{prefix}",
        "metrics": prefix,
    }


def read_machine_file(path: Path) -> Any:
    """Returns the content of a YAML file, with a machine's variables unresolved; raises OSError or yaml.YAMLError."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_YAML)


def resolve(source: Any, settings: Mapping[str, Setting], stage_names: Mapping[str, str]) -> Any:
    """Returns `source` (text, or any nesting of dicts and lists) with its variables replaced, as osls replaces them.

    Example: `${self:custom.settings.wait_s}` alone becomes the number 840; inside a longer text it becomes text.
    Raises UserError for any variable except known `${self:custom.settings.…}` and `${self:custom.names.…}`.
    """
    if isinstance(source, dict):
        return {name: resolve(value, settings, stage_names) for name, value in source.items()}
    if isinstance(source, list):
        return [resolve(value, settings, stage_names) for value in source]
    if not isinstance(source, str):
        return source

    def value_of(match: re.Match[str]) -> Setting:
        table: Mapping[str, Setting] = settings if match[1] == "settings" else stage_names
        if match[2] not in table:
            raise UserError(f"{match[0]} cannot be resolved: there is no such setting or name.")
        return table[match[2]]

    whole = _VARIABLE.fullmatch(source)
    if whole:
        return value_of(whole)
    text = _VARIABLE.sub(lambda match: str(value_of(match)), source)
    other = re.search(r"\$\{[^}]*\}?", text)
    if other:
        raise UserError(f"{other[0]} cannot be resolved: only settings and names under self:custom can.")
    return text
