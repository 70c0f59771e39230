"""Answers the actions on activities: create, describe, list, delete, and take work.

Source: the actions on activities in the AWS Step Functions API reference.
"""

import json
import time

from states_language.server.activities import OWNED_KEY, Activities, Activity
from states_language.server.pages import page
from states_language.server.parameters import Action, Answer, Parameters, Refusal, arn, checked_name, prefix
from states_language.server.tag_actions import added

_POLL_S = 60.0
"""How long GetActivityTask waits where there is no work."""


class ActivityActions:
    """The actions on activities."""

    def __init__(self, activities: Activities) -> None:
        self._activities = activities

    def actions(self) -> dict[str, Action]:
        """Returns the actions by name."""
        return {
            "CreateActivity": self._create,
            "DeleteActivity": self._delete,
            "DescribeActivity": self._describe,
            "ListActivities": self._list,
            "GetActivityTask": self._take,
        }

    def _create(self, parameters: Parameters) -> Answer:
        name = checked_name(parameters["name"])
        activity_arn = f"{prefix(parameters)}:activity:{name}"
        encryption = parameters.get("encryptionConfiguration") or OWNED_KEY
        if encryption["type"] != OWNED_KEY["type"] and not encryption.get("kmsKeyId"):
            message = "Invalid Encryption Configuration: 'kmsKeyId is required for a key of the customer'"
            raise Refusal("InvalidEncryptionConfiguration", message)
        if activity_arn not in self._activities:
            tags = added({}, parameters.get("tags") or [])
            self._activities.put(Activity(activity_arn, name, round(time.time() * 1000), tags, encryption))
        elif OWNED_KEY not in (encryption, self._activities.get(activity_arn).encryption) or (
            encryption != self._activities.get(activity_arn).encryption
        ):
            # Creating one again is no error where neither has a key of its own (API reference, ActivityAlreadyExists).
            raise Refusal("ActivityAlreadyExists", f"Activity already exists: '{activity_arn}'")
        activity = self._activities.get(activity_arn)
        return {"activityArn": activity_arn, "creationDate": activity.created_ms / 1000}

    def _delete(self, parameters: Parameters) -> Answer:
        self._activities.remove(arn(parameters, "activityArn", "activity"))
        return {}

    def _describe(self, parameters: Parameters) -> Answer:
        activity = self._get(parameters)
        return _described(activity) | {"encryptionConfiguration": activity.encryption}

    def _list(self, parameters: Parameters) -> Answer:
        mine = [one for one in self._activities.all() if one.arn.startswith(f"{prefix(parameters)}:")]
        shown, rest = page(parameters, "activities", mine, lambda one: one.arn)
        return {"activities": [_described(one) for one in shown]} | rest

    async def _take(self, parameters: Parameters) -> Answer:
        activity = self._get(parameters)
        call = await self._activities.take(activity.arn, _POLL_S)
        if call is None or call.pending is None or call.pending.token is None:
            return {}
        call.pending.start(parameters.get("workerName"))
        return {"taskToken": call.pending.token, "input": json.dumps(call.parameters, ensure_ascii=False)}

    def _get(self, parameters: Parameters) -> Activity:
        activity_arn = arn(parameters, "activityArn", "activity")
        try:
            return self._activities.get(activity_arn)
        except KeyError:
            raise Refusal("ActivityDoesNotExist", f"Activity does not exist: '{activity_arn}'") from None


def _described(activity: Activity) -> Answer:
    return {"activityArn": activity.arn, "name": activity.name, "creationDate": activity.created_ms / 1000}
