"""Upgrades of a stage in virtual time: its machine, its steps and its records, while services fail."""

import io
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.connection.orphans import start_input
from handlers.store import typed_values
from handlers.store.control_table import Table
from handlers.store.typed_values import read_int
from handlers.upgrade.upgrade_items import CODE, MARK
from handlers.upgrade.upgrade_steps import WHOLE, place, step
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
        stream_id: world.runs[typed_values.read_text(lease, "execution") or ""]
        for stream_id, lease in leases.items()
        if "stop" not in lease
    }
    return {stream_id: (run.code, run.definition) for stream_id, run in runs.items()}


def marks(world: World) -> list[str]:
    """Return the streams whose leases still have a mark of the upgrade."""
    return [stream_id for stream_id in world.ids if {CODE, MARK} & world.lease(stream_id).keys()]


def check(world: World, end: str) -> None:
    """Check what each end of an upgrade promises, whatever failed on the way."""
    assert end in ("Success", "FailureClean", "FailureDirty")
    assert len(world.people) == (end == "FailureDirty")
    if end == "FailureDirty":
        return
    world.tick()
    version, definition = ("2", world.new) if end == "Success" else ("1", world.former)
    assert (world.alias, marks(world)) == (version, [])
    # If no stream was touched, the deployed definition stays as it was.
    assert set(world.steps) == {"check"} or world.deployed.strip() == definition
    if end == "FailureClean":
        # Then no execution runs another definition.
        assert set(of_streams(world).values()) <= {("1", "D1")} or set(world.steps) == {"check"}


def test_an_upgrade_without_streams_reports_no_wave() -> None:
    """Without running streams the alias moves, and the progress counts none."""
    world = World([])
    assert (world.upgrade()[0], world.alias) == ("Success", "2")
    assert world.records.read().progress == "no stream is left to hand over"


@pytest.mark.parametrize("before", ["", "arn:before"])
def test_an_upgrade_that_begins_again_is_not_refused(before: str) -> None:
    """An upgrade may repeat its beginning, because the first answer may be lost; another upgrade is refused."""
    records = World(IDS[:1], "").records
    assert not before or records.begin(before, "")
    assert [records.begin(one, before) for one in ("arn:mine", "arn:mine", "arn:other")] == [True, True, False]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_version_is_taken_back_in_the_first_wave(bad: str) -> None:
    """A bad version of code or definition goes back in the first wave; streams outside keep their execution."""
    world = World(IDS, bad)
    before = {stream_id: typed_values.read_text(world.lease(stream_id), "execution") for stream_id in IDS}
    end, cause = world.upgrade()
    assert (end, world.steps.count("plan"), world.people) == ("FailureClean", 1, []), cause
    check(world, end)
    assert of_streams(world) == dict.fromkeys(IDS, ("1", "D1"))
    after = {stream_id: typed_values.read_text(world.lease(stream_id), "execution") for stream_id in IDS}
    untouched = [stream_id for stream_id in IDS if after[stream_id] == before[stream_id]]
    # A stream whose successor never claimed it stays with its execution.
    assert len(untouched) == (5 if bad == "fails before its claim" else 2)


@pytest.mark.parametrize("bad", ["raises", "dies", "says it stores", "leaks", "fails after its claim"])
def test_a_group_hands_over_as_a_whole_and_back(bad: str) -> None:
    """A group hands over and goes back as a whole; its functions and streams are judged like single streams."""
    world = World([GROUP], bad)
    end, cause = world.upgrade()
    assert end == "FailureClean", cause
    assert of_streams(world) == {GROUP: ("1", "D1")}


def gaps(world: World, stream_id: str) -> list[tuple[int, int, str]]:
    """Return the gaps of a stream: begin, end and cause."""
    rows = Table(world.tables, CONTROL).newest_records(stream_id, "gap#", 10)
    return [(read_int(row, "from_ms") or 0, read_int(row, "to_ms") or 0, row["cause"]["S"]) for row in rows]


@pytest.mark.parametrize("stream_id", [IDS[0], GROUP])
def test_events_that_a_version_only_counted_as_stored_are_a_gap(stream_id: str) -> None:
    """The gap begins at the newest stored event, because the cursor has moved, and ends at the next connection."""
    world = World([stream_id], "says it stores")
    members = world.members(stream_id)
    before = read_int(world.lease(members[0])["live"]["M"], "seen_ms") or 0
    assert world.upgrade()[0] == "FailureClean"
    for member in members:
        ((from_ms, to_ms, cause),) = gaps(world, member)
        assert (to_ms, cause) == (read_int(world.lease(member)["live"]["M"], "opened_ms"), "not_stored")
        assert 0 <= from_ms - before <= 2_000
    assert [one for one in world.ids if gaps(world, one) and one not in members] == []


