"""Steps apply a document to played streams: after a kill they continue, and the result names what is left."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from handlers.api.fleet_routes import apply_document, progress_json, read_progress
from handlers.api.status_words import MOVED, NOT_TWICE
from handlers.errors import StoreUnavailable
from handlers.fleet.fleet_document import LINES, read
from handlers.fleet.fleet_records import DONE, FleetRecords
from handlers.fleet.fleet_steps import MOST_ROUNDS, STARTING_AGAIN, Ports, Round, step
from handlers.fleet.request_pacing import Outcome, StreamRequest
from local.simulation.tables import MemoryDynamoDB
from tests.handlers.context import Killed

CONTROL, MACHINE = "control", "arn:aws:states:us-east-1:111111111111:stateMachine:fleet"
ME = "arn:aws:states:us-east-1:111111111111:execution:fleet:me"


@dataclass
class World:
    """Streams that were ever started, by status; a started stream runs two reads later.

    The wall clock steps back by an hour each time that it is read.
    """

    status: dict[str, str] = field(default_factory=dict)
    draws: random.Random = field(default_factory=lambda: random.Random(1))
    kills: float = 0.0
    refuses: float = 0.0
    asked: Counter[str] = field(default_factory=Counter)
    stuck: frozenset[str] = frozenset()
    why: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dynamodb = MemoryDynamoDB(CONTROL, "events")
        self.records = FleetRecords(self.dynamodb, CONTROL)
        self._clock = itertools.count(0, 200)

    def begin(self, lines: str, execution: str = ME) -> None:
        """Begin to apply the document."""
        self.records.prepare(read(lines, LINES), execution, self.now_ms())
        self.records.begin(execution, self.now_ms())

    def apply(self, execution: str = ME, *, is_dry: bool = False) -> int:
        """Apply the document to its end; return the number of steps."""
        for number in itertools.count(1):
            try:
                if step(self.ports(is_dry), execution, is_dry=is_dry)["is_done"]:
                    return number
            except (Killed, StoreUnavailable):
                continue
        raise AssertionError

    def ports(self, is_dry: bool) -> Ports:
        """Return the ports of a step, which is late after some hundred reads of the clock."""
        ends_ms = self.now_ms() + 60_000
        records = FleetRecords(self.dynamodb, CONTROL, is_dry=is_dry)
        round_of = lambda fleet, number: Round(records.document(fleet), self.known, self.state, number)  # noqa: E731
        is_late = lambda: self.now_ms() > ends_ms  # noqa: E731
        wall_ms = itertools.count(10**13, -3_600_000).__next__
        return Ports(records, round_of, self.ask, 1000, wall_ms, self.now_ms, is_late, lambda: 0.0)

    def now_ms(self) -> int:
        """Return the time, which advances with each read."""
        return next(self._clock)

    def known(self, after: str) -> Sequence[str]:
        """Return the streams after `after` that were ever started."""
        return sorted(one for one in self.status if one > after)

    def state(self, stream_ids: Sequence[str]) -> Mapping[str, tuple[str, str]]:
        """Return their statuses; the function may be killed here."""
        if self.draws.random() < self.kills:
            raise Killed
        shown = {one: (self.status[one], self.why.get(one, "")) for one in stream_ids if one in self.status}
        for one in shown:
            if one not in self.stuck:
                self.status[one] = {"starting": "running", "stopping": "stopped"}.get(
                    self.status[one], self.status[one]
                )
        return shown

    def ask(self, wanted: StreamRequest) -> tuple[Outcome, str]:
        """Start or stop a stream, or refuse."""
        self.asked[wanted.stream_id] += 1
        if self.draws.random() < self.refuses:
            return Outcome.REFUSED, "too many"
        self.status[wanted.stream_id] = "starting" if wanted.is_connected else "stopping"
        return Outcome.DONE, ""


def test_streams_are_as_the_document_wants_them() -> None:
    """A document starts and stops only streams that differ from it; patterns cover streams that were ever started."""
    world = World({"a:1": "running", "a:2": "stopped", "b:1": "running", "b:2": "ended", "c:1": "running"})
    world.begin("a:{1..4}\n!b:*\n!d:1")
    world.apply()
    fleet = world.records.read()
    assert world.status == {
        "a:1": "running", "a:2": "running", "a:3": "running", "a:4": "running", "b:1": "stopped", "b:2": "ended",
        "c:1": "running",
    }  # fmt: skip
    assert dict(world.asked) == {"a:2": 1, "a:3": 1, "a:4": 1, "b:1": 1}
    assert (fleet.state, fleet.started, fleet.stopped, fleet.as_wanted, fleet.left) == (DONE, 3, 1, 7, 0)
    assert json.loads(fleet.not_yet) == []


@pytest.mark.parametrize("seed", range(3))
def test_kills_and_refusals_do_not_stop_a_document(seed: int) -> None:
    """With kills and refusals, all streams are as wanted in the end, none is left, and few are requested twice."""
    world = World(draws=random.Random(seed), kills=0.3, refuses=0.2)
    world.begin("s:{0001..0250}")
    assert world.apply() > 3, seed
    assert (set(world.status.values()), len(world.status)) == ({"running"}, 250)
    assert (world.records.read().left, world.asked.total() < 2 * 250) == (0, True)


def test_a_long_round_without_a_request_takes_several_steps() -> None:
    """Each step ends in time and the next continues there; the result names what any of them found."""
    ids = [f"s:{number:05d}" for number in range(20_000)]
    world = World(dict.fromkeys(ids, "running") | {ids[7]: "stopped"})
    records = FleetRecords(world.dynamodb, CONTROL, is_dry=True)
    records.prepare(read("s:*", LINES), ME, 1)
    assert world.apply(is_dry=True) > 1
    fleet = records.read()
    assert (fleet.as_wanted, fleet.left, fleet.rounds) == (19_999, 1, 1)
    assert [one["stream"] for one in json.loads(fleet.not_yet)] == [ids[7]]


def test_a_dry_run_is_not_paced() -> None:
    """A dry run is not paced, because it sends no requests."""
    world = World()
    records = FleetRecords(world.dynamodb, CONTROL, is_dry=True)
    records.prepare(read("s:{1..500}", LINES), ME, 1)
    ports = replace(world.ports(True), elapsed_ms=lambda: 1, is_late=lambda: False)
    assert step(ports, ME, is_dry=True)["is_done"]
    assert (records.read().started, world.asked) == (500, {})


def test_a_pattern_without_a_match_is_reported() -> None:
    """A pattern that matches no stream, as a misspelt one, changes nothing, and the answer reports it."""
    world = World({"a:1": "running"})
    world.begin("!aa:*")
    world.apply()
    answer = progress_json(world.records.read(), 1, is_dry=False)
    assert (answer["message"], answer["left"]) == ("No stream that was ever started matches: nothing was changed.", 0)


def test_the_result_names_the_streams_that_are_not_yet_as_wanted() -> None:
    """The result names the first hundred with their reasons; a stream that cannot start is not retried in every round.

    A stream that stays starting for long is requested again, and counts as started once.
    """
    world = World({"r:1": "rejected"}, stuck=frozenset({"s:1"}))
    world.begin("s:{1..3}\nr:1")

    def rejected(wanted: StreamRequest) -> tuple[Outcome, str]:
        if wanted.stream_id == "r:1":
            world.asked["r:1"] += 1
            return Outcome.FAILED, "no more executions may run here"
        return World.ask(world, wanted)

    world.ask = rejected  # type: ignore[method-assign]
    world.apply()
    fleet = world.records.read()
    assert (fleet.state, fleet.rounds, fleet.left, fleet.as_wanted) == (DONE, MOST_ROUNDS, 2, 2)
    assert fleet.started == 3
    assert json.loads(fleet.not_yet) == [
        {"stream": "r:1", "wanted": "connected", "status": "rejected", "why": "it is rejected"},
        {"stream": "s:1", "wanted": "connected", "status": "starting", "why": "it is starting"},
    ]
    assert (world.asked["r:1"], world.asked["s:1"]) == (1, MOST_ROUNDS / STARTING_AGAIN)


@pytest.mark.parametrize(
    ("status", "why"), [("stopped", f"moved to prod@eu-west-1; {MOVED}"), ("ended", f"it ended; {NOT_TWICE}")]
)
def test_a_stream_that_only_a_person_may_start_is_left(status: str, why: str) -> None:
    """A stream that was moved, or had its one answer, is not started but named as left: no round helps."""
    world = World({"s:1": status, "s:2": "stopped"}, why={"s:1": why})
    world.begin("s:*")
    world.apply()
    fleet = world.records.read()
    assert (dict(world.asked), fleet.rounds, fleet.left) == ({"s:2": 1}, 3, 1)
    assert json.loads(fleet.not_yet) == [{"stream": "s:1", "wanted": "connected", "status": status, "why": why}]


def test_the_same_document_continues_at_its_place() -> None:
    """The same document continues at its place; a later round finds starts that were noted and not carried out."""
    world = World()
    world.begin("a:{1..9}", execution="first")
    world.records.save_progress("first", "a:9", {"started": 9, "left": 9}, [], 1)
    world.begin("a:{1..9}", execution="second")
    fleet = world.records.read()
    assert (fleet.execution, fleet.position, fleet.started) == ("second", "a:9", 9)
    world.apply("second")
    assert {world.status[f"a:{number}"] for number in range(1, 10)} == {"running"}


def test_a_large_document_is_kept_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is larger than an item of DynamoDB is stored in parts."""
    monkeypatch.setattr("handlers.fleet.fleet_records.PART", 3_000)
    world, draws = World(), random.Random(3)
    world.begin("\n".join(f"s:{draws.getrandbits(200):x}" for _ in range(200)))
    fleet = world.records.read()
    assert fleet.parts > 1
    assert len(world.records.document(fleet).ids) == 200


