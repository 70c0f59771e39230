"""Answers the actions on activities (create, describe, list, delete, take work) and on the tokens of Tasks.

Invariant: an unknown token, or one whose Task is over, gets AWS's own error. Source: Step Functions' API reference.
"""

import contextlib
import time
from collections.abc import Iterator

from states_language import TokenClosed, Tokens, TokenUnknown
from states_language.server import requests
from states_language.server.activities import OWNED_KEY, Activities, Activity
from states_language.server.json_messages import message_and_place
from states_language.server.machine_actions import add_tags, check_encryption
from states_language.values import compact

_POLL_S = 60.0
"""How long GetActivityTask waits for work."""


class ActivityActions(requests.Actions):
    """The actions on activities and on task tokens."""

    def __init__(self, activities: Activities, tokens: Tokens) -> None:
        self._activities = activities
        self._tokens = tokens

    def _create_activity(self, parameters: requests.Parameters) -> requests.Answer:
        name = requests.check_name(parameters["name"])
        activity_arn = f"{requests.arn_prefix(parameters)}:activity:{name}"
        encryption = check_encryption(parameters) or OWNED_KEY
        if activity_arn not in self._activities:
            tags = add_tags({}, parameters.get("tags") or [])
            self._activities.put(Activity(activity_arn, name, round(time.time() * 1000), tags, encryption))
        elif OWNED_KEY not in (encryption, self._activities.get(activity_arn).encryption) or (
            encryption != self._activities.get(activity_arn).encryption
        ):
            # Creating it again is no error if neither has a key of its own (API reference, ActivityAlreadyExists).
            raise requests.Refusal("ActivityAlreadyExists", f"Activity already exists: '{activity_arn}'")
        return _describe(self._activities.get(activity_arn))

    def _delete_activity(self, parameters: requests.Parameters) -> requests.Answer:
        self._activities.remove(requests.require_arn(parameters, "activityArn", "activity"))
        return {}

    def _describe_activity(self, parameters: requests.Parameters) -> requests.Answer:
        return _describe(self._get(parameters))

    def _list_activities(self, parameters: requests.Parameters) -> requests.Answer:
        mine = [one for one in self._activities.all() if one.arn.startswith(f"{requests.arn_prefix(parameters)}:")]
        shown, rest = requests.page(parameters, "activities", mine, lambda one: one.arn)
        return {"activities": [_describe(one) for one in shown]} | rest

    async def _get_activity_task(self, parameters: requests.Parameters) -> requests.Answer:
        activity = self._get(parameters)
        call = await self._activities.take(activity.arn, _POLL_S)
        if call is None or call.pending is None or call.pending.token is None:
            return {}
        call.pending.start(parameters.get("workerName"))
        return {"taskToken": call.pending.token, "input": compact(call.parameters)}

    def _get(self, parameters: requests.Parameters) -> Activity:
        activity_arn = requests.require_arn(parameters, "activityArn", "activity")
        try:
            return self._activities.get(activity_arn)
        except KeyError:
            raise requests.Refusal("ActivityDoesNotExist", f"Activity does not exist: '{activity_arn}'") from None

    def _send_task_success(self, parameters: requests.Parameters) -> requests.Answer:
        text = parameters["output"]
        with _translate_errors():
            self._tokens.check(parameters["taskToken"])
        try:
            output = requests.read_data(text)
        except ValueError as problem:
            raise requests.Refusal(
                "InvalidOutput", f"Invalid Output: '{message_and_place(text, problem)[0]}'"
            ) from None
        with _translate_errors():
            self._tokens.succeed(parameters["taskToken"], output)
        return {}

    def _send_task_failure(self, parameters: requests.Parameters) -> requests.Answer:
        with _translate_errors():
            self._tokens.fail(parameters["taskToken"], parameters.get("error"), parameters.get("cause"))
        return {}

    def _send_task_heartbeat(self, parameters: requests.Parameters) -> requests.Answer:
        with _translate_errors():
            self._tokens.heartbeat(parameters["taskToken"])
        return {}


def _describe(activity: Activity) -> requests.Answer:
    answer: requests.Answer = {"activityArn": activity.arn, "name": activity.name, "creationDate": activity.created_ms}
    return answer | {"encryptionConfiguration": activity.encryption}


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Raises AWS's errors for a token that is unknown, or whose Task is over."""
    try:
        yield
    except TokenClosed:
        raise requests.Refusal("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'") from None
    except TokenUnknown:
        raise requests.Refusal("InvalidToken", "Invalid Token: 'Invalid token'") from None
