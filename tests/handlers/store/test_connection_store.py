"""Lease, cursor and ledger on tables in memory: writes, refusals, and the effect of a lost answer."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from handlers.connection.effects import Progress, RecordLoss
from handlers.connection.gap_record import DELIVERED, LOST, OPEN
from handlers.connection.inputs import GapsRecorded
from handlers.connection.lease import Lease
from handlers.errors import StoreUnavailable
from handlers.store import control_record, typed_values
from handlers.store.connection_store import Store
from handlers.store.control_writes import mark_values
from handlers.store.ledger_records import SEARCHED_CONNECTIONS, connection_item, connection_key
from tests.handlers.aws import CONTROL, Client, Memory, drop_request, lose_answer, record_gaps, save_connection
from tests.handlers.store.events import STREAM

# --- the lease --------------------------------------------------------------------------------------------------------


def claim(memory: Memory, execution: str = "", holder: str = "A/1") -> Lease:
    reply = memory.store().claim(STREAM, execution=execution, holder=holder)
    assert reply.is_done
    return reply.record.lease


def test_a_claim_raises_the_fence_and_names_the_holder(memory: Memory) -> None:
    """The first claim has fence 1, and a read right after returns the claim's lease."""
    assert claim(memory) == Lease(fence=1, holder="A/1")
    assert claim(memory, holder="B/2") == Lease(fence=2, holder="B/2")
    assert memory.store().read_lease(STREAM) == Lease(fence=2, holder="B/2")
    assert memory.store().read_lease("other") == Lease()


def test_a_claim_is_for_the_execution_that_holds_the_stream(memory: Memory) -> None:
    """An unclaimed stream or one of the own execution is claimed; otherwise the refusal shows the lease's execution."""
    assert claim(memory, "arn:1").fence == 1
    memory.put_control(STREAM, "lease", execution={"S": "arn:1"}, generation={"N": "4"})
    assert claim(memory, "arn:1") == Lease(fence=2, execution="arn:1", generation=4, holder="A/1")
    refused = memory.store().claim(STREAM, execution="arn:2", holder="A/9")
    lease = Lease(fence=2, execution="arn:1", generation=4, holder="A/1")
    assert (refused.is_done, refused.record.lease) == (False, lease)
    assert claim(memory, "").fence == 3


def test_a_predecessor_does_not_claim_a_stream_that_has_ended(memory: Memory) -> None:
    """A stream that its successor's execution ended is not claimed. After States.Runtime the predecessor goes on."""
    for ending in ("StreamEnded", "StreamRejected", "InvalidRequest"):
        memory.put_control(STREAM, "lease", ending={"S": ending}, ended_at={"S": "2026-01-01T00:00:00Z"})
        assert not memory.store().claim(STREAM, execution="arn:1", holder="A/1").is_done
    assert claim(memory, "").fence == 1
    memory.put_control(STREAM, "lease", ending={"S": "States.Runtime"}, ended_at={"S": "2026-01-01T00:00:00Z"})
    assert claim(memory, "arn:1").fence == 2


def test_a_claim_is_refused_while_a_stop_is_requested(memory: Memory) -> None:
    """A requested stop refuses each claim; a stop that is false or absent does not."""
    memory.put_control(STREAM, "lease", stop={"BOOL": False})
    assert claim(memory).fence == 1
    memory.put_control(STREAM, "lease", stop={"BOOL": True})
    refused = memory.store().claim(STREAM, execution="", holder="A/1")
    assert (refused.is_done, refused.record.lease) == (False, Lease(fence=1, stop=True, holder="A/1"))


def test_a_claim_whose_answer_was_lost_is_recognised_by_its_holder(memory: Memory) -> None:
    """If the answer is lost and the lease names this invocation, the claim was made."""
    lost = memory.store(Client(memory.dynamodb, "update_item", lose_answer))
    reply = lost.claim(STREAM, execution="", holder="A/1")
    assert (reply.is_done, reply.record.lease) == (True, Lease(fence=1, holder="A/1"))


