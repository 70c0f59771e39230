"""A budget of events and bytes a day, in virtual time: what counts, what happens beyond it, and what is reported."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from handlers.api import status
from handlers.api.last_error import Retries
from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.lease import unconnected_ms
from handlers.connection.spending import DAY_MS, Account, Spending, spending_of
from handlers.framing.events import StreamEvent
from handlers.profile.budget_field import Budget, SharedBudget, with_stage
from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse
from handlers.segments.codec import unpack
from handlers.store.leases import budget_alert
from handlers.store.stream_records import StreamRecords
from local.costs import month
from local.costs.counted_run import NAMES, CountedSandbox, CountedStream, GroupSandbox, resolve_machine
from local.costs.model import Load
from local.costs.model import load_profile as priced_profile
from local.simulation import groups
from local.simulation.tables import MemoryDynamoDB
from local.simulation.virtual_stage import INPUT, VirtualStage
from tests.handlers.context import Killed
from tests.handlers.scripted import Functions, Script

# Twenty minutes before a day of UTC is over.
LATE_MS = 20_000 * DAY_MS + DAY_MS - 1_200_000
BUDGET: dict[str, Any] = {"events_per_day": 10}


class World(Functions):
    """Functions of a stream with ids, one after the other."""

    origin_ms = LATE_MS
    lease_every_ms = 5_000

    def __init__(self, *scripts: Script, looks_s: Sequence[int] = ()) -> None:
        self.told: dict[int, dict[str, Any]] = {}
        actions = [(LATE_MS + 1_000 * at_s, lambda at_s=at_s: self.looks(at_s)) for at_s in looks_s]
        self.scripts = scripts
        super().__init__(self.plays, actions)
        held = {"PK": "demo", "SK": "lease", "execution": "E1", "started_at": "2024-10-04T23:40:00.000Z"}
        self.tables.put_item(TableName="control", Item={name: {"S": value} for name, value in held.items()})

    def plays(self) -> Script:
        return self.scripts[len(self.opened)]

    @property
    def spent(self) -> Spending:
        """Return the record's figures of the budget."""
        found = spending_of(self.lease_item["live"]["M"]["spending"]["S"])
        assert found is not None
        return found

    def looks(self, at_s: int) -> None:
        """Remember the present status."""
        self.told[at_s] = self.shown()

    def stored(self) -> list[str]:
        """Return the ids of the stored events, in order of arrival."""
        return sorted((item["id"]["S"] for item in items(self.tables, "events") if "id" in item), key=int)

    def logged(self) -> list[list[str | None]]:
        """Return the ids in each segment of the log."""
        every = [item for item in items(self.tables, "events") if "events" in item]
        return [[one.id for one in unpack(item["data"]["B"])] for item in every]

    def shown(self) -> dict[str, Any]:
        """Return the stream's present status."""
        records = StreamRecords(self.tables, "control").read("demo")
        assert records is not None
        return status.answer("demo", records, self.now_ms, 20_000, Retries(20_000, 300_000))


def items(tables: MemoryDynamoDB, name: str) -> list[dict[str, Any]]:
    return list(tables._tables[name].values())


def sends(*chunks: tuple[int, int, int]) -> Script:
    """Send an answer, and so many seconds later the events of these numbers, in a chunk each."""
    script: Script = [(0, Opened(200))]
    for at_s, first, last in chunks:
        events = "".join(f"id: {one}\ndata: {one:03d}\n\n" for one in range(first, last + 1))
        script.append((1_000 * at_s, Chunk(events.encode())))
    return script