@pytest.mark.parametrize("stream_id", [IDS[0], GROUP])
def test_a_loss_is_a_gap_even_if_the_stream_does_not_come_back(stream_id: str) -> None:
    """If a stream does not come back, the gap of its loss lasts until the last check."""

    class Dirty(World):
        def wrong(self, run: Run, *kinds: str) -> bool:
            """Return whether the execution is faulty: no execution connects that goes back."""
            return super().wrong(run, *kinds) or ("raises" in kinds and "back" in self.steps and run.code == "1")

    world = Dirty([stream_id], "says it stores")
    end, cause = world.upgrade()
    assert (end, cause in world.people[0], "; not all are well again: " in cause) == ("FailureDirty", True, True)
    for member in world.members(stream_id):
        ((from_ms, to_ms, cause),) = gaps(world, member)
        assert (cause, to_ms - from_ms > 10_000) == ("not_stored", True)
        assert 0 <= world.clock.now_ms() - to_ms < 1_000


def test_streams_renewed_with_the_revoked_definition_go_back_too() -> None:
    """A stream of no wave goes back only if its execution has the revoked definition; no other is touched."""
    world = World([*IDS, GROUP], aborts_ms=5_000, renewed=[*IDS, GROUP][::2])
    before = {one: typed_values.read_text(world.lease(one), "execution") for one in world.ids}
    assert world.upgrade()[0] == "FailureClean"
    check(world, "FailureClean")
    assert of_streams(world) == dict.fromkeys([*IDS, GROUP], ("1", "D1"))
    kept = {one for one in world.ids if typed_values.read_text(world.lease(one), "execution") == before[one]}
    waved = set(sorted(world.ids, key=place)[:3])
    assert kept == set(world.ids) - waved - set(world.renewed)


def test_streams_renewed_while_the_service_lags_go_back_too() -> None:
    """A start just after the former definition was deployed may get the other one, and is found later."""

    class Renews(World):
        def _update_state_machine(self, **asked: Any) -> Any:
            answer = super()._update_state_machine(**asked)
            last = max(IDS, key=place)
            execution = typed_values.read_text(self.lease(last), "execution") or ""
            self._start_execution(stateMachineArn=MACHINE, name="renewal", input=start_input(last, execution))
            return answer

    world = Renews(IDS, aborts_ms=5_000)
    assert world.upgrade()[0] == "FailureClean"
    check(world, "FailureClean")
    assert world.runs["arn:of:renewal"].definition == "D2"
    assert of_streams(world) == dict.fromkeys(IDS, ("1", "D1"))


@pytest.mark.parametrize("bad", ["", "raises"])
def test_a_deployment_reaches_streams_by_waves_alone(bad: str) -> None:
    """A deployment leaves the former definition deployed, so any start before the last wave's end gets that one."""

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
    """The next upgrade uses a definition that was put aside, because no deployment deploys it again."""
    world = World(IDS, "fails after its claim")
    assert world.upgrade()[0] == "FailureClean"
    assert (world.deployed, world.records.read().aside) == ("D1 ", f"{MACHINE}:2")
    world.bad = ""
    assert world.upgrade("again")[0] == "Success"
    assert (world.deployed, world.records.read().aside, world.records.read().definition) == ("D2", "", f"{MACHINE}:2")
    # The machine has a third revision, but the same definition.
    world.steps.clear()
    assert (world.upgrade("third")[0], world.steps, len(world.versions)) == ("Success", ["check", "promote"], 2)


def test_a_changed_definition_alone_goes_in_waves() -> None:
    """A changed definition alone is upgraded in waves too, with an unchanged function."""
    world = World(IDS)
    world.code = "1"
    assert world.upgrade()[0] == "Success"
    assert (world.steps.count("plan"), set(of_streams(world).values())) == (2, {("1", "D2")})


def test_a_first_upgrade_without_a_change_asks_no_stream() -> None:
    """Before any upgrade recorded a definition, the deployed one counts as the streams' own."""
    world = World(IDS)
    world.code, before = "1", of_streams(world)
    world.tables.put_item(TableName=CONTROL, Item=typed_values.item_key("#", "upgrade"))
    assert (world.upgrade()[0], world.steps, of_streams(world)) == ("Success", ["check", "promote"], before)


