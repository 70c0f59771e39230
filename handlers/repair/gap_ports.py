"""What the repair of gaps works with: the parts of an invocation, and what the walks over one gap's pages call.

Invariants: no two requests to an address come closer than the profile allows; what a repair stores is refused if it is
known, as from the stream's connections.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field
from typing import Any

import urllib3

from handlers.connection.gap_record import Gap, Interval, Repair
from handlers.connection.inputs import LOG, Layout, Written
from handlers.connection.judging import rate_limit_s, retry_after_s
from handlers.connection.opening_steps import Call, Replacements, SignToken, Tokens, Unready
from handlers.connection.preparation import UNAUTHORIZED, add_token
from handlers.errors import StreamDropped
from handlers.framing.content_codings import BodyDecoder, coding
from handlers.framing.events import StreamEvent
from handlers.profile.behaviour import Profile
from handlers.profile.repair_field import Repair as Field
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.gap_edges import MOST_READ, existing_events, find_edges
from handlers.repair.pages import Fetched
from handlers.repair.proof import CLOCKS_MS, WIDE, Borders
from handlers.repair.work import RepairWork
from handlers.segments.known_keys import MOST_BARE_KEYS, AllKeys
from handlers.store.connection_store import Store
from handlers.store.event_items import PROMISED, REPAIRED_FENCE, StoragePolicy, StoredEvent, partition_key
from handlers.store.event_reader import EventReader
from handlers.store.segment_reader import SKEW_MS
from handlers.store.segment_writer import SegmentWriter
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import item_key
from handlers.upstream.end_reasons import explain, send_request
from handlers.upstream.opening import open_response
from handlers.upstream.strict_response import StrictResponse
from handlers.values import dataclass

MOST_BYTES = 8 * 1024 * 1024
MOST_S = 20
CONNECT_S, READ_S = 3, 10


def fetch(request: UpstreamRequest) -> Fetched:
    """Returns the answer, or why there is none.

    It keeps the rules of a stream for addresses, TLS and redirects. If the profile names no other headers, the stream's
    own go to the address of its repair, and its token with them. The token is requested as for an opening, held while
    it is valid, and requested anew after a 401.

    Invariant: a problem is one phrase without an address, a header or anything that was received; no more than
    MOST_BYTES of a body are held, and none for longer than MOST_S.
    """
    began_s, body = time.monotonic(), bytearray()
    try:
        timeout = urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        with open_response(request, timeout, lambda _socket: None, StrictResponse) as response:
            # A field with several lines, such as Link, becomes one list (RFC 9110, section 5.3).
            headers = {name.lower(): response.headers[name] for name in response.headers}
            now_ms = time.time_ns() // 1_000_000
            retry_s = retry_after_s(headers, now_ms)
            retry_s = rate_limit_s(headers, now_ms) if retry_s is None else retry_s
            if not 200 <= response.status < 300:
                return Fetched(response.status, headers, problem=f"answered {response.status}", retry_after_s=retry_s)
            decoder = BodyDecoder(coding(headers.get("content-encoding")), MOST_BYTES)
            while data := response.read1(64 * 1024):
                for piece in decoder.pieces(data):
                    body += piece
                    if len(body) > MOST_BYTES:
                        return Fetched(problem=f"the answer has more than {MOST_BYTES} bytes")
                if time.monotonic() - began_s > MOST_S:
                    return Fetched(problem=f"the answer did not come whole in {MOST_S} s")
            decoder.close()
            return Fetched(response.status, headers, bytes(body), retry_after_s=retry_s)
    except Exception as problem:
        return Fetched(problem=explain(problem, READ_S).detail)


class OwnTokens:
    """The tokens of a process; `now_ms` is its clock, and the other arguments are those of `Tokens`."""

    def __init__(
        self, now_ms: Callable[[], int], replacements: Replacements | None = None, sign: SignToken | None = None
    ) -> None:
        self._tokens, self._now_ms = Tokens(threading.Lock, replacements, sign), now_ms

    def add_token(self, profile: Profile, secrets: Secrets) -> Secrets:
        """Returns the secrets, with the token if the repair sends it; raises StreamDropped without a valid one."""
        if profile.repair is None or profile.repair.headers is not None:
            return secrets
        steps = add_token(profile, secrets, self._tokens, self._now_ms)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = step.run() if isinstance(step, Call) else send_request(step, READ_S, lambda _socket: None)
        except StopIteration as ended:
            found: Secrets = ended.value
            return found
        except Unready as problem:
            raise StreamDropped(problem.closed.detail or problem.closed.reason) from None

    def fetch(self, request: UpstreamRequest) -> Fetched:
        """Returns the answer to a request; after a 401 the next try has another token."""
        answer = fetch(request)
        if answer.status == UNAUTHORIZED:
            self._tokens.forget()
        return answer


# How long a turn lasts after its last renewal: longer than a page takes, with the back-off after a refusal.
TURN_MS = 45_000
# The number of the first event that an attempt stores. Attempts begin far apart, so that their numbers never meet.
FIRST, APART, TIMES = 5 * 10**11, 10**5, 10**6


class TakenOver(Exception):
    """Another function repairs the gap now."""


class Unstorable(Exception):
    """It cannot be known which of the address's items are stored already; the message is a phrase."""


