"""Upgrades of a stage in virtual time: its machine, its steps and its records, while services fail."""

import io
from itertools import cycle
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.connection.orphans import start_input
from handlers.store import typed_values
from handlers.store.control_table import Table
from handlers.store.typed_values import count
from handlers.upgrade.upgrade_items import CODE, MARK
from handlers.upgrade.upgrade_steps import place
from states_language import TaskCall
from tests.examples import examples
from tests.handlers.upgrade.world import CONTROL, FAULTS, FAULTY_CODE, FAULTY_DEFINITION, MACHINE, Run, World

IDS = [f"demo:{number}" for number in range(5)]
BAD = (*FAULTY_CODE, *FAULTY_DEFINITION)
GROUP = "#7"
STREAMS = st.sets(st.sampled_from([*IDS, GROUP]), min_size=1).map(sorted)


def of_streams(world: World) -> dict[str, tuple[str, str]]:
    """Return the version and the definition that each stream's execution runs, unless it was stopped."""
    leases = {stream_id: world.lease(stream_id) for stream_id in world.ids}
    runs = {
        stream_id: world.runs[typed_values.text(lease, "execution") or ""]
        for stream_id, lease in leases.items()
        if "stop" not in lease
    }
    return {stream_id: (run.code, run.definition) for stream_id, run in runs.items()}


def marks(world: World) -> list[str]:
    """Return the streams whose leases still have something of the upgrade."""
    return [stream_id for stream_id in world.ids if {CODE, MARK} & world.lease(stream_id).keys()]


def check(world: World, end: str) -> None:
    """Check what an end promises, whatever failed on the way."""
    assert end in ("Success", "FailureClean", "FailureDirty")
    assert len(world.people) == (end == "FailureDirty")
    if end == "FailureDirty":
        return
    world.tick()
    version, definition = ("2", world.new) if end == "Success" else ("1", world.former)
    assert (world.alias, marks(world)) == (version, [])
    # Before a stream was touched nothing was, and what is deployed stays so.
    assert set(world.steps) == {"check"} or world.deployed.strip() == definition
    if end == "FailureClean":
        # A definition that was not deployed by then is nobody's.
        assert set(of_streams(world).values()) <= {("1", "D1")} or set(world.steps) == {"check"}


def test_where_no_stream_runs_no_wave_is_told() -> None:
    """The alias moves, and the progress counts no streams."""
    world = World([])
    assert (world.upgrade()[0], world.alias) == ("Success", "2")
    assert world.records.read().progress == "no stream is left to hand over"


@pytest.mark.parametrize("before", ["", "arn:before"])
def test_an_upgrade_that_begins_again_is_not_refused(before: str) -> None:
    """The answer to the first request may be lost, even for a stage's first upgrade. Another upgrade is refused."""
    records = World(IDS[:1], "").records
    assert not before or records.begin(before, "")
    assert [records.begin(one, before) for one in ("arn:mine", "arn:mine", "arn:other")] == [True, True, False]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_version_is_taken_back_in_the_first_wave(bad: str) -> None:
    """Whether code or definition is at fault, streams outside the wave keep their execution throughout."""
    world = World(IDS, bad)
    before = {stream_id: typed_values.text(world.lease(stream_id), "execution") for stream_id in IDS}
    end, cause = world.upgrade()
    assert (end, world.steps.count("plan"), world.people) == ("FailureClean", 1, []), cause
    check(world, end)
    assert of_streams(world) == dict.fromkeys(IDS, ("1", "D1"))
    after = {stream_id: typed_values.text(world.lease(stream_id), "execution") for stream_id in IDS}
    untouched = [stream_id for stream_id in IDS if after[stream_id] == before[stream_id]]
    # Who never got a successor stays with its execution.
    assert len(untouched) == (5 if bad == "fails before its claim" else 2)


@pytest.mark.parametrize("bad", ["raises", "dies", "says it stores", "leaks", "fails after its claim"])
def test_a_group_hands_over_as_a_whole_and_back(bad: str) -> None:
    """Its functions and its streams are judged like those of a single stream."""
    world = World([GROUP], bad)
    end, cause = world.upgrade()
    assert end == "FailureClean", cause
    assert of_streams(world) == {GROUP: ("1", "D1")}


