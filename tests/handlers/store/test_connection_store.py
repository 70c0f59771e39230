"""Each request against the embedded AWS: what it writes, when it is refused, what a lost answer does."""

import base64
import json
import random
from typing import Any

import pytest

from handlers.connection.effects import Progress
from handlers.connection.inputs import Claimed, ClaimRefused, Written
from handlers.connection.lease import Lease
from handlers.errors import StoreUnavailable
from handlers.framing.events import StreamEvent
from handlers.store.connection_store import Store
from handlers.store.event_items import MAX_ITEM_BYTES, event_item, size_bytes
from handlers.store.event_writer import DEAD_LETTERED, DUPLICATE, STORED
from tests.handlers.aws import (
    CONTROL,
    EVENTS,
    Aws,
    Client,
    answer_is_lost,
    fails_with,
    is_sent_twice,
    never_arrives,
)

STREAM = "demo"


def an_event(key: str = "1", data: str | bytes = "a", **fields: Any) -> StreamEvent:
    return StreamEvent(
        **({"key": key, "data": data, "id": None, "name": None, "cursor": None, "received_at_ms": 5} | fields)
    )


def noise(size_bytes: int) -> bytes:
    """Bytes that no compression makes smaller, the same in every run."""
    return random.Random(1).randbytes(size_bytes)


def put(store: Store, stream_id: str, fence: int, number: int, event: StreamEvent) -> str:
    """What became of one event."""
    return {
        Written(1, 0): STORED,
        Written(0, 1): DUPLICATE,
        Written(0, 0, 1): DEAD_LETTERED,
    }[store.write(stream_id, fence, number, [event])]


# --- events -----------------------------------------------------------------------------------------------------------


def test_an_event_is_stored_with_what_the_wire_said(aws: Aws) -> None:
    """Data, id, name, the instant, the fence and a position that sorts; what the wire did not say is absent."""
    event = an_event("1", "a\nb", id="1", name="add", received_at_ms=1_700_000_000_000)
    assert put(aws.store(), STREAM, 7, 12, event) == STORED
    assert put(aws.store(), STREAM, 7, 13, an_event("2", b"\xff")) == STORED
    assert aws.items(EVENTS, STREAM) == {
        "1": {
            "PK": STREAM,
            "SK": "1",
            "data": "a\nb",
            "id": "1",
            "name": "add",
            "received_at_ms": 1_700_000_000_000,
            "fence": 7,
            "position": "001700000000000/000000000007/000000000012",
        },
        "2": {
            "PK": STREAM,
            "SK": "2",
            "data": b"\xff",
            "received_at_ms": 5,
            "fence": 7,
            "position": "000000000000005/000000000007/000000000013",
        },
    }


def test_the_first_writer_of_an_event_wins(aws: Aws) -> None:
    """A second delivery is a duplicate and changes nothing; the same key of another stream is another event."""
    store = aws.store()
    assert put(store, STREAM, 1, 0, an_event(data="first")) == STORED
    before = aws.items(EVENTS, STREAM)
    assert put(store, STREAM, 2, 0, an_event(data="second")) == DUPLICATE
    assert aws.items(EVENTS, STREAM) == before
    assert put(store, "other", 2, 0, an_event()) == STORED


def test_a_write_answers_for_all_its_events(aws: Aws) -> None:
    """Stored, known already and dead letters are counted; a duplicate within the write counts as one."""
    events = [an_event("1"), an_event("2"), an_event("1"), an_event("3", noise(MAX_ITEM_BYTES))]
    assert aws.store().write(STREAM, 1, 10, events) == Written(stored=2, duplicates=1, dead_lettered=1)
    assert aws.store().write(STREAM, 2, 0, events) == Written(stored=0, duplicates=4, dead_lettered=0)
    positions = [item["position"][-2:] for item in aws.items(EVENTS, STREAM).values()]
    assert positions == ["10", "11", "13"]


def test_an_event_whose_answer_was_lost_was_new(aws: Aws) -> None:
    """The client sends it again and meets its own item: stored; an item of another connection: a duplicate."""
    twice = aws.store(Client(aws.dynamodb, "put_item", is_sent_twice))
    assert put(twice, STREAM, 1, 0, an_event()) == STORED
    assert put(twice, STREAM, 2, 0, an_event()) == DUPLICATE


