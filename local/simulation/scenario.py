"""Decides what a scenario file says: a machine, settings, latencies, and how the scripted upstream behaves.

It reads the file, refuses what it does not know by naming the field, and knows nothing of how a replay runs. Times
are integer milliseconds from the start of the execution, save for the settings, which are those of env/ in seconds.
Invariant: a `Scenario` that exists is sound: its machine file exists, its settings keep the rules of env/, every
window ends after it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from local.stages import ROOT, checked, load
from local.user_error import UserError

Policy = Literal["evicts", "tolerates", "forbids"]
POLICIES = ("evicts", "tolerates", "forbids")
MAX_RUN_S = 10 * 366 * 86_400


@dataclass(frozen=True)
class Window:
    """A stretch [from_ms, to_ms); `status` is what a refused opening is answered with."""

    from_ms: int
    to_ms: int
    status: int = 503


@dataclass(frozen=True)
class Upstream:
    """How the scripted upstream behaves."""

    policy: Policy = "tolerates"
    events_every_ms: int = 1000
    overlap_s: float = 2
    stall_after_s: float = 60
    standby: str = "cold"
    resumes: bool = False
    drops_ms: tuple[int, ...] = ()
    stalls: tuple[Window, ...] = ()
    refusals: tuple[Window, ...] = ()
    ends_at_ms: int | None = None


@dataclass(frozen=True)
class Redeployment:
    """From `at_ms` on, executions that start run the machine in this file."""

    at_ms: int
    machine: Path


@dataclass(frozen=True, slots=True)
class Scenario:
    """A replay's whole input; `latencies_ms` holds for each name the values to use in turn; the last repeats."""

    machine: Path
    settings: Mapping[str, Any]
    run_for_ms: int
    latencies_ms: Mapping[str, tuple[int, ...]]
    upstream: Upstream
    seed: int = 0
    redeployments: tuple[Redeployment, ...] = ()
    kills_ms: tuple[int, ...] = ()
    freezes_ms: tuple[int, ...] = ()


DERIVED = ("claim_tries", "task_timeout_s")
LATENCIES = ("start", "wait_overshoot", "wait_to_task", "connect")


def read(path: Path, stage: str, root: Path = ROOT) -> Scenario:
    """Returns the scenario in the file; UserError naming the file and the field where it is not sound.

    Its settings lie over those of `stage`; `root` is where a machine's file is looked for after the scenario's folder.
    """
    fields = _Fields(str(path), _data(path))
    machine = _machine(fields, path.parent, root)
    scenario = Scenario(
        machine=machine,
        settings=_settings(fields, stage, root),
        run_for_ms=round(fields.number("run_for_s", None, least=0.001, most=MAX_RUN_S) * 1000),
        latencies_ms=_latencies(fields),
        upstream=_upstream(fields.sub("upstream")),
        seed=fields.whole("seed", 0),
        redeployments=tuple(_redeployment(item, path.parent, root) for item in fields.items("redeployments")),
        kills_ms=_kills(fields),
        freezes_ms=_instants(fields.items("freezes")),
    )
    fields.refuse_the_rest()
    return scenario


def faults_of(path: Path) -> tuple[Upstream, tuple[int, ...]]:
    """Returns the upstream and the kills in a file that has a scenario's `upstream` and `kills`, or one of them.

    Raises UserError where it is not sound.
    """
    fields = _Fields(str(path), _data(path))
    found = _upstream(fields.sub("upstream")), _kills(fields)
    fields.refuse_the_rest()
    return found


