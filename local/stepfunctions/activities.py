"""Activities: work that waits until a worker asks for some.

Decides which activities there are and which worker gets what. It does not know how a worker answers: that is the
token's. Invariants: work is given out once, the oldest first; what nobody waits for any more is never given out; what
was created is on disk and there after a restart.
"""

import asyncio
import collections
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from states_language import TaskCall, TaskFailure


@dataclass(frozen=True)
class Activity:
    """An activity; its tags are kept as they were given when it was created."""

    arn: str
    name: str
    created_ms: int
    tags: dict[str, str] = field(default_factory=dict)


class Activities:
    """All activities by ARN; `path` is the file that keeps them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Activity] = {}
        self._work: dict[str, collections.deque[TaskCall]] = {}
        self._asking: dict[str, collections.deque[asyncio.Future[None]]] = {}
        if path.exists():
            for one in json.loads(path.read_text(encoding="utf-8")):
                self._known[one["arn"]] = Activity(**one)

    def __contains__(self, arn: object) -> bool:
        return arn in self._known

    def get(self, arn: str) -> Activity:
        """Returns the activity; KeyError where there is none of this ARN."""
        return self._known[arn]

    def all(self) -> list[Activity]:
        """Returns every activity, by ARN."""
        return [self._known[arn] for arn in sorted(self._known)]

    def put(self, activity: Activity) -> None:
        """Returns nothing; the activity is on disk."""
        self._known[activity.arn] = activity
        self._save()

    def remove(self, arn: str) -> None:
        """Returns nothing; the activity is forgotten, with the work that waits for a worker. Its Tasks time out."""
        if self._known.pop(arn, None) is not None:
            self._work.pop(arn, None)
            self._save()
            self._wake(arn, everybody=True)

    def hand(self, call: TaskCall) -> None:
        """Returns nothing; the work waits for a worker. Raises TaskFailure for an activity that does not exist."""
        if call.resource not in self._known:
            raise TaskFailure("ActivityDoesNotExist", f"The activity {call.resource} does not exist.")
        self._work.setdefault(call.resource, collections.deque()).append(call)
        self._wake(call.resource)

    async def take(self, arn: str, wait_s: float) -> TaskCall | None:
        """Returns the oldest work that is still waited for; None where there is none within `wait_s`."""
        asking = self._asking.setdefault(arn, collections.deque())
        try:
            async with asyncio.timeout(wait_s):
                while arn in self._known:
                    waiting = self._work.get(arn, collections.deque())
                    while waiting:
                        call = waiting.popleft()
                        if call.pending is not None and call.pending.open:
                            return call
                    turn = asyncio.get_running_loop().create_future()
                    asking.append(turn)
                    await turn
        except TimeoutError:
            pass
        return None

    def close(self) -> None:
        """Returns nothing; every worker that asks is answered with nothing."""
        self._known = {}
        for arn in self._asking:
            self._wake(arn, everybody=True)

    def _wake(self, arn: str, *, everybody: bool = False) -> None:
        asking = self._asking.get(arn, collections.deque())
        while asking:
            turn = asking.popleft()
            if not turn.done():
                turn.set_result(None)
                if not everybody:
                    return

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps([asdict(one) for one in self.all()]), encoding="utf-8")
        os.replace(new, self._path)
