"""The machine that answers a POST if functions keep many streams: the stream joins a group, its function notices."""

from typing import Any

import pytest

from handlers.group.group_lease import GroupLease
from handlers.store.group_store import GroupStore
from handlers.store.grouped_store import GroupedStore
from handlers.store.known_streams import GroupFunction
from tests.statemachines.connections import NAMES, Account

PREFIX = "arn:aws:states:eu-central-1:111111111111"
EXECUTION = f"{PREFIX}:execution:{NAMES['connections']}:"
CONTROL = NAMES["control_table"]


class Groups(Account):
    """Started executions claim the group or the stream that they are to keep."""

    @property
    def inputs(self) -> list[str]:
        """Returns the stream or the group of each started execution."""
        return [one["Input"]["pathParameters"]["streamId"] for one in self.started]

    def start(self, parameters: dict[str, Any]) -> Any:
        answer = super().start(parameters)
        self.put(self.inputs[-1], execution={"S": answer["ExecutionArn"]}, generation={"N": str(len(self.inputs))})
        return answer

    def group(self, stream: str) -> str | None:
        """Returns the stream's group."""
        found: str | None = self.lease(stream).get("group", {}).get("S")
        return found

    def members(self, group: str) -> list[str]:
        """Returns the streams that have a place in the group."""
        return sorted(GroupStore(self.tables, CONTROL, group).members())

    def post(self, stream: str = "demo", most: int = 2) -> Any:
        return super().post(stream, most)


@pytest.fixture
def account() -> Groups:
    """Empty tables."""
    return Groups(PREFIX)


def test_streams_fill_one_group_after_the_other(account: Groups) -> None:
    """The first stream of a group starts its execution; the others join."""
    answers = [account.post(name) for name in "abcde"]
    assert [account.group(name) for name in "abcde"] == ["#1", "#1", "#2", "#2", "#3"]
    assert account.inputs == ["#1", "#2", "#3"]
    assert [answer["already_running"] for answer in answers] == [False] * 5
    assert answers[0]["executionArn"] == answers[1]["executionArn"] != answers[2]["executionArn"]
    assert account.members("#1") == ["a", "b"]
    assert account.lease("#1")["version"] == {"N": "2"}


def test_a_second_post_leaves_a_stream_in_its_group(account: Groups) -> None:
    """A POST of a claimed stream changes nothing. Before the claim it joins the same group again."""
    first = account.post("a")["executionArn"]
    assert account.post("a")["executionArn"] == first
    assert (account.members("#1"), account.lease("#1")["size"]) == (["a"], {"N": "1"})
    account.put("a", execution={"S": first})
    before = account.lease("a")
    assert account.post("a") == {"executionArn": first, "startDate": 1_767_225_600.5, "already_running": True}
    assert account.lease("a") == before


def test_a_changed_setting_holds_for_streams_that_start_from_then_on(account: Groups) -> None:
    """A running stream stays alone, or in its group."""
    alone = account.post("a", most=1)["executionArn"]
    assert (account.group("a"), account.inputs) == (None, ["a"])
    assert account.post("a") == {"executionArn": alone, "startDate": 1_767_225_600.5, "already_running": True}
    grouped = account.post("b")["executionArn"]
    account.put("b", execution={"S": grouped})
    assert account.post("b", most=1)["executionArn"] == grouped
    account.post("c", most=1)
    assert account.inputs == ["a", "#1", "c"]


def test_a_stream_that_stops_in_a_group_joins_it_again(account: Groups) -> None:
    """The POST clears an older stop request; a younger one holds."""
    execution = account.post("a")["executionArn"]
    account.put("a", execution={"S": execution}, stop={"BOOL": True}, stop_at={"S": "2025-12-31T00:00:00.000Z"})
    assert account.post("a")["already_running"] is False
    assert "stop" not in account.lease("a")
    account.put("a", stop={"BOOL": True}, stop_at={"S": "2026-12-31T00:00:00.000Z"})
    assert account.post("a") == "NotStarted"
    assert account.lease("a")["stop"] == {"BOOL": True}


def test_a_dead_execution_of_a_stream_alone_is_replaced_by_a_group(account: Groups) -> None:
    """Instead of starting an execution of its own, the stream joins a group."""
    account.executions[account.post("a", most=1)["executionArn"].removeprefix(EXECUTION)] = "ABORTED"
    account.post("a")
    assert (account.group("a"), account.inputs) == ("#1", ["a", "#1"])


