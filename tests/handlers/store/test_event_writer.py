"""Events in batches, in memory: what goes into one request, and the outcome of each statement."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handlers.connection.inputs import Written
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.store.control_table import STATEMENTS
from handlers.store.event_items import StoragePolicy, partition_keys
from handlers.store.event_writer import DELAY_MOST_S, DELAY_S, DELAYS_IN_ALL_S, TRIES
from handlers.store.typed_values import MAX_ITEM_BYTES
from tests.examples import examples
from tests.handlers.aws import BUCKET, EVENTS, Aws, Client, CountingClient, Memory, drop_request, fail_with, lose_answer
from tests.handlers.store.events import STREAM, an_event, noise

Statement = dict[str, Any]


def events(*keys: object, data: str | bytes = "a") -> list[StreamEvent]:
    return [StreamEvent(str(key), data, None, None, None, 5) for key in keys]


def answers(*rounds: Callable[[int], str]) -> Callable[..., Any]:
    """Give each statement of a round an error by its place; "" and "!…" carry the statement out."""
    left = list(rounds)

    def way(call: Callable[..., Any], Statements: list[Statement]) -> Any:
        errors = [left[0](place) for place in range(len(Statements))] if left else [""] * len(Statements)
        del left[:1]
        statements: list[Any] = []
        for statement, error in zip(Statements, errors, strict=True):
            done = call(Statements=[statement])["Responses"][0] if not error or error[0] == "!" else {}
            statements.append({"Error": {"Code": error.lstrip("!"), "Message": "secret"}} if error else done)
        return {"Responses": statements, "ResponseMetadata": {"RequestId": "AWS2", "RetryAttempts": 0}}

    return way


def keys(memory: Memory) -> list[str]:
    return sorted(memory.items(EVENTS, STREAM), key=int)


def test_an_event_is_stored_with_its_frames_fields(memory: Memory) -> None:
    """Data, id, name, instant, fence and a sortable position are stored; what the frame lacked is absent."""
    said = an_event("1", "a\nb", id="1", name="add", received_at_ms=1_700_000_000_000)
    assert memory.store().write(STREAM, 7, 12, [said, an_event("2", b"\xff")]) == Written(2, 0)
    common = {"PK": STREAM, "fence": 7}
    assert memory.items(EVENTS, STREAM) == {
        "1": common | {
            "SK": "1", "data": "a\nb", "id": "1", "name": "add", "received_at_ms": 1_700_000_000_000,
            "position": "001700000000000/000000000007/000000000012",
        },
        "2": common | {
            "SK": "2", "data": b"\xff", "received_at_ms": 5, "position": "000000000000005/000000000007/000000000013",
        },
    }  # fmt: skip


def test_pending_events_take_as_few_requests_as_possible(memory: Memory) -> None:
    """One event is a put; sixty are three batches of at most 25 statements, numbered in order."""
    counted = CountingClient(memory.dynamodb)
    assert memory.store(counted).write(STREAM, 1, 0, events(0)) == Written(1, 0)
    assert (counted.requests, counted.statements) == (["put_item"], [1])
    assert memory.store(counted).write(STREAM, 1, 1, events(*range(1, 61))) == Written(60, 0)
    assert counted.requests[1:] == ["batch_execute_statement"] * 3
    assert counted.statements[1:] == [STATEMENTS, STATEMENTS, 10]
    positions = {key: int(item["position"].rpartition("/")[2]) for key, item in memory.items(EVENTS, STREAM).items()}
    assert positions == {str(number): number for number in range(61)}
    assert memory.store(counted).write(STREAM, 2, 0, []) == Written(0, 0)


def test_a_batch_stays_small_in_bytes(memory: Memory) -> None:
    """A request holds two events of 300 KB, 400 in base64, because a function of 128 MB holds several of its size."""
    counted = CountingClient(memory.dynamodb)
    assert memory.store(counted).write(STREAM, 1, 0, events(*range(7), data=noise(300_000))) == Written(7, 0)
    assert counted.requests == ["batch_execute_statement"] * 3 + ["put_item"]
    assert counted.statements == [2, 2, 2, 1]


def test_each_statement_of_a_batch_has_its_own_outcome(memory: Memory) -> None:
    """New events are stored beside duplicates of earlier writes and of the same write; the first delivery counts."""
    assert memory.store().write(STREAM, 1, 0, events(1, 2, data="first")) == Written(2, 0)
    again = events(2, 3, 4, 3, data="second") + events(4, data=noise(MAX_ITEM_BYTES))
    assert memory.store().write(STREAM, 2, 0, again) == Written(2, 3)
    assert {key: item["data"] for key, item in memory.items(EVENTS, STREAM).items()} == {
        "1": "first",
        "2": "first",
        "3": "second",
        "4": "second",
    }
    assert memory.dead_letters() == []


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "InternalServerError"])
def test_only_throttled_statements_are_sent_again(memory: Memory, code: str) -> None:
    """Only refused statements are sent again, with full jitter; a success without an answer is no duplicate."""
    odd = answers(lambda place: ("", code, f"!{code}")[place % 3], lambda place: code if place else "")
    counted = CountingClient(Client(memory.dynamodb, "batch_execute_statement", odd))
    assert memory.store(counted).write(STREAM, 1, 0, events(*range(9))) == Written(9, 0)
    pairs = zip(counted.requests, counted.statements, strict=True)
    batches = [count for name, count in pairs if name == "batch_execute_statement"]
    assert (batches, keys(memory)) == ([9, 6, 5], [str(number) for number in range(9)])
    assert [0 <= delay_s <= DELAY_S * 2**tried for tried, delay_s in enumerate(memory.delays)] == [True, True]


def test_a_store_that_throttles_for_ever_is_unavailable(memory: Memory) -> None:
    """After TRIES requests with growing delays the error names the last request. Stored events stay, as duplicates."""
    always = answers(lambda place: "ThrottlingError" if place else "", *[lambda _place: "ThrottlingError"] * TRIES)
    store = memory.store(Client(memory.dynamodb, "batch_execute_statement", always))
    refused = r"^AWS refused statements of BatchExecuteStatement in every try, request AWS2$"
    with pytest.raises(StoreUnavailable, match=refused):
        store.write(STREAM, 1, 0, events(*range(STATEMENTS)))
    assert len(memory.delays) == TRIES - 1
    assert max(memory.delays) <= DELAY_MOST_S
    assert sum(min(DELAY_S * 2**tried, DELAY_MOST_S) for tried in range(TRIES - 1)) == 2.575
    assert keys(memory) == ["0"]
    assert memory.store().write(STREAM, 2, 0, events(*range(STATEMENTS))) == Written(STATEMENTS - 1, 1)


def test_a_store_that_takes_a_few_statements_a_time_gets_all(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store takes some statements, delays stay short and no try is used up; the sum of delays is bounded."""
    monkeypatch.setattr("random.uniform", lambda _least, most: most)
    few = answers(*[lambda place: "ThrottlingError" if place else ""] * STATEMENTS)
    store = memory.store(Client(memory.dynamodb, "batch_execute_statement", few))
    assert store.write(STREAM, 1, 0, events(*range(STATEMENTS))) == Written(STATEMENTS, 0)
    assert (len(memory.delays), max(memory.delays) <= DELAY_S) == (STATEMENTS - 1, True)
    endless = answers(*[lambda place: "ThrottlingError" if place else ""] * 10_000)
    store = memory.store(Client(memory.dynamodb, "batch_execute_statement", endless))
    with pytest.raises(StoreUnavailable, match="in every try"):
        store.write(STREAM, 1, 0, events(*range(1000, 1300)))
    assert DELAYS_IN_ALL_S - DELAY_S <= sum(memory.delays[STATEMENTS - 1 :]) <= DELAYS_IN_ALL_S