def test_an_empty_text_is_stored(aws: Aws) -> None:
    """An event with no data in it is an event."""
    assert put(aws.store(), STREAM, 1, 0, an_event(data="", id="")) == STORED
    assert aws.items(EVENTS, STREAM)["1"]["data"] == ""


@pytest.mark.parametrize(
    "code", ["ProvisionedThroughputExceededException", "InternalServerError", "AccessDeniedException"]
)
def test_whatever_else_aws_refuses_is_store_unavailable(aws: Aws, code: str) -> None:
    """The sentence names the request and AWS's code, and quotes nothing of the data."""
    store = aws.store(Client(aws.dynamodb, "put_item", fails_with(code)))
    with pytest.raises(StoreUnavailable, match=f"^AWS refused PutItem after its retries: {code}$"):
        put(store, STREAM, 1, 0, an_event())


def test_a_store_that_does_not_answer_is_store_unavailable(aws: Aws) -> None:
    """Time-outs too, for reads as for writes."""
    with pytest.raises(StoreUnavailable, match=r"^AWS did not answer PutItem: ReadTimeoutError$"):
        put(aws.store(Client(aws.dynamodb, "put_item", never_arrives)), STREAM, 1, 0, an_event())
    with pytest.raises(StoreUnavailable, match=r"^AWS did not answer GetItem: ReadTimeoutError$"):
        aws.store(Client(aws.dynamodb, "get_item", never_arrives)).read_lease(STREAM)


# --- dead letters -----------------------------------------------------------------------------------------------------


def joined(letters: list[dict[str, Any]]) -> Any:
    """The event that the parts of one letter spell."""
    parts = sorted(letters, key=lambda letter: letter["part"])
    assert [letter["part"] for letter in parts] == list(range(1, parts[0]["parts"] + 1))
    return json.loads(b"".join(base64.b64decode(letter["event_base64"]) for letter in parts))


def test_an_event_that_no_item_holds_goes_whole_to_the_queue(aws: Aws) -> None:
    """One that fits is stored; one that does not goes to the queue in parts, and a mark stands in its place."""
    fits, too_large = "é" * 200_000, "\x00é😀" + noise(600_000).hex()
    assert put(aws.store(), STREAM, 1, 0, an_event("fits", fits)) == STORED
    over = an_event("over", too_large, id="7", name="big")
    assert put(aws.store(), STREAM, 1, 1, over) == DEAD_LETTERED
    letters = aws.letters()
    assert joined(letters) == {"id": "7", "name": "big", "received_at_ms": 5, "encoding": "text", "data": too_large}
    reason = f"too large for an item: {size_bytes(event_item(STREAM, 1, 1, over))} bytes"
    assert {(letter["stream"], letter["key"], letter["fence"], letter["reason"]) for letter in letters} == {
        (STREAM, "over", 1, reason)
    }
    assert aws.items(EVENTS, STREAM)["over"] == {
        "PK": STREAM,
        "SK": "over",
        "received_at_ms": 5,
        "fence": 1,
        "position": "000000000000005/000000000001/000000000001",
        "dead_letter": reason,
    }


def test_an_items_size_is_its_names_and_values_in_utf_8() -> None:
    """As DynamoDB counts it, a number with the most it may take: never too small."""
    fields = {"PK": "demo", "SK": "ü", "data": "é😀", "position": "0" * 41, "id": "1", "name": "add"}
    texts = sum(len(name) + len(value.encode()) for name, value in fields.items())
    numbers = len("received_at_ms") + 21 + len("fence") + 21
    assert size_bytes(event_item("demo", 1, 0, an_event("ü", "é😀", id="1", name="add"))) == texts + numbers
    assert size_bytes({"data": {"B": b"\xff\xfe"}}) == 6
    assert MAX_ITEM_BYTES == 409_600


def test_a_dead_letter_is_sent_once(aws: Aws) -> None:
    """The next connection that gets the same event finds the mark and sends nothing."""
    event = an_event(data=noise(MAX_ITEM_BYTES))
    assert put(aws.store(), STREAM, 1, 0, event) == DEAD_LETTERED
    sent = joined(aws.letters())
    assert (sent["encoding"], base64.b64decode(sent["data"])) == ("base64", event.data)
    assert put(aws.store(), STREAM, 2, 0, event) == DUPLICATE
    assert aws.letters() == []