def test_before_the_first_document_nothing_is_applied() -> None:
    """Before the first PUT, GET answers "never applied"; in the first round "applying", for no negative time.

    Once the execution is aborted, it is "interrupted"; before, it stayed "applying" for ever. Step Functions is asked
    only if no progress was saved for some seconds; before, by each GET.
    """
    records, states = World().records, Mock()
    answer = progress_json(records.read(), 1, is_dry=False)
    assert (answer["state"], answer["not_yet"], answer["begun_at"]) == ("never applied", [], None)
    records.prepare(read("prices", LINES), "execution", 9_000)
    answer = progress_json(records.begin("execution", 1), 1, is_dry=False)
    assert (answer["state"], answer["not_yet"], answer["seconds"]) == ("applying", [], 0)
    found = []
    for status, now_ms in (("RUNNING", 90_000), ("ABORTED", 19_000), ("ABORTED", 90_000)):
        states.describe_execution.return_value = {"status": status}
        found.append(read_progress(records, lambda: states, now_ms, is_dry=False)["state"])
    assert (found, states.describe_execution.call_count) == (["applying", "applying", "interrupted"], 2)
    records.save_progress("execution", "", {}, [], 85_000)
    assert read_progress(records, lambda: states, 90_000, is_dry=False)["state"] == "applying"
    assert states.describe_execution.call_count == 2