@dataclass(slots=True)
class AddressPace:
    """When the address may be asked again, whatever the gap."""

    next_ms: int = 0

    def wait_before_request_s(self, now_ms: int) -> float:
        """Returns how long to wait before a request."""
        return max(0, self.next_ms - now_ms) / 1000

    def reserve_request(self, now_ms: int, pace_s: float) -> float:
        """Returns how long to wait before a request, which is then counted as made."""
        wait_s = self.wait_before_request_s(now_ms)
        self.next_ms = max(now_ms, self.next_ms) + round(pace_s * 1000)
        return wait_s

    def put_off(self, now_ms: int, rest_s: float) -> None:
        """Puts the next request off: the last answer used up what the address accepts."""
        self.next_ms = max(self.next_ms, now_ms + round(rest_s * 1000))


@dataclass(frozen=True, slots=True)
class Deps:
    """What an invocation works with; `profile_of` returns None if the stream has no profile, or a wrong one.

    `holder` names this invocation: not Lambda's id of the request, because the same request may run twice at a time.
    """

    work: RepairWork
    records: StreamRecords
    store: Store
    reader: EventReader
    profile_of: Callable[[str], Profile | None]
    secrets_of: Callable[[Profile], Secrets]
    fetch: Callable[[UpstreamRequest], Fetched]
    alert: Callable[[str, Gap, Repair], None]
    now_ms: Callable[[], int]
    left_ms: Callable[[], int]
    holder: str
    pace: AddressPace = field(default_factory=AddressPace)
    done: list[tuple[str, Gap, Repair]] = field(default_factory=list)

    @property
    def has_time(self) -> bool:
        """Whether it has time for another request, which must wait for its pace."""
        return self.left_ms() > 1000 * self.pace.wait_before_request_s(self.now_ms())

    def take_turn(self, profile: str) -> bool:
        """Returns whether this function alone may ask the profile's upstream, until TURN_MS after its next request."""
        now_ms = self.now_ms()
        return self.work.take_turn(profile, self.holder, now_ms, max(now_ms, self.pace.next_ms) + TURN_MS)


