"""What a distributed Map asks of S3, through whoever performs the calls of Tasks.

Decides how such a call looks; its events are no part of the history. Invariant: it is never cancelled, only no longer
listened to.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from states_language.failures import StateError, TaskFailure
from states_language.tasks.calls import TaskCall, Whole

if TYPE_CHECKING:
    from states_language.branch import Branch


async def ask(branch: "Branch", action: str, parameters: Any, error: str) -> Any:
    """Return S3's answer; raises StateError with this Error Name when the call fails."""
    execution = branch.execution
    call = TaskCall(
        resource=f"arn:aws:states:::aws-sdk:s3:{action}",
        service="s3",
        action=action,
        sdk=True,
        function=None,
        parameters=parameters,
        payload=None,
        execution_arn=execution.arn,
        state=branch.state.name if branch.state else "",
        entered_ms=branch.entered_ms,
        timeout_ms=None,
    )
    work = asyncio.ensure_future(execution.perform(call))
    execution.background.add(work)
    work.add_done_callback(execution.background.discard)
    try:
        answer = await asyncio.shield(work)
    except TaskFailure as problem:
        raise StateError(error, problem.cause or problem.error) from None
    return answer.value if isinstance(answer, Whole) else answer
