"""Describes how one upstream behaves: its address, its time limits, and what its answers and frames mean.

`Profile` is the result of `handlers.profile.parse`. It is valid: every field was checked, so nothing here checks again.
For example `profile.meaning(429)` is "throttled". `upstream_requests.py` spells what is sent to the upstream.
"""

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, get_args

from handlers.connection.backoff import FailureKind, Pace
from handlers.connection.inputs import MOST_PARTITIONS, Order
from handlers.framing.decoders import Framing, make_decoder
from handlers.framing.events import OnConflict, Rule, StreamEvent, cursor_after, cursor_at_path, parse_json, to_event
from handlers.framing.frames import Decoder, Frame
from handlers.framing.marks import Kind, Marks
from handlers.profile.addresses import ProfileError, check_stream_id, fill_address, need_name, part_ids
from handlers.profile.checked_fields import EXPECTED, FLAG, Form, choice, duration, integer, number
from handlers.profile.resume import Resume
from handlers.profile.secret_references import Reference, Secrets, fill_references, placeholder_values, references
from handlers.profile.sections import Meaning, usual_meaning
from handlers.values import dataclass

if TYPE_CHECKING:
    from handlers.framing.selection import Keep
    from handlers.framing.splitting import Split
    from handlers.profile.budget_field import Budget
    from handlers.profile.deliver_field import Target
    from handlers.profile.messages import CloseMeaning, Exchange, Numbering
    from handlers.profile.repair_field import Repair
    from handlers.profile.ticket_field import Ticket
    from handlers.profile.time_field import OwnTime
    from handlers.profile.tls_field import Trust
    from handlers.profile.token_field import Token

Overlap = Literal["evicts", "tolerates", "forbids"]
Standby = Literal["cold", "hot"]
Oversize = Literal["dead-letter", "reject"]
StoreKind = Literal["items", "log"]
READ_REST_S = 0.05
MAX_FRAME_BYTES = 16 * 1024 * 1024


def _field(form: Form, default: Any = None) -> dict[str, Any]:
    """Returns what the file may hold under the field's name, for `parse` and for the JSON Schema."""
    return {"form": form, "default": default}


