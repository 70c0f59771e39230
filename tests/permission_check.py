"""Says which requests of the tests the roles of the packaged template do not allow.

A module of handlers/ acts in the roles of the functions that import it, a Task in the role of each machine that has it.
Who of them it was is narrowed down by all that was on the stack; where several are left, one must be allowed. Another
stage's resource stands for this one's; where a test made up a name, one resource of its kind must be allowed.
Invariant: the evaluator is not ours (tests/real/permissions.py).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from local import stages
from local.permissions import needs
from local.permissions.needs import Need, Role
from local.stages import ROOT
from local.template import Resources
from tests.import_graph import MODULES, distances, module_imports
from tests.permission_edges import ROLE, TASK, Line, Who
from tests.real import permissions

STAGE = "test"
NAMES = stages.names(STAGE)
PREFIX = "streamkeeper-"
_HOME = "us-east-1:000000000000"
_TABLES = f"arn:aws:dynamodb:{_HOME}:table/"
_STATES = f"arn:aws:states:{_HOME}:"
# The stage's resources of each kind, by what their ARNs begin with.
_KINDS = {
    _TABLES: (NAMES["events_table"], NAMES["control_table"]),
    "arn:aws:s3:::": (f"{NAMES['events_table']}-000000000000-us-east-1",),
    f"arn:aws:sqs:{_HOME}:": (NAMES["dead_letter_queue"],),
    f"arn:aws:sns:{_HOME}:": (NAMES["alerts"],),
    f"arn:aws:lambda:{_HOME}:function:": (NAMES["connection_manager"],),
    f"{_STATES}stateMachine:": (NAMES["connections"],),
    f"{_STATES}execution:": (NAMES["connections"],),
}
# What most tests call them.
_CALLED = {"events": NAMES["events_table"], "control": NAMES["control_table"]}
_STAGES = re.compile(r"(?<=streamkeeper[-/])\w+(?=[-/])")
_BUCKET = re.compile(r"(?<=s3:::)(streamkeeper-\w+-events)-[\w-]+/")
_PLACE = re.compile(r"^arn:[\w-]+:(\w+):[\w-]*:\d*:")
# Names of executions and keys of objects have no end.
_ENDLESS = re.compile(r"(:execution:[^:]+:|s3:::[^/]+/).*", re.DOTALL)


def refused(lines: Iterable[Line], template: Mapping[str, Any]) -> list[str]:
    """A sentence for each request that no role allows in which it may have been made."""
    actors = Actors(template)
    asked: dict[tuple[tuple[Role, ...], str, tuple[str, ...]], str] = {}
    for who, action, resource, test in lines:
        if candidates := actors.of(tuple(who)):
            asked.setdefault((candidates, action, usual(resource)), test)
    ways = {
        (roles_, action, arns): [(role, Need(action, arn)) for role in roles_ for arn in arns]
        for roles_, action, arns in asked
    }
    each = list(dict.fromkeys(way for several in ways.values() for way in several))
    allowed = {way for way, verdict in zip(each, permissions.verdicts(each), strict=True) if verdict == "Allowed"}
    return [
        f"{asked[request]}: {' or '.join(role.name for role in request[0])} may not {request[1]} on {request[2][0]}"
        for request, several in ways.items()
        if allowed.isdisjoint(several)
    ]


def deliver(lines: Iterable[Line]) -> bool:
    """Returns whether a project of the tests delivered, so that its template allows more."""
    added = (NAMES["delivery_table"], NAMES["connection_delivery"])
    return any(who[0] == ROLE and resource.endswith(added) for who, _, resource, _ in lines)


def usual(resource: str) -> tuple[str, ...]:
    """Returns the ARNs in the stage for which the resource stands: all of its kind if a test made up its name."""
    arn = _PLACE.sub(lambda match: f"arn:aws:{match[1]}:{'::' if match[1] == 's3' else _HOME + ':'}", resource)
    arn = _ENDLESS.sub(r"\1one", _BUCKET.sub(r"\1-000000000000-us-east-1/", _STAGES.sub(STAGE, arn)))
    for kind, names in _KINDS.items():
        if arn.startswith(kind):
            name, rest = re.fullmatch(r"([^:/]*)(.*)", arn[len(kind) :], re.DOTALL).groups()  # type: ignore[union-attr]
            own = name if name.startswith(PREFIX) else _CALLED.get(name, "")
            return tuple(kind + one + rest for one in ((own,) if own else names))
    return (arn,)


class Actors:
    """The functions and machines that act in each role of a template."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        read = needs.read(template)
        resources = Resources(template, {})
        self._roles = {role.name: role for role in read.all()}
        self._of_module: dict[str, set[Role]] = {}
        handlers = module_imports({name: path for name, path in MODULES.items() if name.startswith("handlers.")})
        for key in resources.ids_of_type("AWS::Lambda::Function"):
            module = str(resources.properties(key)["Handler"]).replace("/", ".").rpartition(".")[0]
            for name in distances([module], handlers):
                self._of_module.setdefault(name, set()).add(read.functions[resources.name(key)])
        self._of_task: dict[tuple[str, str], set[Role]] = {}
        for name, role in read.machines.items():
            text = (ROOT / "statemachines" / f"{name.rpartition('-')[2]}.asl.yml").read_text()
            for task in tasks(yaml.safe_load(text)["States"]):
                self._of_task.setdefault(task, set()).add(role)

    def of(self, who: Who) -> tuple[Role, ...]:
        """Returns the roles in which a request may have been made, none if it is not the project's own."""
        kind, *rest = who
        if kind == ROLE:
            return tuple(self._roles[name] for name in rest[:1] if name in self._roles)
        if kind == TASK:
            return _sorted(self._of_task.get((rest[0], rest[1]), set()))
        # Most stages deliver nothing, and of what sends events the API imports some to read how far a sink has come.
        if any(module.startswith("handlers.deliver") for module in who):
            return ()
        left: set[Role] = set()
        for module in who:
            # Where functions of virtual time call each other, the inner one asks.
            left = left & self._of_module.get(module, set()) or left or self._of_module.get(module, set())
        return _sorted(left)


def tasks(states: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the name and the Resource of each Task, including those in branches."""
    for name, state in states.items():
        if state["Type"] == "Task":
            yield name, state["Resource"]
        for branch in [*state.get("Branches", []), *([state["ItemProcessor"]] if "ItemProcessor" in state else [])]:
            yield from tasks(branch["States"])


def _sorted(found: Iterable[Role]) -> tuple[Role, ...]:
    return tuple(sorted(found, key=lambda role: role.name))