def test_the_budget_counts_each_event_once_over_functions() -> None:
    """The count covers the day's events and bytes, each once, over all functions, and begins at 0 the next day."""
    world = World(sends((10, 1, 4)), sends((1, 3, 6), (800, 7, 9)), sends((10, 10, 11)), looks_s=(1_000,))
    world.start_function(budget=BUDGET)
    assert (world.spent.events, world.spent.bytes) == (4, 12)
    assert budget_alert(world.lease_item, world.now_ms) == ""
    world.start_function(budget=BUDGET)
    # Of the four events of one write, two were known: the bytes are counted in proportion.
    today = world.told[1_000]["budget"]
    assert (today["events"], today["bytes"]) == (6, 18)
    assert world.spent == Spending(20_001, 3, 9, 0, 10, 0, "go on")
    key = {"PK": {"S": "demo"}, "SK": {"S": "connection#000000000001"}}
    before = world.tables.get_item(TableName="control", Key=key)["Item"]
    assert spending_of(before["spending"]["S"]) == Spending(20_000, 4, 12, 0, 10, 0, "go on")
    world.start_function(budget=BUDGET)
    assert (world.spent.day, world.spent.events) == (20_001, 5)
    assert world.stored() == [str(one) for one in range(1, 12)]


def test_beyond_its_budget_a_stream_pauses_until_the_day_is_over() -> None:
    """Beyond its budget a stream stores the events already read and pauses until midnight UTC.

    The gap and the status name the cause.
    """
    world = World(sends((60, 1, 8), (120, 9, 12), (180, 13, 20)), sends((60, 13, 14)), looks_s=(70, 700))
    budget = BUDGET | {"then": "pause"}
    assert world.start_function(budget=budget).outcome.error == "StreamDropped"
    assert world.stored() == [str(one) for one in range(1, 13)]
    assert world.spent == Spending(20_000, 12, 36, 0, 10, 0, "pause")
    # The next functions back off; the stream connects when the day is over.
    while len(world.opened) < 2:
        world.start_function(budget=budget)
    assert world.opened_at_ms == [0, 1_200_000]
    assert (world.spent.day, world.spent.events) == (20_001, 2)
    words = "80 % of the day's budget of 10 events is used"
    assert (world.told[70]["reason"], world.told[70]["verdict"]) == (
        words,
        f"Connected 1 min 10 s. {words}. Nothing lost.",
    )
    paused = world.told[700]
    assert paused["status"] == "reconnecting"
    assert paused["verdict"].startswith("Away 9 min 40 s: the budget of the day is used up.")
    day = {"day_at": "2024-10-04T00:00:00.000Z", "paused_until_at": "2024-10-05T00:00:00.000Z"}
    used = {"events": 12, "bytes": 36, "left_out": 0, "events_per_day": 10, "bytes_per_day": None, "used_percent": 120}
    assert paused["budget"] == day | used | {"of": "stream", "then": "pause"}
    assert paused["last_error"]["cause"] == "over_budget"
    assert paused["last_error"]["tried_again_at"] == "2024-10-05T00:00:00.000Z"
    gaps = [gap for gap in world.shown()["coverage"]["gaps"] if gap["cause"] == "over_budget"]
    assert [gap["length_ms"] for gap in gaps] == [1_080_000]


@pytest.mark.parametrize("whose", ["profile", "stage"])
def test_a_shared_budget_that_other_streams_have_used_pauses_a_stream(whose: str) -> None:
    """Each stream adds to a shared count once a minute and at its end; the next day has its own count."""
    world = World(sends((10, 1, 2), (60, 3, 4), (200, 5, 6)), sends((30, 7, 8)), looks_s=(100,))
    name, others = "stage" if whose == "stage" else f"profile:{world.profile().name}", 15
    place = {"PK": "#", "SK": f"spent#{name}#20000"}
    world.tables.put_item(
        TableName="control", Item={key: {"S": value} for key, value in place.items()} | {"events": {"N": str(others)}}
    )
    asked = world.profile(budget={"profile_events_per_day": 20, "then": "pause"})
    if whose == "stage":
        alone = world.profile(budget={"events_per_day": 100, "then": "pause"}).budget
        asked = replace(asked, budget=with_stage(alone, 20, 0))
    world.run(asked, world.invocation("A"))
    assert world.stored() == ["1", "2", "3", "4", "5", "6"]
    shown = world.shown()
    assert (shown["budget"]["of"], shown["budget"]["used_percent"]) == (whose, 105)
    assert world.told[100]["reason"] == f"95 % of the day's budget of the {whose} is used"
    words = f"105 % of the day's budget of the {whose} is used: paused"
    assert budget_alert(world.lease_item, world.now_ms).startswith(words)
    while len(world.opened) < 2:
        world.run(asked, world.invocation("A"))
    assert world.opened_at_ms == [0, 1_200_000]
    counts = {item["SK"]["S"]: item["events"]["N"] for item in items(world.tables, "control") if "events" in item}
    assert counts == {f"spent#{name}#20000": "21", f"spent#{name}#20001": "2"}


