"""Deliberately defective pieces of the store, the functions, the API and the machine, which a schedule must catch.

Each replaces one function of `handlers`, or edits the machine, by one that does what its docstring says;
tests/chaos/chaos_defects.py lists them. Invariant: each differs from the sound code in that alone.
"""

from dataclasses import replace
from typing import Any

from handlers.api import gaps
from handlers.connection.backoff import FailureKind, Pace, Rest, failed
from handlers.connection.effects import Claim
from handlers.connection.inputs import Claimed, ClaimRefused, RestOwed, Written
from handlers.connection.ledger import Gap
from handlers.connection.reconnection import _Attempts, reconnects
from handlers.connection.steps import Answer, Invocation, Report, Steps
from handlers.errors import StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.run.stream_invocation import to_invocation
from handlers.store import control_record
from handlers.store.connection_store import Reply, Store
from handlers.store.control_table import setting, values_of
from handlers.store.control_writes import Change
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy, mark, stream_of
from handlers.store.event_writer import OneWrite
from handlers.store.overflow import DEAD_LETTERED, DUPLICATE, STORED, Singles
from handlers.store.requests import Requests
from handlers.store.typed_values import Item

NOTE, CLAIM = _Attempts._note, Requests._claim
HEARTBEAT, TAKE_TURN, CLAIM_LEASE = Store.heartbeat, Store.take_turn, Store.claim
SHOWN_GAP = gaps.shown_gap
BEGINS, RECONNECTS, TO_INVOCATION = _Attempts.__init__, reconnects, to_invocation


def heartbeat_without_fence(
    store: Store, stream_id: str, fence: int, expires_at_ms: int, shown: Item, _rest: Change | None = None
) -> Reply:
    """The cursor is written whoever is connected."""
    reply = HEARTBEAT(store, stream_id, fence, expires_at_ms, shown)
    saved = {name: value for name, value in shown.items() if name in ("cursor", "cursor_fence", "saved_at_ms")}
    return sets(store, stream_id, saved) if saved and not reply.is_done else reply


def sets(store: Store, stream_id: str, attributes: Item) -> Reply:
    """The reply to a write of attributes of the control record, whoever is connected."""
    names = tuple(attributes)
    return store._change(stream_id, setting(names), "attribute_exists(PK)", names, values_of(attributes))


def stores_duplicates(write: OneWrite, batch: Any) -> list[str]:
    """An event is written whether it is there or not."""
    try:
        for number, event, _ in batch:
            write._dynamodb.put_item(TableName=write._writer.table, Item=write._inserts.item(number, event))
    except Exception as error:
        raise StoreUnavailable("no answer") from error
    return [STORED] * len(batch)


def overlooks_single_refusals(write: OneWrite, batch: Any) -> list[str]:
    """A batch that was answered counts as stored, whatever is said of its statements."""
    if batch:
        write._insert([text for *_, text in batch])
    return [STORED] * len(batch)


def ignores_errors(
    store: Store, stream_id: str, fence: int, first: int, events: Any, kept: Any = DEFAULT_POLICY
) -> Written:
    """An event that the store refuses counts as stored."""
    for number, event in enumerate(events, first):
        try:
            store._writer.write(stream_id, fence, number, [event], kept)
        except StoreUnavailable:
            continue
    return Written(len(events), 0)


def takes_any_turn(store: Store, stream_id: str, fence: int, expires_at_ms: int, _now_ms: int, **who: Any) -> Reply:
    """A connection takes its turn whether another's lasts or not."""
    return TAKE_TURN(store, stream_id, fence, expires_at_ms, 1 << 60, **who)


def writes_no_rest(attempts: _Attempts, held: Rest, report: Report) -> Steps[None]:
    """What a failure comes to is known to the function that met it alone, where no release has noted it."""
    yield from ()
    steps, answer = NOTE(attempts, held, report), None
    try:
        while True:
            steps.send(answer)  # type: ignore[arg-type]
            answer = Answer(attempts._now_ms, True)
    except StopIteration:
        return


def overwrites_any_rest(store: Store, stream_id: str, _before: Rest, after: Rest, _holder: str) -> bool:
    """Whoever failed last is right: it is written, whatever stands there by now."""
    return sets(store, stream_id, control_record.rest(after)).is_done


def forgets_retry_after(
    before: Rest, kind: FailureKind, now_ms: int, pace: Pace | None, _asked_s: float | None
) -> Rest:
    """Only the profile's own pace counts."""
    return failed(before, kind, now_ms, pace, None)


def never_rests_longer(_before: Rest, kind: FailureKind, now_ms: int, pace: Pace | None, asked_s: float | None) -> Rest:
    """Each failure counts as the first."""
    return failed(Rest(), kind, now_ms, pace, asked_s)


