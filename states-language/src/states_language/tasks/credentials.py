"""Credentials of a Task: the role of another account under which its work is asked for.

Decides what the field may hold and what the history says of it. Nobody takes the role here, for nobody checks rights.
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
        given = fields.inside(value, where)
        role = {"RoleArn"} if fields.queries else {"RoleArn", "RoleArn.$"}
        if not role & value.keys():
            raise fields.fail("Credentials", "The field 'RoleArn' is required but was missing")  # recorded
        for name in role:
            given.string(name)
        given.close("Credentials")
        if fields.queries:
            self._query = Template(value, where, "Credentials")
        else:
            self._fill = compile_template(value, where)

    def details(self, raw: Any, narrowed: Any, branch: Branch) -> dict[str, Any]:
        """Return what the event TaskScheduled says of the role; nothing where there is none."""
        if self._query is not None:
            found = self._query.fill(states_of(raw), branch)
        elif self._fill is not None:
            found = self._fill(narrowed, branch)
        else:
            return {}
        if not isinstance(found["RoleArn"], str):
            raise EvaluationError(
                f"The value of the field 'RoleArn' has an invalid format: {compact(found['RoleArn'])}"
            )
        return {"taskCredentials": {"roleArn": found["RoleArn"]}}
