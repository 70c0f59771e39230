"""The roles allow exactly the requests of handlers and machine: none is refused when deployed, none is spare."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from local.stages import ROOT
from tests.statemachines.connections import definition
from tests.statemachines.test_definitions import states

# The table of each module, by the role of its function.
TABLES = {
    "ConnectionManagerRole": {
        "store/event_writer.py": "EventsTable",
        "store/batch_get.py": "EventsTable",
        "store/connection_store.py": "ControlTable",
        "store/control_table.py": "ControlTable",
    },
    "ConnectionControlRole": {
        "store/stream_records.py": "ControlTable",
        "store/control_table.py": "ControlTable",
        "store/event_reader.py": "EventsTable",
        "store/batch_get.py": "EventsTable",
    },
}
# What else a role's function does.
BESIDES = {"ConnectionManagerRole": {("sqs:SendMessage", "DeadLetterQueue")}, "ConnectionControlRole": set()}
# An INSERT has a permission of its own. Source: DynamoDB's developer guide, "IAM security policies with PartiQL".
PARTIQL = {"BatchExecuteStatement": "PartiQLInsert"}
# The integrations whose permission is called otherwise.
INTEGRATIONS = {"lambda:Invoke": "lambda:InvokeFunction", "sfn:DescribeExecution": "states:DescribeExecution"}


def requested(role: str) -> set[tuple[str, str]]:
    """Each (action, table or index) that the modules of a role request of their client."""
    requests: set[tuple[str, str]] = set()
    for module, table in TABLES[role].items():
        for call in calls(ast.parse((ROOT / "handlers" / module).read_text())):
            function = call.func
            if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Attribute)):
                continue
            if function.value.attr == "_dynamodb":
                action = "".join(word.capitalize() for word in function.attr.split("_"))
                by_index = any(keyword.arg == "IndexName" for keyword in call.keywords)
                requests.add((f"dynamodb:{PARTIQL.get(action, action)}", f"{table}/index" if by_index else table))
    return requests


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def allowed(template: dict[str, Any], role: str) -> Iterator[tuple[str, Any]]:
    """Each (action, resource) that a role allows."""
    for policy in template["Resources"][role]["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            for action in [actions] if isinstance(actions, str) else actions:
                yield action, statement["Resource"]


@pytest.mark.parametrize("role", TABLES)
def test_a_function_may_do_what_its_store_does_and_no_more(template: dict[str, Any], role: str) -> None:
    """Each request is allowed on its table or index by the function's role, and nothing else on the tables is."""
    indexes = {
        "${EventsTable.Arn}/index/by-position": "EventsTable/index",
        "${ControlTable.Arn}/index/leases": "ControlTable/index",
    }
    granted = {
        (action, resource["Fn::GetAtt"][0] if "Fn::GetAtt" in resource else indexes[resource["Fn::Sub"]])
        for action, resource in allowed(template, role)
        if "Fn::GetAtt" in resource or resource["Fn::Sub"] in indexes
    }
    assert granted == requested(role) | BESIDES[role]


@pytest.mark.parametrize(("machine", "role"), [("connections", "ConnectionsRole"), ("start", "StartRole")])
def test_a_machine_may_do_what_its_tasks_do_and_no_more(template: dict[str, Any], machine: str, role: str) -> None:
    """Each service integration of the definition has its action in the machine's role, and no action is spare."""
    wanted = set()
    for _, state in states(definition(machine)):
        if state["Type"] == "Task":
            service, action = state["Resource"].split(":")[-2:]
            name = f"{service}:{action[:1].upper()}{action[1:]}"
            wanted.add(INTEGRATIONS.get(name, name))
    assert {action for action, _ in allowed(template, role)} == wanted