def _data(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None


class _Fields:
    """Takes the fields out of a mapping one by one, so that what is left over can be refused by name."""

    def __init__(self, where: str, data: Any) -> None:
        if not isinstance(data, dict):
            raise UserError(f"{where}: must be a mapping of names to values")
        self.where = where
        self._left = dict(data)
        self._known: list[str] = []

    def take(self, name: str, default: Any = None) -> Any:
        self._known.append(name)
        return self._left.pop(name, default)

    def wrong(self, name: str, problem: str) -> UserError:
        return UserError(f"{self.where}: {name} {problem}")

    def refuse_the_rest(self) -> None:
        for name in self._left:
            raise self.wrong(str(name), f"is not known here; known are {', '.join(sorted(self._known))}")

    def sub(self, name: str) -> _Fields:
        value = self.take(name, {})
        return _Fields(f"{self.where}: {name}", {} if value is None else value)

    def number(self, name: str, default: float | None, *, least: float, most: float) -> float:
        value = self.take(name, default)
        if value is None:
            raise self.wrong(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, f"must be a number from {least:g} to {most:g}, not {value!r}")
        return cast(float, value)

    def whole(self, name: str, default: int | None, *, least: int = 0) -> int:
        value = self.take(name, default)
        if value is None:
            raise self.wrong(name, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(name, f"must be a whole number of at least {least}, not {value!r}")
        return value

    def items(self, name: str) -> list[_Fields]:
        value = self.take(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, "must be a list")
        return [_Fields(f"{self.where}: {name}[{at}]", item) for at, item in enumerate(value)]


def _machine(fields: _Fields, folder: Path, root: Path) -> Path:
    name = fields.take("machine")
    if not isinstance(name, str) or not name:
        raise fields.wrong("machine", "must name a state machine's file, such as statemachines/connections.asl.yml")
    for base in (Path(), folder, root):
        if (base / name).is_file():
            return base / name
    raise fields.wrong("machine", f"names {name}, and there is no such file")


def _redeployment(item: _Fields, folder: Path, root: Path) -> Redeployment:
    redeployment = Redeployment(item.whole("at_ms", None), _machine(item, folder, root))
    item.refuse_the_rest()
    return redeployment


def _settings(fields: _Fields, stage: str, root: Path) -> Mapping[str, Any]:
    overrides = fields.take("settings", {})
    if not isinstance(overrides, dict):
        raise fields.wrong("settings", "must be a mapping of settings, such as wait_s: 35")
    base = {name: value for name, value in load(stage, root=root).items() if name not in DERIVED}
    return checked({**base, **overrides}, f"{fields.where}: settings")


def _latencies(fields: _Fields) -> Mapping[str, tuple[int, ...]]:
    source = fields.sub("latencies_ms")
    latencies: dict[str, tuple[int, ...]] = {}
    for name in LATENCIES:
        value = source.take(name, 0)
        values = value if isinstance(value, list) else [value]
        if not values or any(isinstance(v, bool) or not isinstance(v, int) or v < 0 for v in values):
            raise source.wrong(name, f"must be whole milliseconds of at least 0, or a list of them, not {value!r}")
        latencies[name] = tuple(values)
    source.refuse_the_rest()
    return latencies


def _upstream(fields: _Fields) -> Upstream:
    policy = fields.take("policy", Upstream.policy)
    if policy not in POLICIES:
        raise fields.wrong("policy", f"must be one of {', '.join(POLICIES)}, not {policy!r}")
    ends_at_ms = fields.take("ends_at_ms")
    if ends_at_ms is not None and (isinstance(ends_at_ms, bool) or not isinstance(ends_at_ms, int) or ends_at_ms < 0):
        raise fields.wrong("ends_at_ms", f"must be a whole number of at least 0, not {ends_at_ms!r}")
    resumes = fields.take("resumes", False)
    if not isinstance(resumes, bool):
        raise fields.wrong("resumes", f"must be true or false, not {resumes!r}")
    standby = fields.take("standby", Upstream.standby)
    if standby not in ("cold", "hot") or (standby == "hot" and policy != "tolerates"):
        raise fields.wrong("standby", f"must be cold, or hot where policy is tolerates, not {standby!r}")
    upstream = Upstream(
        policy=cast(Policy, policy),
        events_every_ms=fields.whole("events_every_ms", Upstream.events_every_ms, least=1),
        overlap_s=fields.number("overlap_s", Upstream.overlap_s, least=0, most=300),
        stall_after_s=fields.number("stall_after_s", Upstream.stall_after_s, least=0.001, most=900),
        standby=standby,
        resumes=resumes,
        drops_ms=_instants(fields.items("drops")),
        stalls=tuple(_window(item, refusal=False) for item in fields.items("stalls")),
        refusals=tuple(_window(item, refusal=True) for item in fields.items("refusals")),
        ends_at_ms=ends_at_ms,
    )
    fields.refuse_the_rest()
    return upstream


def _kills(fields: _Fields) -> tuple[int, ...]:
    return _instants(fields.items("kills"))


def _instants(items: list[_Fields]) -> tuple[int, ...]:
    found = []
    for item in items:
        found.append(item.whole("at_ms", None))
        item.refuse_the_rest()
    return tuple(sorted(found))


def _window(item: _Fields, *, refusal: bool) -> Window:
    from_ms, to_ms = item.whole("from_ms", None), item.whole("to_ms", None)
    if to_ms <= from_ms:
        raise item.wrong("to_ms", f"must be later than from_ms ({from_ms}), not {to_ms}")
    status = item.whole("status", Window.status, least=100) if refusal else Window.status
    if status > 599 or status < 204:
        raise item.wrong("status", f"must be an HTTP status from 204 to 599, not {status}")
    item.refuse_the_rest()
    return Window(from_ms, to_ms, status)
