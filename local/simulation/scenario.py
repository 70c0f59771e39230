"""Reads a scenario file: a machine, settings, latencies, and the script of the upstream.

Times are integer milliseconds from the start of the execution; settings are in seconds, as in env/. Invariant: a
`Scenario` that exists is valid.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from handlers.profile.checked_fields import FLAG, Fields, Form, choice, integer
from local.stages import DERIVED, ROOT, complete, load
from local.terminal import UserError
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


def _seconds(least: float, most: float) -> Form:
    schema = {"type": "number", "minimum": least, "maximum": most}
    return Form(schema, f"must be a number of seconds from {least:.12g} to {most:.12g}")


def _in_turn(value: Any) -> tuple[int, ...] | None:
    values = value if isinstance(value, list) else [value]
    return tuple(values) if values and all(_INSTANT.read(one) is not None for one in values) else None


_INSTANT = integer(MAX_RUN_S * 1000, least=0)
_MACHINE = Form({"type": "string"}, "must be the path of a state machine, such as statemachines/connections.asl.yml")
_LATENCY = Form({}, "must be whole milliseconds of at least 0, or a list of them", _in_turn)
_RUN_FOR, _STALL_AFTER, _OVERLAP = _seconds(0.001, MAX_RUN_S), _seconds(0.001, 900), _seconds(0, 300)


class _Fields(Fields):
    """The fields of a scenario's table, as those of a profile, except that the first wrong field raises UserError.

    A field without a value counts as absent.
    """

    def __init__(self, where: str, table: Any, within: str = "") -> None:
        if not isinstance(table, dict):
            raise UserError(f"{where}: {within + ' ' if within else ''}must be a mapping of names to values.")
        super().__init__(where, {name: value for name, value in table.items() if value is not None}, [], within)

    def add_problem(self, field: str, problem: str) -> NoReturn:
        """Raises UserError."""
        where = ".".join(part for part in (self._within, field) if part)
        raise UserError(f"{self._name}: {where} {problem}{'' if problem.endswith('?') else '.'}")

    def sub(self, field: str) -> _Fields:
        """Returns the fields of a field that is a mapping, empty if it is absent."""
        return self._of(field, {} if (value := self.take(field)) is None else value)

    def items(self, field: str) -> Iterator[_Fields]:
        """Yields the mappings in a list, and refuses the unknown fields of each before the next."""
        value = self.take(field)
        if value is not None and not isinstance(value, list):
            self.add_problem(field, "must be a list")
        for at, item in enumerate(value or ()):
            fields = self._of(f"{field}[{at}]", item)
            yield fields
            fields.refuse_unknown(field)

    def instants(self, field: str) -> tuple[int, ...]:
        """Returns the instants of a list, in order."""
        return tuple(sorted(item.read_required("at_ms", _INSTANT) for item in self.items(field)))

    def _of(self, field: str, value: Any) -> _Fields:
        return _Fields(self._name, value, f"{self._within}.{field}" if self._within else field)


def read(path: Path, stage: str, root: Path = ROOT) -> Scenario:
    """Returns the scenario in the file; raises UserError that names the file and the field if it is invalid.

    Its settings override those of `stage`. A machine's file is looked up in the scenario's folder, then in `root`.
    """
    fields = _Fields(str(path), _data(path))
    scenario = Scenario(
        machine=_machine(fields, path.parent, root),
        settings=_settings(fields, path, stage, root),
        run_for_ms=round(fields.read_required("run_for_s", _RUN_FOR) * 1000),
        latencies_ms=_latencies(fields.sub("latencies_ms")),
        upstream=_upstream(fields.sub("upstream")),
        seed=fields.read("seed", integer(2**53, least=0), 0),
        redeployments=tuple(
            Redeployment(item.read_required("at_ms", _INSTANT), _machine(item, path.parent, root))
            for item in fields.items("redeployments")
        ),
        kills_ms=fields.instants("kills"),
        freezes_ms=fields.instants("freezes"),
    )
    fields.refuse_unknown("a scenario")
    return scenario


def faults_of(path: Path) -> tuple[Upstream, tuple[int, ...]]:
    """Returns the upstream and the kills in a file that has these two fields of a scenario, or one of them.

    Raises UserError if it is invalid.
    """
    fields = _Fields(str(path), _data(path))
    found = _upstream(fields.sub("upstream")), fields.instants("kills")
    fields.refuse_unknown("faults")
    return found


def _data(path: Path) -> Any:
    try:
        return data(path, "the scenario")
    except Mistake as problem:
        raise UserError(str(problem)) from None


def _machine(fields: _Fields, folder: Path, root: Path) -> Path:
    name: str = fields.read_required("machine", _MACHINE)
    # Path.is_file raises OSError for a name that is too long.
    found = next((base / name for base in (Path(), folder, root) if os.path.isfile(base / name)), None)
    if found is None:
        fields.add_problem("machine", f"must be the path of a file: there is no {name}")
    return found


def _settings(fields: _Fields, path: Path, stage: str, root: Path) -> Mapping[str, Any]:
    overrides = fields.sub("settings").take_rest()
    base = {name: value for name, value in load(stage, root=root).items() if name not in DERIVED}
    return complete({**base, **overrides}, f"{path}: settings")


def _latencies(fields: _Fields) -> Mapping[str, tuple[int, ...]]:
    found = {name: fields.read(name, _LATENCY, 0) for name in LATENCIES}
    fields.refuse_unknown("latencies_ms")
    return found


def _upstream(fields: _Fields) -> Upstream:
    policy = fields.read("policy", choice(POLICIES), Upstream.policy)
    standbys = ["cold", "hot"] if policy == "tolerates" else ["cold"]
    upstream = Upstream(
        policy=policy,
        events_every_ms=fields.read("events_every_ms", integer(MAX_RUN_S * 1000), Upstream.events_every_ms),
        overlap_s=fields.read("overlap_s", _OVERLAP, Upstream.overlap_s),
        stall_after_s=fields.read("stall_after_s", _STALL_AFTER, Upstream.stall_after_s),
        standby=fields.read(
            "standby", Form({"enum": standbys}, "must be cold, or hot where policy is tolerates"), Upstream.standby
        ),
        resumes=fields.read("resumes", FLAG, Upstream.resumes),
        drops_ms=fields.instants("drops"),
        stalls=tuple(Window(*_span(item)) for item in fields.items("stalls")),
        refusals=tuple(
            Window(*_span(item), item.read("status", integer(599, least=204), Window.status))
            for item in fields.items("refusals")
        ),
        ends_at_ms=fields.read("ends_at_ms", _INSTANT),
    )
    fields.refuse_unknown("upstream")
    return upstream


def _span(item: _Fields) -> tuple[int, int]:
    from_ms, to_ms = item.read_required("from_ms", _INSTANT), item.read_required("to_ms", _INSTANT)
    if to_ms <= from_ms:
        item.add_problem("to_ms", f"must be later than from_ms ({from_ms}), not {to_ms}")
    return from_ms, to_ms
