"""Answers the actions on the tags of state machines and activities.

Source: the actions on tags in the AWS Step Functions API reference.
"""

from states_language.server.activities import Activities
from states_language.server.machines import Machines
from states_language.server.parameters import Action, Answer, Parameters, Refusal, arn

_MOST_TAGS = 50


class TagActions:
    """The actions on tags."""

    def __init__(self, machines: Machines, activities: Activities) -> None:
        self._machines = machines
        self._activities = activities

    def actions(self) -> dict[str, Action]:
        """Returns the actions by name."""
        return {"TagResource": self._tag, "UntagResource": self._untag, "ListTagsForResource": self._list}

    def _tag(self, parameters: Parameters) -> Answer:
        resource_arn, tags = self._tagged(parameters)
        self._put(resource_arn, added(tags, parameters["tags"]))
        return {}

    def _untag(self, parameters: Parameters) -> Answer:
        resource_arn, tags = self._tagged(parameters)
        self._put(resource_arn, {key: value for key, value in tags.items() if key not in parameters["tagKeys"]})
        return {}

    def _list(self, parameters: Parameters) -> Answer:
        return {"tags": [{"key": key, "value": value} for key, value in self._tagged(parameters)[1].items()]}

    def _tagged(self, parameters: Parameters) -> tuple[str, dict[str, str]]:
        resource_arn = arn(parameters, "resourceArn", "stateMachine", "activity")
        if resource_arn in self._machines:
            return resource_arn, self._machines[resource_arn].described.tags
        if resource_arn in self._activities:
            return resource_arn, self._activities.get(resource_arn).tags
        raise Refusal("ResourceNotFound", f"Resource not found: '{resource_arn}'")

    def _put(self, resource_arn: str, tags: dict[str, str]) -> None:
        if resource_arn in self._machines:
            self._machines.tag(resource_arn, tags)
        else:
            self._activities.tag(resource_arn, tags)


def added(tags: dict[str, str], more: list[dict[str, str]]) -> dict[str, str]:
    """Returns the tags with more of them; raises Refusal for a tag without a key, and for too many."""
    if not all(tag.get("key") for tag in more):
        raise Refusal("ValidationException", "1 validation error detected: a tag needs a key")
    together = tags | {tag["key"]: tag.get("value") or "" for tag in more}
    if len(together) > _MOST_TAGS:
        raise Refusal("TooManyTags", f"A resource has at most {_MOST_TAGS} tags.")
    return together
