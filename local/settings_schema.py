"""Checks the settings of a stage against env/settings.schema.json, and says in one sentence what is wrong.

env/settings.cjs does the same for osls, with the same schema and words; a test compares the two. The sentence names the
first setting of the schema that is wrong:

    wait_s must be a whole number from 1 to 900, not '35'

Invariant: any table gives the same sentence in both languages.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from local import checkout

SCHEMA = checkout.ROOT / "env" / "settings.schema.json"
# What a sentence may repeat: a word or an address in one line.
_SHORT = re.compile(r"[ -~]{0,40}")
_MOST_EXACT = 2**53 - 1


@cache
def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return document


def problem(table: Mapping[str, Any], longest_s: int = 0) -> str:
    """Returns what is wrong with a table of settings, without a full stop; "" for a valid one.

    If `longest_s` is given, functions and waits may be that long, although no stage may have them.
    """
    rules_of_all = _schema_with_longest(longest_s) if longest_s else schema()
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
    rule = schema()["handover"]
    connect_ms = rule["connect_ms"] if connect_ms is None else connect_ms
    round_ms = min(rule["young_ms"], connect_ms)
    overlap_ms = 1000 * (settings["function_timeout_s"] - settings["wait_s"] - settings["margin_s"])
    rounds = (overlap_ms - connect_ms + round_ms) // round_ms
    return max(1, int(rule["at_once"] * rounds))


def _schema_with_longest(longest_s: int) -> dict[str, Any]:
    properties = schema()["properties"]
    longer = {name: properties[name] | {"maximum": longest_s} for name in ("function_timeout_s", "wait_s")}
    return schema() | {"properties": properties | longer}


@cache
def _validator(longest_s: int) -> Any:
    # Imported late: only reading settings needs it, and it takes a tenth of a second.
    from jsonschema import Draft202012Validator, ValidationError, validators

    def sums(_: Any, rules: Sequence[Mapping[str, Any]], table: Any, __: Any) -> Iterator[Any]:
        for rule in rules:
            if broken := _broken_sum(rule, table):
                yield ValidationError(broken)

    return validators.extend(Draft202012Validator, {"sums": sums})(
        _schema_with_longest(longest_s) if longest_s else schema()
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