def gaps(world: World, stream_id: str) -> list[tuple[int, int, str]]:
    """Return the gaps: from when until when, and why."""
    rows = Table(world.tables, CONTROL).newest(stream_id, "gap#", 10)
    return [(count(row, "from_ms") or 0, count(row, "to_ms") or 0, row["cause"]["S"]) for row in rows]


@pytest.mark.parametrize("stream_id", [IDS[0], GROUP])
def test_what_a_version_said_to_store_and_did_not_is_a_gap(stream_id: str) -> None:
    """It begins at the newest stored event, for the cursor has moved, and lasts to each stream's next connection."""
    world = World([stream_id], "says it stores")
    members = world.members(stream_id)
    before = count(world.lease(members[0])["live"]["M"], "seen_ms") or 0
    assert world.upgrade()[0] == "FailureClean"
    for member in members:
        ((from_ms, to_ms, cause),) = gaps(world, member)
        assert (to_ms, cause) == (count(world.lease(member)["live"]["M"], "opened_ms"), "not_stored")
        assert 0 <= from_ms - before <= 2_000
    assert [one for one in world.ids if gaps(world, one) and one not in members] == []


@pytest.mark.parametrize("stream_id", [IDS[0], GROUP])
def test_what_was_lost_is_a_gap_though_not_all_is_well(stream_id: str) -> None:
    """If a stream does not come back, the gap lasts until the last look."""

    class Dirty(World):
        def wrong(self, run: Run, *kinds: str) -> bool:
            """Return that nobody connects who goes back."""
            return super().wrong(run, *kinds) or ("raises" in kinds and "back" in self.steps and run.code == "1")

    world = Dirty([stream_id], "says it stores")
    end, cause = world.upgrade()
    assert (end, cause in world.people[0], "; not all are well again: " in cause) == ("FailureDirty", True, True)
    for member in world.members(stream_id):
        ((from_ms, to_ms, cause),) = gaps(world, member)
        assert (cause, to_ms - from_ms > 10_000) == ("not_stored", True)
        assert 0 <= world.clock.now_ms() - to_ms < 1_000


def test_who_was_renewed_meanwhile_goes_back_too() -> None:
    """Streams of no wave hand over if their execution has the revoked definition; no other is touched."""
    world = World([*IDS, GROUP], aborts_ms=5_000, renewed=[*IDS, GROUP][::2])
    before = {one: typed_values.text(world.lease(one), "execution") for one in world.ids}
    assert world.upgrade()[0] == "FailureClean"
    check(world, "FailureClean")
    assert of_streams(world) == dict.fromkeys([*IDS, GROUP], ("1", "D1"))
    kept = {one for one in world.ids if typed_values.text(world.lease(one), "execution") == before[one]}
    waved = set(sorted(world.ids, key=place)[:3])
    assert kept == set(world.ids) - waved - set(world.renewed)


def test_who_is_renewed_while_the_service_is_behind_goes_back_too() -> None:
    """A start just after the former definition was deployed may get the other, and is found later."""

    class Renews(World):
        def _update_state_machine(self, **asked: Any) -> Any:
            answer = super()._update_state_machine(**asked)
            last = max(IDS, key=place)
            execution = typed_values.text(self.lease(last), "execution") or ""
            self._start_execution(stateMachineArn=MACHINE, name="renewal", input=start_input(last, execution))
            return answer

    world = Renews(IDS, aborts_ms=5_000)
    assert world.upgrade()[0] == "FailureClean"
    check(world, "FailureClean")
    assert world.runs["arn:of:renewal"].definition == "D2"
    assert of_streams(world) == dict.fromkeys(IDS, ("1", "D1"))