@dataclass
class GapPorts:
    """What the repair of one gap of a stream calls; `problem` is why the address cannot be asked."""

    deps: Deps
    stream_id: str
    profile: Profile
    layout: Layout
    secrets: Secrets
    problem: str
    _next: int = 0
    _log: SegmentWriter | None = None

    @property
    def field(self) -> Field:
        """The profile's repair."""
        assert self.profile.repair is not None
        return self.profile.repair

    def find_borders(self, gap: Gap) -> Borders:
        """Returns the events at the edges of the gap."""
        deps = self.deps
        return find_edges(deps.reader, deps.records, self.stream_id, self.layout, gap, self.field, deps.now_ms())

    def edge_values(self, gap: Gap, borders: Borders, walk: int) -> dict[str, str]:
        """Returns the values of the address's placeholders for the edges."""
        # The nearest events, or for a wide walk those beyond them, if there are any.
        field, edges, place = self.field, dict[str, str](), -1 if walk == WIDE else 0
        before, after = (those[place] if those else None for those in borders[:2])
        if before is not None and "after" in field.edges:
            edges["after"] = before.key
        if after is not None and "before" in field.edges:
            edges["before"] = after.key
        from_ms = gap.from_ms if before is None else min(gap.from_ms, before.at_ms)
        to_ms = self.deps.now_ms() if after is None else max(gap.to_ms, after.at_ms)
        from_ms -= field.time.step_ms if before is not None and before.own_ms is not None else CLOCKS_MS
        to_ms += field.time.step_ms if after is not None and after.own_ms is not None else CLOCKS_MS
        return edges | {"from": field.time.instant_text(from_ms), "to": field.time.instant_text(to_ms)}

    def renew_turn(self) -> bool:
        """Returns whether the turn is still this function's."""
        return self.deps.take_turn(self.profile.name)

    def save(self, gap: Gap, repair: Repair) -> bool:
        """Saves the repair; returns False if the gap's record has changed since it was read, or the turn is lost."""
        return self.deps.store.ledger.save_repair(self.stream_id, gap, repair) and self.renew_turn()

    def alert(self, gap: Gap, repair: Repair) -> None:
        """Tells a person that the gap stays open."""
        self.deps.alert(self.stream_id, gap, repair)

    def store(self, events: Sequence[StreamEvent], since_ms: int) -> Written:
        """Stores events; returns how many were new. Raises Unstorable if too many came since then to know that."""
        store, profile, layout, now_ms = self.deps.store, self.profile, self.layout, self.deps.now_ms()
        first = self._next or FIRST + now_ms // 1000 % TIMES * APART
        self._next = first + len(events)
        if layout.partitions != LOG:
            policy = StoragePolicy(layout.partitions, profile.keep_days, None, layout.order)
            return store.write(self.stream_id, REPAIRED_FENCE, first, events, policy)
        return self.log(since_ms).write(first, events)

    def log(self, since_ms: int) -> SegmentWriter:
        """Returns the stream's log, which knows every key since then; raises Unstorable if there are too many."""
        if self._log is None:
            window_ms = self.deps.now_ms() - since_ms + SKEW_MS
            more: Any = {"window_ms": window_ms, "keep_days": self.profile.keep_days, "layout": self.layout}
            log = self.deps.store.log_writer(self.stream_id, REPAIRED_FENCE, self.deps.now_ms, known=AllKeys(), **more)
            for _ in log.read_window():
                # For a long log that takes minutes.
                if not self.renew_turn():
                    raise TakenOver
            self._log = log
        if not self._log.has_all_keys:
            raise Unstorable(f"more than {MOST_BARE_KEYS:,} events came since the gap: too many to compare their keys")
        return self._log

    def known_keys(self, keys: Collection[str], since_ms: int) -> set[str]:
        """Returns which of the keys are stored; in a log, only what came since then is known."""
        reader, layout, partitions = self.deps.reader, self.layout, self.layout.partitions
        known = set[str]()
        if partitions == LOG:
            log, partitions = self.log(since_ms), layout.items
            known = {one for one in keys if log.has_key(one)}
        places = [item_key(partition_key(self.stream_id, one, partitions), one) for one in sorted(keys) if partitions]
        items = reader.table.batch_get(places, consistent=True, only=("SK", PROMISED))
        return known | {item["SK"]["S"] for item in items if PROMISED not in item}

    def count_repaired(self, keys: Collection[str], time: Interval) -> int:
        """Returns how many of the keys came by repair in this time."""
        since_ms, until_ms = time
        came = (event for event in self._since(since_ms) if event.is_repaired and event.key in keys)
        return sum(since_ms <= event.received_at_ms < until_ms for event in came)

    def _since(self, since_ms: int) -> Iterable[StoredEvent]:
        """Yields the stored events from an instant on, and in a log some earlier ones too."""
        reader, layout, stream_id = self.deps.reader, self.layout, self.stream_id
        begin = reader.place_at(stream_id, layout, since_ms)
        return existing_events(reader.entries(stream_id, layout, self.deps.now_ms(), begin, MOST_READ))
