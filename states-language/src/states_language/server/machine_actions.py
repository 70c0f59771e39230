"""Answers the actions on state machines (create, update, describe, list, delete) and on tags, of activities too.

Invariant: a machine whose creation or update succeeded has a definition that can run.
"""

import re
import time
import uuid
from dataclasses import replace
from typing import Any

from states_language.server.activities import Activities
from states_language.server.diagnostics import examine, refuse_invalid_definition
from states_language.server.executions import Executions
from states_language.server.machines import Entry, MachineDescription, Machines, machine_deleting, unknown_machine
from states_language.server.requests import (
    Actions,
    Answer,
    Parameters,
    Refusal,
    arn_prefix,
    check_name,
    page,
    require_arn,
)
from states_language.server.version_actions import publish_version
from states_language.server.versions import Version, split_qualifier

_DEFAULTS: dict[str, dict[str, Any]] = {
    "loggingConfiguration": {"level": "OFF", "includeExecutionData": False},
    "tracingConfiguration": {"enabled": False},
    "encryptionConfiguration": {"type": "AWS_OWNED_KEY"},
}
"""The configurations of a machine whose request leaves them out."""
_IAM_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+")
_MOST_TAGS = 50
_LOG_GROUP = re.compile(r"arn:aws[a-z-]*:logs:[a-z0-9-]+:\d{12}:log-group:[^:]+:\*")


class MachineActions(Actions):
    """The actions on state machines, and on the tags of machines and activities."""

    def __init__(self, machines: Machines, executions: Executions, activities: Activities) -> None:
        self._machines = machines
        self._executions = executions
        self._activities = activities

    def _create_state_machine(self, parameters: Parameters) -> Answer:
        name = check_name(parameters["name"])
        _check_description(parameters)
        check_encryption(parameters)
        kind, machine_arn = parameters.get("type") or "STANDARD", f"{arn_prefix(parameters)}:stateMachine:{name}"
        refuse_invalid_definition(parameters["definition"], kind)
        tags = add_tags({}, parameters.get("tags") or [])
        existing, now_ms = self._machines.get(machine_arn), round(time.time() * 1000)
        new = MachineDescription(
            machine_arn,
            name,
            parameters["definition"],
            kind,
            _check_role(parameters),
            now_ms,
            now_ms,
            settings=_read_settings(parameters),
            tags=tags,
        )
        if existing is not None:
            self._refuse_changed(existing, new)
            new = existing.description
        else:
            self._machines.put(new)
        return {"creationDate": new.created_ms} | self._publish_if_requested(
            new, parameters, new.published.versions[:1]
        )

    def _publish_if_requested(self, new: MachineDescription, parameters: Parameters, existing: list[Version]) -> Answer:
        """Returns the machine's ARN, and that of the version if the request publishes one that does not exist yet."""
        arns = {"stateMachineArn": new.arn}
        if parameters.get("publish"):
            version, *_ = existing or [publish_version(self._machines, new, parameters.get("versionDescription"))]
            arns["stateMachineVersionArn"] = f"{new.arn}:{version.number}"
        return arns

    def _refuse_changed(self, existing: Entry, new: MachineDescription) -> None:
        """Raises Refusal unless the machine is the same; role and tags do not count (API reference, idempotency)."""
        old = existing.description
        if existing.deleting:
            raise machine_deleting(old.arn)
        was, wanted = ((one.definition, one.type, configuration(one.settings)) for one in (old, new))
        if was != wanted:
            raise Refusal("StateMachineAlreadyExists", f"State Machine Already Exists: '{old.arn}'")

    def _update_state_machine(self, parameters: Parameters) -> Answer:
        entry = self._machines.entry(require_arn(parameters, "stateMachineArn", "stateMachine"))
        _check_description(parameters)
        check_encryption(parameters)
        if entry.deleting:
            raise machine_deleting(entry.description.arn)
        if not {"definition", "roleArn", *_DEFAULTS} & parameters.keys():
            raise Refusal(
                "MissingRequiredParameter",
                "Either the definition, the role ARN, the LoggingConfiguration, or the "
                "TracingConfiguration must be specified",
            )
        old = entry.description
        if "definition" in parameters:
            refuse_invalid_definition(parameters["definition"], old.type)
        new = replace(
            old,
            definition=parameters.get("definition", old.definition),
            role_arn=_check_role(parameters) if "roleArn" in parameters else old.role_arn,
            settings=old.settings | _read_settings(parameters),
            updated_ms=max(round(time.time() * 1000), old.updated_ms + 1),
        )
        if (new.definition, new.role_arn) != (old.definition, old.role_arn):
            new = replace(new, revision_id=str(uuid.uuid4()))
        # A running execution keeps the machine that it was started with.
        self._machines.put(new)
        answer = {"updateDate": new.updated_ms, "revisionId": new.revision_id}
        return answer | self._publish_if_requested(new, parameters, [])

    def _delete_state_machine(self, parameters: Parameters) -> Answer:
        machine_arn = require_arn(parameters, "stateMachineArn", "stateMachine")
        if machine_arn in self._machines:
            self._machines.mark_deleting(machine_arn)
            self._executions.forget_deleted()
        return {}

    def _describe_state_machine(self, parameters: Parameters) -> Answer:
        machine_arn = require_arn(parameters, "stateMachineArn", "stateMachine")
        started = self._machines.start_target(machine_arn)
        if started.alias_arn is not None:
            raise unknown_machine(machine_arn)
        answer = _describe(started.description) | {"status": "DELETING" if started.deleting else "ACTIVE"}
        answer["variableReferences"] = examine(started.description.definition).variables or None
        if started.version_arn is not None:
            version = started.description.published.version(int(split_qualifier(machine_arn)[1]))
            answer |= {"creationDate": version.created_ms, "description": version.description}
        return answer | {"stateMachineArn": machine_arn}

    def _list_state_machines(self, parameters: Parameters) -> Answer:
        mine = [
            entry.description for arn, entry in self._machines.items() if arn.startswith(f"{arn_prefix(parameters)}:")
        ]
        machines = sorted(mine, key=lambda one: one.arn)
        shown, rest = page(parameters, "stateMachines", machines, lambda one: one.arn)
        return {"stateMachines": [_describe(one) for one in shown]} | rest

    def _tag_resource(self, parameters: Parameters) -> Answer:
        resource_arn, tags = self._read_tags(parameters)
        self._put_tags(resource_arn, add_tags(tags, parameters["tags"]))
        return {}

    def _untag_resource(self, parameters: Parameters) -> Answer:
        resource_arn, tags = self._read_tags(parameters)
        self._put_tags(resource_arn, {key: value for key, value in tags.items() if key not in parameters["tagKeys"]})
        return {}

    def _list_tags_for_resource(self, parameters: Parameters) -> Answer:
        return {"tags": [{"key": key, "value": value} for key, value in self._read_tags(parameters)[1].items()]}

    def _read_tags(self, parameters: Parameters) -> tuple[str, dict[str, str]]:
        resource_arn = require_arn(parameters, "resourceArn", "stateMachine", "activity")
        if resource_arn in self._machines:
            return resource_arn, self._machines[resource_arn].description.tags
        if resource_arn in self._activities:
            return resource_arn, self._activities.get(resource_arn).tags
        raise Refusal("ResourceNotFound", f"Resource not found: '{resource_arn}'")

    def _put_tags(self, resource_arn: str, tags: dict[str, str]) -> None:
        if resource_arn in self._machines:
            self._machines.put(replace(self._machines[resource_arn].description, tags=tags))
        else:
            self._activities.put(replace(self._activities.get(resource_arn), tags=tags))


