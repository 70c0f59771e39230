"""What the handlers ask of AWS is what their role allows: no call is refused when it is deployed, and none is spare."""

import ast
from typing import Any

from local.settings import ROOT

# Which table is whose: each module asks one.
TABLES = {"event_writer.py": "EventsTable", "store.py": "ControlTable"}
# An INSERT has a permission of its own. Source: DynamoDB's developer guide, "IAM security policies with PartiQL".
PARTIQL = {"BatchExecuteStatement": "PartiQLInsert"}


def asked() -> set[tuple[str, str]]:
    """Each (action, table) that the modules of TABLES ask of their client."""
    found: set[tuple[str, str]] = set()
    for module, table in TABLES.items():
        for call in calls(ast.parse((ROOT / "handlers" / module).read_text())):
            function = call.func
            if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Attribute)):
                continue
            if function.value.attr == "_dynamodb":
                action = "".join(word.capitalize() for word in function.attr.split("_"))
                found.add((f"dynamodb:{PARTIQL.get(action, action)}", table))
    return found


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_the_function_may_do_what_its_store_does_and_no_more(template: dict[str, Any]) -> None:
    """Every request of the store is allowed on its table by the function's role, and nothing else on the tables is."""
    policies = template["Resources"]["ConnectionManagerRole"]["Properties"]["Policies"]
    allowed = {
        (action, statement["Resource"]["Fn::GetAtt"][0])
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        if isinstance(statement["Resource"], dict) and "Fn::GetAtt" in statement["Resource"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert allowed - {("sqs:SendMessage", "DeadLetterQueue")} == asked()
    assert ("sqs:SendMessage", "DeadLetterQueue") in allowed