def test_an_event_that_dynamodb_refuses_goes_to_the_queue(aws: Aws) -> None:
    """Refused by validation, a small event is one readable message."""
    store = aws.store(Client(aws.dynamodb, "put_item", fails_with("ValidationException")))
    assert put(store, STREAM, 3, 0, an_event(data="é")) == DEAD_LETTERED
    (letter,) = aws.letters()
    assert letter == {
        "stream": STREAM,
        "fence": 3,
        "reason": "refused by DynamoDB: ValidationException",
        "key": "1",
        "part": 1,
        "parts": 1,
        "event": {"id": None, "name": None, "received_at_ms": 5, "encoding": "text", "data": "é"},
    }


def test_without_a_queue_the_event_is_not_given_up(aws: Aws) -> None:
    """A queue that refuses is StoreUnavailable, and no mark says that the event was dealt with."""
    aws.sqs.delete_queue(QueueUrl=aws.queue_url)
    with pytest.raises(StoreUnavailable, match=r"^AWS refused SendMessage after its retries: "):
        put(aws.store(), STREAM, 1, 0, an_event(data=noise(MAX_ITEM_BYTES)))
    assert aws.items(EVENTS, STREAM) == {}


# --- the lease --------------------------------------------------------------------------------------------------------


def claim(aws: Aws, execution: str = "", holder: str = "A/1") -> Lease:
    answer = aws.store().claim(STREAM, execution=execution, holder=holder)
    assert isinstance(answer, Claimed)
    return answer.lease


def test_a_claim_raises_the_fence_and_names_the_holder(aws: Aws) -> None:
    """The first fence is 1; a read right after finds what the claim answered."""
    assert claim(aws) == Lease(fence=1, holder="A/1")
    assert claim(aws, holder="B/2") == Lease(fence=2, holder="B/2")
    assert aws.store().read_lease(STREAM) == Lease(fence=2, holder="B/2")
    assert aws.store().read_lease("other") == Lease()


def test_a_claim_is_for_the_execution_that_holds_the_stream(aws: Aws) -> None:
    """Unclaimed or claimed by one's own execution it is granted; by another it is refused, and the lease says whose."""
    assert claim(aws, "arn:1").fence == 1
    aws.put_control(STREAM, "lease", execution={"S": "arn:1"}, generation={"N": "4"})
    assert claim(aws, "arn:1") == Lease(fence=2, execution="arn:1", generation=4, holder="A/1")
    refused = aws.store().claim(STREAM, execution="arn:2", holder="A/9")
    assert refused == ClaimRefused(Lease(fence=2, execution="arn:1", generation=4, holder="A/1"))
    assert claim(aws, "").fence == 3


def test_a_claim_is_refused_while_the_stop_wish_stands(aws: Aws) -> None:
    """A stop that is false, or absent, does not hinder."""
    aws.put_control(STREAM, "lease", stop={"BOOL": False})
    assert claim(aws).fence == 1
    aws.put_control(STREAM, "lease", stop={"BOOL": True})
    assert aws.store().claim(STREAM, execution="", holder="A/1") == ClaimRefused(
        Lease(fence=1, stop=True, holder="A/1")
    )


def test_a_claim_whose_answer_was_lost_is_found_by_its_holder(aws: Aws) -> None:
    """The lease is read: it names this invocation, so the claim was made."""
    lost = aws.store(Client(aws.dynamodb, "update_item", answer_is_lost))
    assert lost.claim(STREAM, execution="", holder="A/1") == Claimed(Lease(fence=1, holder="A/1"))


def test_a_claim_that_never_arrived_is_none(aws: Aws) -> None:
    """The lease names another, or an earlier claim of this invocation: the store is unavailable."""
    claim(aws, holder="A/1")
    never = aws.store(Client(aws.dynamodb, "update_item", never_arrives))
    for holder, after in (("B/2", 0), ("A/1", 1)):
        with pytest.raises(StoreUnavailable, match="UpdateItem"):
            never.claim(STREAM, execution="", holder=holder, after_fence=after)
    deaf = Client(never._dynamodb, "get_item", never_arrives)
    with pytest.raises(StoreUnavailable, match="UpdateItem"):
        aws.store(deaf).claim(STREAM, execution="", holder="A/1")


