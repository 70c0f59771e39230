"""The computed bound on history events, compared with histories of the interpreter under the worst functions."""

import functools
import operator
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from local import stages
from states_language import Execution, TaskCall, TaskFailure, load
from tests.statemachines import bounds
from tests.statemachines.connections import after, definition, executed

LANES = ("A", "B")


def highest(setting: str) -> int:
    """Returns the highest value that a settings file may have."""
    value: int = stages.read_schema()["properties"][setting]["maximum"]
    return value


def task(lane: str) -> dict[str, Any]:
    branch = definition("connections")["States"]["Lanes"]["Branches"][LANES.index(lane)]
    state: dict[str, Any] = branch["States"][f"Connect {lane}"]
    return state


def worst(lane: str) -> Iterator[str | None]:
    """Yields the error names that use up all Retriers of a lane's Task in each visit, None for an answer, for ever."""
    names = [name for one in task(lane)["Retry"] for name in one["ErrorEquals"] for _ in range(one["MaxAttempts"])]
    while True:
        yield from names
        yield None


KINDS = ["DynamoDB.ThrottlingException", "DynamoDB.InternalServerErrorException", "DynamoDB.SdkClientException"]
STARTS = ("States.Timeout", "StepFunctions.AWSStepFunctionsException", "StepFunctions.SdkClientException")
HOLDER = "arn:aws:states:us-east-1:111111111111:execution:machine:other"
HELD = {"Item": {"execution": {"S": HOLDER}, "stop": {"BOOL": True}}}


def claims(tries: int) -> Iterator[Any]:
    """Yields the answers to a claim, or the errors that it raises: the worst in each of so many tries, then success."""
    blips = [*KINDS, "States.Timeout"]
    for _ in range(tries):
        yield from [*blips, "DynamoDB.ConditionalCheckFailedException", *blips, HELD, *blips, {"Status": "RUNNING"}]
    while True:
        yield {}


class Worst:
    """Services of which everything fails in the worst order, until a lane's renewal was refused for so many cycles."""

    def __init__(self, refusals: int, tries: int = 0) -> None:
        self.refusals = refusals
        self.claims = claims(tries)
        self.errors = {lane: worst(lane) for lane in LANES}
        self.renewals = Counter[str]()

    async def perform(self, call: TaskCall) -> Any:
        if call.function is not None:
            lane = call.payload["lane"]
            if self.renewals[lane] == self.refusals * 4:
                return {"status": "superseded"}
            error = next(self.errors[lane])
            if error is None:
                return {"what the machine does not know": 1}
            raise TaskFailure(error, "worst")
        if call.state in ("Read lease A", "Read lease B"):
            raise TaskFailure(KINDS[0], "worst")
        if call.action == "startExecution":
            who = call.state[-1]
            at = self.renewals[who] % 4
            self.renewals[who] += 1
            raise TaskFailure((*STARTS, "StepFunctions.ExecutionLimitExceededException")[at], "no")
        if call.action == "sendMessage":
            raise TaskFailure("SQS.SdkClientException", "no")
        answer = next(self.claims)
        if isinstance(answer, str):
            raise TaskFailure(answer, "worst")
        return answer


def run(renew_after: int, refusals: int = 2, give_up_after: int = 10**6, tries: int = 0) -> Execution:
    """Returns an execution whose lanes meet the worst in each cycle until a renewal was refused for so many cycles."""
    return executed(load(after(renew_after, give_up_after)), Worst(refusals, tries).perform)


def by_lane(execution: Execution, lane: str) -> list[list[str]]:
    """Returns the event types of a lane, cut at each count."""
    branch_of = {0: ""}
    cycles: list[list[str]] = [[]]
    for event in execution.history:
        name = event.get("stateEnteredEventDetails", {}).get("name", "")
        mine = name[-1:] if name[-2:] in (" A", " B") else branch_of.get(event["previousEventId"], "")
        branch_of[event["id"]] = mine
        if mine == lane:
            cycles[-1].append(event["type"])
            if event.get("stateExitedEventDetails", {}).get("name") == f"Connect {lane}":
                cycles.append([])
    return cycles


@pytest.mark.parametrize("lane", LANES)
def test_the_worst_cycle_is_as_long_as_computed(lane: str) -> None:
    """A cycle in which every name fails as often as its Retrier allows has exactly the computed number of events."""
    branch = definition("connections")["States"]["Lanes"]["Branches"][LANES.index(lane)]
    lengths = [len(one) for one in by_lane(run(4, refusals=3), lane)]
    assert lengths[1:4] == [bounds.cycle_events(branch)] * 3
    assert lengths[4] == bounds.cycle_events(branch, due=True)