def test_versions_of_the_machine_that_nothing_refers_to_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old versions of the machine are deleted, as Step Functions keeps only a thousand; the running one stays."""
    monkeypatch.setattr("handlers.upgrade.deployed_versions.MOST_VERSIONS", 2)
    world = World(IDS)
    world.versions, world.published, world.revision = [f"D{n}" for n in (1, 3, 4, 5, 6)], 9, 10
    assert (world.upgrade()[0], world.versions) == ("Success", [None, None, None, None, "D6", "D2"])
    world.versions, world.deployed = ["D2", "D3", "D4", "D5"], "D2"
    world.records.promote(world.records.read().execution, f"{MACHINE}:1")
    assert (world.upgrade("again")[0], world.versions) == ("Success", ["D2", None, "D4", "D5"])


@pytest.mark.parametrize(("bad", "end"), [("", "Success"), ("raises", "FailureClean")])
def test_steps_that_run_out_of_time_leave_nothing_behind(bad: str, end: str) -> None:
    """If each step has time for one stream, the next continues there, until no lease has a mark of the upgrade."""
    world = World([*IDS, GROUP], bad, is_late=cycle([False, True]).__next__)
    assert world.upgrade()[0] == end
    check(world, end)
    # The code and the definition of single streams and of a group.
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
def test_an_upgrade_ends_as_promised_after_any_failure(
    ids: list[str], bad: str, faults: list[str], stops: dict[int, str], aborts_ms: int, renewed: set[str]
) -> None:
    """Requests are refused or lost, functions killed, streams stopped, and a person may abort the upgrade.

    After a clean end neither the alias nor a stream is on the bad version.
    """
    # No stream is renewed with a definition that fails before or after its claim.
    world = World(ids, bad, faults, stops, aborts_ms, renewed=() if bad in FAULTY_DEFINITION else renewed)
    end, _ = world.upgrade()
    check(world, end)
    # A bad version is never promoted while a stream shows that it is bad.
    assert not (end == "Success" and bad and not stops)


def test_a_definition_is_recorded_only_once_the_alias_has_moved() -> None:
    """If the alias cannot be moved, the former definition stays the one to go back to."""

    class Stuck(World):
        def _update_alias(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "ResourceConflictException"}}, "UpdateAlias")

    world = Stuck(IDS)
    assert world.upgrade()[0] != "Success"
    assert world.records.read().definition == f"{MACHINE}:1"


def test_a_refused_upgrade_touches_nothing() -> None:
    """An upgrade is refused with its cause if another one runs, or if the version does not start."""

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


def test_a_person_may_abort_an_upgrade_and_try_again() -> None:
    """An upgrade can be aborted while a wave is watched; the next upgrade ignores that request."""
    world = World(IDS, aborts_ms=5_000)
    end, cause = world.upgrade()
    assert (end, world.steps.count("plan"), cause) == ("FailureClean", 1, "a roll-back was requested")
    assert of_streams(world) == dict.fromkeys(IDS, ("1", "D1"))
    world.aborts_ms = 0
    assert world.upgrade("again")[0] == "Success"


def test_a_request_to_go_back_outlives_a_repeated_check() -> None:
    """A request to go back that comes between two tries of the check is kept."""

    class Impatient(World):
        async def perform(self, call: TaskCall) -> Any:
            """Request that the upgrade goes back before the second try."""
            if self.steps == ["check"]:
                self.records.abort(call.payload["execution"])
            return await super().perform(call)

    world = Impatient(IDS, faults=["", "", "refused"])
    assert world.upgrade() == ("FailureClean", "a roll-back was requested")


def test_a_successor_whose_start_was_lost_is_started_again() -> None:
    """A successor whose start failed is started again, although the lease already says that the stream was asked."""

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


def test_a_stream_that_has_handed_over_is_not_asked_again() -> None:
    """If a wave's step is repeated, the mark of a stream that handed over stays, or it would be judged from now on."""
    world, marked = World(IDS[:1]), []
    asks = {"step": "ask", "version": "2", "definition": f"{MACHINE}:1", "begin": 0, "end": WHOLE}
    for _ in range(2):
        step(world.work("arn:mine"), asks)
        world.clock.run(world.clock.sleep_until(world.clock.now_ms() + 1_000))
        world.tick()
        marked.append(world.lease(IDS[0])[MARK])
    assert (marked[0], len(world.runs)) == (marked[1], 2)


def test_a_stream_that_ended_meanwhile_is_not_handed_back() -> None:
    """A stream of no wave that has ended, or was removed, since the ids were read is left alone."""
    inspected = []

    class Ends(World):
        def answer(self, call: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
            if call.__name__ == "batch_get_item":
                self._put(IDS[0], {}, "execution")
                self.tables.delete_item(TableName=CONTROL, Key=typed_values.item_key(IDS[1], "lease"))
            return super().answer(call, asked)

        def _describe_state_machine_for_execution(self, *, executionArn: str) -> Any:
            inspected.append(executionArn)
            return {"definition": "D1"}

    world = Ends(IDS[:3])
    world.records.begin("arn:mine", "")
    world.records.put_aside("arn:mine", f"{MACHINE}:1")
    back = {"step": "back", "version": "2", "stable": "1", "begin": WHOLE}
    assert step(world.work("arn:mine"), back) == {"begin": WHOLE, "is_done": True}
    assert inspected == [f"arn:first:{IDS[2]}"]


def test_a_stream_that_another_execution_has_taken_since_is_not_asked() -> None:
    """A stream whose lease was read before another execution took it is not asked, until it is read again."""
    world = World(IDS[:1])
    item = world.lease(IDS[0])
    taken = item | {"execution": {"S": "arn:another"}}
    world.tables.put_item(TableName=CONTROL, Item=taken)
    assert [world.records.request_version(one, "2", world.start_ms, {}) for one in (item, taken)] == [False, True]