@dataclass(frozen=True, slots=True)
class Profile:
    """How one upstream behaves; `parse` makes it. docs/profiles.md explains each field."""

    name: str
    address: str
    headers: tuple[tuple[str, str], ...]
    body: str | None
    statuses: tuple[tuple[int, Meaning], ...]
    marks: Marks
    backoff: tuple[tuple[FailureKind, Pace], ...]
    resume: Resume | None
    split: "Split | None"
    key: Rule
    cursor: Rule | None
    framing: Framing = field(metadata=_field(choice(get_args(Framing))))
    method: Literal["GET", "POST"] = field(metadata=_field(choice(("GET", "POST")), "GET"))
    compression: bool = field(metadata=_field(FLAG, False))
    allow_private: bool = field(metadata=_field(FLAG, False))
    connect_timeout_s: float = field(metadata=_field(number(above=0, most=60), 10))
    stall_after_s: float = field(metadata=_field(number(above=0, most=900), 60))
    expect_every_s: float | None = field(metadata=_field(EXPECTED))
    overlap: Overlap = field(metadata=_field(choice(get_args(Overlap)), "tolerates"))
    overlap_s: float = field(metadata=_field(number(above=-1, most=300), 2))
    standby: Standby = field(metadata=_field(choice(get_args(Standby)), "cold"))
    reconnect_tries: int = field(metadata=_field(integer(20, least=0), 0))
    retry_max_s: float = field(metadata=_field(number(above=-1, most=3600), 60))
    reject_after: float = field(metadata=_field(duration(86_400), 300))
    oversize: Oversize = field(metadata=_field(choice(get_args(Oversize)), "dead-letter"))
    max_frame_bytes: int = field(metadata=_field(integer(MAX_FRAME_BYTES), 1024 * 1024))
    store: StoreKind = field(metadata=_field(choice(get_args(StoreKind)), "items"))
    flush_s: float = field(metadata=_field(number(above=-1, most=60), 1))
    dedup_window_s: int = field(metadata=_field(integer(86_400, least=60), 900))
    order: Order = field(metadata=_field(choice(get_args(Order)), "index"))
    partitions: int = field(metadata=_field(integer(MOST_PARTITIONS), 1))
    keep_days: int = field(metadata=_field(integer(3650, least=0)))  # the stage's, if the file does not set it
    again: bool = field(metadata=_field(FLAG))  # by the method, if the file does not set it
    on_conflict: OnConflict = field(metadata=_field(choice(get_args(OnConflict)), "first"))
    deliver: "tuple[Target, ...]" = ()
    parts: tuple[str, ...] = ()
    keep: "tuple[Keep, ...]" = ()
    subscribe: "tuple[Exchange, ...]" = ()
    ping: "Exchange | None" = None
    leave: "Exchange | None" = None
    reply: "tuple[Exchange, ...]" = ()
    close_codes: "tuple[tuple[int, CloseMeaning], ...]" = ()
    sequence: "Numbering | None" = None
    time: "OwnTime | None" = None
    repair: "Repair | None" = None
    token: "Token | None" = None
    ticket: "Ticket | None" = None
    tls: "Trust | None" = None
    budget: "Budget | None" = None

    @property
    def connect_timeout_ms(self) -> int:
        """How long the upstream may take to accept the connection, with what is requested before."""
        requests = 1 + sum(one is not None and one.address != "" for one in (self.token, self.ticket))
        return round(self.connect_timeout_s * 1000) * requests

    @property
    def expect_ms(self) -> int | None:
        """The longest expected time between new events, 0 for the usual one; None if the profile does not say."""
        return None if self.expect_every_s is None else round(self.expect_every_s * 1000)

    @property
    def may_join_chunks(self) -> bool:
        """Whether waiting chunks may be read as one: not if a chunk is an event."""
        return self.framing != "raw"

    @property
    def overlap_ms(self) -> int:
        """How long the older connection reads on after its successor has connected; 0 if two are forbidden."""
        return 0 if self.overlap == "forbids" else round(self.overlap_s * 1000)

    @property
    def retry_max_ms(self) -> int:
        """The longest reconnection time of an event stream (`retry`) that is obeyed."""
        return round(self.retry_max_s * 1000)

    @property
    def flush_ms(self) -> int:
        """How long an event may wait to be appended to the stream's log with others."""
        return round(self.flush_s * 1000)

    @property
    def may_go_to_log(self) -> bool:
        """Whether its streams' events go to a log once a budget is used up."""
        return self.budget is not None and self.budget.then == "log"

    @property
    def read_wait_s(self) -> float:
        """How long bytes wait on the wire to be read together, which is cheaper: a tenth of what events wait anyway."""
        return min(READ_REST_S, self.flush_s / 10) if self.store == "log" and self.may_join_chunks else 0

    @property
    def dedup_window_ms(self) -> int:
        """For how long a log remembers an event's key."""
        return self.dedup_window_s * 1000

    @property
    def reject_after_ms(self) -> int:
        """For how long a refusal may pass before it is final."""
        return round(self.reject_after * 1000)

    @property
    def texts(self) -> list[str]:
        """The texts of its request and its messages, with references and placeholders."""
        values = (value for _, value in self.headers)
        return [self.address, *values, self.body or "", *(one.text for one in self.exchanges)]

    @property
    def secrets(self) -> list[Reference]:
        """The secrets that a request needs."""
        others = [text for one in (self.token, self.ticket, self.tls) if one is not None for text in one.texts]
        return sorted({reference for text in (*self.texts, *others) for reference in references(text)})

    @property
    def is_socket(self) -> bool:
        """Whether the stream is a WebSocket's."""
        return self.framing == "websocket"

    @property
    def exchanges(self) -> "list[Exchange]":
        """All messages that are sent on the socket, with their answers."""
        return [*self.subscribe, *(one for one in (self.ping, self.leave) if one is not None), *self.reply]

    def pace(self, kind: FailureKind) -> Pace | None:
        """Returns how long to wait after a failure of this kind; None if the profile does not say."""
        return dict(self.backoff).get(kind)

    def decoder(self) -> Decoder:
        skips = self.oversize == "dead-letter"
        return make_decoder(self.framing, self.max_frame_bytes, comments=self.marks.read_comments, skips=skips)

    def to_event(self, frame: Frame, received_at_ms: int) -> StreamEvent:
        """Returns the event of `frame` with this profile's dedup key and cursor."""
        return to_event(frame, received_at_ms, key=self.frame_key, cursor=self.cursor)

    @property
    def frame_key(self) -> Rule:
        """The rule for the key of a frame that is not a batch."""
        return self.key if self.split is None else self.split.key_of_whole(self.key)

    def batch_events(self, frame: Frame, received_at_ms: int) -> list[StreamEvent] | None:
        """Returns the events of a batch, in order; None if the frame is not a batch."""
        if (split := self.split) is None or (batch := split.elements_of(frame)) is None:
            return None
        if frame.name is None and self.marks.first(Kind.SNAPSHOT, frame) is not None:
            frame = frame._replace(name=Kind.SNAPSHOT.value)
        return split.events(frame, batch, received_at_ms, key=self.key, cursor=self.cursor, keep=self.keep)

    def should_keep(self, frame: Frame) -> bool:
        """Returns whether `frame`, an event that is not a batch, is stored."""
        if not self.keep:
            return True
        from handlers.framing.selection import is_kept

        if is_kept(self.keep, frame.name, frame.data):
            return True
        # The first element of a list that was not split does not stand for the others.
        split = self.split
        is_of_element = split is not None and any(rule.path and split.is_of_element(rule.path) for rule in self.keep)
        return is_of_element and split is not None and split.has_list(frame)

    def cursor_of_mark(self, kind: Kind, frame: Frame, *, is_resumed: bool) -> str | None:
        """Returns where to resume after a heartbeat or a disconnect, by the paths of its mark; None if it has none.

        `is_resumed` is whether the connection requested what came after a cursor.
        """
        mark = self.marks.first(kind, frame)
        if mark is None or (mark.cursor is None and mark.first_cursor is None):
            return cursor_after(frame, self.cursor) if kind is Kind.HEARTBEAT else None
        paths = (mark.cursor, None if is_resumed else mark.first_cursor)
        body = parse_json(frame.data)
        cursors = (cursor_at_path(body, path) for path in paths if path is not None)
        return next((cursor for cursor in cursors if cursor is not None), None)

    def oldest_place(self, frame: Frame) -> str | None:
        """Returns the oldest place that can be requested, if a frame that reports an expired cursor names it."""
        path = self.resume.oldest if self.resume is not None else None
        return (cursor_at_path(parse_json(frame.data), path) or None) if path is not None else None

    @property
    def key_conflict(self) -> OnConflict | None:
        """Returns what happens if one key has two bodies; None if the key is made of the body or of the delivery.

        It is also None if elements are stored with parts of their frame, which differ between deliveries.
        """
        keeps = self.split is not None and bool(self.split.keep)
        return None if self.key in ("hash", "each") or keeps else self.on_conflict

    @property
    def reach_ms(self) -> int | None:
        """How far back the upstream goes when it resumes; None: to the cursor, however old.

        It is 0 if the profile leaves resuming to the framing's default: an upstream that does not know Last-Event-ID
        ignores it, so nothing proves that it has closed a gap.
        """
        if self.resume is None:
            return None
        return 0 if self.resume.is_default else self.resume.reach_s * 1000 or None

    def is_resumption(self, cursor: str | None) -> bool:
        """Returns whether a request with `cursor` resumes after an event that was seen."""
        resume = self.resume
        return bool(resume is not None and cursor and cursor != resume.fallback and resume.sent_text(cursor))

    def meaning_of_status(self, status: int) -> Meaning:
        """Returns what an answer of this status means, by the profile or else by HTTP.

        "expired" is a refusal if the request had no cursor; only a profile says "rejected".
        """
        named = dict(self.statuses).get(status)
        if named is not None:
            return named
        if self.is_socket and status < 300:  # RFC 6455, section 4.1: any other than 101 is no connection
            return "success" if status == 101 else "refused"
        return usual_meaning(status)

    def address_for(self, stream_id: str, secrets: Secrets | None = None) -> str:
        """Returns the address of one stream, with its placeholders filled in and its secrets still as references.

        Raises ProfileError if the id is malformed, belongs to another profile, or lacks a name that the request needs.
        """
        name = check_stream_id(stream_id)
        if name != self.name:
            raise ProfileError(f"the stream id {stream_id!r} belongs to the profile {name!r}, not to {self.name!r}")
        if self.parts and stream_id == name:
            listed = ", ".join(part_ids(name, self.parts))
            raise ProfileError(f"the stream {stream_id!r} is read in parts: use {listed}")
        for text in (self.body or "", *(one.text for one in self.exchanges)):
            need_name(text, stream_id)
        if self.ticket is not None:
            need_name(self.ticket.body or "", stream_id)
        return fill_address(self.address, stream_id, placeholder_values(secrets or {}))

    def trust(self, secrets: Secrets) -> "Trust | None":
        """Returns the authorities that the profile's own origin is trusted by, and the certificate that it is shown."""
        return None if self.tls is None else self.tls.with_secrets(lambda text: fill_references(text, secrets))

    def close_meaning(self, code: int) -> "CloseMeaning":
        """Returns what a close with this code means, by the profile or else by the RFC."""
        from handlers.profile import messages

        return {**messages.CLOSE_CODES, **dict(self.close_codes)}.get(code, "retried")
