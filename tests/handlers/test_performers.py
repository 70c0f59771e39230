"""The three performers of an invocation's steps, compared: what each is asked to do, and what the tables hold after it.

Threads (`handlers/driver.py`), replays (`local/replay/invocation.py`) and chaos (`local/chaos/function.py`) get the
same wire, the same store and the same other connections as the plainest performer does, on clocks that stand still
while a step is performed. Each must be asked for the same steps in the same order, with the same arguments.

A replay may leave out readings of the lease that show nothing new (`Await`), and it has no store that fails.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.aws.secret_values import SecretValues
from handlers.connection.attempts import attempts
from handlers.connection.effects import Claim, MarkConnected, Outcome, RecordGaps, RecordLoss, SaveProgress, Write
from handlers.connection.inputs import Arrival, Chunk, Closed, Opened
from handlers.connection.steps import Answer, Await, Ended, Invocation, ReadLease, Report, Step, Steps
from handlers.driver import Clock
from handlers.invocation import run_invocation
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.store.connection_store import Store
from local.chaos.function import VirtualFunction
from local.chaos.link import Link
from local.chaos.slow_requests import NOTHING_ASKED, SlowRequests, Task, Waits
from local.chaos.unreliable_dynamodb import UnreliableDynamoDB
from local.replay.invocation import VirtualInvocation
from local.replay.table import MemoryDynamoDB
from states_language.clock import EPOCH_2026_MS, VirtualClock
from tests.handlers.connection.performer import PlainPerformer, Script

STREAM = "demo"
LIFE_MS, MARGIN_MS = 30_000, 4_000


@dataclass(frozen=True)
class Wire:
    """What happens to an invocation: the script of each opening, and what others do to the tables, and when."""

    openings: tuple[Script, ...]
    others: tuple[tuple[int, str], ...] = ()
    profile: dict[str, Any] = field(default_factory=dict)


def event(number: int, name: str = "") -> bytes:
    return b"id: %d\n%sdata: %d\n\n" % (number, b"event: %s\n" % name.encode() if name else b"", number)


def profile_of(wire: Wire) -> Profile:
    table = {"address": "https://upstream.invalid", "framing": "sse", "resume": {"header": "Last-Event-ID"}}
    marks = {"loss": {"event": "lost"}, "end": {"event": "end"}}
    return parse(STREAM, {**table, **marks, "overlap_s": 1, **wire.profile}, {})


INVOCATION = Invocation(
    STREAM, "A", "", "r1", EPOCH_2026_MS + LIFE_MS, MARGIN_MS, lease_every_ms=1_000, progress_every_ms=2_000,
    overlap_max_ms=60_000,
)  # fmt: skip


class World:
    """The tables of one run on a clock, whatever others do to them, and the steps that a performer was asked for."""

    def __init__(self, wire: Wire, clock: Any, on_change: Callable[[str], None] = lambda _key: None) -> None:
        self._clock = clock
        self._scripts = iter(wire.openings)
        self._others = wire.others
        self.tables = MemoryDynamoDB("events", "control", on_change=lambda _table, key, _item: on_change(key[1]))
        self.dynamodb = UnreliableDynamoDB(clock, self.tables)
        self.store, self._theirs = (self._store(client) for client in (self.dynamodb, self.tables))
        self.steps: list[Step] = []

    @staticmethod
    def _store(client: Any) -> Store:
        return Store(
            client,
            dict,
            events_table="events",
            control_table="control",
            dead_letter_queue_url="",
            sleep=lambda _seconds: None,
        )

    def play(self) -> Script:
        """The script of the next opening; where there is none, nobody answers."""
        return next(self._scripts, [])

    def actions(self) -> list[tuple[int, Callable[[], object]]]:
        """What others do, and when."""
        return [(EPOCH_2026_MS + at_ms, lambda what=what: self._act(what)) for at_ms, what in self._others]  # type: ignore[misc]

    def _act(self, what: str) -> None:
        if what == "claim":
            self._theirs.claim(STREAM, execution="", holder="B/r2")
        elif what == "connect":
            self._theirs.mark_connected(STREAM, self._theirs.read_lease(STREAM).fence, EPOCH_2026_MS + 10**6)
        elif what == "release":
            self._theirs.mark_released(STREAM, self._theirs.read_lease(STREAM).connected_token)
        elif what == "outage":
            self.dynamodb.throttle(self._clock.now_ms() + 1_500)
        else:
            self.tables.update_item(
                TableName="control",
                Key={"PK": {"S": STREAM}, "SK": {"S": "lease"}},
                UpdateExpression="SET stop = :yes",
                ExpressionAttributeValues={":yes": {"BOOL": True}},
            )

    def traced(self, profile: Profile, invocation: Invocation, now_ms: int, _draw: object) -> Steps[Report]:
        """The steps, each noted; what is drawn is the most."""
        return self._noting(attempts(profile, invocation, now_ms, lambda _least, most: most))

    def _noting(self, steps: Steps[Report]) -> Generator[Step, Answer, Report]:
        try:
            step = next(steps)
            while True:
                self.steps.append(step)
                step = steps.send((yield step))
        except StopIteration as ended:
            report: Report = ended.value
            return report

    def contents(self) -> list[Any]:
        """What the tables hold."""
        keys = {":stream": {"S": STREAM}}
        return [
            self.tables.query(TableName=table, KeyConditionExpression="PK = :stream", ExpressionAttributeValues=keys)
            for table in ("events", "control")
        ]


# --- the performers ---------------------------------------------------------------------------------------------------


class StandingClock(Clock):
    """A clock for threads that moves only where somebody waits."""

    def __init__(self) -> None:
        self.at_ms = EPOCH_2026_MS
        self.actions: list[tuple[int, Callable[[], object]]] = []

    def now_ms(self) -> int:
        return self.at_ms

    def sleep_ms(self, for_ms: int) -> None:
        until_ms = self.at_ms + for_ms
        while self.actions and self.actions[0][0] <= until_ms:
            self.at_ms, act = self.actions.pop(0)
            act()
        self.at_ms = max(self.at_ms, until_ms)


class ScriptedReader:
    """What `handlers.upstream.reader.Upstream` is, with a script in place of a socket."""

    taken_s, blocked_ms, unread_s = 0.0, 0, None

    def __init__(self, clock: StandingClock, script: Script) -> None:
        self._clock = clock
        self._arrivals = [(clock.now_ms() + after_ms, arrival) for after_ms, arrival in script]
        self._is_closed = False

    def start(self) -> None:
        """Nothing is to be begun."""

    def close(self) -> None:
        """Nothing more comes but the close."""
        self._is_closed = True

    def get(self, wait_s: float) -> Arrival | None:
        """The next arrival, or None."""
        if self._is_closed:
            return Closed("closed_here")
        until_ms = self._clock.now_ms() + round(wait_s * 1000)
        if not self._arrivals or self._arrivals[0][0] > until_ms:
            self._clock.sleep_ms(until_ms - self._clock.now_ms())
            return None
        at_ms, arrival = self._arrivals.pop(0)
        self._clock.sleep_ms(at_ms - self._clock.now_ms())
        return arrival


class ScriptedUpstream:
    """The upstream of a replay and of chaos, with a script in place of behaviour."""

    def __init__(self, clock: VirtualClock, world: World) -> None:
        self._clock = clock
        self._world = world

    def open(self, client: Any, _cursor: str | None = None) -> Link:
        """A link that brings the next script."""
        link = Link(client, None, self._clock.now_ms())
        for after_ms, arrival in self._world.play():
            self._clock.call_at(
                self._clock.now_ms() + after_ms,
                lambda arrival=arrival: link.closed_ms is None and client.arrived(link, arrival),  # type: ignore[misc]
            )
        return link

    def close(self, link: Link) -> None:
        """Nothing more comes."""
        link.closed_ms = self._clock.now_ms()


class AtOnce(SlowRequests):
    """A store that takes no time."""

    def ask(self, *requests: Callable[[], Any]) -> Waits[Any]:
        yield from ()
        answer: Any = NOTHING_ASKED
        for request in requests:
            answer = self._send(request)
            if type(answer).__name__ == "StoreFailed":
                break
        return answer


def plainly(wire: Wire, _patched: pytest.MonkeyPatch) -> World:
    """By the plainest performer."""

    class Now:
        def now_ms(self) -> int:
            return performer.now_ms

    world = World(wire, Now())
    performer = PlainPerformer(world.store, world.play, world.actions())
    performer.wait_until(EPOCH_2026_MS)
    performer.run(profile_of(wire), INVOCATION)
    performer.wait_until(INVOCATION.deadline_ms)
    world.steps = performer.steps
    return world


def on_threads(wire: Wire, patched: pytest.MonkeyPatch) -> World:
    """By the driver, with its store's thread."""
    clock = StandingClock()
    world = World(wire, clock)
    clock.actions = sorted(world.actions(), key=lambda action: action[0])
    patched.setattr("handlers.driver.Upstream", lambda *_request, **_named: ScriptedReader(clock, world.play()))
    patched.setattr("handlers.invocation.attempts", world.traced)
    clock.sleep_ms(0)
    run_invocation(profile_of(wire), world.store, SecretValues(repr), INVOCATION, clock, lambda *_report: None)
    clock.sleep_ms(INVOCATION.deadline_ms - clock.now_ms())
    return world


