"""The Context Object: what $$ names.

Decides its members and how they are written; the values are the execution's. RedriveCount is always 0, for nothing is
redriven here.
"""

from typing import TYPE_CHECKING, Any

from states_language.timestamps import written

if TYPE_CHECKING:
    from states_language.branch import Branch
    from states_language.execution import Execution


def execution_context(execution: "Execution") -> dict[str, Any]:
    """Return the part that stays the same for a whole execution."""
    return {
        "Execution": {
            "Id": execution.arn,
            "Input": execution.input,
            "StartTime": written(execution.started_ms),
            "Name": execution.name,
            "RoleArn": execution.role_arn,
            "RedriveCount": 0,
        },
        "StateMachine": {"Id": execution.machine_arn, "Name": execution.machine_name},
    }


def state_context(branch: "Branch") -> dict[str, Any]:
    """Return the Context Object of the state that the branch is in; RetryCount only where a state can be retried.

    One that was given to the execution stands in its place.
    """
    if branch.execution.given_context is not None:
        return branch.execution.given_context
    context: dict[str, Any] = dict(branch.execution.constant_context)
    if branch.state is not None:
        context["State"] = {"Name": branch.state.name, "EnteredTime": written(branch.entered_ms)}
        if branch.retries is not None:
            context["State"]["RetryCount"] = branch.retries
    if branch.item is not None:
        context["Map"] = {"Item": branch.item}
    if branch.token is not None:
        context["Task"] = {"Token": branch.token}
    return context
