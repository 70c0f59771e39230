"""Answers the actions on activities: create, describe, list, delete, and take work.

Source: the actions on activities in the AWS Step Functions API reference.
"""

import json
import time

from local.stepfunctions.activities import Activities, Activity
from local.stepfunctions.pages import page
from local.stepfunctions.parameters import PREFIX, Action, Answer, Parameters, Refusal, arn, checked_name

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
        activity_arn = f"{PREFIX}:activity:{name}"
        # Creating one again is no error, and changes nothing.
        if activity_arn not in self._activities:
            tags = {tag.get("key", ""): tag.get("value", "") for tag in parameters.get("tags") or []}
            self._activities.put(Activity(activity_arn, name, round(time.time() * 1000), tags))
        activity = self._activities.get(activity_arn)
        return {"activityArn": activity_arn, "creationDate": activity.created_ms / 1000}

    def _delete(self, parameters: Parameters) -> Answer:
        self._activities.remove(arn(parameters, "activityArn", "activity"))
        return {}

    def _describe(self, parameters: Parameters) -> Answer:
        return _described(self._get(parameters))

    def _list(self, parameters: Parameters) -> Answer:
        shown, rest = page(parameters, "activities", self._activities.all(), lambda one: one.arn)
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
