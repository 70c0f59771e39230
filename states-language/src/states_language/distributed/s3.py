"""Calls S3 for a distributed Map, through what performs the calls of Tasks.

Such a call adds no events to the history.
"""

from typing import Any

from states_language.branch import Branch
from states_language.failures import StateError, TaskFailure
from states_language.tasks.calls import TaskCall, Whole


async def ask(branch: Branch, action: str, parameters: Any, error: str) -> Any:
    """Return S3's answer; raises StateError with this Error Name when the call fails."""
    call = TaskCall(
        resource=f"arn:aws:states:::aws-sdk:s3:{action}",
        service="s3",
        action=action,
        sdk=True,
        function=None,
        parameters=parameters,
        payload=None,
        execution_arn=branch.execution.identity.arn,
        state=branch.state.name if branch.state else "",
        entered_ms=branch.entered_ms,
        timeout_ms=None,
    )
    answer = await branch.execution.ask(branch, call)
    if isinstance(answer, TaskFailure):
        raise StateError(error, answer.cause or answer.error)
    return answer.value if isinstance(answer, Whole) else answer