def test_a_claim_that_never_arrived_is_store_unavailable(memory: Memory) -> None:
    """If the lease names another holder, or this holder's earlier claim, the store is unavailable."""
    claim(memory, holder="A/1")
    never = memory.store(Client(memory.dynamodb, "update_item", drop_request))
    for holder, after in (("B/2", 0), ("A/1", 1)):
        with pytest.raises(StoreUnavailable, match="UpdateItem"):
            never.claim(STREAM, execution="", holder=holder, after_fence=after)
    deaf = Client(never._dynamodb, "get_item", drop_request)
    with pytest.raises(StoreUnavailable, match="UpdateItem"):
        memory.store(deaf).claim(STREAM, execution="", holder="A/1")
    # The stream left its group and joins it again in the same function, which starts over.
    memory.store().mark_connected(STREAM, 1, 900)
    with pytest.raises(StoreUnavailable, match="UpdateItem"):
        never.claim(STREAM, execution="", holder="A/1")


def test_a_claim_takes_the_turn_if_no_other_connection_came_since(memory: Memory) -> None:
    """A claim takes no turn if another connection has claimed or connected since. Made twice, it is one claim."""
    store = memory.store()
    claim(memory)
    store.mark_connected(STREAM, 1, 900)
    turn = mark_values(2, 950, "1")
    assert store.claim(STREAM, execution="", holder="A/1", after_fence=1, turn=turn).record.lease.connected_token == 1
    store.release(STREAM, 1, {})
    assert store.claim(STREAM, execution="", holder="A/1", after_fence=1, turn=turn).record.lease.fence == 2
    for _ in range(2):
        reply = store.claim(STREAM, execution="", holder="A/1", after_fence=2, turn=mark_values(3, 990, "1"))
        taken = Lease(fence=3, connected_token=3, released_token=1, expires_at_ms=990, holder="A/1", connected_by="1")
        assert (reply.is_done, reply.record.lease) == (True, taken)
    store.release(STREAM, 3, {})
    claim(memory, holder="B/1")
    reply = store.claim(STREAM, execution="", holder="A/1", after_fence=3, turn=mark_values(4, 999, "1"))
    assert (reply.record.lease.fence, reply.record.lease.connected_token) == (5, 3)


def test_the_connected_token_only_grows_and_never_passes_the_fence(memory: Memory) -> None:
    """A late mark of an older connection changes nothing, nor does a mark without a lease."""
    store = memory.store()
    claim(memory), claim(memory)
    assert store.mark_connected(STREAM, 2, 900).is_done
    assert store.mark_connected(STREAM, 2, 950).is_done
    assert not store.mark_connected(STREAM, 1, 999).is_done
    assert not store.mark_connected(STREAM, 3, 999).is_done
    assert not store.mark_connected("other", 1, 999).is_done
    assert store.read_lease(STREAM) == Lease(fence=2, connected_token=2, expires_at_ms=950, holder="A/1")
    assert store.release(STREAM, 2, {}).is_done
    assert not store.mark_connected(STREAM, 2, 999).is_done
    assert store.read_lease("other") == Lease()


def test_the_released_token_only_grows(memory: Memory) -> None:
    """The release of an older connection changes nothing, nor does a release without a lease."""
    store = memory.store()
    claim(memory), claim(memory)
    assert store.release(STREAM, 2, {}).is_done
    assert store.release(STREAM, 2, {}).is_done
    assert not store.release(STREAM, 1, {}).is_done
    assert not store.release("other", 1, {}).is_done
    assert store.read_lease(STREAM).released_token == 2


def test_only_the_newest_connected_connection_renews_and_only_forward(memory: Memory) -> None:
    """Only the newest connected connection renews its lease, and never to an earlier time."""
    store = memory.store()
    claim(memory), claim(memory)
    store.mark_connected(STREAM, 1, 100)
    shown = {"looked": {"N": "1"}}
    assert store.heartbeat(STREAM, 1, 200, shown).record.lease.expires_at_ms == 200
    assert store.renew(STREAM, 1, 210).record.lease.expires_at_ms == 210
    assert not store.heartbeat(STREAM, 1, 150, shown).is_done
    store.mark_connected(STREAM, 2, 300)
    for reply in (store.heartbeat(STREAM, 1, 900, shown), store.renew(STREAM, 1, 900)):
        assert (reply.is_done, reply.record.lease.expires_at_ms) == (False, 300)


# --- cursor and ledger ------------------------------------------------------------------------------------------------


def saved(cursor: str, fence: int, now_ms: int) -> dict[str, Any]:
    """Return the attributes of a saved cursor."""
    return control_record.cursor_attributes(cursor, fence, now_ms)


