"""Decides what a connection sends on its socket and what the answers mean: subscriptions, pings, replies and the rest.

    Opened(101)                Send subscribe[0]          it is not connected yet
    {"op": "subscribed"}       Send subscribe[1]
    {"op": "subscribed"}       connected; every 20 s      Send ping
    {"op": "ping", "id": 7}    Send reply
    a close by this side       Send leave, Send close

It knows no socket and no clock: `now_ms` comes with each call. Invariants: a message is sent only after the one before
it was answered; an answer is waited for no longer than the profile says; a refusal ends the connection whenever it
comes; the reply to an event is sent once that is stored; the report of a refusal holds no secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from handlers.connection.effects import Effect, Outcome, Send
from handlers.connection.ends import ENDED, EXPIRED_CURSOR, End, safe_phrase
from handlers.connection.evidence import CURSOR_EXPIRED
from handlers.connection.frame_reading import STORED, split_frame
from handlers.connection.pending import Pending
from handlers.framing.events import parse_json, text_at_path
from handlers.framing.frames import Decoded, Decoder, Frame, FramingError, as_frames
from handlers.framing.marks import Kind, Mark
from handlers.framing.oversize import Oversize
from handlers.framing.websocket import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    TOO_BIG,
    BadMessage,
    CloseFrame,
    WebSocketDecoder,
    close_payload,
)
from handlers.profile.behaviour import Profile
from handlers.profile.messages import Exchange
from handlers.profile.secret_references import SEARCHED, Secrets, hide_secrets
from handlers.profile.upstream_requests import message_of

NORMAL = 1000
# How many bytes that come before the last answer are kept; an upstream that sends more has begun to stream. A message
# takes some memory besides its own bytes.
EARLY_BYTES, MESSAGE_BYTES = 64 * 1024, 64
# How soon an overdue answer is checked for again while bytes wait to be read.
UNREAD_POLL_MS = 100
_STOPS = frozenset({Kind.END, Kind.DISCONNECT, Kind.EXPIRED})


class Conversation:
    """The conversation of a stream's connection; `begin` is called once the upstream has answered.

    `secrets` are the values that its messages hold.
    """

    def __init__(self, profile: Profile, stream_id: str, secrets: Secrets) -> None:
        self._profile, self._stream_id, self._secrets = profile, stream_id, secrets
        self._unsent: list[Exchange] = []  # not sent yet
        self._awaited: list[Exchange] = []  # sent and not answered yet
        self._may_refuse = any(one.refuse for one in profile.subscribe)
        self._cursor: str | None = None
        self._answer_by_ms: int | None = None
        self._unread_until_ms = 0  # what has arrived may be read until then
        self._ping_ms: int | None = None
        self._awaits_pong = False
        self._is_over = False
        # Whether events count: the conversation is complete, or more has come than may be kept until then.
        self.is_connected = False
        self._early: list[Frame] = []  # frames that came before it was connected
        self._early_bytes = 0
        # Replies to events, each with the number of the write that stores it; None for a write that has not begun.
        self._unsent_replies: list[tuple[int | None, Effect]] = []
        self._last_unexpected = (
            ""  # the last message that was not an answer: `refuse` does not name it, or `expect` is wrong
        )

    @property
    def is_complete(self) -> bool:
        """Whether all first messages are sent and answered."""
        return not (self._unsent or self._awaited)

    @property
    def awaited_message(self) -> str:
        """Which first message has no answer yet, and what came instead; "" if none is awaited."""
        return f"{self._name_of(self._awaited[0])}{self._unexpected_message}" if self._awaited else ""

    @property
    def _unexpected_message(self) -> str:
        # Only an end shows it, and many messages may come before the answer.
        return f"; it said {self._without_secrets(self._last_unexpected)}" if self._last_unexpected else ""

    @property
    def due_ms(self) -> int | None:
        """When to call `due_messages`; None for never."""
        answer_by_ms = None if self._answer_by_ms is None else max(self._answer_by_ms, self._unread_until_ms)
        instants = [ms for ms in (answer_by_ms, self._ping_ms) if ms is not None]
        return None if self._is_over or not instants else min(instants)

    def begin(self, now_ms: int, cursor: str | None, places: Secrets | None = None) -> list[Effect]:
        """Returns the first messages, which resume after the cursor; `places` are the token and the ticket, if any."""
        self._secrets = {**self._secrets, **(places or {})}
        self._unsent, self._cursor = list(self._profile.subscribe), cursor
        said = self._next_messages(now_ms)
        self.is_connected = self.is_complete
        return said

    def _message(self, exchange: Exchange, heard: Any = None) -> Effect:
        message = message_of(self._profile, exchange.send, self._stream_id, self._cursor, self._secrets, heard)
        return Send(TEXT, message)

    def _replies_to(self, frames: Sequence[Frame], *, to_events: bool) -> Iterator[Effect]:
        """Yields the replies to the frames that are stored, or to those that are not."""
        for frame in frames:
            reply = next((one for one in self._profile.reply if _fits(one.expect, frame)), None)
            if reply is not None and (split_frame(self._profile, frame, 0)[0] in STORED) == to_events:
                yield self._message(reply, parse_json(frame.data))

    def replies_to_stored(self, pending: Pending) -> list[Effect]:
        """Returns the replies to the events that are stored by now; call it once those that were taken are written."""
        owed = [(pending.writes if number is None else number, one) for number, one in self._unsent_replies]
        self._unsent_replies = [(number, one) for number, one in owed if number > pending.answered_writes]
        return [] if self._is_over else [one for number, one in owed if number <= pending.answered_writes]

    def _without_secrets(self, text: str) -> str:
        """Returns the upstream's words without secrets, ready to be shown."""
        return safe_phrase(hide_secrets(text, self._secrets.values()))

    def take_frames(
        self, now_ms: int, decoded: Decoded, decoder: Decoder, failure: FramingError | None
    ) -> tuple[list[Effect], Decoded, End | None]:
        """Returns the next messages, the frames that count by now, and what ends the connection.

        `decoder` has decoded the bytes; `failure` is why it can decode no more.
        """
        listens = self._may_refuse or self._answer_by_ms is not None
        said, end = self._match_answers(now_ms, as_frames(decoded)) if listens else ([], None)
        if self._profile.reply:
            said += self._replies_to(as_frames(decoded), to_events=False)
        if not self.is_connected:
            decoded = self._hold_until_connected(as_frames(decoded))
        if self._profile.reply:
            self._unsent_replies += [(None, one) for one in self._replies_to(as_frames(decoded), to_events=True)]
        if isinstance(decoder, WebSocketDecoder):
            # Section 5.5.2: "Upon receipt of a Ping frame, an endpoint MUST send a Pong frame in response".
            said += [] if self._is_over else [Send(PONG, payload) for payload in decoder.pings]
            decoder.pings.clear()
            if decoder.close_frame is not None and end is None:
                # Section 5.5.1: an endpoint that has not sent one "MUST send a Close frame in response".
                said += self.closing_messages(decoder.close_frame.code)
                end = self._end_after_close(decoder.close_frame)
        if failure is not None:
            said += self.closing_messages(failure.code if isinstance(failure, BadMessage) else TOO_BIG)
            if not self.is_connected:
                end = end or End(Outcome("StreamDropped", "", str(failure)), failure.reason)
        return said, decoded, end

    def _hold_until_connected(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Returns all frames that have come once events count; until then keeps them and returns nothing."""
        kind = self._profile.marks.kind
        self._early += frames
        bodies = (one.data.head if isinstance(one.data, Oversize) else one.data for one in frames)
        self._early_bytes += sum(MESSAGE_BYTES + len(body) for body in bodies)
        has_stopped = any(kind(frame) in _STOPS for frame in frames)
        if not (self.is_complete or has_stopped or self._early_bytes > EARLY_BYTES):
            return ()
        self.is_connected = True
        early, self._early = self._early, []
        return early

    def _end_after_close(self, ended: CloseFrame) -> End:
        """Returns how a close by the upstream ends the connection."""
        profile, code = self._profile, ended.code
        reason = f": {self._without_secrets(ended.reason)}" if ended.reason else ""
        before = f" before it answered {self.awaited_message}" if self._awaited else ""
        message = f"the upstream closed the socket with {code}{reason}{before}"
        match profile.close_meaning(code):
            case "ended":
                return End(ENDED, "ended")
            case "expired":
                return End(EXPIRED_CURSOR, CURSOR_EXPIRED, is_expired=True)
            case "throttled":
                return End(Outcome("StreamThrottled", "", message), "ended_by_upstream")
            case "rejected":
                is_final = dict(profile.close_codes).get(code) == "rejected"
                limit_ms = 0 if is_final else profile.reject_after_ms
                return End(Outcome("StreamRejected", "", message, detail=message), "rejected", refused_ms=limit_ms)
        return End(Outcome("StreamDropped", "", message), "ended_by_upstream", should_check_lease=True)

    def _next_messages(self, now_ms: int) -> list[Effect]:
        """Returns the messages to send up to one that needs an answer.

        An entry without a message is awaited together with the one before it, because answers may come in any order.
        """
        effects: list[Effect] = []
        while self._unsent and (not self._awaited or self._unsent[0].send is None):
            exchange = self._unsent.pop(0)
            effects += [] if exchange.send is None else [self._message(exchange)]
            self._awaited += [exchange] if exchange.expect else []
        self._answer_by_ms = now_ms + self._awaited[0].within_ms if self._awaited else None
        if self.is_complete:
            ping = self._profile.ping
            self._ping_ms = None if ping is None else now_ms + ping.every_ms
        return effects

    def _match_answers(self, now_ms: int, frames: Sequence[Frame]) -> tuple[list[Effect], End | None]:
        """Returns the next messages if `frames` hold the answer, and the end if they hold a refusal."""
        effects: list[Effect] = []
        for frame in frames:
            # Refusals are matched first: many look like an answer with an error added.
            if self._may_refuse and (refused := self._end_if_refused(frame)) is not None:
                return effects, refused
            if self._awaits_pong:
                ping = self._profile.ping
                if ping is not None and _fits(ping.expect, frame):
                    self._awaits_pong, self._answer_by_ms = False, None
            elif (answered := next((one for one in self._awaited if _fits(one.expect, frame)), None)) is not None:
                self._awaited.remove(answered)
                effects += self._next_messages(now_ms)
                self._last_unexpected = ""
            elif self._awaited and isinstance(frame.data, str):
                self._last_unexpected = frame.data[:SEARCHED]
        return effects, None

    def _end_if_refused(self, frame: Frame) -> End | None:
        """Returns the end if the frame refuses a first message: an awaited one, or else the last whose mark fits."""
        exchanges = (*self._awaited, *reversed(self._profile.subscribe))
        exchange = next((one for one in exchanges if _fits(one.refuse, frame)), None)
        # A cursor that is too old is refused like anything else, but must not end the stream: another one helps.
        if exchange is None or self._profile.marks.kind(frame) is Kind.EXPIRED:
            return None
        said = None if exchange.reason is None else text_at_path(parse_json(frame.data), exchange.reason)
        said = said if said is not None else frame.data if isinstance(frame.data, str) else "no text"
        message = f"the upstream refused {self._name_of(exchange)}: {self._without_secrets(said)}"
        limit_ms = self._profile.reject_after_ms
        return End(Outcome("StreamRejected", "", message, detail=message), "rejected", refused_ms=limit_ms)

    def due_messages(self, now_ms: int, unread_ms: int | None = None) -> tuple[list[Effect], End | None]:
        """Returns the messages that are due, and the end if an answer has not come in time.

        `unread_ms` is when the oldest unread bytes arrived; None if all are read.
        """
        if self._is_over:
            return [], None
        if self._answer_by_ms is not None and now_ms >= self._answer_by_ms:
            if unread_ms is None or unread_ms >= self._answer_by_ms:
                first = (
                    "" if self._awaits_pong else f"{self._name_of(self._awaited[0])} in time{self._unexpected_message}"
                )
                outcome = Outcome("StreamDropped", "", f"the upstream did not answer {first or 'ping in time'}")
                return [], End(outcome, "stalled", should_check_lease=True)
            # The answer may be among the bytes that came in time and are unread because the store is slow.
            self._unread_until_ms = now_ms + UNREAD_POLL_MS
        ping = self._profile.ping
        if ping is None or self._ping_ms is None or now_ms < self._ping_ms:
            return [], None
        self._ping_ms = now_ms + ping.every_ms
        if ping.expect and self._answer_by_ms is None:
            self._awaits_pong, self._answer_by_ms = True, now_ms + ping.within_ms
        return [Send(PING, b"") if ping.send is None else self._message(ping)], None

    def _name_of(self, exchange: Exchange) -> str:
        return f"subscribe[{self._profile.subscribe.index(exchange)}]"

    def closing_messages(self, code: int | None = None) -> list[Effect]:
        """Returns the last messages: the profile's own, then a close; with a `code` only the close.

        A second call returns nothing.
        """
        was_over, self._is_over = self._is_over, True
        if was_over:
            return []
        leave = self._profile.leave
        words = [] if leave is None or code is not None else [self._message(leave)]
        return [*words, Send(CLOSE, close_payload(NORMAL if code is None else code))]


def _fits(marks: Sequence[Mark], frame: Frame) -> bool:
    if not marks:
        return False
    body = parse_json(frame.data) if any(mark.needs_json for mark in marks) else None
    return any(mark.fits(frame, body) for mark in marks)