def test_a_statement_that_is_refused_goes_to_the_queue_alone(memory: Memory) -> None:
    """If one statement is refused, its event goes to the queue and the rest of the batch is stored."""
    refused = answers(lambda place: "ValidationError" if place == 1 else "")
    store = memory.store(Client(memory.dynamodb, "batch_execute_statement", refused))
    assert store.write(STREAM, 1, 0, events(1, 2, 3)) == Written(2, 0, 1)
    messages = [(message["key"], message["reason"]) for message in memory.dead_letters()]
    assert messages == [("2", "refused by DynamoDB: ValidationError")]
    assert "dead_letter" in memory.items(EVENTS, STREAM)["2"]


def test_a_batch_that_is_refused_as_a_whole_is_written_one_by_one(memory: Memory) -> None:
    """If a batch is refused as a whole, each event is written alone, and only a refused one is at fault."""
    store = memory.store(Client(memory.dynamodb, "batch_execute_statement", fail_with("ValidationException")))
    assert store.write(STREAM, 1, 0, events(1, 2)) == Written(2, 0)


def test_any_other_refusal_is_store_unavailable(memory: Memory) -> None:
    """The sentence has AWS's code and request id and no data, for statements, writes and reads."""
    codes = ("ProvisionedThroughputExceededException", "InternalServerError", "AccessDeniedException")
    ways = [(fail_with(code), f"refused PutItem after its retries: {code}") for code in codes]
    for way, words in (*ways, (drop_request, "did not answer PutItem: ReadTimeoutError")):
        with pytest.raises(StoreUnavailable, match=f"^AWS {words}$"):
            memory.store(Client(memory.dynamodb, "put_item", way)).write(STREAM, 1, 0, events(1))
    with pytest.raises(StoreUnavailable, match=r"^AWS did not answer GetItem: ReadTimeoutError$"):
        memory.store(Client(memory.dynamodb, "get_item", drop_request)).read_lease(STREAM)
    denied = Client(memory.dynamodb, "batch_execute_statement", answers(lambda _place: "AccessDenied"))
    with pytest.raises(StoreUnavailable, match=r"^AWS refused BatchExecuteStatement: AccessDenied, request AWS2$"):
        memory.store(denied).write(STREAM, 1, 0, events(1, 2))
    lost = Client(memory.dynamodb, "batch_execute_statement", lose_answer)
    with pytest.raises(StoreUnavailable, match=r"^AWS did not answer BatchExecuteStatement: ReadTimeoutError$"):
        memory.store(lost).write(STREAM, 1, 0, events(1, 2))


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=1, max_size=4))
def test_any_deliveries_are_stored_once_and_counted(memory: Memory, writes: list[list[int]]) -> None:
    """Deliveries overlap and repeat; each event is one item, written by its first delivery, and the counts add up."""
    stream_id = f"demo:{uuid4().hex}"
    known: dict[str, int] = {}
    for fence, numbers in enumerate(writes, 1):
        written = memory.store().write(stream_id, fence, 0, events(*numbers))
        new = {str(number) for number in numbers} - known.keys()
        assert written == Written(len(new), len(numbers) - len(new))
        known |= dict.fromkeys(new, fence)
    assert {key: item["fence"] for key, item in memory.items(EVENTS, stream_id).items()} == known


