"""The table is restored to an older state under a running stream: one execution is started, and only if one may run."""

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.store.leases import Leases
from handlers.watching.orphan_recovery import Orphan, Orphans, StepFunctions
from local.simulation.started_executions import StatesClient
from states_language import load
from tests.examples import examples
from tests.statemachines.connections import LEASE, definition
from tests.statemachines.outages import HOUR_MS, STAGE, TABLE, World

MINUTE_MS = 60_000
MACHINE_ARN = "arn:aws:states:us-east-1:111111111111:stateMachine:machine"
# It renews after two cycles, so that a day has dozens of executions.
RENEWING = load(definition("connections", STAGE, renew_after=2, give_up_after=12))


class States(StatesClient):
    """Step Functions as boto3's client offers it, for the executions of a world."""

    def __init__(self, world: World) -> None:
        super().__init__(
            lambda arn: next((one for one in world.executions if one.arn == arn), None),
            lambda name, data: world.start({"Name": name, "Input": data}),
        )
        self._world = world
        self.starts_ms: list[int] = []

    def start_execution(self, *, name: str, **wanted: str) -> dict[str, Any]:
        """Starts an execution whose name is new, or is that of one that runs."""
        assert wanted["stateMachineArn"] == MACHINE_ARN
        if name not in self._world.names:
            self.starts_ms.append(self._world.clock.now_ms())
        return super().start_execution(name=name, **wanted)