def test_a_stream_counts_once_however_many_steps_a_round_takes() -> None:
    """A stream counts once, even if a step reads ahead of a refused request and the next step reads it again."""
    ids = [f"s:{number:03d}" for number in range(400)]
    world = World(dict.fromkeys(ids, "running"), stuck=frozenset(ids))
    world.status |= dict.fromkeys(ids[::2], "stopped")
    world.begin("s:*")
    refused = {ids[20]: 6}

    def ask(wanted: StreamRequest) -> tuple[Outcome, str]:
        refused[wanted.stream_id] = refused.get(wanted.stream_id, 0) - 1
        return (Outcome.REFUSED, "too many") if refused[wanted.stream_id] >= 0 else (Outcome.DONE, "")

    world.ask = ask  # type: ignore[method-assign]
    steps = itertools.takewhile(lambda _: not world.records.read().rounds, itertools.count())
    assert sum(bool(step(replace(world.ports(False), draw=lambda: 1.0), ME, is_dry=False)) for _ in steps) > 1
    fleet = world.records.read()
    assert (fleet.rounds, fleet.as_wanted, fleet.left, fleet.started) == (1, 200, 200, 200)


def test_a_request_that_raises_ends_the_step() -> None:
    """A request that raises ends the step; otherwise the step would wait until Lambda kills the function."""
    world = World()
    world.begin("s:1")

    def ask(wanted: StreamRequest) -> tuple[Outcome, str]:
        raise KeyError(wanted.stream_id)

    world.ask = ask  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        step(world.ports(False), ME, is_dry=False)