# --- large events, partitions, expiry ---------------------------------------------------------------------------------


def test_an_event_that_no_item_holds_goes_to_the_bucket(memory: Memory) -> None:
    """The item names the object, which is the unchanged body; a second delivery puts no object."""
    large = noise(MAX_ITEM_BYTES)
    store = memory.store(bucket=BUCKET)
    assert store.write(STREAM, 1, 0, events(1, data=large) + events(2)) == Written(2, 0)
    item = memory.items(EVENTS, STREAM)["1"]
    assert ("data" in item, item["encoding"]) == (False, "binary")
    assert memory.objects() == {item["object"]: large}
    assert store.write(STREAM, 2, 0, events(1, data=large + b"x")) == Written(0, 1)
    assert list(memory.objects()) == [item["object"]]
    assert memory.dead_letters() == []


def test_a_bucket_that_refuses_is_store_unavailable(aws: Aws) -> None:
    """No item names an object that does not exist, and the event is not dropped."""
    with pytest.raises(StoreUnavailable, match=r"^AWS refused PutObject after its retries: NoSuchBucket, request \S+$"):
        aws.store(bucket="nobody-has-this").write(STREAM, 1, 0, events(1, data=noise(MAX_ITEM_BYTES)))
    assert aws.items(EVENTS, STREAM) == {}


def test_a_hot_stream_is_spread_and_still_deduplicated(memory: Memory) -> None:
    """The events of a hot stream have several partition keys, and a second delivery finds the first one's item."""
    spread = StoragePolicy(partitions=4, keep_days=1)
    assert memory.store().write(STREAM, 1, 0, events(*range(100)), spread) == Written(100, 0)
    assert memory.store().write(STREAM, 2, 0, events(*range(50, 120)), spread) == Written(20, 50)
    shares = [len(memory.items(EVENTS, key)) for key in partition_keys(STREAM, 4)]
    assert (sum(shares), min(shares) > 15) == (120, True)
    assert {item["expires_at"] for item in memory.items(EVENTS, f"{STREAM}#0").values()} == {86_400}
