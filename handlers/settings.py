"""Reads a function's settings from its environment; no other module reads the environment.

A missing or bad variable raises a `SettingsError` that names it, when the module that needs the settings is imported.
So the cold start fails, before any stream is touched. The message never contains a value, which may be a secret.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from handlers.values import dataclass

# Lambda's own limit: "The maximum value is 900 seconds (15 minutes)".
MAX_SECONDS = 900
MAX_DAYS = 3650
# Events or bytes.
MOST_OF_A_DAY = 10**12
MAX_REST_S = 3600
# The longest time of a function's start, in addition to the back-off before it.
START_MS = 5_000
_UPSTREAM = re.compile(r"UPSTREAM_[A-Z0-9_]+")


class SettingsError(ValueError):
    """A variable of a function's environment is missing or wrong; the message is one sentence that names it."""


class _Loaded:
    """Settings that are read from the environment, each field by `_read`."""

    __slots__ = ()

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> Self:
        """Returns the settings in `environment`; raises SettingsError."""
        return cls(**{name: _read(environment, name) for name in cls.__annotations__})


@dataclass(frozen=True, slots=True)
class Settings(_Loaded):
    """The connection manager's settings. `upstreams` are the variables that the address of a profile may begin with.

    `events_bucket`, `repair_function` and `profiles_bucket` are "" if there is none. `ledger_keep_days` is 0 if records
    are kept for ever. `keep_days` is the days for which events are kept if their profile does not set it, 0 for ever.
    `metrics_by` is whether the stage, each profile or each stream has metrics of its own. `budget_events` and
    `budget_bytes` are the most that all streams together may store in a day, 0 for no bound.
    """

    events_table: str
    control_table: str
    dead_letter_queue_url: str
    streams_dir: Path
    margin_ms: int
    lease_every_ms: int
    progress_every_ms: int
    wait_ms: int
    events_bucket: str
    ledger_keep_days: int
    keep_days: int
    budget_events: int
    budget_bytes: int
    metrics_by: Literal["stage", "profile", "stream"]
    metrics_namespace: str
    secrets_prefix: str
    upstreams: Mapping[str, str]
    repair_function: str
    profiles_bucket: str
    profiles_folder: str


@dataclass(frozen=True, slots=True)
class ControlSettings(_Loaded):
    """The settings of the function that shows and stops streams; the intervals are the connection manager's.

    The machine retries a lane within `retried_within_ms` after a drop, and within `throttled_within_ms` after too many
    requests. `sinks_table` and `sinks_function` are "" if no profile of the stage delivers.
    """

    events_table: str
    events_bucket: str
    control_table: str
    dead_letter_queue_url: str
    state_machine_arn: str
    streams_dir: Path
    lease_every_ms: int
    progress_every_ms: int
    retried_within_ms: int
    throttled_within_ms: int
    fleet_machine_arn: str
    repair_function: str
    sinks_table: str
    sinks_function: str
    upstreams: Mapping[str, str]
    profiles_bucket: str
    profiles_folder: str


@dataclass(frozen=True, slots=True)
class UpgradeSettings(_Loaded):
    """The settings of the function that upgrades; `function` is the name of the connection manager."""

    control_table: str
    events_table: str
    function: str
    state_machine_arn: str


@dataclass(frozen=True, slots=True)
class FleetSettings(_Loaded):
    """The settings of the function that applies a document; the intervals are those of ControlSettings."""

    control_table: str
    start_machine_arn: str
    streams_per_function: int
    lease_every_ms: int
    progress_every_ms: int
    retried_within_ms: int
    throttled_within_ms: int


@dataclass(frozen=True, slots=True)
class WatchSettings(_Loaded):
    """The settings of the function that watches all streams."""

    control_table: str
    state_machine_arn: str
    alerts_topic_arn: str
    dead_letter_queue_url: str
    unconnected_after_ms: int
    # Powertools reads this variable by itself, but only when the first metrics are written.
    metrics_namespace: str
    repair_function: str


@dataclass(frozen=True, slots=True)
class RepairSettings(_Loaded):
    """The settings of the function that repairs gaps."""

    events_table: str
    control_table: str
    events_bucket: str
    dead_letter_queue_url: str
    streams_dir: Path
    keep_days: int
    secrets_prefix: str
    upstreams: Mapping[str, str]
    profiles_bucket: str
    profiles_folder: str


@dataclass(frozen=True, slots=True)
class DeliverySettings(_Loaded):
    """The settings of the function that sends events on; `delivery_function` is its own name."""

    control_table: str
    events_table: str
    delivery_table: str
    delivery_function: str
    dead_letter_queue_url: str
    streams_dir: Path
    secrets_prefix: str
    metrics_by: Literal["stage", "profile", "stream"]
    metrics_namespace: str
    upstreams: Mapping[str, str]
    profiles_bucket: str
    profiles_folder: str