def _describe(one: MachineDescription) -> Answer:
    return {
        "stateMachineArn": one.arn,
        "name": one.name,
        "definition": one.definition,
        "roleArn": one.role_arn,
        "type": one.type,
        "creationDate": one.created_ms,
        "revisionId": one.revision_id,
        **configuration(one.settings),
    }


def configuration(settings: dict[str, Any]) -> Answer:
    """Returns the configurations of a machine as the API describes them, completed with the defaults."""
    return _DEFAULTS | settings


def _read_settings(parameters: Parameters) -> dict[str, Any]:
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


def _check_role(parameters: Parameters) -> str:
    role = str(parameters["roleArn"])
    if not role.startswith("arn:") or role.count(":") < 5 or (":iam:" in role and _IAM_ROLE.fullmatch(role) is None):
        raise Refusal("InvalidArn", f"Invalid Role Arn: '{role}'")
    return role


def _check_description(parameters: Parameters) -> None:
    if parameters.get("versionDescription") is not None and not parameters.get("publish"):
        raise Refusal("ValidationException", "Version description can only be set when publish is true")


def check_encryption(parameters: Parameters) -> dict[str, Any] | None:
    """Returns the encryption that a request asks for; raises Refusal for a customer's key without its id."""
    encryption: dict[str, Any] | None = parameters.get("encryptionConfiguration")
    if encryption and encryption.get("type") != "AWS_OWNED_KEY" and not encryption.get("kmsKeyId"):
        message = "Invalid Encryption Configuration: 'kmsKeyId is required for a key of the customer'"
        raise Refusal("InvalidEncryptionConfiguration", message)
    return encryption


def add_tags(tags: dict[str, str], more: list[dict[str, str]]) -> dict[str, str]:
    """Returns the tags with more of them; raises Refusal for a tag without a key, and for too many."""
    if not all(tag.get("key") for tag in more):
        raise Refusal("ValidationException", "1 validation error detected: a tag needs a key")
    together = tags | {tag["key"]: tag.get("value") or "" for tag in more}
    if len(together) > _MOST_TAGS:
        raise Refusal("TooManyTags", f"A resource has at most {_MOST_TAGS} tags.")
    return together