def test_a_dead_execution_of_a_group_is_replaced(account: Groups) -> None:
    """The next POST of any of its streams starts another."""
    dead = account.post("a")["executionArn"]
    account.put("a", execution={"S": dead})
    account.executions[dead.removeprefix(EXECUTION)] = "FAILED"
    assert account.post("a")["executionArn"] != dead
    assert (account.inputs, account.members("#1")) == (["#1", "#1"], ["a"])


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        ("States.Timeout", "NotStarted"),
        ("States.DataLimitExceeded", "NotStarted"),
        ("DynamoDB.ThrottlingException", "Throttled"),
    ],
)
def test_a_stream_whose_record_cannot_be_read_is_not_started_alone(account: Groups, failure: str, answer: str) -> None:
    """The POST fails, and the next one joins the group."""
    account.failures["getItem"] = [failure]
    assert (account.post("a"), account.inputs) == (answer, [])
    assert account.post("a")["already_running"] is False
    assert (account.group("a"), account.inputs) == ("#1", ["#1"])


@pytest.mark.parametrize("failures", [1, 2])
def test_a_stream_stays_in_its_group_if_its_execution_may_run(account: Groups, failures: int) -> None:
    """The stream joins again, which changes nothing for a function that keeps it. No execution is started."""
    first = account.post("a")["executionArn"]
    account.put("a", execution={"S": first})
    account.failures["describeExecution"] = ["States.Timeout"] * failures
    account.post("a")
    assert (account.group("a"), account.lease("a")["execution"], set(account.inputs)) == ("#1", {"S": first}, {"#1"})


def test_a_stream_stays_alone_if_its_execution_may_run(account: Groups) -> None:
    """No group takes the stream from such an execution."""
    account.post("a", most=1)
    account.failures["describeExecution"] = ["States.Timeout"]
    account.post("a")
    assert (account.group("a"), account.inputs) == (None, ["a", "a"])


def test_a_stream_that_joins_an_ending_group_starts_it_again(account: Groups) -> None:
    """However many streams join, one execution starts. It waits until the former one has released the group."""
    first = account.post("a")["executionArn"]
    account.put("#1", stop={"BOOL": True}, size={"N": "0"})
    held = account.lease("#1")["execution"]
    second = account.post("b")["executionArn"]
    account.put("#1", execution=held)  # it has not claimed yet
    account.put("#1", generation={"N": "1"})
    assert first != second
    assert account.post("c")["executionArn"] == second
    assert account.inputs == ["#1", "#1"]


def test_a_free_place_is_filled_again(account: Groups) -> None:
    """A function that has counted its streams records that the group has room."""
    for name in "abcde":
        account.post(name)
    groups = GroupStore(account.tables, CONTROL, "#1")
    groups.remove_member("a", groups.members()["a"], 1)
    groups.record_size(groups.read().version, 1, frees_places=True)
    account.post("f")
    assert (account.group("f"), account.members("#1")) == ("#1", ["b", "f"])


def test_a_stream_that_moves_is_claimed_by_the_first_function_of_its_new_group(account: Groups) -> None:
    """The tokens of functions count from 1 in each group, however many functions the former group had."""
    account.post("demo:a")
    for stream in ("demo:b", "demo:c"):
        account.post(stream)
    # What the seventh function of its group leaves of a stream that was stopped.
    left = {name: value for name, value in account.lease("demo:a").items() if name not in ("group", "execution")}
    left |= {"group_fence": {"N": "7"}, "fence": {"N": "7"}, "layout": {"N": "2"}, "ending": {"S": "StreamEnded"}}
    account.tables.put_item(TableName=CONTROL, Item=left)
    account.post("demo:a")
    assert account.group("demo:a") == "#2"
    who = GroupFunction("#2", 1, "r1", "E", 60_000, 4_000)
    store = GroupedStore(
        account.tables, lambda: None, who, lambda: 0, events_table="", control_table=CONTROL, dead_letter_queue_url=""
    )
    store.lease = GroupLease(token=1, execution="E")
    claim = store.claim(
        "demo:a", execution="E", holder="A/r1", after_fence=0, partitions=1, order="index", now_ms=0, rest_until_ms=0
    )
    assert (claim.is_done, claim.record.lease.fence) == (True, 8)
