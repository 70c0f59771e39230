"""The performer's ports in a world of scripts: played upstreams, requests that take no time, other actors.

Time passes only while the performer waits. An action of another actor comes before anything else at its instant.
Invariant: `steps` has all requested steps, in order.
"""

import functools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, TypeVar

from handlers.aws.secret_values import SecretValues
from handlers.connection.inputs import Arrival, Closed
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Invocation, Report, Step, Steps
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.performer import Performer
from handlers.run.ports import Ports
from handlers.run.requests import Requests
from handlers.run.threads import Bell
from handlers.store.connection_store import Store
from handlers.upstream.reader import Share
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_ports import PromptPool
from tests.handlers.aws import SECRETS

T = TypeVar("T")
# What an opening returns: each arrival, and its time in milliseconds after the opening was requested.
Script = list[tuple[int, Arrival]]
# What other actors do, and at which instant in milliseconds.
Action = tuple[int, Callable[[], object]]
DELAYS = Delays(retry_max_delay_s=5, throttle_delay_s=5, throttle_max_delay_s=30, cool_down_s=5, jitter_s=1)
MOST_WAITS = 20_000


class Reader:
    """One opening; `get` returns the arrivals of its script."""

    blocked_ms = 0

    def __init__(self, world: "World", stream: str, script: Script) -> None:
        self._world, self._stream = world, stream
        self.arrivals = deque((world.now_ms + after_ms, arrival) for after_ms, arrival in script)
        self.taken_age_s = 0.0
        self.is_closed = False

    @property
    def next_ms(self) -> int | None:
        """Return when the reader rings next; a closed reader does not ring."""
        return self.arrivals[0][0] if self.arrivals and not self.is_closed else None

    @property
    def unread_age_s(self) -> float | None:
        """Return for how long the oldest arrival has waited; None if none waits."""
        waited_ms = self._world.now_ms - self.arrivals[0][0] if self.arrivals else -1
        return waited_ms / 1000 if waited_ms >= 0 else None

    def get(self, _wait_s: float) -> Arrival | None:
        """Return what has come, or None."""
        if not self.arrivals or self.arrivals[0][0] > self._world.now_ms:
            return None
        at_ms, arrival = self.arrivals.popleft()
        self._world.served_streams.append(self._stream)
        self.taken_age_s = (self._world.now_ms - at_ms) / 1000
        return arrival

    def send(self, _frame: bytes) -> None:
        """Send nothing."""

    def close(self, _join_s: float) -> None:
        """Keep only the arrivals until now, and add Closed."""
        now_ms = self._world.now_ms
        if not self.is_closed:
            self.arrivals = deque(one for one in self.arrivals if one[0] <= now_ms)
            self.arrivals.append((now_ms, Closed("closed_here")))
        self.is_closed = True


class _Bell(Bell):
    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    def wait(self, for_s: float) -> set[str]:
        """Let time pass until the next arrival, unless a bell was rung."""
        world = self._world
        world.waits += 1
        assert world.waits < MOST_WAITS, "the steps come to no end"
        if not (rung := super().wait(0)) and for_s > 0:
            comes = [reader.next_ms for reader in world.readers.values() if reader.next_ms is not None]
            world.wait_until(min([world.now_ms + round(1000 * for_s), *comes]))
        return rung | {
            stream
            for stream, reader in world.readers.items()
            if reader.next_ms is not None and reader.next_ms <= world.now_ms
        }


