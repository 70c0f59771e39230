"""Adds the events of a Task's work: services, functions by their ARN and activities have events of their own."""

from collections.abc import Mapping
from typing import Any

from states_language.branch import Branch
from states_language.history import failure, payload
from states_language.tasks.resources import Resource


class ServiceEvents:
    """TaskScheduled, TaskStarted and so on."""

    def __init__(self, resource: Resource) -> None:
        self.named = {"resourceType": resource.type, "resource": resource.name}

    def scheduled(self, branch: Branch, text: str, more: Mapping[str, Any]) -> None:
        region = branch.execution.identity.region
        branch.add("TaskScheduled", {**self.named, "region": region, "parameters": text, **more})

    def started(self, branch: Branch, _worker: str | None = None) -> None:
        branch.add("TaskStarted", self.named)

    def submitted(self, branch: Branch, text: str) -> None:
        branch.add("TaskSubmitted", {**self.named, **payload("output", text)})

    def submit_failed(self, branch: Branch, error: str | None, cause: str | None) -> None:
        branch.add("TaskSubmitFailed", {**self.named, **failure(error, cause)})

    def succeeded(self, branch: Branch, text: str) -> None:
        branch.add("TaskSucceeded", {**self.named, **payload("output", text)})

    def failed(self, branch: Branch, error: str | None, cause: str | None) -> None:
        branch.add("TaskFailed", {**self.named, **failure(error, cause)})

    def timed_out(self, branch: Branch) -> None:
        branch.add("TaskTimedOut", {**self.named, "error": "States.Timeout"})


class FunctionEvents(ServiceEvents):
    """LambdaFunctionScheduled and so on, for a function's own ARN."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.arn = resource.text

    def scheduled(self, branch: Branch, text: str, more: Mapping[str, Any]) -> None:
        branch.add("LambdaFunctionScheduled", {"resource": self.arn, **payload("input", text), **more})

    def started(self, branch: Branch, _worker: str | None = None) -> None:
        branch.add("LambdaFunctionStarted")

    def succeeded(self, branch: Branch, text: str) -> None:
        branch.add("LambdaFunctionSucceeded", payload("output", text))

    def failed(self, branch: Branch, error: str | None, cause: str | None) -> None:
        branch.add("LambdaFunctionFailed", failure(error, cause))

    def timed_out(self, branch: Branch) -> None:
        branch.add("LambdaFunctionTimedOut", {"error": "States.Timeout"})


class ActivityEvents(ServiceEvents):
    """ActivityScheduled and so on; one is started when a worker takes it on."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self.arn = resource.text

    def scheduled(self, branch: Branch, text: str, more: Mapping[str, Any]) -> None:
        branch.add("ActivityScheduled", {"resource": self.arn, **payload("input", text), **more})

    def started(self, branch: Branch, _worker: str | None = None) -> None:
        branch.add("ActivityStarted", {} if _worker is None else {"workerName": _worker})

    def succeeded(self, branch: Branch, text: str) -> None:
        branch.add("ActivitySucceeded", payload("output", text))

    def failed(self, branch: Branch, error: str | None, cause: str | None) -> None:
        branch.add("ActivityFailed", failure(error, cause))

    def timed_out(self, branch: Branch) -> None:
        branch.add("ActivityTimedOut", {"error": "States.Timeout"})


def events_of(resource: Resource) -> ServiceEvents:
    """Return what adds the events of this resource."""
    if resource.function:
        return FunctionEvents(resource)
    return ActivityEvents(resource) if resource.activity else ServiceEvents(resource)
