"""Reads a scenario file: a machine, settings, latencies, and how the scripted upstream behaves.

Times are integer milliseconds from the start of the execution; settings are in seconds, as in env/. Invariant: a
`Scenario` that exists is valid.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from local.stages import DERIVED, ROOT, checked, load
from local.user_error import UserError
from states_language.workbench import Mistake, data

Policy = Literal["evicts", "tolerates", "forbids"]
POLICIES = ("evicts", "tolerates", "forbids")
MAX_RUN_S = 10 * 366 * 86_400


@dataclass(frozen=True)
class Window:
    """An interval [from_ms, to_ms); `status` is the answer to an opening that is refused in it."""

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
    """Executions that start at `at_ms` or later run the machine in this file."""

    at_ms: int
    machine: Path


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole input of a replay; `latencies_ms` has by name the values to use in turn, the last one repeated."""

    machine: Path
    settings: Mapping[str, Any]
    run_for_ms: int
    latencies_ms: Mapping[str, tuple[int, ...]]
    upstream: Upstream
    seed: int = 0
    redeployments: tuple[Redeployment, ...] = ()
    kills_ms: tuple[int, ...] = ()
    freezes_ms: tuple[int, ...] = ()


LATENCIES = ("start", "wait_overshoot", "wait_to_task", "connect")


def read(path: Path, stage: str, root: Path = ROOT) -> Scenario:
    """Returns the scenario in the file; raises UserError that names the file and the field if it is invalid.

    Its settings override those of `stage`. A machine's file is looked up in the scenario's folder, then in `root`.
    """
    fields = _Fields(str(path), _data(path))
    scenario = Scenario(
        machine=_machine(fields, path.parent, root),
        settings=_settings(fields, stage, root),
        run_for_ms=round(fields.ruled("run_for_s", _number(0.001, MAX_RUN_S)) * 1000),
        latencies_ms=_latencies(fields),
        upstream=_upstream(fields.sub("upstream")),
        seed=fields.ruled("seed", _whole(), 0),
        redeployments=tuple(
            Redeployment(item.ruled("at_ms", _whole()), _machine(item, path.parent, root))
            for item in fields.items("redeployments")
        ),
        kills_ms=fields.instants("kills"),
        freezes_ms=fields.instants("freezes"),
    )
    fields.refuse_the_rest()
    return scenario


def faults_of(path: Path) -> tuple[Upstream, tuple[int, ...]]:
    """Returns the upstream and the kills in a file that has these two fields of a scenario, or one of them.

    Raises UserError if it is invalid.
    """
    fields = _Fields(str(path), _data(path))
    found = _upstream(fields.sub("upstream")), fields.instants("kills")
    fields.refuse_the_rest()
    return found


def _data(path: Path) -> Any:
    try:
        return data(path, "the scenario")
    except Mistake as problem:
        raise UserError(str(problem)) from None


# A rule for a value: its words, and the check.
_Rule = tuple[str, Callable[[Any], bool]]
_REQUIRED = object()


def _whole(least: int = 0) -> _Rule:
    return f"a whole number of at least {least}", lambda value: type(value) is int and value >= least


def _number(least: float, most: float) -> _Rule:
    return f"a number from {least:g} to {most:g}", lambda value: type(value) in (int, float) and least <= value <= most


_POLICY: _Rule = f"one of {', '.join(POLICIES)}", lambda value: value in POLICIES
_FLAG: _Rule = "true or false", lambda value: isinstance(value, bool)
_STATUS: _Rule = "an HTTP status from 204 to 599", lambda value: type(value) is int and 204 <= value <= 599