class World:
    """Performs steps on `store`; `play` returns the script of the next opening of a stream's upstream.

    A random number is `lot` of the way from the least to the greatest.
    """

    random_share = 1.0

    def __init__(self, store: Store, play: Callable[[str], Script], actions: Sequence[Action] = ()) -> None:
        self.store = store
        self.now_ms = 0
        self.waits = 0
        self.opened: list[tuple[str, int]] = []
        self.served_streams: list[str] = []
        self.steps: list[Step] = []
        self.readers: dict[str, Reader] = {}
        self.shares: dict[str, Share] = {}
        self.bell = _Bell(self)
        self._play = play
        self._actions = deque(sorted(actions, key=lambda action: action[0]))

    def ports(self) -> Ports:
        secrets = SecretValues(repr, SECRETS)
        pool = functools.partial(PromptPool, self.bell)
        return Ports(_Clock(self), self.bell, pool, self._open, secrets, lambda *_report: None)

    def run(self, profile: Profile, invocation: Invocation) -> Report:
        """Return how an invocation of one stream ended."""
        performer: Performer[Report] = Performer(self.ports())
        steps = attempts(profile, invocation, self.now_ms, self.draw_number)
        performer.begin(profile, invocation, note_steps(steps, self.steps), self.requests(profile, invocation))
        report = performer.run()
        performer.close(0)
        self.readers.clear()
        return report

    def requests(self, profile: Profile, invocation: Invocation) -> Requests:
        """Return the invocation's requests to the store."""
        return Requests(profile, self.store, invocation, lambda: self.now_ms)

    def draw_number(self, least: float, most: float) -> float:
        """Return the drawn number."""
        return least + (most - least) * self.random_share

    def wait_until(self, until_ms: int) -> None:
        """Let time pass, and let other actors act meanwhile."""
        while self._actions and self._actions[0][0] <= until_ms:
            at_ms, act = self._actions.popleft()
            self.now_ms = max(self.now_ms, at_ms)
            act()
        self.now_ms = max(self.now_ms, until_ms)

    def _open(self, stream: str, _cursor: str | None, _profile: Profile, _values: Any, share: Share) -> Reader:
        script = self._play(stream)
        self.shares[stream] = share
        self.opened.append((stream, self.now_ms))
        self.readers[stream] = Reader(self, stream, script)
        return self.readers[stream]


class Functions(World):
    """Calls functions of one stream one after the other, on tables of their own."""

    default_fields: ClassVar[dict[str, Any]] = {}  # the fields of every profile
    origin_ms = 0  # when the first function starts
    lease_every_ms = 1_000  # how often a lease is read, and renewed

    def __init__(self, play: Callable[[], Script], actions: Sequence[Action] = ()) -> None:
        self.tables = MemoryDynamoDB("events", "control")
        super().__init__(plain_store(self.tables), lambda _stream: play(), actions)
        self.call_count = 0
        self.now_ms = self.origin_ms

    @property
    def opened_at_ms(self) -> list[int]:
        """Return when connections to the upstream were opened."""
        return [at_ms - self.origin_ms for _, at_ms in self.opened]

    @property
    def lease_item(self) -> dict[str, Any]:
        key = {"PK": {"S": "demo"}, "SK": {"S": "lease"}}
        item: dict[str, Any] = self.tables.get_item(TableName="control", Key=key)["Item"]
        return item

    def profile(self, **fields: Any) -> Profile:
        """Return the stream's profile with these fields."""
        return parse("demo", {"address": "https://example.com", "framing": "sse", **self.default_fields, **fields}, {})

    def invocation(self, lane: str = "A", execution: str = "") -> Invocation:
        self.call_count += 1
        deadline_ms = self.now_ms + 900_000
        return Invocation(
            "demo",
            lane,
            execution,
            f"r{self.call_count}",
            deadline_ms,
            4_000,
            self.lease_every_ms,
            self.lease_every_ms,
            0,
        )

    def start_function(self, lane: str = "A", **fields: Any) -> Report:
        """Return how the next function ends."""
        return self.run(self.profile(**fields), self.invocation(lane))


def numbered(first: int, last: int | None = None) -> bytes:
    """Return the events with the ids from `first` to `last`; without `last` only the first."""
    numbers = range(first, (first if last is None else last) + 1)
    return b"".join(b"id: %d\ndata: %d\n\n" % (number, number) for number in numbers)


def plain_store(tables: Any, queue: Callable[[], Any] = dict) -> Store:
    """Return the store on these tables, without a queue unless one is given."""
    return Store(tables, queue, events_table="events", control_table="control", dead_letter_queue_url="", sleep=print)


def note_steps(steps: Steps[T], into: list[Step]) -> Generator[Step, Answer, T]:
    """Yield the steps, and note each."""
    move: Callable[[], Step] = steps.__next__
    try:
        while True:
            into.append(step := move())
            try:
                move = functools.partial(steps.send, (yield step))
            except Exception as defect:
                move = functools.partial(steps.throw, defect)
    except StopIteration as ended:
        value: T = ended.value
        return value


class _Clock:
    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms
