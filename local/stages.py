"""Loads and checks the settings of a stage, and resolves the `${self:custom...}` variables of the machine files.

The rules and their sentences are those of env/settings.cjs, which osls runs; a test holds the two together. Invariant:
settings that `load` or `checked` returned are complete, in bounds and consistent with each other.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from local import checkout
from local.user_error import UserError

ROOT = checkout.ROOT
SERVICE = "streamkeeper"

Setting = int | str
# Bounds of the numbers (lowest, highest), both allowed.
NUMBERS: dict[str, tuple[int, int]] = {
    "function_timeout_s": (1, 900),
    "wait_s": (1, 900),
    "margin_s": (1, 900),
    "start_allowance_s": (1, 900),
    "lease_every_s": (1, 900),
    "progress_every_s": (1, 900),
    "retry_max_delay_s": (2, 3600),
    "throttle_delay_s": (1, 3600),
    "throttle_max_delay_s": (2, 3600),
    "cool_down_s": (1, 3600),
    "jitter_s": (0, 900),
    # With more cycles an execution could have more than 20,000 history events; local/bounds.py computes it.
    "renew_after": (1, 161),
    # With more cycles an execution without a successor could have more than 24,900 history events.
    "give_up_after": (2, 148),
    "unconnected_after_s": (1, 86400),
    "memory_mb": (128, 10240),
    "log_retention_days": (1, 3653),
    "ledger_keep_days": (0, 3650),
}
TEXTS = ("alert_email", "log_level")
UPSTREAMS = "upstreams"
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_UPSTREAM_NAME = re.compile(r"UPSTREAM_[A-Z0-9_]+")
_UPSTREAM_ADDRESS = re.compile(r"https?://[^\s{}]+")
_EMAIL = re.compile(r"|[^\s@]+@[^\s@]+")
_VARIABLE = re.compile(r"\$\{self:custom\.(settings|names)\.([A-Za-z0-9_]+)\}")


def load(stage: str, overrides: Mapping[str, Any] | None = None, root: Path = ROOT) -> dict[str, Setting]:
    """Returns the settings of a stage: env/<stage>.yml with `overrides` in place of its own, checked and completed.

    Raises UserError when there is no such stage, the file is not YAML or a rule is broken.
    """
    path = root / "env" / f"{stage}.yml"
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,15}", stage) or not path.is_file():
        checkout.require_checkout(f"Stage {stage!r}")
        raise UserError(f"There is no stage {stage!r}: env/{stage}.yml does not exist.")
    try:
        table = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"env/{stage}.yml is not readable YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(table, dict):
        raise UserError(f"env/{stage}.yml must be a table of settings.")
    where = f"env/{stage}.yml with overrides" if overrides else f"env/{stage}.yml"
    return checked(table | dict(overrides or {}), where)


def checked(table: Mapping[str, Any], where: str) -> dict[str, Setting]:
    """Returns the settings in `table`, completed with those that follow from them.

    `claim_tries` is how often an execution tries to claim its stream, `task_timeout_s` how long the machine waits for
    the function's answer, `overlap_max_s` the longest overlap that leaves no gap. `upstreams`, which may be missing,
    are checked and left out.

    `where` names the table in messages. Raises UserError for the first rule that is broken.
    """
    for name in table:
        if name not in NUMBERS and name not in TEXTS and name != UPSTREAMS:
            raise UserError(f"{where}: there is no setting {name}.")
    for name, (lowest, highest) in NUMBERS.items():
        value = table.get(name)
        if name not in table:
            raise UserError(f"{where}: {name} is missing.")
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise UserError(f"{where}: {name} must be a whole number from {lowest} to {highest}.")
    if table.get("log_level") not in LOG_LEVELS:
        raise UserError(f"{where}: log_level must be one of {', '.join(LOG_LEVELS)}.")
    if not isinstance(table.get("alert_email"), str) or not _EMAIL.fullmatch(table["alert_email"]):
        raise UserError(f"{where}: alert_email must be an e-mail address, or '' for none.")
    if not _are_upstreams(table.get(UPSTREAMS, {})):
        raise UserError(
            f"{where}: upstreams must be a table of variables, each UPSTREAM_... with an http or https address,"
            " or {} for none."
        )
    # The successor must be connected before the predecessor leaves.
    if not table["wait_s"] + table["margin_s"] < table["function_timeout_s"]:
        raise UserError(f"{where}: wait_s + margin_s must be less than function_timeout_s.")
    # Jitter makes the wait shorter, so that no overlap does.
    if table["jitter_s"] >= table["wait_s"]:
        raise UserError(f"{where}: jitter_s must be less than wait_s.")
    if table["throttle_delay_s"] > table["throttle_max_delay_s"]:
        raise UserError(f"{where}: throttle_delay_s must not exceed throttle_max_delay_s.")
    # An execution starts at least one successor before it gives up.
    if table["renew_after"] >= table["give_up_after"]:
        raise UserError(f"{where}: renew_after must be less than give_up_after.")
    # A lane lives through its predecessor's overlap and the other lane's whole wait. The rest of its time, minus the
    # reading of the lease that begins an overlap and half a margin for two connects, is the longest overlap
    # without a gap.
    spare_s = table["function_timeout_s"] - table["wait_s"] - table["margin_s"] - table["lease_every_s"]
    return {name: value for name, value in table.items() if name != UPSTREAMS} | {
        # One cycle is left for the lanes, in which they start a successor.
        "claim_tries": table["give_up_after"] - 1,
        "task_timeout_s": table["function_timeout_s"] + table["start_allowance_s"],
        "overlap_max_s": max(0, spare_s - table["margin_s"] // 2),
    }


def _are_upstreams(value: object) -> bool:
    """Whether this is what the setting `upstreams` may be; only packaging reads it."""
    return isinstance(value, dict) and all(
        isinstance(name, str)
        and _UPSTREAM_NAME.fullmatch(name)
        and isinstance(address, str)
        and _UPSTREAM_ADDRESS.fullmatch(address)
        for name, address in value.items()
    )


def names(stage: str) -> dict[str, str]:
    """Returns the names of a stage's resources, as `custom.names` in serverless.yml has them."""
    prefix = f"{SERVICE}-{stage}"
    return {
        "connection_manager": f"{prefix}-connection-manager",
        "connection_control": f"{prefix}-connection-control",
        "connection_watch": f"{prefix}-connection-watch",
        "events_table": f"{prefix}-events",
        "control_table": f"{prefix}-control",
        "dead_letter_queue": f"{prefix}-dead-letters",
        "connections": f"{prefix}-connections",
        "start": f"{prefix}-start",
        "alerts": f"{prefix}-alerts",
        "metrics": prefix,
    }


def resolve(source: Any, settings: Mapping[str, Setting], stage_names: Mapping[str, str]) -> Any:
    """Returns `source` (text, or any nesting of dicts and lists) with its variables replaced, as osls replaces them.

    Example: `${self:custom.settings.wait_s}` alone becomes the number 840; inside a longer text it becomes text.
    Raises UserError for any variable but a known `${self:custom.settings.…}` or `${self:custom.names.…}`.
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
            raise UserError(f"There is no {match[0]}.")
        return table[match[2]]

    whole = _VARIABLE.fullmatch(source)
    if whole:
        return value_of(whole)
    text = _VARIABLE.sub(lambda match: str(value_of(match)), source)
    other = re.search(r"\$\{[^}]*\}?", text)
    if other:
        raise UserError(f"{other[0]} cannot be resolved: only settings and names under self:custom can.")
    return text