def in_a_replay(wire: Wire, patched: pytest.MonkeyPatch) -> World:
    """By a replay."""
    clock = VirtualClock(start_ms=EPOCH_2026_MS - 1)
    outcomes: list[Outcome] = []
    started: list[VirtualInvocation] = []

    def changed(key: str) -> None:
        for one in started:
            if key == "lease":
                one.lease_changed()

    world = World(wire, clock, changed)
    patched.setattr("local.replay.invocation.attempts", world.traced)

    async def run() -> None:
        for at_ms, act in world.actions():
            clock.call_at(at_ms, act)
        await clock.sleep_until(EPOCH_2026_MS)
        upstream: Any = ScriptedUpstream(clock, world)
        started.append(VirtualInvocation(clock, profile_of(wire), world.store, upstream, INVOCATION, outcomes.append))
        started[0].advance()
        await clock.sleep_until(INVOCATION.deadline_ms)

    clock.run(run())
    assert len(outcomes) == 1
    return world


def in_chaos(wire: Wire, patched: pytest.MonkeyPatch) -> World:
    """By chaos without a fault, but in the store."""
    clock = VirtualClock(start_ms=EPOCH_2026_MS - 1)
    outcomes: list[Outcome] = []
    world = World(wire, clock)
    patched.setattr("local.chaos.function.attempts", world.traced)

    async def run() -> None:
        for at_ms, act in world.actions():
            clock.call_at(at_ms, act)
        await clock.sleep_until(EPOCH_2026_MS)
        upstream: Any = ScriptedUpstream(clock, world)
        task = Task(1, INVOCATION, 1, LIFE_MS, 0)
        function = VirtualFunction(
            clock, profile_of(wire), world.store, world.dynamodb, upstream, task, outcomes.append
        )
        function.slow = AtOnce(clock, world.dynamodb, task, function._draws)
        function.start()
        await clock.sleep_until(INVOCATION.deadline_ms)

    clock.run(run())
    assert len(outcomes) == 1
    return world