def test_two_documents_at_once_spoil_neither() -> None:
    """Of two documents that begin at once, the later one is applied whole; a third one's death harms neither."""
    world = World()
    write = world.records._write
    for execution, lines in (("first", "a:{1..3}"), ("second", "b:{1..3}"), ("killed", "c:1")):
        world.records.prepare(read(lines, LINES), execution, 1)

    def late(values: Mapping[str, Any], execution: str) -> bool:
        world.records._write = write  # type: ignore[method-assign]
        world.records.begin("second", 1)
        return write(values, execution)

    world.records._write = late  # type: ignore[method-assign]
    assert world.records.begin("first", 1).execution == "second"
    assert world.apply("first") == 1
    world.apply("second")
    assert world.status == dict.fromkeys(("b:1", "b:2", "b:3"), "running")


def test_a_start_of_a_replaced_document_is_undone() -> None:
    """A document ends only when the one that it replaced can start no stream any more, or has all rounds used up.

    Before, a stop ended at once with "all as wanted" while the start of the former document was under way.
    """
    world = World()
    world.begin("s:1", "first")
    start = world.ask

    def ask(wanted: StreamRequest) -> tuple[Outcome, str]:
        world.ask = start  # type: ignore[method-assign]
        world.records.prepare(read("!s:1", LINES), "second", world.now_ms())
        step(world.ports(False), "second", is_dry=False)
        return start(wanted)

    world.ask = ask  # type: ignore[method-assign]
    world.apply("first")
    world.apply("second")
    assert (world.status, world.records.read().state) == ({"s:1": "stopped"}, DONE)


@pytest.mark.parametrize("failure", [Killed(), ClientError({"Error": {"Code": "ThrottlingException"}}, "a request")])
def test_a_put_that_fails_replaces_nothing_or_is_carried_out(failure: Exception) -> None:
    """If a PUT fails before its execution started, the former document continues; after that, the new one begins.

    Before, a throttled StartExecution ended the former document and left the new one "applying" for ever.
    """
    for fails_at in itertools.count():
        world = World()
        world.begin("s:{1..3}")
        calls, started = itertools.count(), list[str]()

        def call(made: Callable[..., Any], *, _calls: Any = calls, _at: int = fails_at, **asked: Any) -> Any:
            if next(_calls) == _at:
                raise failure
            return made(**asked)

        clients = SimpleNamespace(
            get_item=partial(call, world.dynamodb.get_item),
            update_item=partial(call, world.dynamodb.update_item),
            start_execution=partial(call, lambda name, _into=started, **_: _into.append(name)),
        )
        with suppress(Killed, StoreUnavailable):
            apply_document(
                FleetRecords(clients, CONTROL), read("t", LINES), Mock(return_value=clients), MACHINE, 0, is_dry=False
            )
        for execution in (*(f"{MACHINE}:{name}" for name in started), ME):
            world.apply(execution.replace(":stateMachine:", ":execution:"))
        wanted = {"t"} if started else {"s:1", "s:2", "s:3"}
        assert (world.status, world.records.read().state) == (dict.fromkeys(wanted, "running"), DONE), fails_at
        if next(calls) <= fails_at:
            assert fails_at > 5
            break