# How a field of any of the settings is read; a field that is not here has a required variable of its name. Seconds are
# whole, from 1 to 900. A back-off may last an hour, and a stream may be away for up to a day before it counts as
# unconnected.
_READ: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "delivery_function": lambda env: _text(env, "CONNECTION_DELIVERY"),
    "sinks_table": lambda env: env.get("DELIVERY_TABLE", "").strip(),
    "sinks_function": lambda env: env.get("CONNECTION_DELIVERY", "").strip(),
    "dead_letter_queue_url": lambda env: _queue_url(env),
    "streams_dir": lambda env: _streams_dir(env),
    "margin_ms": lambda env: _milliseconds(env, "MARGIN_S"),
    "lease_every_ms": lambda env: _milliseconds(env, "LEASE_EVERY_S"),
    "progress_every_ms": lambda env: _milliseconds(env, "PROGRESS_EVERY_S"),
    "wait_ms": lambda env: _milliseconds(env, "WAIT_S"),
    "ledger_keep_days": lambda env: _whole(env, "LEDGER_KEEP_DAYS", "days", 0, MAX_DAYS),
    "keep_days": lambda env: _whole(env, "KEEP_DAYS", "days", 0, MAX_DAYS),
    "budget_events": lambda env: _budget(env, "events"),
    "budget_bytes": lambda env: _budget(env, "bytes"),
    "metrics_by": lambda env: _metrics_by(env),
    "metrics_namespace": lambda env: _text(env, "POWERTOOLS_METRICS_NAMESPACE"),
    "upstreams": lambda env: _upstreams(env),
    "retried_within_ms": lambda env: _within_ms(env, "RETRY_MAX_DELAY_S"),
    "throttled_within_ms": lambda env: _within_ms(env, "THROTTLE_MAX_DELAY_S") + _jitter_ms(env),
    "function": lambda env: _text(env, "CONNECTION_MANAGER"),
    "streams_per_function": lambda env: _whole(env, "STREAMS_PER_FUNCTION", "streams", 1, 500),
    "unconnected_after_ms": lambda env: _milliseconds(env, "UNCONNECTED_AFTER_S", most_s=86_400),
}
# These variables have the field's name too, and are "" if they are not set.
_OPTIONAL = ("events_bucket", "repair_function", "profiles_bucket", "profiles_folder")


def _read(environment: Mapping[str, str], field: str) -> Any:
    if field in _READ:
        return _READ[field](environment)
    name = field.upper()
    return environment.get(name, "").strip() if field in _OPTIONAL else _text(environment, name)


def load_delays(environment: Mapping[str, str]) -> tuple[int, int, int, int, int]:
    """Returns the back-offs of a function that keeps a group, in milliseconds; raises SettingsError.

    In this order: the longest after a drop, the first and the longest after too many requests, the cool-down once the
    retries are used up, and the most jitter that is added to it. For a stream in no group the machine waits as long.
    """
    return (
        _rest_ms(environment, "RETRY_MAX_DELAY_S"),
        _rest_ms(environment, "THROTTLE_DELAY_S"),
        _rest_ms(environment, "THROTTLE_MAX_DELAY_S"),
        _rest_ms(environment, "COOL_DOWN_S"),
        _jitter_ms(environment),
    )


def _budget(environment: Mapping[str, str], unit: str) -> int:
    name = f"BUDGET_{unit.upper()}_PER_DAY"
    return _whole({name: "0", **environment}, name, unit, 0, MOST_OF_A_DAY)


def _streams_dir(environment: Mapping[str, str]) -> Path:
    folder = Path(environment.get("LAMBDA_TASK_ROOT") or ".") / (environment.get("STREAMS_DIR") or "env/streams")
    if not folder.is_dir():
        raise SettingsError("the variable STREAMS_DIR names no folder of stream profiles")
    return folder


def _upstreams(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that packaging put beside the profiles, and those of the environment (on a laptop)."""
    packaged = _streams_dir(environment).parent / "upstreams.json"
    try:
        named = json.loads(packaged.read_bytes()) if packaged.is_file() else {}
    except ValueError:
        raise SettingsError("the file upstreams.json beside the folder of STREAMS_DIR is not JSON") from None
    return named | {name: value for name, value in environment.items() if _UPSTREAM.fullmatch(name)}


def _queue_url(environment: Mapping[str, str]) -> str:
    url = _text(environment, "DEAD_LETTER_QUEUE_URL")
    if not url.startswith(("https://", "http://")):
        raise SettingsError("the variable DEAD_LETTER_QUEUE_URL must be the address of a queue (https://...)")
    return url


def _metrics_by(environment: Mapping[str, str]) -> str:
    by = _text(environment, "METRICS_BY")
    if by not in ("stage", "profile", "stream"):
        raise SettingsError("the variable METRICS_BY must be stage, profile or stream")
    return by


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise SettingsError(f"the variable {name} is not set")
    return value


def _milliseconds(environment: Mapping[str, str], name: str, least_s: int = 1, most_s: int = MAX_SECONDS) -> int:
    return _whole(environment, name, "seconds", least_s, most_s) * 1000


def _rest_ms(environment: Mapping[str, str], name: str) -> int:
    return _milliseconds(environment, name, most_s=MAX_REST_S)


def _jitter_ms(environment: Mapping[str, str]) -> int:
    return _milliseconds(environment, "JITTER_S", least_s=0)


def _within_ms(environment: Mapping[str, str], name: str) -> int:
    """Returns the time within which a lane retries: its longest back-off, or its cool-down, and a function's start."""
    rest_ms = _rest_ms(environment, "COOL_DOWN_S") + _jitter_ms(environment)
    return max(_rest_ms(environment, name), rest_ms) + START_MS


def _whole(environment: Mapping[str, str], name: str, unit: str, least: int, most: int) -> int:
    text = _text(environment, name)
    if not (text.isascii() and text.isdigit() and len(text) <= 13 and least <= int(text) <= most):
        raise SettingsError(f"the variable {name} must be a whole number of {unit} from {least} to {most}")
    return int(text)