def run(perform: Callable[[Wire, pytest.MonkeyPatch], World], wire: Wire) -> World:
    """The world after the wire was performed."""
    with pytest.MonkeyPatch.context() as patched:
        return perform(wire, patched)


def without_readings(steps: list[Step]) -> list[Any]:
    """The steps but those that a replay leaves out where nobody has changed the lease, and what it saves meanwhile."""
    kept: list[Any] = []
    for step in steps:
        match step:
            case Await() | ReadLease() | RecordGaps():
                continue
            case SaveProgress(_, progress, _):
                if progress.closed_ms is not None:
                    kept.append((progress.closed_ms, progress.ended_by, progress.frames, progress.stored))
            case Ended(report):
                kept.append((report.outcome, report.connect_ms))
            case _:
                kept.append(step)
    return kept


def compare(wire: Wire, *, is_generated: bool = False) -> list[Step]:
    """The steps, which are the same whoever performs them.

    A replay that leaves readings of the lease out reads it with the next arrival, which may be sooner than a real one
    does: of generated wires it is compared where nobody else changes the lease, or where it leaves nothing out.
    """
    plain = run(plainly, wire)
    for perform in (on_threads, in_chaos):
        world = run(perform, wire)
        assert world.steps == plain.steps
        assert world.contents() == plain.contents()
    if "outage" not in [what for _, what in wire.others]:
        replayed = run(in_a_replay, wire).steps
        if wire.profile.get("overlap") == "forbids" or wire.profile.get("standby") == "hot":
            assert replayed == plain.steps
        elif not (is_generated and wire.others):
            assert without_readings(replayed) == without_readings(plain.steps)
    return plain.steps


