"""Keeps activities and their work: a Task puts work in, a worker takes it out.

Invariants: work is given out once, the oldest first; work is never given out once its Task no longer waits; a created
activity is stored on disk and exists after a restart.
"""

import asyncio
import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from states_language import Pending, TaskCall, TaskFailure

OWNED_KEY: dict[str, Any] = {"type": "AWS_OWNED_KEY"}


@dataclass(frozen=True)
class Activity:
    """An activity. It is not encrypted, but describes the encryption that its creation asked for."""

    arn: str
    name: str
    created_ms: int
    tags: dict[str, str] = field(default_factory=dict)
    encryption: dict[str, Any] = field(default_factory=lambda: dict(OWNED_KEY))


class Activities:
    """All activities by ARN, stored in the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Activity] = {}
        self._work: dict[str, dict[Pending, TaskCall]] = {}
        self._change_futures: dict[str, asyncio.Future[None]] = {}  # for a change, by the ARN of the activity
        if path.exists():
            for one in json.loads(path.read_text(encoding="utf-8")):
                self._known[one["arn"]] = Activity(**one)

    def __contains__(self, arn: object) -> bool:
        return arn in self._known

    def get(self, arn: str) -> Activity:
        """Returns the activity; KeyError for an unknown ARN."""
        return self._known[arn]

    def all(self) -> list[Activity]:
        return [self._known[arn] for arn in sorted(self._known)]

    def put(self, activity: Activity) -> None:
        """Stores the activity on disk."""
        self._known[activity.arn] = activity
        self._save()

    def remove(self, arn: str) -> None:
        """Removes the activity and the work that waits for a worker; its Tasks time out."""
        if self._known.pop(arn, None) is not None:
            self._work.pop(arn, None)
            self._save()
            self._wake(arn)

    def offer(self, call: TaskCall) -> None:
        """Queues the work for a worker; raises TaskFailure for an activity that does not exist."""
        if call.resource not in self._known:
            raise TaskFailure("ActivityDoesNotExist", f"The activity {call.resource} does not exist.")
        if (pending := call.pending) is not None:
            calls = self._work.setdefault(call.resource, {})
            calls[pending] = call
            pending.outcome.add_done_callback(lambda _: calls.pop(pending, None))
            self._wake(call.resource)

    async def take(self, arn: str, wait_s: float) -> TaskCall | None:
        """Returns the oldest work whose Task still waits; None if there is none within `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while arn in self._known:
                    calls = self._work.get(arn, {})
                    for pending in calls:
                        if pending.open:
                            return calls.pop(pending)
                    changed = self._change_futures.setdefault(arn, asyncio.get_running_loop().create_future())
                    await asyncio.shield(changed)  # the others wait for it, too
        return None

    def close(self) -> None:
        """Answers every waiting worker with nothing."""
        self._known = {}
        for arn in list(self._change_futures):
            self._wake(arn)

    def _wake(self, arn: str) -> None:
        """Wakes the workers that wait; the first one takes the work."""
        if arn in self._change_futures:
            self._change_futures.pop(arn).set_result(None)

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps([asdict(one) for one in self.all()]), encoding="utf-8")
        os.replace(new, self._path)
