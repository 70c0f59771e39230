"""Answers the actions on versions and aliases of state machines.

Source: their pages in Step Functions' API reference. Invariant: a version is never deleted while an alias leads to it.
"""

import time
from dataclasses import replace
from typing import Any

from states_language.server.machines import MachineDescription, Machines, machine_deleting, unknown_machine
from states_language.server.requests import Actions, Answer, Parameters, Refusal, page, require_arn
from states_language.server.versions import MOST_ALIASES, MOST_VERSIONS, Alias, Version, split_qualifier

_MISSING = Refusal("ResourceNotFound", "Request references a resource that does not exist.")
_DIFFERENT = "an alias with the same name and a different routing configuration already exists."
_UPDATED = ("description", "routingConfiguration")


class VersionActions(Actions):
    """The actions on versions and aliases."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def _publish_state_machine_version(self, parameters: Parameters) -> Answer:
        described = self._require_machine(parameters)
        expected, actual = parameters.get("revisionId"), described.revision_id or "INITIAL"
        if expected is not None and expected != actual:
            failed = f"Failed to publish the State Machine version for revision {expected}."
            raise Refusal("ConflictException", f"{failed} The current State Machine revision is {actual}.")
        version = next((one for one in described.published.versions if _is_current(one, described)), None)
        version = version or publish_version(self._machines, described, parameters.get("description"))
        return _describe_version(described, version)

    def _list_state_machine_versions(self, parameters: Parameters) -> Answer:
        described = self._require_machine(parameters)
        shown, rest = page(
            parameters, "versions", described.published.versions, lambda one: one.number, descending=True
        )
        return {"stateMachineVersions": [_describe_version(described, one) for one in shown]} | rest

    def _delete_state_machine_version(self, parameters: Parameters) -> Answer:
        machine_arn, number = split_qualifier(require_arn(parameters, "stateMachineVersionArn", "stateMachine"))
        if not number.isdecimal():
            raise Refusal("InvalidArn", f"Invalid Arn: '{parameters['stateMachineVersionArn']}' names no version")
        entry = self._machines.get(machine_arn)
        if entry is None:
            return {}
        kept = entry.description.published
        if names := [one.name for one in kept.aliases if int(number) in dict(one.routes)]:
            message = "Version to be deleted must not be referenced by an alias."
            listed = f"Current list of aliases referencing this version: [{', '.join(names)}]"
            raise Refusal("ConflictException", f"{message} {listed}")
        left = [one for one in kept.versions if one.number != int(number)]
        self._machines.publish(machine_arn, replace(kept, versions=left))
        return {}

    def _create_state_machine_alias(self, parameters: Parameters) -> Answer:
        name = parameters["name"]
        machine_arn, routes = self._read_routes(parameters["routingConfiguration"])
        described, now_ms = self._machines[machine_arn].description, round(time.time() * 1000)
        alias = Alias(name, routes, now_ms, now_ms, parameters.get("description"))
        kept = described.published
        existing = next((one for one in kept.aliases if one.name == name), None)
        if existing is not None:
            if (existing.routes, existing.description) != (alias.routes, alias.description):
                raise Refusal("ConflictException", f"Failed to create alias because {_DIFFERENT}")
            alias = existing
        elif len(kept.aliases) >= MOST_ALIASES:
            raise Refusal("ServiceQuotaExceededException", f"A state machine has at most {MOST_ALIASES} aliases.")
        else:
            self._machines.publish(machine_arn, replace(kept, aliases=[*kept.aliases, alias]))
        return _describe_alias(machine_arn, alias)

    def _update_state_machine_alias(self, parameters: Parameters) -> Answer:
        machine_arn, alias = self._require_alias(parameters)
        if not any(name in parameters for name in _UPDATED):
            message = "Specify at least one of description and routingConfiguration"
            raise Refusal("ValidationException", message)
        routes = alias.routes
        if "routingConfiguration" in parameters:
            led_to, routes = self._read_routes(parameters["routingConfiguration"])
            if led_to != machine_arn:
                raise Refusal("ValidationException", "An alias leads to versions of its own state machine.")
        description = parameters.get("description", alias.description)
        now_ms = max(round(time.time() * 1000), alias.updated_ms + 1)
        new = replace(alias, routes=routes, description=description, updated_ms=now_ms)
        kept = self._machines[machine_arn].description.published
        aliases = [new if one.name == alias.name else one for one in kept.aliases]
        self._machines.publish(machine_arn, replace(kept, aliases=aliases))
        return {"updateDate": now_ms}

    def _describe_state_machine_alias(self, parameters: Parameters) -> Answer:
        return _describe_alias(*self._require_alias(parameters))

    def _list_state_machine_aliases(self, parameters: Parameters) -> Answer:
        described, number = (
            self._require_machine(parameters, qualified=True),
            split_qualifier(parameters["stateMachineArn"])[1],
        )
        aliases = sorted(described.published.aliases, key=lambda one: one.name)
        if number:
            aliases = [one for one in aliases if int(number) in dict(one.routes)]
        shown, rest = page(parameters, "aliases", aliases, lambda one: one.name)
        return {"stateMachineAliases": [_describe_alias(described.arn, one) for one in shown]} | rest

    def _delete_state_machine_alias(self, parameters: Parameters) -> Answer:
        machine_arn, alias = self._require_alias(parameters)
        kept = self._machines[machine_arn].description.published
        self._machines.publish(machine_arn, replace(kept, aliases=[one for one in kept.aliases if one != alias]))
        return {}

    def _require_machine(self, parameters: Parameters, *, qualified: bool = False) -> MachineDescription:
        machine_arn, number = split_qualifier(require_arn(parameters, "stateMachineArn", "stateMachine"))
        entry = self._machines.get(machine_arn)
        if entry is None or (number and not (qualified and number.isdecimal())):
            raise unknown_machine(parameters["stateMachineArn"])
        if entry.deleting:
            raise machine_deleting(machine_arn)
        return entry.description

    def _require_alias(self, parameters: Parameters) -> tuple[str, Alias]:
        machine_arn, name = split_qualifier(require_arn(parameters, "stateMachineAliasArn", "stateMachine"))
        try:
            return machine_arn, self._machines[machine_arn].description.published.alias(name)
        except KeyError:
            raise _MISSING from None

    def _read_routes(self, routing: list[dict[str, Any]]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the machine's ARN, and the versions with their weights; raises Refusal."""
        if not 1 <= len(routing) <= 2:
            raise Refusal("ValidationException", "Routing configuration must contain 1 or 2 entries")
        weights, arns = ([one[name] for one in routing] for name in ("weight", "stateMachineVersionArn"))
        if sum(weights) != 100:
            message = f"Sum of routing configuration weights must equal 100. Received: {weights}"
            raise Refusal("ValidationException", message)
        named = [split_qualifier(require_arn(one, "stateMachineVersionArn", "stateMachine")) for one in routing]
        if len({machine_arn for machine_arn, _ in named}) > 1:
            message = "Both stateMachineVersionArn values must belong to the same state machine"
            raise Refusal("ValidationException", message)
        wrong = "state machine" if not all(number.isdecimal() for _, number in named) else ""
        if wrong := wrong or ("distinct state machine" if len(set(named)) < len(named) else ""):
            message = f"Routing configuration must contain {wrong} version ARNs. Received: [{', '.join(arns)}]"
            raise Refusal("ValidationException", message)
        for machine_arn, number in named:
            entry = self._machines.get(machine_arn)
            if entry is not None and entry.deleting:
                raise machine_deleting(machine_arn)
            versions = [] if entry is None else [each.number for each in entry.description.published.versions]
            if int(number) not in versions:
                raise _MISSING
        return named[0][0], [(int(number), weight) for (_, number), weight in zip(named, weights, strict=True)]