# --- scripted wires ---------------------------------------------------------------------------------------------------

OPENED = (90, Opened(200))
TAKEN_OVER = ((3_050, "claim"), (3_450, "connect"))
MANY = b"".join(event(number) for number in range(600))
WIRES = {
    "nobody answers": Wire(()),
    "events until the deadline": Wire(([OPENED, *((700 * n, Chunk(event(n))) for n in range(1, 40))],)),
    "a chunk of many writes": Wire(([OPENED, (2_500, Chunk(MANY)), (9_000, Closed("reset"))],)),
    "a loss beside events": Wire(
        ([OPENED, (2_500, Chunk(event(1) + event(2, "lost") + event(3))), (9_000, Closed("stalled"))],)
    ),
    "the end of the stream": Wire(([OPENED, (300, Chunk(event(1) + event(2, "end")))],)),
    "a stop": Wire(([OPENED, (300, Chunk(event(1)))],), ((2_700, "stop"),)),
    "a stop before the claim": Wire((), ((0, "stop"),)),
    "a take-over": Wire(([OPENED, (300, Chunk(event(1)))],), TAKEN_OVER),
    "an eviction": Wire(([OPENED, (3_400, Closed("ended_by_upstream"))],), TAKEN_OVER, {"overlap": "evicts"}),
    "a second that is forbidden": Wire(
        ([OPENED, (5_000, Chunk(event(1)))],),
        ((0, "claim"), (0, "connect"), (1_300, "release"), (6_050, "claim")),
        {"overlap": "forbids"},
    ),
    "refusals with tries in place": Wire(
        ([(50, Opened(503))], [(50, Opened(429, {"retry-after": "2"}))], [OPENED, (400, Chunk(event(1)))]),
        (),
        {"reconnect_tries": 5, "backoff": {"throttled": {"start_s": 1}, "http": {"start_s": 1}}},
    ),
    "a drop, and behind the cursor again": Wire(
        ([OPENED, (800, Chunk(event(1))), (2_000, Closed("reset"))], [OPENED, (300, Chunk(event(2)))]),
        (),
        {"reconnect_tries": 1},
    ),
    "a store that fails": Wire(([OPENED, (2_500, Chunk(MANY))],), ((2_400, "outage"),)),
    "a store that fails between two connections": Wire(
        ([(50, Opened(503))],), ((40, "outage"),), {"reconnect_tries": 2, "backoff": {"http": {"start_s": 1}}}
    ),
    "hot lanes": Wire(([OPENED, (300, Chunk(event(1)))],), TAKEN_OVER, {"standby": "hot"}),
}


@pytest.mark.parametrize("name", WIRES)
def test_every_performer_is_asked_for_the_same(name: str) -> None:
    """The same steps in the same order with the same arguments, and the same tables after them."""
    assert compare(WIRES[name])


def test_what_follows_from_a_step_comes_before_what_was_to_come_after_it() -> None:
    """The cursor is saved between two writes of one chunk."""
    steps = [step for step in compare(WIRES["a chunk of many writes"]) if isinstance(step, Write | SaveProgress)]
    counts = [len(step.events) if isinstance(step, Write) else step.cursor for step in steps]
    assert counts[counts.index(250) :][:4] == [250, "249", 250, 100]


def test_what_is_due_comes_before_a_write() -> None:
    """However many events have come at once: here the lease is due when they come."""
    steps = compare(Wire(([OPENED, (1_090, Chunk(MANY)), (9_000, Closed("reset"))],)))
    first = next(at for at, step in enumerate(steps) if isinstance(step, Write))
    assert [type(step) for step in steps[first - 2 : first]] == [Await, ReadLease]


def test_a_store_that_fails_drops_what_was_to_be_written() -> None:
    """Of three writes the first is refused, and no other is tried."""
    steps = compare(WIRES["a store that fails"])
    assert sum(isinstance(step, Write) for step in steps) == 1
    (end,) = [step.report.outcome for step in steps if isinstance(step, Ended)]
    assert end.error == "StoreUnavailable"