def test_a_used_up_shared_budget_holds_while_another_is_read() -> None:
    """A stream stays within the stage's used-up budget even if its profile's budget, read in turn, has some left."""
    stored = []
    for of_profile in ({}, {"profile_events_per_day": 1_000}):
        world = World(sends(*((at_s, 10 * at_s - 9, 10 * at_s) for at_s in range(1, 50))))
        place = {"PK": {"S": "#"}, "SK": {"S": "spent#stage#20000"}}
        world.tables.put_item(TableName="control", Item=place | {"events": {"N": "100000"}})
        own = world.profile(budget={"events_per_day": 9_000, **of_profile, "then": "sample", "keep_one_in": 2})
        world.run(replace(own, budget=with_stage(own.budget, 100_000, 0)), world.invocation("A"))
        stored.append(world.stored())
    assert stored[0] == stored[1]
    assert len(stored[0]) < 300


def test_a_shared_count_of_yesterday_does_not_count_today() -> None:
    """A shared count read for yesterday does not count after midnight: it would pause the stream all day."""
    account = Account(with_stage(Budget(0, 0, "pause", 0), 10, 0))
    account.read_answer(DAY_MS, None, (0, 100, "stage"))
    assert account.pause_s(DAY_MS) is None
    account.read_answer(DAY_MS, None, (1, 100, "stage"))
    assert account.pause_s(DAY_MS) == 86_400


def test_each_connection_of_a_function_adds_only_its_own_events_to_a_shared_budget() -> None:
    """Each connection counts from 0, so a second connection of a function subtracts nothing from a shared budget."""
    dropped = [*sends((10, 1, 10)), (20_000, Closed("reset"))]
    world = World(dropped, [*sends((10, 11, 13)), (20_000, Closed("reset"))], sends((10, 14, 14)))
    world.start_function(budget={"profile_events_per_day": 100}, reconnect_tries=2)
    assert (world.call_count, len(world.opened), len(world.stored())) == (1, 3, 14)
    counts = {item["SK"]["S"]: item["events"]["N"] for item in items(world.tables, "control") if "events" in item}
    assert counts == {"spent#profile:demo#20000": "14"}


def test_a_raised_budget_ends_a_pause() -> None:
    """A pause ends with a higher budget, with a budget that does not pause, and without a budget."""
    budgets: list[Any] = [BUDGET | {"then": "pause", "events_per_day": 100}, BUDGET, None]
    for budget in budgets:
        world = World(sends((60, 1, 12)), sends((1, 13, 14)))
        world.start_function(budget=BUDGET | {"then": "pause"})
        world.now_ms += 10_000
        world.start_function(**({} if budget is None else {"budget": budget}))
        assert world.opened_at_ms == [0, 70_000]
        assert world.stored()[-1] == "14"