class _Fields:
    """Takes the fields out of a mapping one by one, so that unknown ones can be refused by name."""

    def __init__(self, where: str, data: Any) -> None:
        if not isinstance(data, dict):
            raise UserError(f"{where}: must be a mapping of names to values.")
        self.where = where
        self._left = dict(data)
        self._known: list[str] = []

    def take(self, name: str, default: Any = None) -> Any:
        self._known.append(name)
        return self._left.pop(name, default)

    def wrong(self, name: str, problem: str) -> UserError:
        return UserError(f"{self.where}: {name} {problem}.")

    def refuse_the_rest(self) -> None:
        for name in self._left:
            raise self.wrong(str(name), f"is unknown here; the fields are {', '.join(sorted(self._known))}")

    def sub(self, name: str) -> _Fields:
        value = self.take(name, {})
        return _Fields(f"{self.where}: {name}", {} if value is None else value)

    def ruled(self, name: str, rule: _Rule, default: Any = _REQUIRED) -> Any:
        """Returns the value of a field; a field without a default must be present."""
        value, (words, fits) = self.take(name, default), rule
        if value is None and default is None:
            return None
        if value is None or value is _REQUIRED:
            raise self.wrong(name, "is missing")
        if not fits(value):
            raise self.wrong(name, f"must be {words}, not {value!r}")
        return value

    def items(self, name: str) -> Iterator[_Fields]:
        """Yields the mappings in a list, and refuses the unknown fields of each before the next."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, "must be a list")
        for at, item in enumerate(value):
            fields = _Fields(f"{self.where}: {name}[{at}]", item)
            yield fields
            fields.refuse_the_rest()

    def instants(self, name: str) -> tuple[int, ...]:
        return tuple(sorted(item.ruled("at_ms", _whole()) for item in self.items(name)))


def _machine(fields: _Fields, folder: Path, root: Path) -> Path:
    name = fields.take("machine")
    if not isinstance(name, str) or not name:
        raise fields.wrong("machine", "must be the path of a state machine, such as statemachines/connections.asl.yml")
    for base in (Path(), folder, root):
        if os.path.isfile(base / name):  # Path.is_file raises OSError for a name that is too long
            return base / name
    raise fields.wrong("machine", f"must be the path of a file: there is no {name}")


def _settings(fields: _Fields, stage: str, root: Path) -> Mapping[str, Any]:
    overrides = fields.take("settings", {})
    if not isinstance(overrides, dict):
        raise fields.wrong("settings", "must be a mapping of settings, such as wait_s: 35")
    base = {name: value for name, value in load(stage, root=root).items() if name not in DERIVED}
    return checked({**base, **overrides}, f"{fields.where}: settings")


def _latencies(fields: _Fields) -> Mapping[str, tuple[int, ...]]:
    source = fields.sub("latencies_ms")
    fits = _whole()[1]
    rule = (
        "whole milliseconds of at least 0, or a list of them",
        lambda value: bool(value) and all(map(fits, value)) if isinstance(value, list) else fits(value),
    )
    found = {name: source.ruled(name, rule, 0) for name in LATENCIES}
    source.refuse_the_rest()
    return {name: tuple(value) if isinstance(value, list) else (value,) for name, value in found.items()}


def _upstream(fields: _Fields) -> Upstream:
    policy = fields.ruled("policy", _POLICY, Upstream.policy)
    standbys = ("cold", "hot") if policy == "tolerates" else ("cold",)
    standby = "cold, or hot where policy is tolerates", lambda value: value in standbys
    upstream = Upstream(
        policy=policy,
        events_every_ms=fields.ruled("events_every_ms", _whole(1), Upstream.events_every_ms),
        overlap_s=fields.ruled("overlap_s", _number(0, 300), Upstream.overlap_s),
        stall_after_s=fields.ruled("stall_after_s", _number(0.001, 900), Upstream.stall_after_s),
        standby=fields.ruled("standby", standby, Upstream.standby),
        resumes=fields.ruled("resumes", _FLAG, Upstream.resumes),
        drops_ms=fields.instants("drops"),
        stalls=tuple(Window(*_span(item)) for item in fields.items("stalls")),
        refusals=tuple(
            Window(*_span(item), item.ruled("status", _STATUS, Window.status)) for item in fields.items("refusals")
        ),
        ends_at_ms=fields.ruled("ends_at_ms", _whole(), None),
    )
    fields.refuse_the_rest()
    return upstream


def _span(item: _Fields) -> tuple[int, int]:
    from_ms, to_ms = item.ruled("from_ms", _whole()), item.ruled("to_ms", _whole())
    if to_ms <= from_ms:
        raise item.wrong("to_ms", f"must be later than from_ms ({from_ms}), not {to_ms}")
    return from_ms, to_ms