def test_a_loss_is_performed_before_the_cursor_passes_it() -> None:
    """Whoever performs it: the loss, the events beside it, then the cursor."""
    steps = compare(WIRES["a loss beside events"])
    at = next(at for at, step in enumerate(steps) if isinstance(step, RecordLoss))
    assert [type(step) for step in steps[at : at + 3]] == [RecordLoss, Write, SaveProgress]
    saved = steps[at + 2]
    assert isinstance(saved, SaveProgress)
    assert saved.cursor == "3"


def test_claim_then_connect_then_mark() -> None:
    """The order of the handover, of the first connection and of the next of the same invocation."""
    steps = compare(WIRES["a drop, and behind the cursor again"])
    claims = [step for step in steps if isinstance(step, Claim | MarkConnected)]
    assert [type(step) for step in claims] == [Claim, MarkConnected] * 2
    assert [step.after_fence for step in claims if isinstance(step, Claim)] == [0, 1]


# --- generated wires --------------------------------------------------------------------------------------------------

texts = st.lists(st.sampled_from(["event", "event", "event", "lost", "cut", "end"]), min_size=1, max_size=3)
ends = st.sampled_from([None, Closed("reset"), Closed("ended_by_upstream"), Closed("stalled")])
refusals: list[Arrival] = [Opened(503), Opened(429, {"retry-after": "1"}), Closed("refused")]
answers = st.sampled_from([Opened(200)] * 6 + refusals)
delays = st.integers(1, 4_000)


@st.composite
def openings(draw: st.DrawFn) -> tuple[Script, ...]:
    """Up to three openings; the events of all are numbered on."""
    scripts: list[Script] = []
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        at_ms = draw(delays)
        script: Script = [(at_ms, draw(answers))]
        if script[0][1] == Opened(200):
            for words in draw(st.lists(texts, max_size=6)):
                at_ms += draw(delays)
                frames = [event(number + at, "" if word in ("event", "cut") else word) for at, word in enumerate(words)]
                number += len(words)
                data = b"".join(frames)
                script.append((at_ms, Chunk(data[:-3] if words[-1] == "cut" else data)))
                if words[-1] == "cut":
                    at_ms += draw(delays)
                    script.append((at_ms, Chunk(data[-3:])))
            end = draw(ends)
            script += [] if end is None else [(at_ms + draw(delays), end)]
        scripts.append(script)
    return tuple(scripts)


@st.composite
def wires(draw: st.DrawFn) -> Wire:
    """An upstream, others who claim, connect, stop or make the store fail, and a profile."""
    others: list[tuple[int, str]] = []
    if draw(st.booleans()):
        at_ms = draw(st.integers(0, 20_000))
        others = [(at_ms, "claim"), (at_ms + draw(delays), "connect"), (at_ms + 4_000 + draw(delays), "release")]
    for what in ("stop", "outage"):
        if draw(st.integers(0, 3)) == 0:
            others.append((draw(st.integers(0, 20_000)), what))
    profile: dict[str, Any] = {"overlap": draw(st.sampled_from(["tolerates", "evicts", "forbids"]))}
    if profile["overlap"] == "tolerates" and draw(st.booleans()):
        profile["standby"] = "hot"
    profile["reconnect_tries"] = draw(st.integers(0, 2))
    if draw(st.booleans()):
        profile["backoff"] = {kind: {"start_s": 1} for kind in ("network", "http", "throttled")}
    return Wire(draw(openings()), tuple(others), profile)


@given(wires())
@settings(max_examples=100)
def test_every_performer_is_asked_for_the_same_of_any_wire(wire: Wire) -> None:
    """Whatever comes and whatever others do."""
    assert compare(wire, is_generated=True)


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A performer that left a step out would be seen."""
    wire = WIRES["a loss beside events"]
    plain = run(plainly, wire)
    sound = VirtualFunction._ask

    def forgetful(function: VirtualFunction, step: Step) -> Waits[Any]:
        return (yield from sound(function, replace(step, cause="") if isinstance(step, RecordLoss) else step))

    monkeypatch.setattr(VirtualFunction, "_ask", forgetful)
    assert run(in_chaos, wire).contents() != plain.contents()
