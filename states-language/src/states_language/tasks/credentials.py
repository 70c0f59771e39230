"""Credentials of a Task: the role, of another account maybe, that makes its call.

The role is recorded in the history and not used: permissions are not checked.
"""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.failures import EvaluationError
from states_language.jsonata.dataflow import Template, states_of
from states_language.jsonpath.templates import Fill, compile_template
from states_language.values import compact


class Credentials:
    """The field Credentials, which may be absent."""

    def __init__(self, fields: Fields) -> None:
        self._fill: Fill | None = None
        self._query: Template | None = None
        if "Credentials" not in fields:
            return
        value, where = fields.get("Credentials"), fields.at("Credentials")
        inner = fields.inside(value, where)
        role = {"RoleArn"} if fields.queries else {"RoleArn", "RoleArn.$"}
        if not role & value.keys():
            raise fields.fail("Credentials", "The field 'RoleArn' is required but was missing")  # recorded
        for name in role:
            inner.string(name)
        inner.close("Credentials")
        if fields.queries:
            self._query = Template(value, where, "Credentials")
        else:
            self._fill = compile_template(value, where)

    def details(self, raw: Any, narrowed: Any, branch: Branch) -> dict[str, Any]:
        """Return the role as a detail of TaskScheduled; {} where there is none."""
        if self._query is not None:
            credentials = self._query.fill(states_of(raw), branch)
        elif self._fill is not None:
            credentials = self._fill(narrowed, branch)
        else:
            return {}
        if not isinstance(credentials["RoleArn"], str):
            raise EvaluationError(
                f"The value of the field 'RoleArn' has an invalid format: {compact(credentials['RoleArn'])}"
            )
        return {"taskCredentials": {"roleArn": credentials["RoleArn"]}}