def test_the_worst_try_to_claim_has_the_computed_number_of_events() -> None:
    """In each try four Tasks fail as often as their Retriers allow. A try adds no more events than all lanes' cycle."""
    tries = 8
    execution = run(1, tries=tries, give_up_after=20)
    counts = [
        number
        for number, event in enumerate(execution.history)
        if event.get("stateExitedEventDetails", {}).get("name") == "Claim lease"
    ]
    machine = definition("connections")
    lengths = [later - earlier for earlier, later in pairwise(counts[:-1])]  # the last claim is granted
    assert lengths == [bounds.try_events(machine)] * (tries - 1)
    assert len(execution.history) <= bounds.full_history(machine, 20)
    given_up = run(15, refusals=10**9, give_up_after=20, tries=10**9)
    assert (given_up.error, len(given_up.history) <= bounds.full_history(machine, 20)) == ("ClaimFailed", True)


@pytest.mark.parametrize("renew_after", [1, 2, 10])
def test_no_history_is_longer_than_computed(renew_after: int) -> None:
    """Until the successor has taken over, the history of the worst execution stays below the bound."""
    execution = run(renew_after)
    assert execution.output == {"status": "superseded"}
    assert len(execution.history) <= bounds.history_events(definition("connections"), renew_after)


@pytest.mark.long
def test_the_worst_execution_of_a_stage_stays_below_four_fifths_of_the_limit() -> None:
    """With the highest setting and everything failing always, 20,000 events are not reached."""
    execution = run(highest("renew_after"))
    assert execution.status == "SUCCEEDED"
    assert 17_000 < len(execution.history) <= bounds.ALLOWED


def test_an_execution_that_cannot_be_renewed_ends_before_its_history_is_full() -> None:
    """Every start of a successor is refused and everything else fails: Broken, by name, within the computed bound."""
    execution = run(1, refusals=10**9, give_up_after=20)
    assert (execution.status, execution.error) == ("FAILED", "RenewalFailed")
    entered = [event["stateEnteredEventDetails"]["name"] for event in execution.history if "stateEntered" in str(event)]
    assert entered[-3:] == ["Release lease", "Choose ending", "Broken"]
    bound = bounds.full_history(definition("connections"), give_up_after=20)
    assert bound * 0.8 < len(execution.history) <= bound


@pytest.mark.parametrize("stage", ["local", "test", "dev", "prod"])
def test_the_settings_allow_what_the_bound_allows(stage: str) -> None:
    """The highest `renew_after` that a settings file may hold is the one that the definition gives."""
    machine = definition("connections", stage)
    assert highest("renew_after") == bounds.most_renew_after(machine)
    assert bounds.history_events(machine) <= bounds.ALLOWED
    assert bounds.history_events(machine, bounds.most_renew_after(machine) + 1) > bounds.ALLOWED
    assert highest("give_up_after") == bounds.most_give_up_after(machine)
    assert bounds.full_history(machine, bounds.most_give_up_after(machine)) <= bounds.HARD < bounds.LIMIT


def test_an_execution_lives_for_days() -> None:
    """Two lanes that take turns at 15 minutes have a cycle in twice the wait; 14 hours are left for a successor."""
    prod = stages.load("prod")
    cycle_s = 2 * int(prod["wait_s"])
    assert int(prod["renew_after"]) * cycle_s > 2.2 * 86_400
    assert (int(prod["give_up_after"]) - int(prod["renew_after"])) * cycle_s >= 14 * 3600


NO_COUNT, LOOP = "a loop goes through it that counts no cycles$", "a loop goes through it that compares no"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("Connect A/Retry", [{"ErrorEquals": ["States.ALL"]}], r"^Connect A: a Retrier of States\.ALL counts each"),
        ("Successor needed A/Default", "Renewal due A", NO_COUNT),
        ("Connect A/Arguments/Payload/cycles", "{% $cycles %}", rf"^Connect A: {LOOP} \$cycles$"),
        ("Connect A/Catch/1/Assign", {}, "^what begins with Begin A counts no cycles$"),
        ("Who holds the lease/Default", "Read lease", NO_COUNT),
        ("Who holds the lease/Default", "Claim lease", rf"^Claim lease: {LOOP} \$tries$"),
        ("Claim lease/Retry/1/MaxAttempts", 9, r"^Claim lease: a try has \d+ events, more than a cycle of each lane$"),
    ],
)
def test_a_definition_without_a_bound_is_refused_by_its_state(place: str, value: Any, message: str) -> None:
    """The message names a Retrier of States.ALL, a loop that passes no count, and a lane without a count."""
    machine = definition("connections")
    lane = machine["States"]["Lanes"]["Branches"][0]
    *path, last = (int(name) if name.isdigit() else name for name in place.split("/"))
    is_of_lane = path[0] in lane["States"]
    changed: Any = functools.reduce(operator.getitem, path, (lane if is_of_lane else machine)["States"])
    changed[last] = value
    with pytest.raises(bounds.Unbounded, match=message):
        bounds.cycle_events(lane, due=True) if is_of_lane else bounds.try_events(machine)