def test_connected_only_grows_and_never_passes_the_fence(aws: Aws) -> None:
    """An older connection that is marked late changes nothing, nor does one whose lease is gone."""
    store = aws.store()
    claim(aws), claim(aws)
    assert store.mark_connected(STREAM, 2, 900)
    assert store.mark_connected(STREAM, 2, 950)
    assert not store.mark_connected(STREAM, 1, 999)
    assert not store.mark_connected(STREAM, 3, 999)
    assert not store.mark_connected("other", 1, 999)
    assert store.read_lease(STREAM) == Lease(fence=2, connected_token=2, expires_at_ms=950, holder="A/1")
    assert store.read_lease("other") == Lease()


def test_released_only_grows(aws: Aws) -> None:
    """The same rules for the mark of a closed connection."""
    store = aws.store()
    claim(aws), claim(aws)
    assert store.mark_released(STREAM, 2)
    assert store.mark_released(STREAM, 2)
    assert not store.mark_released(STREAM, 1)
    assert not store.mark_released("other", 1)
    assert store.read_lease(STREAM).released_token == 2


def test_only_the_connected_one_renews_and_only_forward(aws: Aws) -> None:
    """A renewal of an older connection, or one that lands late, changes nothing."""
    store = aws.store()
    claim(aws), claim(aws)
    store.mark_connected(STREAM, 1, 100)
    assert store.renew(STREAM, 1, 200)
    assert not store.renew(STREAM, 1, 150)
    store.mark_connected(STREAM, 2, 300)
    assert not store.renew(STREAM, 1, 900)
    assert store.read_lease(STREAM).expires_at_ms == 300


# --- cursor and ledger ------------------------------------------------------------------------------------------------


def test_the_cursor_is_never_moved_back_by_an_older_connection(aws: Aws) -> None:
    """A newer fence and the same fence move it; an older fence, and a request that lands late, do not."""
    store = aws.store()
    assert store.read_cursor(STREAM) is None
    assert store.save_cursor(STREAM, "5", fence=1, now_ms=100)
    assert store.save_cursor(STREAM, "8", fence=2, now_ms=90)
    assert not store.save_cursor(STREAM, "6", fence=1, now_ms=200)
    assert store.save_cursor(STREAM, "9", fence=2, now_ms=110)
    assert not store.save_cursor(STREAM, "8", fence=2, now_ms=100)
    assert store.save_cursor(STREAM, "", fence=2, now_ms=110)
    assert store.read_cursor(STREAM) == ""
    assert aws.items(CONTROL, STREAM) == {
        "cursor": {"PK": STREAM, "SK": "cursor", "cursor": "", "fence": 2, "saved_at_ms": 110}
    }


def test_the_ledger_records_a_connection(aws: Aws) -> None:
    """One record a fence; an instant that has not come is absent, counts are the latest."""

    def save(progress: Progress) -> bool:
        return aws.store().save_connection(STREAM, progress, lane="A", execution="arn:1", request_id="r")

    assert save(Progress(fence=3, claimed_ms=10, opened_ms=20, seen_ms=20))
    assert save(Progress(fence=3, claimed_ms=10, opened_ms=20, seen_ms=30, frames=2, bytes=9, stored=1, duplicates=1))
    assert not save(Progress(fence=3, claimed_ms=10, opened_ms=20, seen_ms=25))
    closed = Progress(
        fence=3, claimed_ms=10, opened_ms=20, seen_ms=30, closed_ms=40, ended_by="reset", frames=3, bytes=9, stored=1,
        duplicates=1, dead_lettered=1, unterminated_bytes=2,
    )  # fmt: skip
    assert save(closed)
    assert not save(Progress(fence=3, claimed_ms=10, opened_ms=20, seen_ms=30, frames=2, bytes=9))
    assert save(closed)
    assert aws.items(CONTROL, STREAM) == {
        "connection#000000000003": {
            "PK": STREAM,
            "SK": "connection#000000000003",
            "lane": "A",
            "execution": "arn:1",
            "request_id": "r",
            "fence": 3,
            "claimed_ms": 10,
            "opened_ms": 20,
            "seen_ms": 30,
            "closed_ms": 40,
            "ended_by": "reset",
            "frames": 3,
            "bytes": 9,
            "stored": 1,
            "duplicates": 1,
            "dead_lettered": 1,
            "unterminated_bytes": 2,
            "resumed": False,
        }
    }


