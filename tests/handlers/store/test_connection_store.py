"""Lease, cursor and ledger on the embedded AWS: what a request writes, its refusals, and what a lost answer does."""

from dataclasses import replace

import pytest

from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.inputs import Claimed, ClaimRefused, CursorRead
from handlers.connection.lease import Lease
from handlers.errors import StoreUnavailable
from handlers.store.connection_store import LOOK_BACK
from tests.handlers.aws import (
    CONTROL,
    Aws,
    Client,
    answer_is_lost,
    never_arrives,
)
from tests.handlers.store.events import STREAM

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


def test_a_claim_is_refused_while_a_stop_is_requested(aws: Aws) -> None:
    """A stop that is false, or absent, does not hinder."""
    aws.put_control(STREAM, "lease", stop={"BOOL": False})
    assert claim(aws).fence == 1
    aws.put_control(STREAM, "lease", stop={"BOOL": True})
    assert aws.store().claim(STREAM, execution="", holder="A/1") == ClaimRefused(
        Lease(fence=1, stop=True, holder="A/1")
    )


def test_a_claim_whose_answer_was_lost_is_recognised_by_its_holder(aws: Aws) -> None:
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
        duplicates=1, dead_lettered=1, unterminated_bytes=2, conflicts=1, saved_ms=41, deadline_ms=900,
        error="StreamDropped", http_status=503, detail="503 Service Unavailable",
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
            "conflicts": 1,
            "saved_ms": 41,
            "deadline_ms": 900,
            "error": "StreamDropped",
            "http_status": 503,
            "detail": "503 Service Unavailable",
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
    gaps = {key: item for key, item in aws.items(CONTROL, STREAM).items() if key.startswith("gap#")}
    assert gaps == {
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


def test_a_gap_that_was_closed_is_open_again_where_the_connection_broke_off(aws: Aws) -> None:
    """The item under the connection that ended it is written again, and by nobody who has seen less."""
    store = aws.store()
    first = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=90, closed_ms=90, ended_by="reset", live_ms=10)
    second = Progress(fence=2, claimed_ms=95, opened_ms=100, seen_ms=110, resumed=True, since_ms=90, live_ms=120)
    broken = replace(second, seen_ms=115, closed_ms=115, ended_by="reset")
    shown = []
    for progress in (first, second, broken, replace(second, fence=3, opened_ms=117, seen_ms=300)):
        store.save_connection(STREAM, progress, lane="A", execution="", request_id="r")
        store.record_gaps(STREAM, 119, dead_after_ms=20)
        item = aws.items(CONTROL, STREAM).get("gap#000000000002", {})
        shown.append((item.get("from_ms"), item.get("to_ms"), item.get("closed_by_cursor")))
    assert shown == [(None, None, None), (90, 100, True), (90, 115, False), (90, 100, True)]
    assert store.resumption(STREAM, 310) == CursorRead(None, None, 300, 20)


def test_a_gap_is_written_again_however_many_losses_were_announced_since(aws: Aws) -> None:
    """More of them than a look back reads do not hide the gap that they lie behind."""
    store = aws.store()
    first = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=90, closed_ms=90, ended_by="reset", live_ms=10)
    second = Progress(fence=2, claimed_ms=95, opened_ms=100, seen_ms=110, resumed=True, since_ms=90, live_ms=120)
    for progress in (first, second):
        store.save_connection(STREAM, progress, lane="A", execution="", request_id="r")
    store.record_gaps(STREAM, 119, dead_after_ms=20)
    for number in range(1, LOOK_BACK + 2):
        store.record_loss(STREAM, RecordLoss(2, number, 110, 111, "announced_by_upstream"))
    broken = replace(second, seen_ms=115, closed_ms=115, ended_by="reset")
    store.save_connection(STREAM, broken, lane="A", execution="", request_id="r")
    store.record_gaps(STREAM, 119, dead_after_ms=20)
    item = aws.items(CONTROL, STREAM)["gap#000000000002"]
    assert (item["from_ms"], item["to_ms"], item["closed_by_cursor"]) == (90, 115, False)


def test_a_gap_is_written_however_many_tries_nobody_answered(aws: Aws) -> None:
    """Also where both lanes are connected again before the gap is known."""
    store = aws.store()
    first = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=90, closed_ms=90, ended_by="reset", live_ms=10)
    tries = [Progress(fence, 90 + fence, None, 90 + fence, ended_by="refused") for fence in range(2, 2 * LOOK_BACK)]
    last = 2 * LOOK_BACK
    again = [
        Progress(fence, 200, opened_ms=200 + fence, seen_ms=400, resumed=True, since_ms=90, live_ms=300 + fence)
        for fence in (last, last + 1)
    ]
    for progress in (first, *tries, *again):
        store.save_connection(STREAM, progress, lane="A", execution="", request_id="r")
    store.record_gaps(STREAM, 400, dead_after_ms=20)
    gaps = {key: item for key, item in aws.items(CONTROL, STREAM).items() if key.startswith("gap#")}
    assert list(gaps) == [f"gap#{last:012d}"]
    assert [(item["from_ms"], item["to_ms"]) for item in gaps.values()] == [(90, 200 + last)]


def test_a_gap_that_is_known_costs_no_write(aws: Aws) -> None:
    """The next look back finds it there: however many gaps there were, a stream that is down waits for two queries."""
    for fence in range(1, 6):
        at_ms = fence * 100
        progress = Progress(fence, at_ms, opened_ms=at_ms, seen_ms=at_ms + 50, closed_ms=at_ms + 50, ended_by="reset")
        aws.store().save_connection(STREAM, progress, lane="A", execution="", request_id="r")
    aws.store().record_gaps(STREAM, 600, dead_after_ms=20)
    assert sum(key.startswith("gap#") for key in aws.items(CONTROL, STREAM)) == 4
    aws.store(Client(aws.dynamodb, "put_item", never_arrives)).record_gaps(STREAM, 700, dead_after_ms=20)