@pytest.mark.parametrize("bad", ["", "raises"])
def test_a_deployment_reaches_streams_by_waves_alone(bad: str) -> None:
    """It leaves the former definition deployed: any start before the last wave is over gets that."""

    class Posts(World):
        def _start_execution(self, **asked: Any) -> Any:
            assert self.begins_with(MACHINE) == "D1 "
            return super()._start_execution(**asked)

    world = Posts(IDS, bad)
    world.versions, world.deployed, world.new, world.stale_ms = ["D1", "D2"], "D1 ", "D2", 0
    world.records.begin("arn:deployment", "")
    world.records.put_aside("arn:deployment", f"{MACHINE}:2")
    end, cause = world.upgrade()
    assert end == ("FailureClean" if bad else "Success"), cause
    runs = ("1", "D1") if bad else ("2", "D2")
    assert (of_streams(world), world.deployed) == (dict.fromkeys(IDS, runs), "D1 " if bad else "D2")
    assert world.records.read().aside == (f"{MACHINE}:2" if bad else "")


def test_a_definition_that_was_put_aside_is_upgraded_to_by_the_next_upgrade() -> None:
    """No deployment deploys it again, for the stack knows nothing of it; a changed one is taken unchanged."""
    world = World(IDS, "fails after its claim")
    assert world.upgrade()[0] == "FailureClean"
    assert (world.deployed, world.records.read().aside) == ("D1 ", f"{MACHINE}:2")
    world.bad = ""
    assert world.upgrade("again")[0] == "Success"
    assert (world.deployed, world.records.read().aside, world.records.read().definition) == ("D2", "", f"{MACHINE}:2")
    # It is a third revision of the machine, and no other definition.
    world.steps.clear()
    assert (world.upgrade("third")[0], world.steps, len(world.versions)) == ("Success", ["check", "promote"], 2)


def test_a_changed_definition_alone_goes_in_waves() -> None:
    """The function is unchanged, and streams are still asked."""
    world = World(IDS)
    world.code = "1"
    assert world.upgrade()[0] == "Success"
    assert (world.steps.count("plan"), set(of_streams(world).values())) == (2, {("1", "D2")})


def test_a_first_upgrade_to_what_streams_run_asks_none_of_them() -> None:
    """No upgrade has recorded a definition yet, so the deployed one counts as theirs."""
    world = World(IDS)
    world.code, before = "1", of_streams(world)
    world.tables.put_item(TableName=CONTROL, Item=typed_values.key("#", "upgrade"))
    assert (world.upgrade()[0], world.steps, of_streams(world)) == ("Success", ["check", "promote"], before)