def test_a_paused_stream_does_not_count_as_away() -> None:
    """A paused stream does not count as away until the day is over; from then on it does."""
    world = World(sends((60, 1, 12)))
    world.start_function(budget=BUDGET | {"then": "pause"})
    records = StreamRecords(world.tables, "control").read("demo")
    assert records is not None
    held, ends_ms = records.lease, LATE_MS + 1_200_000
    assert [unconnected_ms(held, at_ms) for at_ms in (ends_ms - 1, ends_ms, ends_ms + 5_000)] == [0, 0, 5_000]
    assert budget_alert(world.lease_item, world.now_ms) == (
        "120 % of the day's budget of 10 events is used: paused until 00:00 UTC"
    )
    assert budget_alert(world.lease_item, ends_ms) == ""


def test_beyond_its_budget_a_sample_is_kept_and_the_rest_counted() -> None:
    """Beyond the budget, keys decide which events are kept, so each connection keeps the same; the cursor advances."""
    budget = BUDGET | {"then": "sample", "keep_one_in": 4}
    script = sends((60, 1, 12), (120, 13, 112))
    first, second = World(script), World(script)
    for world in (first, second):
        world.start_function(budget=budget)
    kept = [int(one) for one in first.stored() if int(one) > 12]
    assert first.stored() == second.stored()
    assert 10 < len(kept) < 45
    assert first.spent == Spending(20_000, 12 + len(kept), 36 + 3 * len(kept), 100 - len(kept), 10, 0, "sample")
    assert first.lease_item["cursor"] == {"S": "112"}
    shown = first.shown()
    assert (shown["counts"]["left_out"], shown["budget"]["left_out"]) == (100 - len(kept),) * 2
    assert budget_alert(first.lease_item, first.now_ms).endswith(f"is used: events left out: {100 - len(kept)}")


def test_a_budget_of_bytes_pauses_a_stream() -> None:
    """A budget of bytes pauses a stream as well; the bytes are those of the event's UTF-8."""
    account = Account(Budget(0, 1_000, "pause", 0))
    account.record_sent([StreamEvent("k", "é" * 400, None, None, None, 0)], joins=False)
    account.record_stored(DAY_MS, 1, 1)
    assert (account.spent.bytes, account.spent.share, account.pause_s(DAY_MS + 1)) == (800, 0.8, None)
    account.record_sent([StreamEvent("l", b"x" * 200, None, None, None, 0)], joins=False)
    account.record_stored(DAY_MS, 1, 1)
    assert account.pause_s(2 * DAY_MS - 500) == 0.5
    assert account.pause_s(2 * DAY_MS) is None


def test_an_invalid_budget_is_refused_in_one_sentence() -> None:
    """An invalid budget is refused with one sentence that names the field and a valid value."""
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "nothing": ({}, "budget must have at least one of events_per_day, bytes_per_day, profile_events_per_day, "),
        "zero": ({"events_per_day": 0}, "events_per_day must be a whole number from 1 to 1000000000000"),
        "never": ({**BUDGET, "then": "stop"}, "then must be one of go on, sample, log, pause"),
        "sample": ({**BUDGET, "then": "sample"}, 'keep_one_in is missing: then = "sample" keeps one event of so many'),
        "all": ({**BUDGET, "then": "sample", "keep_one_in": 1}, "keep_one_in must be a whole number from 2 to 1000000"),
        "share": ({**BUDGET, "keep_one_in": 5}, 'keep_one_in works only with then = "sample"'),
        "more": ({**BUDGET, "days": 1}, "profile_events_per_day, profile_bytes_per_day, then, keep_one_in"),
    }
    for name, (budget, sentence) in wrong.items():
        with pytest.raises(BadProfile) as refused:
            parse("demo", {"address": "https://example.com", "framing": "sse", "budget": budget}, {})
        (problem,) = refused.value.problems
        assert sentence in problem, name


def test_only_ordered_items_go_over_to_a_log() -> None:
    """Only ordered items can go over to a log: items without order, or with several bodies of a key, would be lost."""
    table: dict[str, Any] = {"address": "https://example.com", "framing": "sse", "budget": BUDGET | {"then": "log"}}
    assert parse("demo", table | {"flush_s": 2, "dedup_window_s": 60}, {}).flush_ms == 2_000
    for more in ({"store": "log"}, {"order": "none"}, {"on_conflict": "both"}, {"on_conflict": "epoch"}):
        with pytest.raises(BadProfile, match=r'budget.then can be "log" only with store = "items", order = "index"'):
            parse("demo", table | more, {})