def test_a_turn_is_taken_when_nobody_elses_lasts(aws: Aws) -> None:
    """Free, released, run out or one's own already: taken. While another's lasts, or a newer one took it: not."""
    store = aws.store()
    for number in (1, 2, 3):
        assert isinstance(store.claim(STREAM, execution="", holder=f"A/{number}"), Claimed)
    first = store.take_turn(STREAM, 1, expires_at_ms=100, now_ms=10)
    assert (first.connected_token, first.expires_at_ms) == (1, 100)
    assert store.take_turn(STREAM, 1, expires_at_ms=120, now_ms=20).expires_at_ms == 120
    assert store.take_turn(STREAM, 2, expires_at_ms=200, now_ms=119).connected_token == 1
    assert store.take_turn(STREAM, 2, expires_at_ms=200, now_ms=120).connected_token == 2
    assert store.mark_released(STREAM, 2)
    assert store.take_turn(STREAM, 3, expires_at_ms=300, now_ms=130).connected_token == 3
    assert store.take_turn(STREAM, 2, expires_at_ms=400, now_ms=999).connected_token == 3
    assert store.take_turn(STREAM, 4, expires_at_ms=400, now_ms=999).connected_token == 3


def test_records_of_the_ledger_may_expire(aws: Aws) -> None:
    """So many days after the connection was last seen, or the gap ended; the lease and the cursor never do."""
    store = aws.store(ledger_keep_days=2)
    store.claim(STREAM, execution="", holder="A/1")
    store.save_cursor(STREAM, "5", fence=1, now_ms=100)
    first = Progress(fence=1, claimed_ms=0, opened_ms=1_000, seen_ms=5_999, closed_ms=5_999, ended_by="reset")
    for progress in (first, Progress(fence=2, claimed_ms=6_000, opened_ms=9_000, seen_ms=9_500)):
        store.save_connection(STREAM, progress, lane="A", execution="", request_id="r")
    store.record_gaps(STREAM, 9_600, dead_after_ms=1_000)
    assert {key: item.get("expires_at", 0) - 2 * 86_400 for key, item in aws.items(CONTROL, STREAM).items()} == {
        "connection#000000000001": 5,
        "connection#000000000002": 9,
        "cursor": -2 * 86_400,
        "gap#000000000002": 9,
        "lease": -2 * 86_400,
    }


def test_gaps_are_written_down_once(aws: Aws) -> None:
    """A gap between two records is an item under the connection that ended it; writing it again changes nothing."""
    store = aws.store()
    first = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=80, closed_ms=90, ended_by="reset")
    never_answered = Progress(fence=2, claimed_ms=91, seen_ms=91)
    killed = Progress(fence=3, claimed_ms=95, opened_ms=100, seen_ms=150, resumed=True)
    last = Progress(fence=4, claimed_ms=170, opened_ms=180, seen_ms=300)
    for progress in (first, never_answered, killed, last):
        store.save_connection(STREAM, progress, lane="A", execution="", request_id="r")
    store.record_gaps(STREAM, 160, dead_after_ms=20)
    assert [key for key in aws.items(CONTROL, STREAM) if key.startswith("gap#")] == ["gap#000000000003"]
    for _ in range(2):
        store.record_gaps(STREAM, 310, dead_after_ms=20)
    found = {key: item for key, item in aws.items(CONTROL, STREAM).items() if key.startswith("gap#")}
    assert found == {
        f"gap#{fence:012d}": {
            "PK": STREAM,
            "SK": f"gap#{fence:012d}",
            "from_ms": from_ms,
            "to_ms": to_ms,
            "cause": cause,
            "closed_by_cursor": by_cursor,
        }
        for fence, from_ms, to_ms, cause, by_cursor in [(3, 90, 100, "reset", True), (4, 150, 180, "unrecorded", False)]
    }


def test_a_gap_that_is_known_costs_no_write(aws: Aws) -> None:
    """The next look back finds it there: however many gaps there were, a stream that is down waits for two queries."""
    for fence in range(1, 6):
        at_ms = fence * 100
        progress = Progress(fence, at_ms, opened_ms=at_ms, seen_ms=at_ms + 50, closed_ms=at_ms + 50, ended_by="reset")
        aws.store().save_connection(STREAM, progress, lane="A", execution="", request_id="r")
    aws.store().record_gaps(STREAM, 600, dead_after_ms=20)
    assert sum(key.startswith("gap#") for key in aws.items(CONTROL, STREAM)) == 4
    aws.store(Client(aws.dynamodb, "put_item", never_arrives)).record_gaps(STREAM, 700, dead_after_ms=20)