def test_versions_of_the_machine_that_nothing_refers_to_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Step Functions keeps a thousand, and would refuse another; the newest ones stay, and the one that streams run."""
    monkeypatch.setattr("handlers.upgrade.deployed.MOST_VERSIONS", 2)
    world = World(IDS)
    world.versions, world.published, world.revision = [f"D{n}" for n in (1, 3, 4, 5, 6)], 9, 10
    assert (world.upgrade()[0], world.versions) == ("Success", [None, None, None, None, "D6", "D2"])
    world.versions, world.deployed = ["D2", "D3", "D4", "D5"], "D2"
    world.records.promote(world.records.read().execution, f"{MACHINE}:1")
    assert (world.upgrade("again")[0], world.versions) == ("Success", ["D2", None, "D4", "D5"])


@pytest.mark.parametrize(("bad", "end"), [("", "Success"), ("raises", "FailureClean")])
def test_steps_that_run_out_of_time_leave_nothing_behind(bad: str, end: str) -> None:
    """Each has time for one stream; the next continues there, until no lease has anything of the upgrade."""
    world = World([*IDS, GROUP], bad, is_late=cycle([False, True]).__next__)
    assert world.upgrade()[0] == end
    check(world, end)
    # Code and definition, of single streams and of a group.
    assert set(of_streams(world).values()) == {("1", "D1") if bad else ("2", "D2")}


@settings(max_examples=examples(60), deadline=None)
@given(
    STREAMS,
    st.sampled_from(["", *BAD]),
    st.lists(st.sampled_from(FAULTS), max_size=150),
    st.dictionaries(st.integers(1, 40), st.sampled_from(IDS), max_size=2),
    st.sampled_from([0, 0, 0, 1_000, 8_000, 20_000]),
    st.sets(st.sampled_from([*IDS, GROUP])),
)
def test_whatever_fails_an_upgrade_ends_as_it_says(
    ids: list[str], bad: str, faults: list[str], stops: dict[int, str], aborts_ms: int, renewed: set[str]
) -> None:
    """Requests are refused, lost or their function's last; streams are stopped; a person aborts.

    If the end is clean, neither the alias nor a stream is on the bad version.
    """
    # Nobody is renewed with a definition that does not come as far as its claim.
    world = World(ids, bad, faults, stops, aborts_ms, renewed=() if bad in FAULTY_DEFINITION else renewed)
    end, _ = world.upgrade()
    check(world, end)
    # A bad version is never promoted while a stream shows that it is bad.
    assert not (end == "Success" and bad and not stops)


def test_a_version_is_what_streams_run_once_the_alias_names_it() -> None:
    """If the alias cannot be moved, the former definition stays the one to go back to."""

    class Stuck(World):
        def _update_alias(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "ResourceConflictException"}}, "UpdateAlias")

    world = Stuck(IDS)
    assert world.upgrade()[0] != "Success"
    assert world.records.read().definition == f"{MACHINE}:1"


def test_nothing_is_touched_where_another_upgrade_runs_or_the_version_does_not_start() -> None:
    """The cause says which of the two."""

    class Busy(World):
        def _describe_execution(self, *, executionArn: str) -> Any:
            return {"status": "RUNNING" if executionArn.endswith("other") else "SUCCEEDED"}

    class Dead(World):
        def _invoke(self, **_: Any) -> Any:
            return {"Payload": io.BytesIO(b'{"errorType": "Runtime.ImportModuleError", "errorMessage": "no module"}')}

    busy, dead = Busy(IDS), Dead(IDS)
    assert busy.records.begin("arn:other", "")
    for world, cause in ((busy, "Another upgrade runs"), (dead, "Version 2 of the function does not start")):
        end = world.upgrade()
        assert (end[0], cause in end[1], marks(world), world.alias) == ("FailureClean", True, [], "1"), end


def test_somebody_may_have_it_go_back_and_try_again() -> None:
    """This works while a wave is watched; the next upgrade ignores that wish."""
    world = World(IDS, aborts_ms=5_000)
    end, cause = world.upgrade()
    assert (end, world.steps.count("plan"), cause) == ("FailureClean", 1, "a roll-back was requested")
    assert of_streams(world) == dict.fromkeys(IDS, ("1", "D1"))
    world.aborts_ms = 0
    assert world.upgrade("again")[0] == "Success"


def test_a_wish_to_go_back_outlives_a_check_that_is_repeated() -> None:
    """AWS refused the version at first, and the wish came before the next try."""

    class Impatient(World):
        async def perform(self, call: TaskCall) -> Any:
            """Have it go back before the second try."""
            if self.steps == ["check"]:
                self.records.abort(call.payload["execution"])
            return await super().perform(call)

    world = Impatient(IDS, faults=["", "", "refused"])
    assert world.upgrade() == ("FailureClean", "a roll-back was requested")


def test_a_successor_whose_start_was_lost_is_started_again() -> None:
    """The stream's lease says by then that it was asked."""

    class Lossy(World):
        lost = False

        def _start_execution(self, **asked: Any) -> Any:
            if not self.lost:
                self.lost = True
                raise ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")
            return super()._start_execution(**asked)

    world = Lossy(IDS)
    assert world.upgrade() == ("Success", "")
    check(world, "Success")


def test_a_stream_that_another_execution_has_taken_since_is_not_asked() -> None:
    """It was read before that; its present holder is read again."""
    world = World(IDS[:1])
    item = world.lease(IDS[0])
    taken = item | {"execution": {"S": "arn:another"}}
    world.tables.put_item(TableName=CONTROL, Item=taken)
    assert [world.records.ask(one, "2", world.start_ms, {}) for one in (item, taken)] == [False, True]