def test_the_cursor_is_never_moved_back_by_an_older_connection(memory: Memory) -> None:
    """The newest connection moves the cursor by heartbeats and release; an older connection or late write does not."""
    store = memory.store()
    claim(memory), claim(memory)
    store.mark_connected(STREAM, 1, 100)
    assert store.heartbeat(STREAM, 1, 200, saved("5", 1, 100)).record.cursor == "5"
    assert not store.heartbeat(STREAM, 1, 150, saved("4", 1, 50)).is_done
    store.mark_connected(STREAM, 2, 300)
    assert not store.heartbeat(STREAM, 1, 900, saved("9", 1, 800)).is_done
    assert store.release(STREAM, 1, saved("9", 1, 800)).record.cursor == "5"
    assert store.heartbeat(STREAM, 2, 400, saved("", 2, 310)).is_done
    assert store.release(STREAM, 2, saved("8", 2, 320)).is_done
    assert not store.heartbeat(STREAM, 2, 500, saved("7", 2, 315)).is_done
    record = store.read(STREAM)
    assert (record.cursor, record.cursor_fence, record.saved_ms, record.lease.released_token) == ("8", 2, 320, 2)


def test_a_cursor_that_the_upstream_refused_is_replaced_once(memory: Memory) -> None:
    """A refused cursor is replaced if it is still the request's; a cursor that was saved since stays."""
    store = memory.store()
    claim(memory)
    store.mark_connected(STREAM, 1, 100)
    refused = store.heartbeat(STREAM, 1, 200, saved("5", 1, 100)).record
    assert [store.replace_cursor(STREAM, refused, "", 1, 150) for _ in range(2)] == [True, False]
    record = store.read(STREAM)
    assert (record.cursor, record.cursor_fence) == ("", 1)
    assert store.heartbeat(STREAM, 1, 300, saved("5", 1, 200)).is_done
    store.heartbeat(STREAM, 1, 400, saved("6", 1, 300))
    assert (store.replace_cursor(STREAM, refused, "", 1, 350), store.read(STREAM).cursor) == (False, "6")


def test_the_ledger_records_a_connection(memory: Memory) -> None:
    """Each fence has one record with the newest counts; attributes that the last write lacks are absent."""

    def save(progress: Progress) -> bool:
        return save_connection(memory.store(), STREAM, progress, lane="A", execution="arn:1", request_id="r")

    assert save(Progress(fence=3, claimed_ms=10, opened_ms=20, seen_ms=20, reach_ms=2_000))
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
    who = {"lane": "A", "execution": "arn:1", "request_id": "r", "resumed": False}
    told = {name: value for name, value in asdict(closed).items() if value not in (None, False, "", (0, 0))}
    record = {"PK": STREAM, "SK": "connection#000000000003"} | who | told
    assert memory.items(CONTROL, STREAM) == {"connection#000000000003": record}


def keep(store: Store, *connections: Progress) -> None:
    """Save the connections' records in the ledger."""
    for progress in connections:
        save_connection(store, STREAM, progress, lane="A", execution="", request_id="r")


def gaps_of(memory: Memory) -> dict[str, dict[str, Any]]:
    """Return the recorded gaps by their keys."""
    return {key: item for key, item in memory.items(CONTROL, STREAM).items() if key.startswith("gap#")}


# A connection that was reset, and the next one, which requests what came since.
FIRST = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=90, closed_ms=90, ended_by="reset", live_ms=10)
SECOND = Progress(fence=2, claimed_ms=95, opened_ms=100, seen_ms=110, resumed=True, since_ms=90, live_ms=130)
BROKEN = replace(SECOND, seen_ms=114, closed_ms=114, ended_by="reset")


def test_a_turn_is_taken_if_no_other_connection_holds_one(memory: Memory) -> None:
    """A connection takes a free, released, expired or own turn, but not one that lasts or is a newer connection's."""
    store = memory.store()
    for number in (1, 2, 3):
        assert store.claim(STREAM, execution="", holder=f"A/{number}").is_done
    first = store.take_turn(STREAM, 1, expires_at_ms=100, now_ms=10).record.lease
    assert (first.connected_token, first.expires_at_ms) == (1, 100)

    def turn(fence: int, expires_at_ms: int, now_ms: int, over: int = 0) -> int:
        reply = store.take_turn(STREAM, fence, expires_at_ms=expires_at_ms, now_ms=now_ms, over=over)
        assert reply.is_done == (reply.record.lease.connected_token == fence)
        return reply.record.lease.connected_token

    assert (turn(1, 120, 20), turn(2, 200, 119), turn(2, 200, 120)) == (1, 1, 2)
    assert store.release(STREAM, 2, {}).is_done
    assert (turn(3, 300, 130), turn(2, 400, 999), turn(4, 400, 999)) == (3, 3, 3)
    claim(memory)
    assert (turn(4, 400, 140, over=2), turn(4, 400, 140, over=3)) == (3, 4)


