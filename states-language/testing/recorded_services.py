"""The services that a recorded execution called, with their recorded answers.

A service's answers and the use of a task token are not rules of the language, so they come from the recording.
Functions do not: a case says how they behave. Events of the same resource are used up in order.
"""

import asyncio
from typing import Any

from states_language import Pending, TaskCall, TaskFailure
from states_language.tasks.resources import ACTIVITY
from states_language.values import compact

_ENDS = ("TaskSucceeded", "TaskFailed", "TaskTimedOut")
_WORKED = ("ActivitySucceeded", "ActivityFailed", "ActivityTimedOut")
_WORK = (*_WORKED, "ActivityScheduled", "ActivityStarted")


class RecordedServices:
    """Answers the calls of one recorded execution."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._activities = [event for event in events if event["type"] in _WORK]
        self._events = [event for event in events if event["type"] in (*_ENDS, "TaskSubmitted", "TaskSubmitFailed")]

    async def perform(self, call: TaskCall) -> Any:
        """Return the recorded answer; a call without one never returns."""
        if call.service == ACTIVITY:
            return self._assign_activity(call)
        if call.pending is None:
            return _read_answer(await self._await_event(call, _ENDS))
        submitted = await self._await_event(call, ("TaskSubmitted", "TaskSubmitFailed", "TaskFailed"))
        answer = _read_answer(submitted)
        await self.complete_task(call, call.pending)
        return answer

    def _assign_activity(self, call: TaskCall) -> None:
        """Let a worker take the work and answer as recorded; an activity without scheduled work does not exist."""
        scheduled = next((event for event in self._activities if event.get("resource") == call.resource), None)
        if scheduled is None or call.pending is None:
            raise TaskFailure("ActivityDoesNotExist", f"The activity {call.resource} does not exist.")
        following = self._activities[self._activities.index(scheduled) + 1 :]
        self._activities.remove(scheduled)
        asyncio.get_running_loop().call_later(0.001, _do_activity, call.pending, following)

    async def complete_task(self, call: TaskCall, pending: Pending) -> None:
        """Give the waiting Task its recorded answer."""
        event = self._take_event(call, _ENDS)
        if event is not None and event["type"] == "TaskSucceeded":
            pending.succeed(event["output"])
        elif event is not None and event["type"] == "TaskFailed":
            pending.fail(event.get("error"), _text(event.get("cause")))

    async def _await_event(self, call: TaskCall, kinds: tuple[str, ...]) -> dict[str, Any]:
        event = self._take_event(call, kinds)
        if event is None or event["type"] == "TaskTimedOut":
            await asyncio.get_running_loop().create_future()
        assert event is not None
        return event

    def _take_event(self, call: TaskCall, kinds: tuple[str, ...]) -> dict[str, Any] | None:
        service = f"aws-sdk:{call.service}" if call.sdk else call.service
        resource = f"{call.action}.{call.pattern}" if call.pattern else call.action
        for index, event in enumerate(self._events):
            if event["type"] in kinds and (event["resourceType"], event["resource"]) == (service, resource):
                return self._events.pop(index)
        return None


def _do_activity(pending: Pending, following: list[dict[str, Any]]) -> None:
    for event in following:
        if event["type"] == "ActivityStarted":
            pending.start(event.get("workerName"))
        elif event["type"] == "ActivitySucceeded":
            pending.succeed(event["output"])
        elif event["type"] == "ActivityFailed":
            pending.fail(event.get("error"), _text(event.get("cause")))
        if event["type"] in (*_WORKED, "ActivityScheduled"):
            return


def _read_answer(event: dict[str, Any]) -> Any:
    if event["type"] in ("TaskSucceeded", "TaskSubmitted"):
        return event["output"]
    raise TaskFailure(event.get("error"), _text(event.get("cause")))


def _text(cause: Any) -> str | None:
    """Return a cause as text, because the recorder parsed causes that are JSON."""
    return cause if cause is None or isinstance(cause, str) else compact(cause)
