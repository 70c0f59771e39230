"""Answers the actions on state machines and their tags: create, update, describe, list, delete, tag.

Invariant: a machine whose creation or update succeeded has a definition that can run.
"""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from local.stepfunctions.diagnostics import refuse_bad
from local.stepfunctions.executions import Executions
from local.stepfunctions.machines import Described, Entry, Machines, compiled, new_revision
from local.stepfunctions.pages import page
from local.stepfunctions.parameters import PREFIX, Action, Answer, Parameters, Refusal, arn, checked_name

_DEFAULTS: dict[str, dict[str, Any]] = {
    "loggingConfiguration": {"level": "OFF", "includeExecutionData": False},
    "tracingConfiguration": {"enabled": False},
    "encryptionConfiguration": {"type": "AWS_OWNED_KEY"},
}
"""The configurations of a machine that a request leaves out."""
_LOG_GROUP = re.compile(r"arn:aws[a-z-]*:logs:[a-z0-9-]+:\d{12}:log-group:[^:]+:\*")
_MOST_TAGS = 50


class MachineActions:
    """The actions on state machines and their tags."""

    def __init__(self, machines: Machines, executions: Executions) -> None:
        self._machines = machines
        self._executions = executions

    def actions(self) -> dict[str, Action]:
        """Returns the actions by name."""
        none: Callable[[str], Action] = lambda name: lambda parameters: self._none(name, parameters)  # noqa: E731
        return {
            "CreateStateMachine": self._create,
            "UpdateStateMachine": self._update,
            "DeleteStateMachine": self._delete,
            "DescribeStateMachine": self._describe,
            "ListStateMachines": self._list,
            "ListStateMachineVersions": none("stateMachineVersions"),
            "ListStateMachineAliases": none("stateMachineAliases"),
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": self._tags,
        }

    def _create(self, parameters: Parameters) -> Answer:
        name = checked_name(parameters["name"])
        _no_versions(parameters)
        kind, machine_arn = parameters.get("type") or "STANDARD", f"{PREFIX}:stateMachine:{name}"
        refuse_bad(parameters["definition"], kind)
        tags = _added({}, parameters.get("tags") or [])
        existing, now_ms = self._machines.get(machine_arn), round(time.time() * 1000)
        new = Described(
            machine_arn, name, parameters["definition"], kind, _role(parameters), now_ms, now_ms,
            settings=_settings(parameters), tags=tags,
        )  # fmt: skip
        if existing is not None:
            self._refuse_changed(existing, new)
            return {"stateMachineArn": machine_arn, "creationDate": existing.described.created_ms / 1000}
        self._machines.put(new, compiled(new))
        return {"stateMachineArn": machine_arn, "creationDate": now_ms / 1000}

    def _refuse_changed(self, existing: Entry, new: Described) -> None:
        """Creating the same machine again is no error; role and tags do not count (API reference, idempotency)."""
        old = existing.described
        if existing.deleting:
            raise Refusal("StateMachineDeleting", f"State Machine is being deleted: '{old.arn}'")
        if (old.definition, old.type, configuration(old.settings)) != (
            new.definition,
            new.type,
            configuration(new.settings),
        ):
            raise Refusal("StateMachineAlreadyExists", f"State Machine Already Exists: '{old.arn}'")

    def _update(self, parameters: Parameters) -> Answer:
        entry = self._get(parameters)
        _no_versions(parameters)
        if entry.deleting:
            raise Refusal("StateMachineDeleting", f"State Machine is being deleted: '{entry.described.arn}'")
        if not {"definition", "roleArn", *_DEFAULTS} & parameters.keys():
            raise Refusal(
                "MissingRequiredParameter", "Either the definition, the role ARN, the LoggingConfiguration, "
                "the TracingConfiguration or the EncryptionConfiguration must be specified",
            )  # fmt: skip
        old = entry.described
        if "definition" in parameters:
            refuse_bad(parameters["definition"], old.type)
        new = replace(
            old,
            definition=parameters.get("definition", old.definition),
            role_arn=_role(parameters) if "roleArn" in parameters else old.role_arn,
            settings=old.settings | _settings(parameters),
            updated_ms=max(round(time.time() * 1000), old.updated_ms + 1),
        )
        if (new.definition, new.role_arn) != (old.definition, old.role_arn):
            new = replace(new, revision_id=new_revision())
        # A running execution keeps the machine that it was started with.
        self._machines.put(new, compiled(new))
        answer: Answer = {"updateDate": new.updated_ms / 1000}
        return answer | ({"revisionId": new.revision_id} if new.revision_id else {})

    def _delete(self, parameters: Parameters) -> Answer:
        machine_arn = arn(parameters, "stateMachineArn", "stateMachine")
        if machine_arn in self._machines:
            self._machines.mark_deleting(machine_arn)
            self._executions.forget_deleted()
        return {}

    def _describe(self, parameters: Parameters) -> Answer:
        entry = self._get(parameters)
        described = entry.described
        answer: Answer = {
            "stateMachineArn": described.arn,
            "name": described.name,
            "status": "DELETING" if entry.deleting else "ACTIVE",
            "definition": described.definition,
            "roleArn": described.role_arn,
            "type": described.type,
            "creationDate": described.created_ms / 1000,
            **configuration(described.settings),
        }
        if described.revision_id is not None:
            answer["revisionId"] = described.revision_id
        if parameters.get("includedData") == "METADATA_ONLY":
            answer["definition"] = "{}"
        return answer

    def _list(self, parameters: Parameters) -> Answer:
        machines = sorted((entry.described for entry in self._machines.values()), key=lambda one: one.arn)
        shown, rest = page(parameters, "stateMachines", machines, lambda one: one.arn)
        listed = [
            {
                "stateMachineArn": one.arn,
                "name": one.name,
                "type": one.type,
                "creationDate": one.created_ms / 1000,
            }
            for one in shown
        ]
        return {"stateMachines": listed} | rest

    def _none(self, name: str, parameters: Parameters) -> Answer:
        self._get(parameters)
        return {name: []}

    def _tag(self, parameters: Parameters) -> Answer:
        described = self._tagged(parameters)
        self._machines.tag(described.arn, _added(described.tags, parameters["tags"]))
        return {}

    def _untag(self, parameters: Parameters) -> Answer:
        described = self._tagged(parameters)
        left = {key: value for key, value in described.tags.items() if key not in parameters["tagKeys"]}
        self._machines.tag(described.arn, left)
        return {}

    def _tags(self, parameters: Parameters) -> Answer:
        return {"tags": [{"key": key, "value": value} for key, value in self._tagged(parameters).tags.items()]}

    def _tagged(self, parameters: Parameters) -> Described:
        machine_arn = arn(parameters, "resourceArn", "stateMachine", "activity")
        if machine_arn not in self._machines:
            raise Refusal("ResourceNotFound", f"Resource not found: '{machine_arn}'")
        return self._machines[machine_arn].described

    def _get(self, parameters: Parameters) -> Entry:
        machine_arn = arn(parameters, "stateMachineArn", "stateMachine")
        if machine_arn not in self._machines:
            raise missing(machine_arn)
        return self._machines[machine_arn]