def test_records_of_the_ledger_may_expire(memory: Memory) -> None:
    """Records expire so many days after the last sign of life or the gap's end; the lease and the cursor never do."""
    store = memory.store(ledger_keep_days=2)
    store.claim(STREAM, execution="", holder="A/1")
    first = Progress(fence=1, claimed_ms=0, opened_ms=1_000, seen_ms=5_999, closed_ms=5_999, ended_by="reset")
    keep(store, first, Progress(fence=2, claimed_ms=6_000, opened_ms=9_000, seen_ms=9_500))
    record_gaps(store, STREAM, 9_600, dead_after_ms=1_000)
    assert {key: item.get("expires_at", 0) - 2 * 86_400 for key, item in memory.items(CONTROL, STREAM).items()} == {
        "connection#000000000001": 5,
        "connection#000000000002": 9,
        "gap#000000000002": 9,
        "lease": -2 * 86_400,
    }


@pytest.mark.parametrize("gone", [(), (2,), (1, 3), (1, 2, 3)])
def test_expired_records_leave_no_gap_in_any_order(memory: Memory, gone: tuple[int, ...]) -> None:
    """Records that expire in any order add no gap. The stream was stopped for three days; its records last two."""
    store, day_ms = memory.store(ledger_keep_days=2), 86_400_000
    handed = Progress(fence=0, claimed_ms=0, ended_by="taken_over", resumed=True, reach_ms=100)
    for fence, at_ms in ((1, 1_000), (2, 1_400), (3, 1_800)):
        times: dict[str, Any] = {"opened_ms": at_ms, "since_ms": at_ms, "live_ms": at_ms}
        keep(store, replace(handed, fence=fence, seen_ms=at_ms + 500, closed_ms=at_ms + 500, **times))
    for fence in gone:
        memory.dynamodb.delete_item(TableName=CONTROL, Key=typed_values.item_key(STREAM, connection_key(fence)))
    stop: dict[str, Any] = {"stopped_ms": 2_200, "started_ms": 3 * day_ms - 9, "since_ms": 2_300, "live_ms": 3 * day_ms}
    keep(store, replace(handed, fence=4, opened_ms=3 * day_ms, seen_ms=3 * day_ms + 50, ended_by="", **stop))
    assert record_gaps(store, STREAM, 3 * day_ms + 60, dead_after_ms=20) == GapsRecorded(0, is_open=False)
    assert gaps_of(memory) == {}


def test_gaps_are_recorded_once(memory: Memory) -> None:
    """A gap is an item under the connection that ended it, and recording it again changes nothing."""
    store = memory.store()
    first = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=80, closed_ms=90, ended_by="reset")
    never_answered = Progress(fence=2, claimed_ms=91, seen_ms=91)
    killed = Progress(fence=3, claimed_ms=95, opened_ms=100, seen_ms=150, resumed=True)
    last = Progress(fence=4, claimed_ms=170, opened_ms=180, seen_ms=300)
    keep(store, first, never_answered, killed, last)
    record_gaps(store, STREAM, 160, dead_after_ms=20)
    assert list(gaps_of(memory)) == ["gap#000000000003"]
    for _ in range(2):
        record_gaps(store, STREAM, 310, dead_after_ms=20)
    names = ("PK", "SK", "from_ms", "to_ms", "cause", "state")
    rows = [("gap#000000000003", 90, 100, "reset", DELIVERED), ("gap#000000000004", 150, 180, "unrecorded", OPEN)]
    assert gaps_of(memory) == {key: dict(zip(names, (STREAM, key, *gap), strict=True)) for key, *gap in rows}


