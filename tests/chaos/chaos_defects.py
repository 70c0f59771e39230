"""Deliberate defects of the manager, the store, the functions and the machine, which a schedule of chaos must catch.

Each says in what way it must show, and among which schedules it can show at all. It decides nothing else. Invariant:
the schedule that shows it is clean without it (`test_chaos_teeth.py` holds both).
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from handlers.api import coverage
from handlers.connection.backoff import FailureKind, Pace, Rest, failed
from handlers.connection.effects import Claim
from handlers.connection.inputs import Claimed, ClaimRefused, RestOwed, Written
from handlers.connection.ledger import Gap
from handlers.connection.manager import Manager
from handlers.connection.reconnection import _Attempts, reconnects
from handlers.connection.steps import Answer, Invocation, Report, Steps
from handlers.errors import StoreUnavailable
from handlers.invocation import to_invocation
from handlers.profile.behaviour import Profile
from handlers.store import control_items
from handlers.store.connection_store import Reply, Store
from handlers.store.control_items import Item
from handlers.store.event_items import DEFAULT_POLICY, StoragePolicy, mark, stream_of
from handlers.store.event_writer import DEAD_LETTERED, DUPLICATE, STORED, OneWrite
from handlers.store.requests import Requests
from local.chaos.memory import EVERYTHING, Memory
from local.chaos.schedule import Fault, Schedule, requests
from tests.chaos import log_defects, order_defects
from tests.chaos.chaos_managers import (
    ClaimsAfterConnecting,
    CoversPastTheClose,
    CoversWhatWaits,
    DoesNotWatchTheSuccessor,
    EmitsTheTail,
    ForgetsWhatCameLate,
    IgnoresTheStopRequest,
    LeavesTheLastBatchAtAStop,
    LetsGoWhenSuperseded,
    RecordsLossesLast,
    RestartsThePositions,
    SavesTheCursorFirst,
)
from tests.chaos.ledger_defects import LEDGER, never_revised

NOTE, CLAIM = _Attempts._note, Requests._claim
HEARTBEAT, TAKE_TURN, CLAIM_LEASE = Store.heartbeat, Store.take_turn, Store.claim
SHOWN_GAP = coverage.shown_gap
BEGINS, RECONNECTS, TO_INVOCATION = _Attempts.__init__, reconnects, to_invocation


def heartbeat_without_fence(store: Store, stream_id: str, fence: int, expires_at_ms: int, shown: Item) -> Reply:
    """The cursor is written whoever is connected."""
    reply = HEARTBEAT(store, stream_id, fence, expires_at_ms, shown)
    saved = {name: value for name, value in shown.items() if name in ("cursor", "cursor_fence", "saved_at_ms")}
    return store._set(stream_id, saved, "attribute_exists(PK)") if saved and not reply.is_done else reply


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
    return store._set(stream_id, control_items.rest(after), "attribute_exists(PK)").is_done


def _is_refused_for_a_while(schedule: Schedule) -> bool:
    return schedule.reject_after_s == 300 and any(fault.kind == "rejection" for fault in schedule.faults)


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


def renews_nothing(store: Store, stream_id: str, fence: int, _expires_at_ms: int, shown: Item) -> Reply:
    """A heartbeat saves the cursor and lets the lease run out."""
    reply = store.read(stream_id)
    return HEARTBEAT(store, stream_id, fence, reply.lease.expires_at_ms, shown)


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


def marks_before_it_sends(write: OneWrite, event: Any, item: Any, reason: str) -> str:
    """The mark of a dead-lettered event is left before its message is sent."""
    if write._place(item) is not None:
        return DUPLICATE
    write._put_once(mark(item, reason))
    write._writer.dead_letters.send(stream_of(item), int(item["fence"]["N"]), event, reason)
    return DEAD_LETTERED


def drops_what_is_refused(_write: OneWrite, _event: Any, _item: Any, _reason: str) -> str:
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


def _stays_stopped(schedule: Schedule) -> bool:
    kinds = [fault.kind for fault in schedule.faults]
    return "stop" in kinds and not any("post" in kind for kind in kinds)


def _describes_a_holder(schedule: Schedule) -> bool:
    """Whether a POST finds the stream held while nobody can be described."""
    return any(
        one.kind == "no descriptions" and one.at_ms < at_ms < one.at_ms + one.for_ms
        for one in schedule.faults
        for at_ms, method in requests(schedule)
        if method == "POST"
    )


def _kills_in_a_slow_store(schedule: Schedule) -> bool:
    return not schedule.resumes and any(
        slow.kind == "slow store"
        and kill.kind.startswith("kill")
        and slow.at_ms < kill.at_ms < slow.at_ms + slow.for_ms
        for slow in schedule.faults
        for kill in schedule.faults
    )


def _drops_last(schedule: Schedule) -> bool:
    drops = schedule.faults[-1].kind in ("reset", "truncation", "hang-up")
    return drops and not (schedule.pace or schedule.retry_after_s or schedule.reconnect_tries or schedule.hot)


def _bursts(schedule: Schedule) -> bool:
    return any(fault.kind == "burst" and fault.value > 5 for fault in schedule.faults)


def _stops_a_takeover(schedule: Schedule) -> bool:
    return schedule.faults[-1].kind == "abort, post and stop"


def _cannot_store_all(schedule: Schedule) -> bool:
    return schedule.unstorable == "refused"


def _comes_back_in_place(schedule: Schedule) -> bool:
    return bool(schedule.reconnect_tries)


def _fails_in_place(schedule: Schedule) -> bool:
    fails = any(fault.kind in ("refusals", "no listener") for fault in schedule.faults)
    return _comes_back_in_place(schedule) and not schedule.pace and not schedule.retry_after_s and fails


def _owes_rests(schedule: Schedule) -> bool:
    return bool(schedule.pace or schedule.retry_after_s) and any(fault.kind == "refusals" for fault in schedule.faults)


# Both lanes are refused for so long that each writes down a rest while the other's try is under way.
REFUSED_TWICE = Schedule(
    seed=0,
    policy="evicts",
    resumes=False,
    hot=False,
    reconnect_tries=3,
    renews=True,
    skew_ms=0,
    events_every_ms=700,
    faults=(Fault(15_821, "truncation", 0, 22_979), Fault(25_971, "refusals", 5_941, 503)),
    pace="long",
    retry_after_s=9,
)


def _kill_after_a_pause(schedule: Schedule) -> bool:
    kinds = [fault.kind for fault in schedule.faults]
    return "pause" in kinds and "kill" in kinds[kinds.index("pause") :]


@dataclass(frozen=True)
class Defect:
    """A defect: what is replaced (a name and its replacement, or an edit of the machine) and how it must show.

    It is looked for in generated schedules, or in those that are `like` one but for their seed. The run goes on for
    `more_ms` longer than others, where it shows in the calm alone.
    """

    name: str
    shows_as: set[str]
    manager: type[Manager] | None = None
    store: tuple[str, Callable[..., Any]] | None = None
    machine: Callable[[dict[str, Any]], None] | None = None
    function: tuple[str, Any] | None = None
    among: Callable[[Schedule], bool] = lambda _schedule: True
    like: Schedule | None = None
    more_ms: int = 0


def _leaves_the_default(schedule: Schedule) -> bool:
    """Whether the profile says nothing of resuming, and all clocks agree."""
    return schedule.is_left_to_default and not schedule.skew_ms


def _forgets(schedule: Schedule) -> bool:
    return schedule.resumes and schedule.memory.forgets


def _has_losses(schedule: Schedule) -> bool:
    return schedule.resumes and any(fault.kind == "losses" for fault in schedule.faults)


# The second outage comes while the first is made up for. Each is shorter than the upstream goes back, both are longer.
TWO_OUTAGES = Schedule(
    seed=0,
    policy="evicts",
    resumes=True,
    hot=False,
    reconnect_tries=0,
    renews=False,
    skew_ms=0,
    events_every_ms=300,
    faults=(
        Fault(10_000, "reset"),
        Fault(10_000, "no listener", 5_000),
        Fault(17_500, "reset"),
        Fault(17_500, "no listener", 5_000),
    ),
    memory=Memory(keeps_ms=10_000),
)
# What it keeps is less than a holder has read between two heartbeats: many a successor's first request is in vain.
SHORT_MEMORY = replace(
    TWO_OUTAGES,
    policy="tolerates",
    faults=(Fault(40_863, "redeploy", 0, 50_116), Fault(47_125, "truncation", 0, 3_118)),
    key="path",
    pace="long",
    memory=Memory(keeps=6, word="frame"),
)
# The peer of the first is dead when it is let go, and whoever goes on is killed while it is sent what that kept back.
DEAD_PEER = replace(
    TWO_OUTAGES,
    policy="forbids",
    events_every_ms=300,
    faults=(Fault(12_000, "stall"), Fault(17_000, "vanish"), Fault(17_000, "no functions", 9_000)),
)
# The answers of the store are lost while the upstream says that the cursor is too old.
LOST_ANSWERS = replace(
    TWO_OUTAGES,
    faults=(
        Fault(10_000, "reset"),
        Fault(10_000, "no listener", 9_000),
        Fault(18_000, "unknown outcomes", 6_000),
    ),
    memory=Memory(keeps_ms=6_000, word="status"),
)
# What a pause held back comes in pieces, and the connection is reset in the middle of one.
CUT_OFF = replace(
    TWO_OUTAGES,
    resumes=False,
    events_every_ms=1_100,
    memory=EVERYTHING,
    faults=tuple(
        fault
        for at_ms in (8_000, 13_000, 18_000, 23_000)
        for fault in (Fault(at_ms, "pause", 1_500), Fault(at_ms + 1_501, "reset"))
    ),
)
OF_THE_LEDGER = [
    Defect(
        "half an event counts as heard",
        {"lost"},
        function=LEDGER["half an event counts as heard"],
        like=CUT_OFF,
    ),
    Defect(
        "a gap is closed by its length",
        {"lost"},
        function=LEDGER["a gap is closed by its length"],
        like=TWO_OUTAGES,
    ),
    Defect(
        "one that broke off counts as caught up",
        {"lost"},
        function=LEDGER["one that broke off counts as caught up"],
        like=TWO_OUTAGES,
    ),
    Defect(
        "the cursor closes no gap",
        {"invented"},
        function=LEDGER["the cursor closes no gap"],
        among=lambda schedule: schedule.resumes,
    ),
    Defect(
        "a default resume that is relieved leaves a gap",
        {"invented"},
        function=LEDGER["a default resume that is relieved leaves a gap"],
        among=lambda schedule: _leaves_the_default(schedule) and schedule.policy == "evicts" and schedule.renews,
    ),
    Defect(
        "a default resume counts as heeded",
        {"lost"},
        function=LEDGER["a default resume counts as heeded"],
        among=lambda schedule: _leaves_the_default(schedule) and not schedule.resumes,
    ),
    Defect(
        "a gap's item is never revised",
        {"unrecorded-gaps"},
        function=("handlers.store.ledger_records.LedgerRecords._put_gap", never_revised),
        like=TWO_OUTAGES,
    ),
    Defect(
        "a handover is told as a gap",
        {"invented"},
        function=LEDGER["a handover is told as a gap"],
        among=lambda schedule: not schedule.resumes,
    ),
    Defect(
        "a loss is told from the opening",
        {"lost"},
        function=LEDGER["a loss is told from the opening"],
        among=_has_losses,
    ),
    Defect(
        "the cursor is given up before the ledger says so",
        {"cursor-ahead"},
        function=LEDGER["the cursor is given up before the ledger says so"],
        among=lambda schedule: _forgets(schedule) and schedule.memory.word == "status",
    ),
    Defect(
        "the cursor is given up though the ledger says nothing",
        {"cursor-ahead"},
        function=LEDGER["the cursor is given up though the ledger says nothing"],
        like=LOST_ANSWERS,
    ),
    Defect(
        "a silent connection counts as heard",
        {"lost"},
        function=LEDGER["a silent connection counts as heard"],
        like=DEAD_PEER,
    ),
]
_APPENDER, _WRITER = "handlers.segments.appending.Appender", "handlers.store.segment_writer.SegmentWriter"
OF_THE_LOG = [
    Defect(
        "only the last segment is read at opening",
        {"duplicated"},
        function=(f"{_APPENDER}._is_far_enough", log_defects.knows_all_at_once),
        among=log_defects.in_two_hands,
    ),
    Defect(
        "what another wrote is not read",
        {"duplicated"},
        function=(f"{_APPENDER}.answered", log_defects.goes_on_unread),
        among=log_defects.in_two_hands,
    ),
    Defect(
        "a segment is written without its condition",
        {"duplicated", "lost", "misplaced"},
        function=(f"{_WRITER}._put", log_defects.puts_over_another),
        among=log_defects.in_two_hands,
    ),
    Defect(
        "events are known before they are stored",
        {"lost"},
        function=(f"{_APPENDER}._asks", log_defects.knows_too_early),
        among=log_defects.in_two_hands,
    ),
    Defect(
        "its own segment is not recognised",
        {"wrong-counts"},
        function=(f"{_APPENDER}._is_own", log_defects.is_never_its_own),
        among=log_defects.sends_again,
    ),
    Defect(
        "a number is left out",
        {"duplicated", "misplaced"},
        function=(f"{_APPENDER}._appended", log_defects.leaves_a_number_out),
        among=log_defects.in_two_hands,
    ),
    Defect(
        "an older connection saves its own cursor",
        {"backwards"},
        function=(f"{_APPENDER}._cursor_behind", log_defects.saves_its_own_cursor),
        among=log_defects.in_two_hands,
    ),
    Defect(
        "what waits is dropped when the connection leaves",
        {"lost"},
        function=("handlers.connection.intake.Intake.flush", log_defects.forgets_what_waits),
        among=log_defects.in_a_log,
    ),
    Defect(
        "the cursor of what waits is saved",
        {"cursor-ahead"},
        function=("handlers.connection.intake.Intake._writes", log_defects.counts_on_what_waits),
        among=lambda schedule: log_defects.in_a_log(schedule) and schedule.flush_s >= 1,
    ),
    Defect(
        "the ledger covers what waits for a log",
        {"lost"},
        function=("handlers.connection.liveness.Liveness.seen_ms", log_defects.is_good_until_now),
        like=log_defects.KILLED_WITH_WAITING,
    ),
    Defect(
        "a segment is read backwards",
        {"misread"},
        function=("handlers.store.segment_reader.stored_events", log_defects.reads_backwards),
        among=log_defects.in_a_log,
    ),
    Defect(
        "of a segment the first event is read",
        {"misread"},
        function=("handlers.store.segment_reader.stored_events", log_defects.reads_the_first_alone),
        among=log_defects.in_a_log,
    ),
    Defect(
        "where the events lie is the profile's own",
        {"torn"},
        function=("handlers.store.requests.Requests._claim", log_defects.stores_as_its_profile_says),
        among=log_defects.is_redeployed,
    ),
    Defect(
        "what no segment holds is marked before it is sent",
        {"dead-letters"},
        function=(f"{_WRITER}._dead_letter", log_defects.sends_no_message),
        among=log_defects.is_too_large,
    ),
]
OF_THE_ORDER = [
    Defect(
        "keys are read one partition after the other",
        {"misread"},
        function=(
            "handlers.store.key_reader.heapq",
            SimpleNamespace(merge=lambda *items, key: itertools.chain(*items)),  # noqa: ARG005
        ),
        among=lambda schedule: order_defects.has_no_order(schedule) and schedule.partitions > 1,
    ),
    Defect(
        "a stream gets its order back",
        {"misread"},
        function=("handlers.store.connection_store.Store.claim", order_defects.gives_the_order_back),
        among=order_defects.may_change,
    ),
    Defect(
        "a stream without an order pays for one",
        {"misplaced"},
        function=("handlers.store.requests.Requests._claim", order_defects.orders_as_its_profile_says),
        among=order_defects.may_change,
    ),
    Defect(
        "events leave the index before the lease says so",
        {"misread", "misplaced"},
        function=("handlers.store.connection_store.Store.claim", order_defects.says_nothing),
        among=order_defects.has_no_order,
    ),
]
DEFECTS = [
    *OF_THE_LEDGER,
    *OF_THE_LOG,
    *OF_THE_ORDER,
    Defect("the tail is emitted as an event", {"torn"}, manager=EmitsTheTail),
    Defect("the cursor is saved before its events", {"cursor-ahead"}, manager=SavesTheCursorFirst),
    Defect(
        "the cursor passes a loss that is not recorded",
        {"cursor-ahead", "lost"},
        manager=RecordsLossesLast,
        among=lambda schedule: any(fault.kind == "losses" for fault in schedule.faults),
    ),
    Defect("the position counter restarts with each chunk", {"misplaced"}, manager=RestartsThePositions, among=_bursts),
    Defect(
        "claims after connecting",
        {"restless", "stuck"},
        manager=ClaimsAfterConnecting,
        among=lambda schedule: not (schedule.pace or schedule.retry_after_s),
    ),
    Defect(
        "the ledger covers what waits for the store",
        {"lost"},
        manager=CoversWhatWaits,
        among=_kills_in_a_slow_store,
    ),
    Defect(
        "a stop forgets the last batch",
        {"lost"},
        manager=LeavesTheLastBatchAtAStop,
        among=lambda schedule: not schedule.resumes and _stays_stopped(schedule),
    ),
    Defect(
        "the ledger covers past the close",
        {"lost"},
        manager=CoversPastTheClose,
        among=lambda schedule: not schedule.resumes and schedule.skew_ms == 1_000,
    ),
    Defect(
        "what came late is forgotten",
        {"lost"},
        manager=ForgetsWhatCameLate,
        among=lambda schedule: not schedule.resumes and _kill_after_a_pause(schedule),
    ),
    Defect(
        "no watch for the connected mark",
        {"restless"},
        manager=DoesNotWatchTheSuccessor,
        among=lambda schedule: schedule.policy != "tolerates",
    ),
    Defect(
        "the holder ignores the stop",
        {"stuck"},
        manager=IgnoresTheStopRequest,
        among=lambda schedule: any(fault.kind == "stop" for fault in schedule.faults),
    ),
    Defect(
        "renewal without overlap",
        {"stuck"},
        manager=LetsGoWhenSuperseded,
        among=lambda schedule: schedule.renews and schedule.policy == "evicts",
        more_ms=120_000,
    ),
    Defect("no fence on the cursor", {"backwards"}, store=("heartbeat", heartbeat_without_fence)),
    Defect(
        "an event is written without its condition",
        {"duplicated"},
        function=("handlers.store.event_writer.OneWrite._put_batch", stores_duplicates),
    ),
    Defect(
        "errors of single statements of a batch are ignored",
        {"lost", "cursor-ahead"},
        function=("handlers.store.event_writer.OneWrite._put_batch", overlooks_single_refusals),
        among=lambda schedule: any(fault.kind == "unknown outcomes" for fault in schedule.faults),
    ),
    Defect(
        "the store's errors are ignored",
        {"lost", "cursor-ahead"},
        store=("write", ignores_errors),
        among=lambda schedule: any(fault.kind == "throttles" for fault in schedule.faults),
    ),
    Defect(
        "nobody is marked as connected",
        {"restless", "stuck"},
        store=("mark_connected", lambda store, stream_id, *_given, **_who: Reply(True, store.read(stream_id))),
        among=lambda schedule: schedule.policy == "evicts",
    ),
    Defect(
        "the lease is not renewed",
        {"excess-connections"},
        store=("heartbeat", renews_nothing),
        among=lambda schedule: schedule.policy == "forbids",
    ),
    Defect(
        "a rest is not written down",
        {"impatient"},
        function=("handlers.connection.reconnection._Attempts._note", writes_no_rest),
        among=_owes_rests,
    ),
    Defect("a rest is not read", {"impatient"}, store=("claim", claims_despite_a_rest), among=_owes_rests),
    Defect(
        "all that rested try at once",
        {"impatient"},
        store=("claim", tries_beside_another),
        among=lambda schedule: _owes_rests(schedule) and schedule.hot,
    ),
    Defect(
        "a failure overwrites another's rest",
        {"impatient"},
        store=("change_rest", overwrites_any_rest),
        like=REFUSED_TWICE,
    ),
    Defect(
        "Retry-After is forgotten",
        {"impatient"},
        function=("handlers.connection.reconnection.failed", forgets_retry_after),
        among=lambda schedule: _owes_rests(schedule) and schedule.retry_after_s > 0,
    ),
    Defect(
        "rests do not grow",
        {"impatient"},
        function=("handlers.connection.reconnection.failed", never_rests_longer),
        among=lambda schedule: _owes_rests(schedule) and bool(schedule.pace),
    ),
    Defect(
        "no connection ends a row of failures",
        {"stuck"},
        function=("handlers.connection.rest_changes.outlived", never_outlives),
        like=SHORT_MEMORY,
        more_ms=60_000,
    ),
    Defect(
        "a pause in place is not drawn",
        {"in-step"},
        function=("handlers.connection.reconnection._Attempts.__init__", draws_no_pause),
        among=_fails_in_place,
    ),
    Defect(
        "a function comes back inside its margin",
        {"too-late"},
        function=("handlers.connection.reconnection.reconnects", reconnects_at_any_time),
        among=_comes_back_in_place,
    ),
    Defect(
        "the margin is in another unit",
        {"overdue"},
        function=("handlers.invocation.to_invocation", takes_milliseconds_for_seconds),
    ),
    Defect(
        "partitions are read one after the other",
        {"misread"},
        function=(
            "handlers.store.event_reader.heapq",
            SimpleNamespace(merge=lambda *pages, key: itertools.chain(*pages)),  # noqa: ARG005
        ),
        among=lambda schedule: schedule.partitions > 1 and schedule.order == "index",
    ),
    Defect(
        "a dead-lettered event is marked before it is sent",
        {"dead-letters"},
        function=("handlers.store.event_writer.OneWrite._dead_letter", marks_before_it_sends),
        among=_cannot_store_all,
    ),
    Defect(
        "what the table refuses is dropped",
        {"lost"},
        function=("handlers.store.event_writer.OneWrite._dead_letter", drops_what_is_refused),
        among=_cannot_store_all,
    ),
    Defect(
        "duplicates count as stored",
        {"wrong-counts"},
        function=("handlers.store.event_writer.DUPLICATE", STORED),
        among=lambda schedule: any(fault.kind == "duplicates" for fault in schedule.faults),
    ),
    Defect(
        "a hash depends on how JSON is spelled",
        {"duplicated"},
        function=("handlers.framing.events.canonical_json", lambda data: data.encode()),
        among=lambda schedule: schedule.key == "hash" and any(one.kind == "duplicates" for one in schedule.faults),
    ),
    Defect(
        "a rejected stream is shown as ended",
        {"wrong-status"},
        function=("handlers.api.standing._ENDINGS", {"StreamRejected": "ended"}),
        among=lambda schedule: any(fault.kind == "rejection" for fault in schedule.faults),
    ),
    Defect(
        "a refusal is final at once",
        {"hasty"},
        function=("handlers.connection.refusals.since_ms", lambda *_given: 0),
        among=_is_refused_for_a_while,
    ),
    Defect(
        "a refusal is asked again at once",
        {"impatient", "restless"},
        function=("handlers.connection.refusals.PACE", Pace(0.01)),
        among=_is_refused_for_a_while,
    ),
    Defect(
        "what the upstream announced as lost is not shown",
        {"wrong-status"},
        function=("handlers.api.coverage.ledger.corrected", lambda _losses, _records: []),
        among=_has_losses,
    ),
    Defect(
        "every gap is shown as closed",
        {"wrong-status"},
        function=("handlers.api.coverage.shown_gap", shows_as_closed),
        among=lambda schedule: not schedule.resumes,
    ),
    Defect(
        "who cannot be described is taken for dead",
        {"usurped"},
        machine=takes_whom_it_cannot_describe_for_dead,
        among=_describes_a_holder,
    ),
    Defect(
        "two streams share a partition",
        {"cross-talk"},
        function=("handlers.store.event_items._without_signs", lambda stream_id: stream_id),
        among=lambda schedule: len(schedule.beside) > 1 and schedule.beside[0].partitions > 1,
    ),
    Defect(
        "the partitions are the profile's own",
        {"torn"},
        function=("handlers.store.requests.Requests._claim", spreads_as_its_profile_says),
        among=lambda schedule: any(fault.kind == "redeploy" for fault in schedule.faults),
    ),
    Defect(
        "a lane waits after a drop",
        {"stuck"},
        machine=waits_after_a_drop,
        among=_drops_last,
    ),
    Defect(
        "a takeover clears a younger stop request",
        {"stuck"},
        machine=clears_a_younger_stop_request,
        among=_stops_a_takeover,
    ),
    Defect(
        "opens without waiting for the release",
        {"excess-connections"},
        function=("handlers.connection.manager.may_open", lambda *_given: True),
        store=("take_turn", takes_any_turn),
        among=lambda schedule: schedule.policy == "forbids",
    ),
]
