"""The machines' roles allow their Tasks' requests, even those that no run makes (tests/real/test_permissions.py)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from local.permissions import needs
from local.template import ACCOUNT
from tests.statemachines.connections import definition
from tests.statemachines.test_definitions import states

# The integrations whose permission is called otherwise.
INTEGRATIONS = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "sfn:DescribeExecution": "states:DescribeExecution",
    "sfn:StartSyncExecution": "states:StartSyncExecution",
}

# What a resource may end with: any execution of the machine, any object, any secret or log stream of the stage.
OWN = re.compile(r"[^*?]*[:/]streamkeeper[-/]dev(-[^*?]*|-[^*?]*[:/]\*|/\*)")


def allowed(template: dict[str, Any], role: str) -> Iterator[tuple[str, Any]]:
    """Return each (action, resource) that a role allows."""
    for policy in template["Resources"][role]["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            for action in [actions] if isinstance(actions, str) else actions:
                yield action, statement["Resource"]


@pytest.mark.parametrize(("machine", "role"), [("connections", "ConnectionsRole"), ("start", "StartRole")])
def test_a_machine_may_do_exactly_what_its_tasks_do(template: dict[str, Any], machine: str, role: str) -> None:
    """Each service integration of the definition has its action in the machine's role, and no action is superfluous."""
    wanted = set()
    for _, state in states(definition(machine)):
        if state["Type"] == "Task":
            service, action = state["Resource"].split(":")[-2:]
            name = f"{service}:{action[:1].upper()}{action[1:]}"
            wanted.add(INTEGRATIONS.get(name, name))
    assert {action for action, _ in allowed(template, role)} == wanted


def test_no_role_reaches_beyond_the_stage(template: dict[str, Any]) -> None:
    """Each names its actions, and the stage's resources by their whole names."""
    statements = [(role.name, one) for role in needs.read(template).all() for one in role.statements]
    wide = [(name, resource) for name, one in statements for resource in one.resources if not OWN.fullmatch(resource)]
    # A role of the template has the name that CloudFormation makes of its key and the stack's name.
    wide.remove(("ConnectionUpgradeRole", f"arn:aws:iam::{ACCOUNT}:role/ConnectionsRole"))
    wide += [(name, action) for name, one in statements for action in one.actions if "*" in action or "?" in action]
    assert wide == []