def never_outlives(held: Rest, _open_ms: int) -> Rest:
    """A connection that lives changes nothing of the row before its end."""
    return held


def claims_despite_a_rest(store: Store, stream_id: str, *, rest_until_ms: int, **who: Any) -> Reply:
    """A claim is granted whatever rest is owed."""
    until_ms = store.read(stream_id).rest.until_ms
    return CLAIM_LEASE(store, stream_id, rest_until_ms=until_ms if rest_until_ms == 0 else rest_until_ms, **who)


def tries_beside_another(store: Store, stream_id: str, *, rest_until_ms: int, **who: Any) -> Reply:
    """Whoever has rested claims, whatever is written down by then."""
    until_ms = store.read(stream_id).rest.until_ms if rest_until_ms else 0
    return CLAIM_LEASE(store, stream_id, rest_until_ms=until_ms, **who)


def renews_nothing(
    store: Store, stream_id: str, fence: int, _expires_at_ms: int, shown: Item, rest: Change | None = None
) -> Reply:
    """A heartbeat saves the cursor and lets the lease run out."""
    reply = store.read(stream_id)
    return HEARTBEAT(store, stream_id, fence, reply.lease.expires_at_ms, shown, rest)


def spreads_as_its_profile_says(requests: Requests, step: Claim) -> Claimed | ClaimRefused | RestOwed:
    """The partitions are those of the version that runs, not those of the first claim."""
    answer = CLAIM(requests, step)
    requests._policy = StoragePolicy(requests._profile.partitions)
    return answer


def draws_no_pause(attempts: _Attempts, profile: Profile, invocation: Invocation, now_ms: int, _draw: Any) -> None:
    """A pause in place is always the longest that it may be."""
    BEGINS(attempts, profile, invocation, now_ms, lambda _least, most: most)


def reconnects_at_any_time(profile: Profile, report: Report, tries: int, _remaining_ms: int, margin_ms: int) -> bool:
    """A function connects again by itself however little of its time is left."""
    return RECONNECTS(profile, report, tries, 10**9, margin_ms)


def takes_milliseconds_for_seconds(*request: Any, **times: Any) -> Invocation:
    """The margin is divided by a thousand once too often."""
    asked = TO_INVOCATION(*request, **times)
    return replace(asked, margin_ms=asked.margin_ms // 1000)


def clears_a_younger_stop_request(definition: dict[str, Any]) -> None:
    """A claim in place of one that is dead is granted whenever the stop was requested."""
    claim = definition["States"]["Claim lease"]["Arguments"]
    sound = "'(attribute_not_exists(stop_at) OR stop_at < :asked_at) AND '"
    assert sound in claim["ConditionExpression"]
    defective = f"($dead = '' ? {sound} : {sound.replace('stop_at)', 'nothing)', 1)})"
    claim["ConditionExpression"] = claim["ConditionExpression"].replace(sound, defective)


def marks_before_it_sends(write: Singles, event: Any, item: Any, reason: str) -> str:
    """The mark of a dead-lettered event is left before its message is sent."""
    if write._place(item) is not None:
        return DUPLICATE
    write._put_once(mark(item, reason))
    write._dead_letters.send(stream_of(item), int(item["fence"]["N"]), event, reason)
    return DEAD_LETTERED


def drops_what_is_refused(_write: Singles, _event: Any, _item: Any, _reason: str) -> str:
    """What the table refuses counts as dead-lettered and is not."""
    return DEAD_LETTERED


def takes_whom_it_cannot_describe_for_dead(definition: dict[str, Any]) -> None:
    """A holder whose execution cannot be described counts as forgotten."""
    *_, anything = definition["States"]["Describe holder"]["Catch"]
    anything["Assign"], anything["Next"] = {"holder_status": "FORGOTTEN"}, "Who holds the lease"


def waits_after_a_drop(definition: dict[str, Any]) -> None:
    """A lane that was dropped goes to its Wait, though nobody else is connected."""
    for lane, branch in zip("AB", definition["States"]["Lanes"]["Branches"], strict=True):
        task = branch["States"][f"Connect {lane}"]
        for retrier in task["Retry"]:
            retrier["ErrorEquals"] = [name for name in retrier["ErrorEquals"] if name != "StreamDropped"] or ["Nothing"]
        waits = task["Catch"][0]
        task["Catch"].insert(0, {**waits, "ErrorEquals": ["StreamDropped"]})


def shows_as_closed(gap: Gap) -> dict[str, Any]:
    """A gap is shown as if the cursor had closed it."""
    return SHOWN_GAP(replace(gap, closed_by_cursor=True))
