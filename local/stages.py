"""Loads and checks the settings of a stage, and resolves the `${self:custom...}` variables of the machine files.

The rules are those of env/settings.schema.json. Invariant: settings from `load` or `complete` are complete,
within bounds and consistent.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from local import checkout
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
        raise UserError(f"{_NAME_RULE}, not {describe_value(stage)}.")


def complete(table: Mapping[str, Any], where: str, longest_s: int = 0) -> dict[str, Setting]:
    """Returns the settings in `table`, completed with those that follow from them.

    `most_streams_per_function` is how many streams a handover has time for. The optional `upstreams` are checked and
    left out. `where` names the table in messages; `longest_s` is as in `settings_problem`. Raises UserError for
    the first broken rule.
    """
    if wrong := settings_problem(table, longest_s):
        raise UserError(f"{where}: {wrong}.")
    # JSON Schema's whole numbers may have a fraction of zero.
    settings = {name: int(value) if isinstance(value, float) else value for name, value in table.items()}
    settings.pop(UPSTREAMS, None)
    return settings | {"most_streams_per_function": most_per_handover(settings)}


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


SCHEMA = checkout.ROOT / "env" / "settings.schema.json"
# What a sentence may repeat: a word or an address in one line.
_SHORT = re.compile(r"[ -~]{0,40}")
_MOST_EXACT = 2**53 - 1


@cache
def read_schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return document


def settings_problem(table: Mapping[str, Any], longest_s: int = 0) -> str:
    """Returns what is wrong with a table of settings, without a full stop; "" for a valid one.

    If `longest_s` is given, functions and waits may be that long, although no stage may have them.

    env/settings.cjs does the same for osls, with the same schema and words; a test compares the two. The sentence names
    the first setting of the schema that is wrong:

        wait_s must be a whole number from 1 to 900, not '35'
    """
    rules_of_all = _schema_with_longest(longest_s) if longest_s else read_schema()
    properties = rules_of_all["properties"]
    # In JavaScript's order of texts.
    unknown = sorted(table.keys() - properties.keys(), key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    if unknown:
        name = unknown[0] if _SHORT.fullmatch(unknown[0]) else "of such a name"
        return f"there is no setting {name}; env/README.md lists them all"
    errors = list(_validator(longest_s).iter_errors(dict(table)))
    for name, rules in properties.items():
        if name not in table:
            if name in rules_of_all["required"]:
                return f"{name} is missing; it must be {_requirement(rules)}"
            continue
        own = [error for error in errors if list(error.absolute_path)[:1] == [name]]
        if own:
            place, wrong, broken = min(
                ((".".join(error.absolute_path), error.instance, error.schema) for error in own),
                key=lambda one: (one[0].count("."), one[0]),
            )
            # A value within a setting may contain a credential.
            but = "" if "." in place else f", not {describe_value(wrong)}"
            return f"{place} must be {_requirement(broken)}{but}"
    return next((error.message for error in errors), "")


def most_per_handover(settings: Mapping[str, Any], connect_ms: int | None = None) -> int:
    """Returns how many streams a function can open between its call and the moment when the previous one leaves.

    Each upstream answers after `connect_ms`, or after the schema's value if that is None.
    """
    rule = read_schema()["handover"]
    connect_ms = rule["connect_ms"] if connect_ms is None else connect_ms
    round_ms = min(rule["young_ms"], connect_ms)
    overlap_ms = 1000 * (settings["function_timeout_s"] - settings["wait_s"] - settings["margin_s"])
    rounds = (overlap_ms - connect_ms + round_ms) // round_ms
    return max(1, int(rule["at_once"] * rounds))


def _schema_with_longest(longest_s: int) -> dict[str, Any]:
    properties = read_schema()["properties"]
    longer = {name: properties[name] | {"maximum": longest_s} for name in ("function_timeout_s", "wait_s")}
    return read_schema() | {"properties": properties | longer}


@cache
def _validator(longest_s: int) -> Any:
    # Imported late: only reading settings needs it, and it takes a tenth of a second.
    from jsonschema import Draft202012Validator, ValidationError, validators

    def sums(_: Any, rules: Sequence[Mapping[str, Any]], table: Any, __: Any) -> Iterator[Any]:
        for rule in rules:
            if broken := _broken_sum(rule, table):
                yield ValidationError(broken)

    return validators.extend(Draft202012Validator, {"sums": sums})(
        _schema_with_longest(longest_s) if longest_s else read_schema()
    )


def _broken_sum(rule: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """The sentence about a broken rule; "" if it holds, or if one of its settings is not a number."""
    bound = rule.get("lessThan") or rule["atMost"]
    values: list[Any] = [table.get(name) for name in (*rule["of"], bound)]
    if not all(isinstance(value, int | float) for value in values):
        return ""
    *parts, most = values
    if sum(parts) < most or ("atMost" in rule and sum(parts) == most):
        return ""
    relation = "less than" if "lessThan" in rule else "at most"
    values_found = f"{' + '.join(map(describe_value, parts))} beside {describe_value(most)}"
    return f"{' + '.join(rule['of'])} must be {relation} {bound}, not {values_found}"


def _requirement(rules: Mapping[str, Any]) -> str:
    if "mustBe" in rules:
        return str(rules["mustBe"])
    if "enum" in rules:
        return f"one of {', '.join(map(str, rules['enum']))}"
    return f"a whole number from {rules['minimum']} to {rules['maximum']}"


def describe_value(value: object) -> str:
    """Returns words for a wrong value, the same in both languages."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        if abs(value) > _MOST_EXACT:
            return "so large a number"
        return str(int(value)) if float(value).is_integer() else "a fraction"
    if isinstance(value, str):
        return f"'{value}'" if _SHORT.fullmatch(value) else "another text"
    return "a list" if isinstance(value, list) else "a table"
