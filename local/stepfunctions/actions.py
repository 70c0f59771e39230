"""The Step Functions API, JSON 1.0, as boto3 and the AWS command line speak it.

Decides which actions there are and how an error is answered. It does not know what an action does. Invariant: an
unknown action or a bad request is an error that the SDK raises by AWS's name; nothing that a request says is a 500.
"""

import inspect
import json
from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from local.stepfunctions import request_validation
from local.stepfunctions.activities import Activities
from local.stepfunctions.activity_actions import ActivityActions
from local.stepfunctions.diagnostics import VerdictActions
from local.stepfunctions.execution_actions import ExecutionActions
from local.stepfunctions.executions import Executions
from local.stepfunctions.express import Express
from local.stepfunctions.machine_actions import MachineActions
from local.stepfunctions.map_run_actions import MapRunActions
from local.stepfunctions.parameters import Action, Refusal, parsed
from local.stepfunctions.state_test_action import TestStateActions
from local.stepfunctions.task_actions import TaskActions
from states_language import Tokens
from states_language.clock import Clock
from states_language.tasks.nested import Ended

_MEDIA_TYPE = "application/x-amz-json-1.0"


class StepFunctions:
    """Answers Step Functions requests; `tokens` are the Tasks that wait for one, `activities` the work for workers."""

    def __init__(self, executions: Executions, clock: Clock, activities: Activities) -> None:
        self._executions = executions
        self.activities = activities
        self.tokens = Tokens()
        self._express = Express(executions, clock)
        self._actions: dict[str, Action] = {
            **ExecutionActions(executions, self._express).actions(),
            **MachineActions(executions.machines, executions).actions(),
            **TaskActions(self.tokens).actions(),
            **VerdictActions().actions(),
            **ActivityActions(activities).actions(),
            **MapRunActions(executions).actions(),
            **TestStateActions(executions, clock).actions(),
        }

    async def answer(self, action: str, body: bytes) -> Response:
        """Returns the HTTP answer to one request; never raises for what the request says."""
        try:
            try:
                parameters = parsed(body or b"{}")
            except ValueError:
                raise Refusal("SerializationException", "The request is no JSON.") from None
            if not isinstance(parameters, dict):
                raise Refusal("SerializationException", "The request is no JSON object.")
            return _json(200, await self.call(action, parameters))
        except Refusal as refusal:
            return _json(400, {"__type": f"com.amazonaws.states#{refusal.code}", "message": str(refusal)})

    async def call(self, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Returns an action's answer, times as epoch seconds; raises Refusal."""
        if action not in self._actions:
            raise Refusal("UnknownOperationException", f"The local service does not offer {action}.")
        request_validation.check(action, parameters)
        given = {name: value for name, value in parameters.items() if value is not None}
        found = self._actions[action](given)
        return await found if inspect.isawaitable(found) else found

    def on_end(self, execution_arn: str, listener: Callable[[Ended], None]) -> None:
        """Calls the listener once, when the execution has ended."""
        self._executions.on_end(execution_arn, listener)

    def close(self) -> None:
        """Ends the Express executions that run, and answers the workers that ask."""
        self._express.close()
        self.activities.close()


def _json(status: int, value: dict[str, Any]) -> Response:
    return Response(json.dumps(value), status, media_type=_MEDIA_TYPE)
