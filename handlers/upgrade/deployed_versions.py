"""Keeps the definition of the machine that streams run, so that an upgrade which fails can deploy it again.

An execution keeps the definition with which it was started. An upgrade starts executions by a version, because
"Executions started immediately after" UpdateStateMachine "may use the previous state machine definition"; any other
start takes the deployed definition.

So a deployment (packaging/deploy-by-waves.cjs), and an upgrade that goes back, deploy the former version's definition
with a space at its end, and put aside the definition of the stack. The stack does not know this, and deploys a
definition only if it has changed. So once all streams run the definition that is aside, an upgrade deploys it again,
unless a deployment has replaced it.

Invariants: only a definition that was deployed before is deployed; each step may be repeated.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from handlers.upgrade.upgrade_records import Upgrade, UpgradeRecords
from handlers.values import dataclass

# The space that marks a definition deployed by an upgrade: JSON allows it, and no deployment writes it.
OURS = " "
ALIAS, LATEST = "stable", "$LATEST"
# The number of the machine's versions that are kept; Step Functions publishes at most 1,000.
MOST_VERSIONS = 100
# The error for an event that names no stream. It proves that the function was imported and its settings were read.
STARTS = "InvalidRequest"


class UpgradeRefused(Exception):
    """The upgrade does not begin, and nothing was changed. The message is the reason; the machine catches this name."""


@dataclass(frozen=True, slots=True)
class Clients:
    """boto3's clients, and the names of the stage's function and machine; `take` waits until a request may be sent."""

    functions: Any
    states: Any
    function: str
    machine_arn: str
    take: Callable[[], None]


class Deployed:
    """The versions of the function and of the machine."""

    def __init__(self, clients: Clients, records: UpgradeRecords) -> None:
        self._clients, self._states, self._machine_arn = clients, clients.states, clients.machine_arn
        self._records = records

    def alias_version(self) -> str:
        """Returns the version of the function that the alias names."""
        alias = self._clients.functions.get_alias(FunctionName=self._clients.function, Name=ALIAS)
        return str(alias["FunctionVersion"])

    def publish_function(self) -> str:
        """Returns the version of the deployed function; publishes a new one only if it differs from the newest."""
        return str(self._clients.functions.publish_version(FunctionName=self._clients.function)["Version"])

    def check_start(self, version: str) -> None:
        """Invokes this version without a stream; raises UpgradeRefused if it does not start."""
        name = f"{self._clients.function}:{version}"
        answer = self._clients.functions.invoke(FunctionName=name, Payload=b"{}")
        try:
            problem = json.loads(answer["Payload"].read())
            error, message = problem.get("errorType", ""), problem.get("errorMessage", "")
        except (ValueError, AttributeError):
            error, message = "", ""
        if error != STARTS:
            why = f"{error}: {message}" if error else "it took an event that names no stream"
            raise UpgradeRefused(f"Version {version} of the function does not start: {why.rstrip(': .')}.")

    def move_alias(self, version: str) -> None:
        names = {"FunctionName": self._clients.function, "Name": ALIAS}
        if self._clients.functions.get_alias(**names)["FunctionVersion"] != version:
            self._clients.functions.update_alias(**names, FunctionVersion=version)

    def delete_old_versions(self, definition: str) -> None:
        """Deletes all but the newest versions of the machine and this one; their running executions continue.

        A deletion that AWS refuses is left to the next upgrade.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        with suppress(BotoCoreError, ClientError):
            answer = self._states.list_state_machine_versions(stateMachineArn=self._machine_arn, maxResults=1000)
            arns = [one["stateMachineVersionArn"] for one in answer["stateMachineVersions"]]
            for arn in arns[MOST_VERSIONS:]:
                if arn != definition:
                    self._states.delete_state_machine_version(stateMachineVersionArn=arn)

    def target_version(self, upgrade: Upgrade) -> str:
        """Returns the ARN of the version that streams should run: that of the stack's definition."""
        if self._is_restored(upgrade):
            return upgrade.aside
        # Publishing the same text, deployed again, would make another version, because it is another revision.
        return upgrade.definition if self._is_former(upgrade, "") else self._publish_definition()

    def redeploy_put_aside(self, upgrade: Upgrade) -> None:
        """Deploys the definition again that the upgrade before this one put aside."""
        if self._is_restored(upgrade):
            self._deploy(self._definition_of(upgrade.aside))

    def restore_definition(self, upgrade: Upgrade) -> None:
        """Deploys the definition that streams ran before the upgrade, if it is known and not deployed."""
        former = self._definition_of(upgrade.definition) if upgrade.definition else ""
        if not former or self._definition_of(self._machine_arn).strip() == former.strip():
            return
        self._records.put_aside(upgrade.execution, self._publish_definition())
        self._deploy(former.strip() + OURS)

    def other_definition_test(self, upgrade: Upgrade) -> Callable[[str], bool] | None:
        """Returns a test whether an execution runs another definition than the restored one; None if none was.

        An execution that Step Functions has forgotten runs none.
        """
        if not upgrade.aside or not upgrade.definition:
            return None
        former = self._definition_of(upgrade.definition).strip()

        def is_other(execution: str) -> bool:
            try:
                answer = self._states.describe_state_machine_for_execution(executionArn=execution)
            except self._states.exceptions.ExecutionDoesNotExist:
                return False
            return bool(answer["definition"].strip() != former)

        return is_other

    def _is_restored(self, upgrade: Upgrade) -> bool:
        """Returns whether the deployed definition comes from an upgrade that went back."""
        return bool(upgrade.aside) and self._is_former(upgrade, OURS)

    def _is_former(self, upgrade: Upgrade, behind: str) -> bool:
        """Returns whether the deployed definition is that of the last successful upgrade, followed by `behind`."""
        if not upgrade.definition:
            return False
        try:
            return self._definition_of(self._machine_arn) == self._definition_of(upgrade.definition).strip() + behind
        except self._states.exceptions.StateMachineDoesNotExist:
            return False  # The version was deleted.

    def _publish_definition(self) -> str:
        """Returns the ARN of the version of the deployed definition, published only if it differs from the newest."""
        answer = self._states.publish_state_machine_version(stateMachineArn=self._machine_arn)
        arn: str = answer["stateMachineVersionArn"]
        return arn

    def _definition_of(self, arn: str) -> str:
        definition: str = self._states.describe_state_machine(stateMachineArn=arn)["definition"]
        return definition

    def _deploy(self, definition: str) -> None:
        self._states.update_state_machine(stateMachineArn=self._machine_arn, definition=definition)