def test_beyond_its_budget_a_stream_goes_over_to_a_log() -> None:
    """After the write that reaches the budget, a stream stores in a log for good; a repeated event is stored once."""
    world = World(sends((60, 1, 8), (120, 9, 12), (180, 11, 20), (181, 21, 22)), sends((60, 19, 24)))
    budget = BUDGET | {"then": "log"}
    world.start_function(budget=budget, flush_s=5)
    assert world.stored() == [str(one) for one in range(1, 13)]
    assert world.logged() == [[str(one) for one in range(13, 23)]]
    assert (world.lease_item["partitions"], world.lease_item["item_partitions"]) == ({"N": "0"}, {"N": "1"})
    words = "220 % of the day's budget of 10 events is used: what comes is stored in a log"
    assert budget_alert(world.lease_item, world.now_ms) == words
    world.start_function(budget=budget, flush_s=5)
    assert world.logged()[1:] == [["23", "24"]]
    assert world.spent == Spending(20_000, 24, 72, 0, 10, 0, "log")


class Night(World):
    """Each function is killed after 4.9 s, before its next heartbeat; the upstream sends fifty events a second."""

    resumes, releases_dead = True, False

    def plays(self) -> Script:
        """Send the events after the cursor if the stream resumes, and then seven events at a time."""
        now = 7 * ((self.now_ms - LATE_MS) // 140)
        behind = int(self.lease_item.get("cursor", {"S": "0"})["S"]) if self.resumes else now
        chunks = [(behind + 1, now), *((one, one + 6) for one in range(now + 1, now + 700, 7))]
        return [(140 * at, one) for at, chunk in enumerate(chunks) for _, one in sends((0, *chunk))[at > 0 :]]

    def dies(self) -> None:
        """Kill the function; another function may release its connection, as a group's does."""
        self.readers.clear()
        if self.releases_dead:
            self.tables.put_item(TableName="control", Item=self.lease_item | {"released": self.lease_item["connected"]})
        raise Killed

    def is_killed(self, **fields: Any) -> bool:
        """Return whether the next function is killed."""
        self._actions.append((self.now_ms + 4_900, self.dies))
        with suppress(Killed):
            self.start_function(**fields)
            self._actions.clear()
            return False
        return True


@pytest.mark.parametrize(
    ("fields", "write", "releases_dead"),
    [
        pytest.param({}, 7, False, id="resumes"),
        pytest.param({}, 7, True, id="released by another"),
        pytest.param({"resume": "none"}, 7, False, id="does not resume"),
        pytest.param({"store": "log", "flush_s": 1}, 50, False, id="log"),
    ],
)
def test_kills_do_not_exceed_a_budget(fields: dict[str, Any], write: int, releases_dead: bool) -> None:
    """Kills exceed a budget by less than one write; for each kill at most a hundredth of it is assumed to be used."""
    world = Night()
    world.resumes, world.releases_dead = "resume" not in fields, releases_dead
    killed = [world.is_killed(budget={"events_per_day": 2_000, "then": "pause"}, **fields) for _ in range(15)]
    kills = sum(killed[: len(world.opened) - 1])
    assert kills >= 7
    assert world.spent.events >= 2_000
    assert 2_000 - 20 * kills <= len(world.stored()) + sum(map(len, world.logged())) < 2_000 + write


def test_kills_leave_a_hundredth_of_a_shared_budget_uncounted() -> None:
    """Each connection adds to a shared count at each hundredth of the budget, even before its first heartbeat."""
    world = Night()
    budget = {"profile_events_per_day": 2_000, "then": "pause"}
    killed = [world.is_killed(budget=budget) for _ in range(15)]
    kills = sum(killed[: len(world.opened) - 1])
    assert 7 <= kills < 14
    assert 2_000 <= len(world.stored()) < 2_000 + 20 * (kills + 1) + 7


@pytest.mark.cpu(6)
@pytest.mark.parametrize("kills_s", [(), pytest.param((190,), marks=pytest.mark.long)])
def test_the_count_survives_handovers_and_kills(kills_s: tuple[int, ...]) -> None:
    """With the deployed machine, every stored event counts once over eight connections and a kill."""
    source = month.read_scenario("local")
    source = replace(source, kills_ms=tuple(1_000 * one for one in kills_s))
    stage = VirtualStage(source, resolve_machine(source), NAMES)
    clock = stage.clock
    asked = replace(priced_profile(source, Load(1, 2, 100, "items", None)), budget=Budget(10**6, 0, "go on", 0))

    async def run() -> tuple[int, int, int]:
        sandbox = CountedSandbox(stage, asked, CountedStream(asked, 2, 100).upstream(clock, 900))
        stage.executions.begin(INPUT, sandbox.perform)
        await clock.sleep_until(clock.now_ms() + 310_000)
        StreamRecords(sandbox.tables, NAMES["control_table"]).stop(
            "replay", "2026-01-01T00:05:10.000Z", may_start=False
        )
        await clock.sleep_until(clock.now_ms() + 60_000)
        stored = len(items(sandbox.meter.tables, NAMES["events_table"]))
        lease = {"PK": {"S": "replay"}, "SK": {"S": "lease"}}
        item = sandbox.tables.get_item(TableName=NAMES["control_table"], Key=lease)["Item"]
        spent = spending_of(item["live"]["M"]["spending"]["S"])
        assert spent is not None
        return spent.events, stored, int(item["fence"]["N"])

    counted, stored, connections = clock.run(run())
    assert connections >= 8
    assert stored > 600
    assert counted == stored


@pytest.mark.long
@pytest.mark.parametrize("store", ["items", "log"])
def test_a_group_counts_each_of_its_streams(store: str) -> None:
    """A group counts each of its streams in its heartbeats; every stored event counts once over its handovers."""
    source = month.read_scenario("local")
    stage = VirtualStage(source, resolve_machine(source), NAMES)
    clock, load = stage.clock, Load(3, 2, 100, store, None if store == "items" else 2, per_function=3)
    wide = (SharedBudget("profile", 10**6, 0), SharedBudget("stage", 10**6, 0))
    asked = replace(priced_profile(source, load), budget=Budget(10**6, 0, "go on", 0, wide))

    async def run() -> None:
        stream = CountedStream(asked, 2, 100)
        upstreams = {f"replay:{number}": stream.upstream(clock, 900, number) for number in range(3)}
        sandbox = GroupSandbox(stage, stream, upstreams)
        stage.executions.begin(groups.INPUT, sandbox.perform)
        await clock.sleep_until(clock.now_ms() + 200_000)
        records = StreamRecords(sandbox.tables, NAMES["control_table"])
        for name in upstreams:
            records.stop(name, "2026-01-01T00:03:20.000Z", may_start=False)
        await clock.sleep_until(clock.now_ms() + 60_000)
        events, stored = items(sandbox.meter.tables, NAMES["events_table"]), 0
        for name in upstreams:
            read = records.read(name)
            assert read is not None
            assert read.spending is not None
            own = [
                item for item in events if item["PK"]["S"].startswith(name) and ("events" in item or store == "items")
            ]
            assert read.lease.fence >= 5
            assert read.spending.events == sum(int(item.get("events", {"N": "1"})["N"]) for item in own) > 300
            stored += read.spending.events
        shared = [one for one in items(sandbox.meter.tables, NAMES["control_table"]) if "spent#" in one["SK"]["S"]]
        assert [int(one["events"]["N"]) for one in shared] == [stored, stored]

    clock.run(run())