def test_a_gap_is_updated_once_it_is_proved(memory: Memory) -> None:
    """A gap's item is open at first, longer after the next drop, and delivered in the end."""
    store = memory.store()
    shown = []
    third = replace(SECOND, fence=3, opened_ms=117, seen_ms=117, live_ms=160)
    for progress in (FIRST, SECOND, BROKEN, third, replace(third, seen_ms=300)):
        keep(store, progress)
        record_gaps(store, STREAM, 119, dead_after_ms=20)
        item = memory.items(CONTROL, STREAM).get("gap#000000000002", {})
        shown.append((item.get("from_ms"), item.get("to_ms"), item.get("state")))
    gap = (90, 100, OPEN)
    assert shown == [(None, None, None), gap, gap, (90, 114, OPEN), (90, 100, DELIVERED)]
    rows = [memory.items(CONTROL, STREAM)[f"connection#{fence:012d}"] for fence in (1, 2, 3)]
    assert [row["seen_ms"] for row in rows] == [90, 114, 300]


def test_a_gap_after_a_connection_that_only_counted_as_dead_is_delivered(memory: Memory) -> None:
    """A gap ends as delivered if the connection before it recorded a later end and the search runs again."""
    store = memory.store()
    slow = Progress(fence=1, claimed_ms=5, opened_ms=10, seen_ms=60)
    own = Progress(fence=2, claimed_ms=95, opened_ms=100, seen_ms=300)
    keep(store, slow, own)
    assert record_gaps(store, STREAM, 310, dead_after_ms=20) == GapsRecorded(1, is_open=True)
    keep(store, replace(slow, seen_ms=320, closed_ms=105, ended_by="taken_over"), replace(own, seen_ms=330))
    shown = []
    for again in (False, True):
        assert record_gaps(store, STREAM, 340, dead_after_ms=20, again=again) == GapsRecorded(0)
        gap = memory.items(CONTROL, STREAM)["gap#000000000002"]
        shown.append((gap["from_ms"], gap["to_ms"], gap["state"]))
    assert shown == [(60, 100, OPEN), (60, 100, DELIVERED)]


def test_a_gap_of_a_relieved_connection_is_delivered_once_its_successor_has_caught_up(memory: Memory) -> None:
    """A gap of 70 ms that a relieved connection left is delivered once its successor has caught up."""
    store, first = memory.store(), Progress(1, 5, opened_ms=10, seen_ms=320, closed_ms=320, ended_by="taken_over")
    default = Progress(2, 310, resumed=True, reach_ms=0, since_ms=300, live_ms=430)
    relieved = replace(default, opened_ms=320, seen_ms=350, closed_ms=360, ended_by="taken_over")
    own = replace(default, fence=3, claimed_ms=355, opened_ms=360, since_ms=320, live_ms=470)
    keep(store, first, relieved)
    shown = []
    for seen_ms in (400, 480):
        keep(store, replace(own, seen_ms=seen_ms))
        record_gaps(store, STREAM, seen_ms, dead_after_ms=20)
        shown += [(gap["from_ms"], gap["to_ms"], gap["state"]) for gap in gaps_of(memory).values()]
    assert shown == [(330, 360, OPEN), (330, 360, DELIVERED)]


def test_a_loss_that_grows_updates_its_record(memory: Memory) -> None:
    """A growing loss updates its record, perhaps within the same millisecond, and a late write takes nothing back."""
    for to_ms, events in ((110, 3), (150, 10), (150, 20), (120, 5)):
        memory.store().ledger.record_loss(STREAM, RecordLoss(2, 1, 100, to_ms, "ids_restarted", events))
    item = memory.items(CONTROL, STREAM)["gap#000000000002#000001"]
    assert (item["from_ms"], item["to_ms"], item["events"]) == (100, 150, 20)


SLOW, OWN = Progress(1, 5, opened_ms=10, seen_ms=60), Progress(2, 95, opened_ms=100, seen_ms=110)
LIVES, RESUMED = Progress(3, 390, opened_ms=400, seen_ms=410), replace(OWN, resumed=True, since_ms=60, live_ms=140)