class Watched(World):
    """A world without outages, in which two watches check the stream once a minute."""

    def __init__(self) -> None:
        super().__init__(frozenset(), 0, 0, RENEWING)
        self.states = States(self)
        self.leases = Leases(self.table, TABLE)
        self.found: list[Orphan] = []
        self.orphans = self.orphans_of(self.states)

    def orphans_of(self, states: States) -> Orphans:
        """Returns what a watch with this client of Step Functions finds."""
        client = StepFunctions(lambda: states, MACHINE_ARN, lambda: None)
        return Orphans(client, self.leases.read, client.newest_successor, may_start=lambda _: True)

    async def pass_time(self, until_ms: int) -> None:
        """Lets both watches check on every minute until the instant."""
        while (check_ms := self.clock.now_ms() // MINUTE_MS * MINUTE_MS + MINUTE_MS) <= until_ms:
            await self.clock.sleep_until(check_ms)
            for _ in range(2):
                self.check()
        await self.clock.sleep_until(until_ms)

    def check(self, stream_id: str = "demo") -> Orphan | None:
        """Lets one watch check a stream at this instant."""
        orphan = self.orphans.check(stream_id, self.leases.read(stream_id), self.clock.now_ms())
        self.found += [] if orphan is None else [orphan]
        return orphan

    async def after(self, minutes: float) -> None:
        """Lets so many minutes pass."""
        await self.pass_time(self.clock.now_ms() + round(minutes * MINUTE_MS))

    def put(self, lease: dict[str, Any]) -> None:
        """Restores the lease."""
        self.table.put_item(TableName=TABLE, Item=LEASE | lease)

    @property
    def is_kept(self) -> bool:
        """Returns whether one execution runs (two in a renewal), and a connection renewed the lease within seconds."""
        return len(self.alive) in (1, 2) and int(self.lease["expires_at_ms"]["N"]) > self.clock.now_ms()


def lived(story: Callable[..., Any]) -> Callable[..., None]:
    """Runs a test in a world of its own, and checks that no stream was started twice within a minute."""

    def test(*drawn: Any, **parameters: Any) -> None:
        world = Watched()
        world.clock.run(story(world, *drawn, **parameters))
        assert all(after_ms - before_ms >= MINUTE_MS for before_ms, after_ms in pairwise(world.states.starts_ms))

    _world, *rest = inspect.signature(story).parameters.values()
    test.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
    test.__name__, test.__doc__, test.__module__ = story.__name__, story.__doc__, story.__module__
    return test


MINUTES = st.floats(0, 120)


@given(MINUTES, MINUTES, st.floats(0, 2))
@settings(max_examples=examples(40))
@lived
async def test_a_restored_table_orphans_no_stream(world: Watched, copied: float, later: float, again: float) -> None:
    """The table goes from any instant back to any older one, over claims, takeovers and renewals, and once more.

    In the seconds of a renewal the execution in the lease runs, and its lane may wait for the one that was set back. So
    it takes a lane's wait at most.
    """
    world.post()
    await world.after(copied)
    lease = dict(world.lease)
    await world.after(later)
    world.put(lease)
    await world.after(again)
    world.put(lease)
    await world.after(16)
    assert world.is_kept
    assert world.holder in (None, *world.alive)
    assert {one.error or one.output["status"] for one in world.executions if one.status != "RUNNING"} <= {"superseded"}


@lived
async def test_only_the_watch_notices_that_a_restored_stream_is_orphaned(world: Watched) -> None:
    """The running execution reads an older name in the lease and ends; the older one is over. The watch names both."""
    world.post()
    await world.after(10)
    lease = dict(world.lease)
    await world.after(60)
    assert world.alive == [world.holder]
    assert world.holder != lease["execution"]["S"]
    world.put(lease)
    await world.clock.sleep_until(world.clock.now_ms() + HOUR_MS)
    assert world.alive == []
    await world.after(3)
    assert world.is_kept
    (orphan,) = world.found
    assert (orphan.execution, orphan.is_done, orphan.started) == (lease["execution"]["S"], False, world.holder)
    assert orphan.sentence.endswith(f"{orphan.started.rpartition(':')[2]} continues the stream")


@lived
async def test_two_watches_at_once_start_one_execution(world: Watched) -> None:
    """The second watch starts an execution between the check and the start of the first. Both use the same name."""
    world.post()
    await world.after(5)
    world.executions[0].stop()
    await world.clock.sleep_until(world.clock.now_ms() + 15 * MINUTE_MS)
    lease, now_ms = world.leases.read("demo"), world.clock.now_ms()
    others: list[Orphan | None] = []

    class Late(States):
        def start_execution(self, **wanted: str) -> dict[str, Any]:
            others.append(world.orphans.check("demo", lease, now_ms))
            return super().start_execution(**wanted)

    assert [world.orphans_of(Late(world)).check("demo", lease, now_ms)] == others
    await world.after(1)
    assert world.is_kept
    assert len(world.executions) == 2


@lived
async def test_an_aborted_execution_is_started_again(world: Watched) -> None:
    """DELETE is the way to stop a stream. After an abort the function ends, and another execution takes the stream."""
    world.post()
    await world.after(10)
    world.executions[0].stop()
    await world.after(6)
    assert world.is_kept
    assert world.executions[0].status == "ABORTED"


@pytest.mark.parametrize("minutes", [5, 100])
@lived
async def test_a_stream_that_was_stopped_is_not_started_again(world: Watched, minutes: float) -> None:
    """The restored table is older than the stop, by a moment or by renewals. An alert is sent, and nothing runs."""
    world.post()
    await world.after(5)
    lease = dict(world.lease)
    await world.after(minutes)
    world.stop()
    await world.after(1)
    world.put(lease)
    await world.after(120)
    assert (world.alive, world.states.starts_ms) == ([], [])
    assert {(orphan.is_done, orphan.started) for orphan in world.found} == {(True, "")}
    assert "POST starts it again, DELETE ends this alert" in world.found[0].sentence


@lived
async def test_a_stop_request_in_the_lease_holds(world: Watched) -> None:
    """If a stop is requested while no execution runs, nothing is started, and no alert is sent."""
    world.post()
    await world.after(5)
    world.executions[0].stop()
    world.stop()
    await world.after(120)
    assert world.alive == []
    assert (world.states.starts_ms, world.found) == ([], [])


@lived
async def test_an_execution_whose_upstream_is_away_is_left_alone(world: Watched) -> None:
    """While the upstream is away no connection is open, and the execution in the lease runs."""
    world.away, world.began_ms, world.over_ms = {"upstream"}, world.origin_ms, world.origin_ms + HOUR_MS // 2
    world.post()
    await world.after(45)
    assert world.is_kept
    assert (world.states.starts_ms, world.found) == ([], [])


@lived
async def test_a_stream_whose_table_is_restored_again_and_again_starts_once_a_minute(world: Watched) -> None:
    """Each new execution is superseded by the name of one that is over. The next start uses the next name."""
    world.post()
    await world.after(5)
    lease = dict(world.lease)
    world.executions[0].stop()
    await world.after(15)
    for _ in range(20):
        await world.after(0.7)
        world.put(lease)
    await world.after(3)
    assert world.is_kept
    assert len(world.states.starts_ms) > 5


@lived
async def test_an_execution_that_is_aborted_before_it_connects_is_replaced_once_a_minute(world: Watched) -> None:
    """Each execution has claimed the stream, so the lease names another each time. No connection was open meanwhile."""
    world.post()
    await world.after(2)
    for _ in range(12):
        for execution in [one for one in world.executions if one.status == "RUNNING"]:
            execution.stop()
        world.put(world.lease | {"expires_at_ms": {"N": "1"}})
        world.check()
        await world.clock.sleep_until(world.clock.now_ms() + MINUTE_MS // 4)
    await world.after(20)
    assert world.is_kept
    assert len(world.states.starts_ms) == 4


def test_leases_of_two_streams_that_name_one_execution() -> None:
    """After somebody copied a lease, each stream gets an execution of its own, with a name of its own."""
    world = Watched()

    async def story() -> None:
        lease = LEASE | {"execution": {"S": "arn:gone"}, "generation": {"N": "1"}}
        for stream_id in ("demo", "demo:other"):
            world.table.put_item(TableName=TABLE, Item=lease | {"PK": {"S": stream_id}})
            orphan = world.check(stream_id)
            assert orphan is not None
            assert orphan.started
        assert len({one.arn for one in world.executions}) == 2
        await world.clock.sleep_until(world.clock.now_ms() + 1000)

    world.clock.run(story())


@lived
async def test_the_names_of_successors_are_those_that_the_machine_gives(world: Watched) -> None:
    """From the first execution of six hours, the names of the successors lead to the running one."""
    first = world.post()
    await world.after(6 * 60)
    assert len(world.executions) > 5
    states = StepFunctions(lambda: world.states, MACHINE_ARN, lambda: None)
    assert states.newest_successor("demo", first.arn).arn == world.holder