def missing(machine_arn: str) -> Refusal:
    """Returns the refusal of an ARN that names no machine."""
    return Refusal("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{machine_arn}'")


def configuration(settings: dict[str, Any]) -> Answer:
    """Returns the configurations of a machine as the API describes them, completed with the defaults."""
    return _DEFAULTS | settings


def _settings(parameters: Parameters) -> dict[str, Any]:
    """Returns the configurations in a request, each completed, as they are described and compared (recorded)."""
    given = {name: parameters[name] for name in _DEFAULTS if parameters.get(name) is not None}
    # A member that is null is absent.
    settings = {
        name: _DEFAULTS[name] | {member: value for member, value in members.items() if value is not None}
        for name, members in given.items()
    }
    if "loggingConfiguration" in settings:
        _check_logging(settings["loggingConfiguration"])
    return settings


def _check_logging(logging: dict[str, Any]) -> None:
    destinations = logging.get("destinations", [])
    if len(destinations) > 1 or (logging["level"] != "OFF" and not destinations):
        reason = "Must specify exactly one Log Destination."
        raise Refusal("InvalidLoggingConfiguration", f"Invalid Logging Configuration: {reason}")
    for one in destinations:
        arn_of_group = (one.get("cloudWatchLogsLogGroup") or {}).get("logGroupArn") or ""
        if _LOG_GROUP.fullmatch(arn_of_group) is None:
            reason = f"'{arn_of_group}' is not the ARN of a log group that ends with :*"
            raise Refusal("InvalidLoggingConfiguration", f"Invalid Logging Configuration: {reason}")


def _role(parameters: Parameters) -> str:
    role = str(parameters["roleArn"])
    if not role.startswith("arn:") or role.count(":") < 5:
        raise Refusal("InvalidArn", f"Invalid Role Arn: '{role}'")
    return role


def _no_versions(parameters: Parameters) -> None:
    if parameters.get("publish") or parameters.get("versionDescription"):
        raise Refusal("ValidationException", "Versions of state machines are not offered by the local service.")


def _added(tags: dict[str, str], more: list[dict[str, str]]) -> dict[str, str]:
    if not all(tag.get("key") for tag in more):
        raise Refusal("ValidationException", "1 validation error detected: a tag needs a key")
    together = tags | {tag["key"]: tag.get("value") or "" for tag in more}
    if len(together) > _MOST_TAGS:
        raise Refusal("TooManyTags", f"A state machine has at most {_MOST_TAGS} tags.")
    return together