@pytest.mark.parametrize(
    ("own", "later", "states"),
    [
        # Both broke off at once. The older one recorded its late end after the search, or was killed then.
        (OWN, (replace(SLOW, seen_ms=108, closed_ms=108), LIVES), {2: DELIVERED, 3: OPEN}),
        (OWN, (replace(SLOW, seen_ms=108), LIVES), {2: DELIVERED, 3: OPEN}),
        # Two opened at once after an outage. The newer one was answered first and left its record later.
        (
            RESUMED,
            (replace(RESUMED, fence=3, opened_ms=97), replace(RESUMED, fence=4, opened_ms=190, seen_ms=400)),
            {2: DELIVERED, 3: DELIVERED, 4: DELIVERED},
        ),
    ],
)
def test_the_search_for_a_later_gap_closes_an_older_one(
    memory: Memory, own: Progress, later: tuple[Progress, ...], states: dict[int, str]
) -> None:
    """A later search finds an older gap covered or proved by another connection, behind any number of losses."""
    keep(store := memory.store(), SLOW, replace(own, closed_ms=110, ended_by="reset"))
    assert record_gaps(store, STREAM, 310, dead_after_ms=20).is_open
    for number in range(SEARCHED_CONNECTIONS):
        store.ledger.record_loss(STREAM, RecordLoss(2, 1 + number, 105, 106, "announced_by_upstream"))
    keep(store, *later)
    record_gaps(store, STREAM, 420, dead_after_ms=20)
    gaps = {key: gap for key, gap in gaps_of(memory).items() if gap["cause"] != "announced_by_upstream"}
    assert {int(key[4:]): gap["state"] for key, gap in gaps.items()} == states


def test_a_delivered_gap_stays_delivered_when_an_older_connection_searches_again(memory: Memory) -> None:
    """A delivered gap stays delivered when an older connection searches again after the newer one left its record."""
    store, shown = memory.store(), list[str]()
    older, newer = replace(SECOND, resumed=False, live_ms=100), Progress(3, 97, opened_ms=88, seen_ms=118)
    keep(store, FIRST, older)
    for own in (older, newer, replace(older, seen_ms=150, closed_ms=150)):
        item = connection_item(own, lane="A", execution="e", request_id="r")
        store.ledger.record_gaps(STREAM, 119, 20, item, 2, has_open_gap=own.closed_ms is not None)
        shown += [gap["state"] for gap in gaps_of(memory).values()]
    assert shown == [OPEN, DELIVERED, DELIVERED]


def test_a_loss_that_the_other_hot_connection_did_not_have_becomes_delivered(memory: Memory) -> None:
    """A loss on one of two hot connections becomes delivered with the next search, though no gap is in doubt."""
    store, quiet = memory.store(), Progress(1, 900, opened_ms=1_000, seen_ms=90_000, heard_ms=90_000)
    lossy = replace(quiet, fence=2, missing=2, closed_ms=90_000, ended_by="expired")
    keep(store, quiet, lossy, replace(quiet, fence=3))
    for fence, number in ((2, 1), (2, 2), (1, 1)):
        loss = RecordLoss(fence, number, 20_000 * number, 20_001 * number, "announced_by_upstream", 4)
        store.ledger.record_loss(STREAM, loss)
    store.ledger.record_loss(STREAM, RecordLoss(3, 1, 20_500, 20_501, "announced_by_upstream", 4))
    record_gaps(store, STREAM, 95_000, dead_after_ms=20_000, gaps_recorded_by=3)
    assert {place[-8:]: gap["state"] for place, gap in gaps_of(memory).items()} == {
        "1#000001": LOST,
        "2#000001": LOST,
        "2#000002": DELIVERED,
        "3#000001": LOST,
    }


def test_a_gap_is_updated_after_any_number_of_announced_losses(memory: Memory) -> None:
    """A search reads fewer losses than there are, and still finds the gap before them."""
    store = memory.store()
    keep(store, FIRST, SECOND)
    record_gaps(store, STREAM, 119, dead_after_ms=20)
    for number in range(1, SEARCHED_CONNECTIONS + 2):
        store.ledger.record_loss(STREAM, RecordLoss(2, number, 110, 111, "announced_by_upstream"))
    keep(store, replace(SECOND, seen_ms=116))
    record_gaps(store, STREAM, 119, dead_after_ms=20)
    item = memory.items(CONTROL, STREAM)["gap#000000000002"]
    assert (item["from_ms"], item["to_ms"], item["state"]) == (90, 100, DELIVERED)


