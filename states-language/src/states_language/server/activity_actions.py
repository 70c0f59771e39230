"""Answers the actions on activities (create, describe, list, delete, take work) and on the tokens of Tasks.

Invariant: an unknown token, or one whose Task is over, gets AWS's own error. Source: the AWS Step Functions API
reference.
"""

import contextlib
import time
from collections.abc import Iterator

from states_language import TokenClosed, Tokens, TokenUnknown
from states_language.server.activities import OWNED_KEY, Activities, Activity
from states_language.server.json_messages import message_and_place
from states_language.server.machine_actions import add_tags, check_encryption
from states_language.server.requests import (
    Actions,
    Answer,
    Parameters,
    Refusal,
    arn_prefix,
    check_name,
    page,
    read_data,
    require_arn,
)
from states_language.values import compact

_POLL_S = 60.0
"""How long GetActivityTask waits for work."""


class ActivityActions(Actions):
    """The actions on activities and on task tokens."""

    def __init__(self, activities: Activities, tokens: Tokens) -> None:
        self._activities = activities
        self._tokens = tokens

    def _create_activity(self, parameters: Parameters) -> Answer:
        name = check_name(parameters["name"])
        activity_arn = f"{arn_prefix(parameters)}:activity:{name}"
        encryption = check_encryption(parameters) or OWNED_KEY
        if activity_arn not in self._activities:
            tags = add_tags({}, parameters.get("tags") or [])
            self._activities.put(Activity(activity_arn, name, round(time.time() * 1000), tags, encryption))
        elif OWNED_KEY not in (encryption, self._activities.get(activity_arn).encryption) or (
            encryption != self._activities.get(activity_arn).encryption
        ):
            # Creating it again is no error if neither has a key of its own (API reference, ActivityAlreadyExists).
            raise Refusal("ActivityAlreadyExists", f"Activity already exists: '{activity_arn}'")
        return _describe(self._activities.get(activity_arn))

    def _delete_activity(self, parameters: Parameters) -> Answer:
        self._activities.remove(require_arn(parameters, "activityArn", "activity"))
        return {}

    def _describe_activity(self, parameters: Parameters) -> Answer:
        return _describe(self._get(parameters))

    def _list_activities(self, parameters: Parameters) -> Answer:
        mine = [one for one in self._activities.all() if one.arn.startswith(f"{arn_prefix(parameters)}:")]
        shown, rest = page(parameters, "activities", mine, lambda one: one.arn)
        return {"activities": [_describe(one) for one in shown]} | rest

    async def _get_activity_task(self, parameters: Parameters) -> Answer:
        activity = self._get(parameters)
        call = await self._activities.take(activity.arn, _POLL_S)
        if call is None or call.pending is None or call.pending.token is None:
            return {}
        call.pending.start(parameters.get("workerName"))
        return {"taskToken": call.pending.token, "input": compact(call.parameters)}

    def _get(self, parameters: Parameters) -> Activity:
        activity_arn = require_arn(parameters, "activityArn", "activity")
        try:
            return self._activities.get(activity_arn)
        except KeyError:
            raise Refusal("ActivityDoesNotExist", f"Activity does not exist: '{activity_arn}'") from None

    def _send_task_success(self, parameters: Parameters) -> Answer:
        text = parameters["output"]
        with _translate_errors():
            self._tokens.check(parameters["taskToken"])
        try:
            output = read_data(text)
        except ValueError as problem:
            raise Refusal("InvalidOutput", f"Invalid Output: '{message_and_place(text, problem)[0]}'") from None
        with _translate_errors():
            self._tokens.succeed(parameters["taskToken"], output)
        return {}

    def _send_task_failure(self, parameters: Parameters) -> Answer:
        with _translate_errors():
            self._tokens.fail(parameters["taskToken"], parameters.get("error"), parameters.get("cause"))
        return {}

    def _send_task_heartbeat(self, parameters: Parameters) -> Answer:
        with _translate_errors():
            self._tokens.heartbeat(parameters["taskToken"])
        return {}


def _describe(activity: Activity) -> Answer:
    answer: Answer = {"activityArn": activity.arn, "name": activity.name, "creationDate": activity.created_ms}
    return answer | {"encryptionConfiguration": activity.encryption}


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Raises AWS's errors for a token that is unknown, or whose Task is over."""
    try:
        yield
    except TokenClosed:
        raise Refusal("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'") from None
    except TokenUnknown:
        raise Refusal("InvalidToken", "Invalid Token: 'Invalid token'") from None
