"""Deliberate defects of how events come into a stream's log and out of it, which a schedule of chaos must catch.

Each replaces one function of `handlers` by one that does what its docstring says; tests/chaos/chaos_defects.py lists
them with the others. They decide nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Claim, Effect
from handlers.connection.inputs import LOG, Claimed, ClaimRefused, RestOwed
from handlers.connection.intake import Intake
from handlers.connection.liveness import Liveness
from handlers.connection.record import Record
from handlers.framing.events import StreamEvent
from handlers.segments.appending import Answer, Appended, Appender, Cursor, Put, Request, Segment
from handlers.store.event_items import StoredEvent
from handlers.store.requests import Requests
from handlers.store.segment_reader import stored_events
from handlers.store.segment_writer import SegmentWriter, segment_item
from local.chaos.schedule import Fault, Schedule
from tests.chaos.defect import Defect

ANSWERED, ASKS, APPENDED = Appender.answered, Appender._asks, Appender._appended
CLAIM, FLUSH, WRITES = Requests._claim, Intake.flush, Intake._writes


# Killed while events wait for a log, by clocks that differ by less than these waited.
KILLED_WITH_WAITING = Schedule(
    seed=0,
    policy="evicts",
    resumes=False,
    hot=False,
    reconnect_tries=0,
    renews=False,
    skew_ms=300,
    events_every_ms=500,
    faults=tuple(Fault(at_ms, "kill") for at_ms in (20_000, 40_000, 60_000)),
    store="log",
    flush_s=3,
)

# The client sends requests again whose answers were lost, for so short a time that it does not give up.
SENT_AGAIN = Schedule(
    seed=0,
    policy="evicts",
    resumes=True,
    hot=False,
    reconnect_tries=0,
    renews=False,
    skew_ms=0,
    events_every_ms=1_100,
    faults=tuple(Fault(at_ms, "unknown outcomes", 1_300, at_ms) for at_ms in (16_000, 24_000, 32_000, 48_000)),
    store="log",
)


def in_a_log(schedule: Schedule) -> bool:
    """Whether the first stream's events lie in a log."""
    return schedule.store == "log"


def in_two_hands(schedule: Schedule) -> bool:
    """Whether two connections append at a time."""
    return in_a_log(schedule) and schedule.policy == "tolerates"


def is_too_large(schedule: Schedule) -> bool:
    """Whether no segment holds some of the events."""
    return in_a_log(schedule) and schedule.unstorable == "large"


def is_redeployed(schedule: Schedule) -> bool:
    """Whether the profile may say something else by and by."""
    return in_a_log(schedule) and any(fault.kind == "redeploy" for fault in schedule.faults)


def knows_all_at_once(_appender: Appender, _at_ms: int) -> bool:
    """A new connection looks at the last segment and no further."""
    return True


def goes_on_unread(appender: Appender, answer: Answer) -> Request | Appended | None:
    """A writer whose number is taken tries the next, and does not read what another has written."""
    if isinstance(appender._request, Put) and not answer:
        appender._next += 1
        return appender._proceed()
    return ANSWERED(appender, answer)


def puts_over_another(writer: SegmentWriter, put: Put) -> bool:
    """A segment is written whether there is one or not."""
    item = segment_item(writer._stream_id, put.segment, put.events, 0)
    try:
        writer._dynamodb.put_item(TableName=writer._table, Item=item)
    except Exception as error:
        raise _unavailable() from error
    return True


def knows_too_early(appender: Appender, request: Request) -> Request:
    """Events are known before they are stored."""
    if isinstance(request, Put):
        appender._known.add(request.segment.at_ms, request.segment.keys)
    return ASKS(appender, request)


def is_never_its_own(_appender: Appender, _segment: Segment, _number: int) -> bool:
    """A segment whose answer was lost counts as another's."""
    return False


def leaves_a_number_out(appender: Appender, segment: Segment) -> Appended:
    """Behind its own segment a writer leaves a number free."""
    appended = APPENDED(appender, segment)
    appender._next += 1
    return appended


def saves_its_own_cursor(appender: Appender) -> Cursor | None:
    """An older connection saves its own cursor over a newer one's."""
    text = next((event.cursor for event in reversed(appender._events) if event.cursor is not None), None)
    return appender.cursor if text is None else Cursor(appender._fence, appender._now_ms, text)


def forgets_what_waits(intake: Intake, now_ms: int, record: Record, *, is_leaving: bool) -> list[Effect]:
    """What waits when the connection leaves is dropped."""
    effects = FLUSH(intake, now_ms, record, is_leaving=is_leaving)
    if effects and is_leaving:
        record.pending.stored()
        record.liveness.stored()
        return []
    return effects


