"""The plainest performer: every step at once, on tables in memory, against an upstream that plays a script.

It is what the three performers of the product are compared with (`test_performers.py`), and what tests of the steps run
on. Time passes only where a step waits. Invariant: `steps` are all that were asked for, in order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from handlers.connection.effects import CloseUpstream, Open
from handlers.connection.inputs import Arrival, Closed, StoreFailed
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Await, Ended, Invocation, Pause, Report, Step
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.store.connection_store import Store
from handlers.store.requests import Requests

# What an opening brings: so many milliseconds after it was asked for, this.
Script = list[tuple[int, Arrival]]
# What others do, and when; first of all that happens then.
Action = tuple[int, Callable[[], object]]


class PlainPerformer:
    """Performs invocations one after the other; `play` is asked for the script of each opening of the upstream.

    A number that is drawn is `lot` of the way from the least to the most.
    """

    lot = 1.0

    def __init__(self, store: Store, play: Callable[[], Script], actions: Sequence[Action] = ()) -> None:
        self.store = store
        self.now_ms = 0
        self.asked_ms: list[int] = []
        self.steps: list[Step] = []
        self._play = play
        self._actions = deque(sorted(actions, key=lambda action: action[0]))
        self._arrivals: Script | None = None
        self._requests: Requests

    def run(self, profile: Profile, invocation: Invocation) -> Report:
        """How the invocation ended."""
        self._requests = Requests(profile, self.store, invocation, lambda: self.now_ms)
        steps = attempts(profile, invocation, self.now_ms, self._draw)
        answer: Answer | None = None
        try:
            for _ in range(10_000):
                step = steps.send(answer)  # type: ignore[arg-type]  # the first is None
                self.steps.append(step)
                answer = self._perform(step)
        except StopIteration as ended:
            report: Report = ended.value
            return report
        raise AssertionError("the invocation comes to no end")

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self.lot

    def _perform(self, step: Step) -> Answer:
        value: Any = None
        match step:
            case Await():
                value = self._await(step.until_ms)
            case Pause(for_ms):
                self.wait_until(self.now_ms + for_ms)
            case Open():
                self.asked_ms.append(self.now_ms)
                self._arrivals = [(self.now_ms + after_ms, arrival) for after_ms, arrival in self._play()]
            case CloseUpstream():
                if self._arrivals is not None:
                    self._arrivals = [(self.now_ms, Closed("closed_here"))]
            case Ended():
                self._arrivals = None
            case _:
                try:
                    value = [request() for request in self._requests.of(step)][-1]
                except StoreUnavailable as error:
                    value = StoreFailed(str(error))
        return Answer(self.now_ms, value)

    def _await(self, until_ms: int) -> Arrival | None:
        if not self._arrivals or self._arrivals[0][0] > until_ms:
            self.wait_until(until_ms)
            return None
        at_ms, arrival = self._arrivals.pop(0)
        self.wait_until(at_ms)
        if isinstance(arrival, Closed):
            self._arrivals = None
        return arrival

    def wait_until(self, until_ms: int) -> None:
        """Lets time pass, and others do what they do then."""
        while self._actions and self._actions[0][0] <= until_ms:
            self.now_ms, act = self._actions.popleft()
            act()
        self.now_ms = max(self.now_ms, until_ms)