@pytest.mark.parametrize(("over_ms", "live_ms"), [(20, 900), (60, 20)])
def test_a_gap_keeps_its_beginning_once_the_record_that_sets_it_is_no_longer_read(
    memory: Memory, over_ms: int, live_ms: int
) -> None:
    """A gap keeps its beginning, the end of an older connection that lasted, once the search reads that one no more."""
    store = memory.store()
    lasted = Progress(1, 5, opened_ms=10, seen_ms=95, closed_ms=95, ended_by="let_go")
    stalled = Progress(
        2, 15, opened_ms=20, seen_ms=over_ms, closed_ms=over_ms, ended_by="stalled", reach_ms=0, live_ms=live_ms
    )
    own = replace(stalled, fence=3, opened_ms=100, seen_ms=110, closed_ms=110, ended_by="truncated")
    keep(store, lasted, replace(stalled, resumed=True), own)
    shown = []
    for last in range(3, SEARCHED_CONNECTIONS + 2):
        keep(store, *([Progress(fence=last, claimed_ms=200, seen_ms=200)] if last > 3 else []))
        record_gaps(store, STREAM, 310, dead_after_ms=20, gaps_recorded_by=3)
        item = memory.items(CONTROL, STREAM)["gap#000000000003"]
        shown.append((item["from_ms"], item["to_ms"], item["cause"]))
    assert set(shown) == {(95, 100, "let_go")}


def test_a_gap_keeps_its_beginning_though_the_oldest_record_that_is_read_ended_early(memory: Memory) -> None:
    """The second-oldest record that a search reads may end where the gap seems to begin. The connection before both, in
    the other lane, lasted longer.
    """
    store = memory.store()
    lasted = Progress(1, 5, opened_ms=10, seen_ms=97, closed_ms=97, ended_by="let_go")
    keep(store, lasted, replace(lasted, fence=2, closed_ms=60), replace(lasted, fence=3, closed_ms=95))
    keep(store, replace(lasted, fence=4, opened_ms=100, seen_ms=110, closed_ms=110))
    for last in range(4, SEARCHED_CONNECTIONS + 2):
        keep(store, *([Progress(fence=last, claimed_ms=200, seen_ms=200)] if last > 4 else []))
        record_gaps(store, STREAM, 310, dead_after_ms=20, gaps_recorded_by=4)
        item = memory.items(CONTROL, STREAM)["gap#000000000004"]
        assert (item["from_ms"], item["to_ms"]) == (97, 100), last


def test_no_gap_appears_once_the_connection_that_covered_it_is_no_longer_read(memory: Memory) -> None:
    """A hot standby outlived a killed connection.

    The first search saw both records; later searches read only the records around the hole.
    """
    store = memory.store()
    lasted = Progress(1, 5, opened_ms=10, seen_ms=150, closed_ms=150, ended_by="expired")
    killed = Progress(2, 15, opened_ms=20, seen_ms=90)
    keep(store, lasted, killed, Progress(3, 95, opened_ms=100, seen_ms=180, closed_ms=180, ended_by="expired"))
    for last in range(4, SEARCHED_CONNECTIONS + 4):
        at_ms = 120 + 40 * (last - 3)
        keep(
            store, Progress(last, at_ms, opened_ms=at_ms, seen_ms=at_ms + 60, closed_ms=at_ms + 60, ended_by="expired")
        )
        record_gaps(store, STREAM, at_ms + 60, dead_after_ms=20, gaps_recorded_by=last - 1)
    assert gaps_of(memory) == {}


def test_a_gap_after_a_first_connection_that_was_killed_at_once_is_recorded(memory: Memory) -> None:
    """The second connection was stopped before the first counted as dead, so only the third can record the gap."""
    store = memory.store()
    stopped = Progress(2, 35, opened_ms=40, seen_ms=50, closed_ms=50, ended_by="stopped")
    keep(store, Progress(1, 5, opened_ms=10, seen_ms=10), stopped)
    keep(store, Progress(3, 95, opened_ms=100, seen_ms=180, closed_ms=180, ended_by="expired"))
    record_gaps(store, STREAM, 180, dead_after_ms=20, gaps_recorded_by=2)
    gap = memory.items(CONTROL, STREAM).get("gap#000000000002", {})
    assert [gap.get(name) for name in ("from_ms", "to_ms", "state")] == [10, 40, OPEN]


def test_a_known_gap_costs_no_write(memory: Memory) -> None:
    """The next search finds known gaps recorded: with any number of gaps, a stream that is down costs two queries."""
    for fence in range(1, 6):
        at_ms = fence * 100
        progress = Progress(fence, at_ms, opened_ms=at_ms, seen_ms=at_ms + 50, closed_ms=at_ms + 50, ended_by="reset")
        keep(memory.store(), progress)
    record_gaps(memory.store(), STREAM, 600, dead_after_ms=20)
    assert len(gaps_of(memory)) == 4
    record_gaps(memory.store(Client(memory.dynamodb, "put_item", drop_request)), STREAM, 700, dead_after_ms=20)
