"""Deliberate defects of the manager, the store, the functions and the machine, which a schedule of chaos must catch.

Each says in what way it must show, and among which schedules it can show at all. It decides nothing else. Invariant:
the schedule that shows it is clean without it (`test_chaos_teeth.py` holds both).
"""

import itertools
from types import SimpleNamespace

from handlers.connection.backoff import Pace
from handlers.store.connection_store import Reply
from handlers.store.overflow import STORED
from tests.chaos import delivery_defects, ledger_defects, log_defects, order_defects
from tests.chaos.chaos_managers import (
    ClaimsAfterConnecting,
    CoversPastTheClose,
    CoversWhatWaits,
    DoesNotWatchTheSuccessor,
    EmitsTheTail,
    ForgetsWhatCameLate,
    IgnoresTheStopRequest,
    LeavesTheLastBatchAtAStop,
    LeavesWithoutLooking,
    LetsGoWhenSuperseded,
    RecordsLossesLast,
    RestartsThePositions,
    SavesTheCursorFirst,
)
from tests.chaos.defect import Defect
from tests.chaos.defect_schedules import (
    REFUSED_TWICE,
    SHORT_MEMORY,
    bursts,
    cannot_store_all,
    comes_back_in_place,
    describes_a_holder,
    drops_last,
    fails_in_place,
    has_losses,
    is_refused_for_a_while,
    kill_after_a_pause,
    kills_in_a_slow_store,
    owes_rests,
    stays_stopped,
    stops_a_takeover,
)
from tests.chaos.protocol_defects import (
    claims_despite_a_rest,
    clears_a_younger_stop_request,
    draws_no_pause,
    drops_what_is_refused,
    forgets_retry_after,
    heartbeat_without_fence,
    ignores_errors,
    marks_before_it_sends,
    never_outlives,
    never_rests_longer,
    overlooks_single_refusals,
    overwrites_any_rest,
    reconnects_at_any_time,
    renews_nothing,
    shows_as_closed,
    spreads_as_its_profile_says,
    stores_duplicates,
    takes_any_turn,
    takes_milliseconds_for_seconds,
    takes_whom_it_cannot_describe_for_dead,
    tries_beside_another,
    waits_after_a_drop,
    writes_no_rest,
)

DEFECTS = [
    *ledger_defects.OF_THE_LEDGER,
    *log_defects.OF_THE_LOG,
    *order_defects.OF_THE_ORDER,
    *delivery_defects.OF_THE_DELIVERY,
    Defect("the tail is emitted as an event", {"torn"}, manager=EmitsTheTail),
    Defect("the cursor is saved before its events", {"cursor-ahead"}, manager=SavesTheCursorFirst),
    Defect(
        "the cursor passes a loss that is not recorded",
        {"cursor-ahead", "lost"},
        manager=RecordsLossesLast,
        among=lambda schedule: any(fault.kind == "losses" for fault in schedule.faults),
    ),
    Defect("the position counter restarts with each chunk", {"misplaced"}, manager=RestartsThePositions, among=bursts),
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
        among=kills_in_a_slow_store,
    ),
    Defect(
        "a stop forgets the last batch",
        {"lost"},
        manager=LeavesTheLastBatchAtAStop,
        among=lambda schedule: not schedule.resumes and stays_stopped(schedule),
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
        among=lambda schedule: not schedule.resumes and kill_after_a_pause(schedule),
    ),
    Defect(
        "no watch for the connected mark",
        {"restless"},
        manager=DoesNotWatchTheSuccessor,
        among=lambda schedule: schedule.policy != "tolerates",
    ),
    Defect(
        "an older connection leaves without looking again",
        {"stuck"},
        manager=LeavesWithoutLooking,
        like=SHORT_MEMORY,
        more_ms=60_000,
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
        among=owes_rests,
    ),
    Defect("a rest is not read", {"impatient"}, store=("claim", claims_despite_a_rest), among=owes_rests),
    Defect(
        "all that rested try at once",
        {"impatient"},
        store=("claim", tries_beside_another),
        among=lambda schedule: owes_rests(schedule) and schedule.hot,
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
        among=lambda schedule: owes_rests(schedule) and schedule.retry_after_s > 0,
    ),
    Defect(
        "rests do not grow",
        {"impatient"},
        function=("handlers.connection.reconnection.failed", never_rests_longer),
        among=lambda schedule: owes_rests(schedule) and bool(schedule.pace),
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
        among=fails_in_place,
    ),
    Defect(
        "a function comes back inside its margin",
        {"too-late"},
        function=("handlers.connection.reconnection.reconnects", reconnects_at_any_time),
        among=comes_back_in_place,
    ),
    Defect(
        "the margin is in another unit",
        {"overdue"},
        function=("handlers.run.stream_invocation.to_invocation", takes_milliseconds_for_seconds),
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
        function=("handlers.store.overflow.Singles.dead_letter", marks_before_it_sends),
        among=cannot_store_all,
    ),
    Defect(
        "what the table refuses is dropped",
        {"lost"},
        function=("handlers.store.overflow.Singles.dead_letter", drops_what_is_refused),
        among=cannot_store_all,
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
        function=("handlers.api.status_words._ENDINGS", {"StreamRejected": "ended"}),
        among=lambda schedule: any(fault.kind == "rejection" for fault in schedule.faults),
    ),
    Defect(
        "a refusal is final at once",
        {"hasty"},
        function=("handlers.connection.refusals.since_ms", lambda *_given: 0),
        among=is_refused_for_a_while,
    ),
    Defect(
        "a refusal is asked again at once",
        {"impatient", "restless"},
        function=("handlers.connection.refusals.PACE", Pace(0.01)),
        among=is_refused_for_a_while,
    ),
    Defect(
        "what the upstream announced as lost is not shown",
        {"wrong-status"},
        function=("handlers.api.gaps.ledger.corrected", lambda _losses, _records: []),
        among=has_losses,
    ),
    Defect(
        "every gap is shown as closed",
        {"wrong-status"},
        function=("handlers.api.gaps.shown_gap", shows_as_closed),
        among=lambda schedule: not schedule.resumes,
    ),
    Defect(
        "who cannot be described is taken for dead",
        {"usurped"},
        machine=takes_whom_it_cannot_describe_for_dead,
        among=describes_a_holder,
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
        among=drops_last,
    ),
    Defect(
        "a takeover clears a younger stop request",
        {"stuck"},
        machine=clears_a_younger_stop_request,
        among=stops_a_takeover,
    ),
    Defect(
        "opens without waiting for the release",
        {"excess-connections"},
        function=("handlers.connection.manager.may_open", lambda *_given: True),
        store=("take_turn", takes_any_turn),
        among=lambda schedule: schedule.policy == "forbids",
    ),
]