def publish_version(machines: Machines, described: MachineDescription, description: str | None) -> Version:
    """Returns a new version of the machine as it is now; raises Refusal if there are too many."""
    kept = described.published
    if len(kept.versions) >= MOST_VERSIONS:
        raise Refusal("ServiceQuotaExceededException", f"A state machine has at most {MOST_VERSIONS} versions.")
    version = Version(
        kept.last + 1,
        described.definition,
        described.role_arn,
        described.settings,
        described.revision_id,
        round(time.time() * 1000),
        description,
    )
    machines.publish(described.arn, replace(kept, versions=[*kept.versions, version], last=version.number))
    return version


def _describe_version(described: MachineDescription, one: Version) -> Answer:
    return {"stateMachineVersionArn": f"{described.arn}:{one.number}", "creationDate": one.created_ms}


def _describe_alias(machine_arn: str, alias: Alias) -> Answer:
    routes = [
        {"stateMachineVersionArn": f"{machine_arn}:{number}", "weight": weight} for number, weight in alias.routes
    ]
    return {
        "stateMachineAliasArn": f"{machine_arn}:{alias.name}",
        "name": alias.name,
        "description": alias.description,
        "routingConfiguration": routes,
        "creationDate": alias.created_ms,
        "updateDate": alias.updated_ms,
    }


def _is_current(version: Version, described: MachineDescription) -> bool:
    return (version.definition, version.role_arn, version.settings, version.revision_id) == (
        described.definition,
        described.role_arn,
        described.settings,
        described.revision_id,
    )