def counts_on_what_waits(intake: Intake, now_ms: int, events: tuple[StreamEvent, ...], record: Record) -> list[Effect]:
    """The cursor of what waits may be saved at once."""
    effects = WRITES(intake, now_ms, events, record)
    record.pending._reached = record.pending.last
    return effects


def is_good_until_now(_liveness: Liveness, now_ms: int, before_ms: int) -> int:
    """What waits is covered as if it were stored."""
    return max(now_ms, before_ms)


def reads_backwards(*of: Any) -> Iterator[StoredEvent]:
    """The events of a segment are read in the opposite order."""
    return iter(list(stored_events(*of))[::-1])


def reads_the_first_alone(*of: Any) -> Iterator[StoredEvent]:
    """Of a segment the first event is read."""
    return iter(list(stored_events(*of))[:1])


def stores_as_its_profile_says(requests: Requests, step: Claim) -> Claimed | ClaimRefused | RestOwed:
    """Where the events lie is what the version that runs says, not what the first claim has fixed."""
    answer = CLAIM(requests, step)
    if requests._profile.store == "log" or not isinstance(answer, Claimed):
        return answer
    requests._log = None
    return replace(answer, partitions=1 if answer.partitions == LOG else answer.partitions)


def sends_no_message(_writer: SegmentWriter, _event: StreamEvent, reason: str) -> dict[str, Any]:
    """What no segment holds is marked, and no message is in the queue."""
    return {"dead_letter": {"S": reason}}


def _unavailable() -> Exception:
    from handlers.errors import StoreUnavailable

    return StoreUnavailable("no answer")


_APPENDER, _WRITER = "handlers.segments.appending.Appender", "handlers.store.segment_writer.SegmentWriter"
OF_THE_LOG = [
    Defect(
        "only the last segment is read at opening",
        {"duplicated"},
        function=(f"{_APPENDER}._is_far_enough", knows_all_at_once),
        among=in_two_hands,
    ),
    Defect(
        "what another wrote is not read",
        {"duplicated"},
        function=(f"{_APPENDER}.answered", goes_on_unread),
        among=in_two_hands,
    ),
    Defect(
        "a segment is written without its condition",
        {"duplicated", "lost", "misplaced"},
        function=(f"{_WRITER}._put", puts_over_another),
        among=in_two_hands,
    ),
    Defect(
        "events are known before they are stored",
        {"lost"},
        function=(f"{_APPENDER}._asks", knows_too_early),
        among=in_two_hands,
    ),
    Defect(
        "its own segment is not recognised",
        {"wrong-counts"},
        function=(f"{_APPENDER}._is_own", is_never_its_own),
        like=SENT_AGAIN,
    ),
    Defect(
        "a number is left out",
        {"duplicated", "misplaced"},
        function=(f"{_APPENDER}._appended", leaves_a_number_out),
        among=in_two_hands,
    ),
    Defect(
        "an older connection saves its own cursor",
        {"backwards"},
        function=(f"{_APPENDER}._cursor_behind", saves_its_own_cursor),
        among=in_two_hands,
    ),
    Defect(
        "what waits is dropped when the connection leaves",
        {"lost"},
        function=("handlers.connection.intake.Intake.flush", forgets_what_waits),
        among=in_a_log,
    ),
    Defect(
        "the cursor of what waits is saved",
        {"cursor-ahead"},
        function=("handlers.connection.intake.Intake._writes", counts_on_what_waits),
        among=lambda schedule: in_a_log(schedule) and schedule.flush_s >= 1,
    ),
    Defect(
        "the ledger covers what waits for a log",
        {"lost"},
        function=("handlers.connection.liveness.Liveness.seen_ms", is_good_until_now),
        like=KILLED_WITH_WAITING,
    ),
    Defect(
        "a segment is read backwards",
        {"misread"},
        function=("handlers.store.segment_reader.stored_events", reads_backwards),
        among=in_a_log,
    ),
    Defect(
        "of a segment the first event is read",
        {"misread"},
        function=("handlers.store.segment_reader.stored_events", reads_the_first_alone),
        among=in_a_log,
    ),
    Defect(
        "where the events lie is the profile's own",
        {"torn"},
        function=("handlers.store.requests.Requests._claim", stores_as_its_profile_says),
        among=is_redeployed,
    ),
    Defect(
        "what no segment holds is marked before it is sent",
        {"dead-letters"},
        function=(f"{_WRITER}._dead_letter", sends_no_message),
        among=is_too_large,
    ),
]
