"""What the handlers ask of AWS is what their role allows: no call is refused when it is deployed, and none is spare."""

import ast
from typing import Any

from local.settings import ROOT

TABLES = {"_events_table": "EventsTable", "_control_table": "ControlTable"}


def asked() -> set[tuple[str, str]]:
    """Each (action, table) in handlers/store.py; a call on a table that a caller names counts for every such caller."""
    tree = ast.parse((ROOT / "handlers" / "store.py").read_text())
    getters = {
        TABLES[call.args[0].attr]
        for call in calls(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "_get" and isinstance(call.args[0], ast.Attribute)
    }
    found: set[tuple[str, str]] = set()
    for call in calls(tree):
        if not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Attribute)):
            continue
        if call.func.value.attr != "_dynamodb":
            continue
        action = "dynamodb:" + "".join(word.capitalize() for word in call.func.attr.split("_"))
        table = next(keyword.value for keyword in call.keywords if keyword.arg == "TableName")
        named = {TABLES[table.attr]} if isinstance(table, ast.Attribute) else getters
        found |= {(action, name) for name in named}
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
