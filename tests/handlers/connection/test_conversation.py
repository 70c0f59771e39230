"""Which messages a connection sends on its socket, when it counts as connected, and how it ends."""

import itertools
import json
from typing import Any

import pytest

from handlers.connection.conversation import EARLY_BYTES
from handlers.connection.effects import (
    CloseUpstream,
    Effect,
    MarkConnected,
    Open,
    Outcome,
    RecordLoss,
    Release,
    ReplaceCursor,
    Send,
    Write,
)
from handlers.connection.inputs import Chunk, Claimed, Closed, Opened, Resumption, Woken, Written
from handlers.connection.manager import Manager
from handlers.connection.phases import Phase
from handlers.connection.steps import Invocation
from handlers.framing.websocket import CLOSE, PING, PONG, TEXT, encoded_frame
from handlers.profile.messages import MOST_PART_CHARACTERS
from handlers.profile.parse import parse
from handlers.profile.secret_references import Reference, placeholder_reference
from tests.handlers.connection.managers import DEADLINE_MS, MARGIN_MS, MINE, keys

SUBSCRIBED = {"op": "subscribed"}
SUBSCRIBE = {
    "send": {"op": "subscribe", "channel": "{name}", "since": "{cursor}", "key": "${secret:key}"},
    "expect": {"$.op": "subscribed"},
    "refuse": {"$.op": "error"},
    "reason": "$.text",
}
SECRET = Reference("secret", "key")
NOWHERE = Resumption(None)


def opening_socket(at: Resumption = NOWHERE, **more: Any) -> Manager:
    """Return a manager whose claim was granted at 20 ms, and which has requested to open its WebSocket."""
    table = {
        "address": "wss://feed.example/{name}", "framing": "websocket", "key": "$.n", "cursor": "$.n",
        "subscribe": [SUBSCRIBE], **more,
    }  # fmt: skip
    profile = parse("feed", {name: value for name, value in table.items() if value is not None}, {})
    invocation = Invocation("feed:EUR", "A", "mine", "r1", DEADLINE_MS, MARGIN_MS, 1_000, 5_000, 10_000)
    # One secret may be the beginning of another.
    manager = Manager(profile, invocation, secrets={Reference("secret", "name"): "s3c", SECRET: "s3cret"})
    manager.start(0)
    assert manager.handle(20, Claimed(MINE, at)) == [Open(at.cursor)]
    return manager


def opened(at: Resumption = NOWHERE, **more: Any) -> Manager:
    """Return the same manager after the upstream's 101 at 30 ms, when its first message is sent."""
    manager = opening_socket(at, **more)
    manager.handle(30, Opened(101))
    return manager


def connected(at: Resumption = NOWHERE, **more: Any) -> Manager:
    """Return the same manager once its first message is answered at 40 ms."""
    manager = opened(at, **more)
    manager.handle(40, text_frames(SUBSCRIBED))
    assert manager.phase is Phase.CONNECTED
    return manager


def text_frames(*messages: Any) -> Chunk:
    """Return a chunk of the upstream: each message as a JSON text frame, wire frames unchanged."""
    frames = [one if isinstance(one, bytes) else encoded_frame(TEXT, json.dumps(one).encode()) for one in messages]
    return Chunk(b"".join(frames))


def close_frame(code: int, reason: str = "") -> bytes:
    return encoded_frame(CLOSE, code.to_bytes(2, "big") + reason.encode())


def sent_messages(effects: list[Effect]) -> list[Any]:
    """Return the messages that the effects send: decoded JSON texts, other frames as opcode and payload."""
    frames = [one for one in effects if isinstance(one, Send)]
    return [json.loads(one.payload) if one.opcode == TEXT else (one.opcode, one.payload) for one in frames]


FIRST = {"op": "subscribe", "channel": "EUR", "key": "s3cret"}


def test_a_socket_counts_as_connected_once_its_first_message_is_answered() -> None:
    """An open socket is not enough. Events before the answer are kept and stored with it; the answer is no event."""
    manager = opening_socket()
    assert sent_messages(manager.handle(30, Opened(101))) == [FIRST]
    assert manager.phase is Phase.OPENING
    assert manager.handle(31, text_frames({"n": 1})) == []
    effects = manager.handle(40, text_frames({"n": 2}, SUBSCRIBED, {"n": 3}))
    assert isinstance(effects[0], MarkConnected)
    assert (effects[0].progress.opened_ms, keys(effects), manager.phase) == (40, ["1", "2", "3"], Phase.CONNECTED)
    assert keys(manager.handle(50, text_frames(SUBSCRIBED, {"n": 4}))) == ["4"]


def test_the_first_message_resumes_after_the_cursor() -> None:
    """The cursor is sent as a number if it is whole and below 2^53, else as text; `resume.add` is added to it."""
    for cursor, since, more in (
        ("41", 41, {}), ("a1", "a1", {}), ("041", "041", {}), ("41", 42, {"resume": {"add": 1}}),
        ("-9007199254740991", -(2**53) + 1, {}), ("9007199254740992", "9007199254740992", {}),
    ):  # fmt: skip
        manager = opening_socket(Resumption(cursor), **more)
        assert sent_messages(manager.handle(30, Opened(101))) == [FIRST | {"since": since}]
        effects = manager.handle(40, text_frames(SUBSCRIBED))
        assert isinstance(effects[0], MarkConnected)
        assert effects[0].progress.resumed


def test_the_next_message_is_sent_once_the_first_is_answered() -> None:
    """A message without `expect` needs no answer; the profile's own ping begins after the last message."""
    second = {"send": "PLAIN {name}"}
    third = {"send": ["x", "{cursor}", {"y": "{cursor|text}"}], "expect": "OK"}
    manager = opening_socket(
        Resumption("7"), subscribe=[SUBSCRIBE, second, third], ping={"send": {"op": "ping"}, "every_s": 5}
    )
    assert sent_messages(manager.handle(30, Opened(101))) == [FIRST | {"since": 7}]
    effects = manager.handle(40, text_frames(SUBSCRIBED))
    assert [one.payload for one in effects if isinstance(one, Send)] == [b"PLAIN EUR", b'["x",7,{"y":"7"}]']
    assert manager.phase is Phase.OPENING
    assert isinstance(manager.handle(50, text_frames(encoded_frame(TEXT, b"OK")))[0], MarkConnected)
    assert manager.wake_at_ms == 5_050
    assert (sent_messages(manager.handle(5_050, Woken())), manager.wake_at_ms) == ([{"op": "ping"}], 10_050)
    # After a standstill one ping is enough.
    assert (sent_messages(manager.handle(31_000, Woken())), manager.wake_at_ms) == ([{"op": "ping"}], 36_000)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_message_or_ping_without_an_answer_in_time_drops_the_connection(is_first: bool) -> None:
    """A message or ping without an answer within `within_s` closes the socket, and the drop's reason names it."""
    if is_first:
        manager = opened(subscribe=[SUBSCRIBE | {"within_s": 3}])
        due_ms, what = 3_030, "subscribe[0]"
    else:
        manager = connected(ping={"send": {"op": "ping"}, "answer": {"$.op": "pong"}, "every_s": 1, "within_s": 3})
        manager.handle(1_040, Woken())
        assert manager.handle(1_100, text_frames({"op": "pong"})) == []
        manager.handle(2_040, Woken())
        manager.handle(3_040, Woken())
        manager.handle(4_040, Woken())
        due_ms, what = 5_040, "ping"
    assert manager.wake_at_ms == due_ms
    effects = manager.handle(due_ms, Woken())
    assert sent_messages(effects) == [(CLOSE, b"\x03\xe8")]
    assert CloseUpstream() in effects
    assert manager.outcome_so_far == Outcome("StreamDropped", "", f"the upstream did not answer {what} in time")
    assert manager.progress.opened_ms == (None if is_first else 40)


def test_a_refusal_quotes_the_upstreams_reason_without_secrets() -> None:
    """A refusal by message may pass, like any refusal; a secret that the upstream repeats is shown as an ellipsis."""
    manager = opened()
    effects = manager.handle(40, text_frames({"op": "error", "text": "no such key: s3cret"}))
    assert CloseUpstream() in effects
    assert manager.outcome_so_far.error == "StreamDropped"
    assert (
        manager.outcome_so_far.message
        == "the upstream refused subscribe[0]: no such key: …: final if it goes on for 300 s"
    )
    assert manager.refusal is not None
    assert "s3cret" not in repr(effects)
    # The status has the upstream's words alone, and that it is a refusal which may pass.
    manager.handle(50, Closed("closed_here"))
    said = manager.progress
    assert (said.ended_by, said.detail) == ("rejected", "the upstream refused subscribe[0]: no such key: …")


def test_a_refusal_may_come_after_the_first_answer() -> None:
    """A refusal after the first answer ends the connection. Events before it are stored; the refusal is not."""
    manager = connected()
    effects = manager.handle(50, text_frames({"n": 1}, {"op": "error", "text": "no XRP"}, {"n": 2}))
    assert (keys(effects), CloseUpstream() in effects) == (["1"], True)
    assert manager.outcome_so_far.message == "the upstream refused subscribe[0]: no XRP: final if it goes on for 300 s"
    assert manager.refusal is not None
    manager = opened(subscribe=[SUBSCRIBE], key="hash", split={"path": "$.trades"})
    manager.handle(40, text_frames(SUBSCRIBED))
    assert keys(manager.handle(50, text_frames({"op": "error", "trades": [1]}))) == []


def test_answers_may_come_in_any_order() -> None:
    """The answers to one message may come in any order: entries without `send` are awaited together with it."""
    names = ("BTC", "ETH", "XRP")
    first, *others = ({"expect": {"$.op": "subscribed", "$.channel": name}, "within_s": 3} for name in names)
    last = {"send": "go", "expect": "OK"}
    manager = opened(subscribe=[{"send": {"channels": list(names)}, **first}, *others, last])
    for at, name in enumerate(("XRP", "BTC")):
        assert sent_messages(manager.handle(1_000 + at, text_frames({"op": "subscribed", "channel": name}))) == []
    assert manager.wake_at_ms == 4_001
    effects = manager.handle(2_000, text_frames({"op": "subscribed", "channel": "ETH"}))
    assert [one.payload for one in effects if isinstance(one, Send)] == [b"go"]
    manager.handle(12_000, Woken())
    assert manager.outcome_so_far.message == "the upstream did not answer subscribe[3] in time"


def test_a_close_before_the_answer_quotes_the_last_text_that_came() -> None:
    """A close before the answer is reported with the last text since the last answer, if any, without secrets."""
    manager = opened(subscribe=[SUBSCRIBE, {"send": "b", "expect": "OK"}])
    manager.handle(40, text_frames({"n": 1}, SUBSCRIBED))
    manager.handle(50, text_frames({"op": "no", "key": "s3cret"}, close_frame(1000)))
    said = 'the upstream closed the socket with 1000 before it answered subscribe[1]; it said {"op": "no", "key": "…"}'
    assert manager.outcome_so_far.message == said
    manager = opened()
    manager.handle(40, text_frames(close_frame(1000)))
    assert manager.outcome_so_far.message == "the upstream closed the socket with 1000 before it answered subscribe[0]"


def test_a_flood_before_the_answer_makes_the_socket_count_as_connected() -> None:
    """If more bytes come than are kept until the answer, the socket counts as connected and still awaits it."""
    manager = opened()
    long = {"n": 1, "text": "x" * (EARLY_BYTES // 2)}
    assert manager.handle(40, text_frames(long)) == []
    effects = manager.handle(50, text_frames(long | {"n": 2}))
    assert isinstance(effects[0], MarkConnected)
    assert (keys(effects), manager.wake_at_ms) == (["1", "2"], 10_030)


@pytest.mark.parametrize(("message", "count"), [(b"", EARLY_BYTES // 64), (b"x" * 70_000, 1)])
def test_empty_and_oversize_messages_before_the_answer_count_as_kept(message: bytes, count: int) -> None:
    """Empty messages and beginnings of oversize ones count as kept: an upstream could fill the memory with them."""
    manager = opened(max_frame_bytes=1_000)
    assert manager.handle(40, text_frames(*[encoded_frame(TEXT, message)] * (count - 1))) == []
    effects = manager.handle(50, text_frames(*[encoded_frame(TEXT, message)] * 2))
    assert [type(one) for one in effects[:1]] == [MarkConnected]


def test_the_end_may_come_before_the_answer() -> None:
    """If the end mark comes before the answer, the answer is not awaited, and the events until then are stored."""
    manager = opened(end={"json": {"$.op": "over"}})
    assert keys(manager.handle(40, text_frames({"n": 1}, {"op": "over", "n": 2}))) == ["1", "2"]
    assert (manager.outcome_so_far.status, manager.phase) == ("ended", Phase.DRAINING)


def test_an_unread_answer_that_arrived_in_time_counts() -> None:
    """Behind a slow store, unread bytes that arrived before the answer was due may hold it; later ones cannot."""
    ping = {"send": {"op": "ping"}, "answer": {"$.op": "pong"}, "every_s": 2, "within_s": 1}
    in_time, late = connected(ping=ping), connected(ping=ping)
    for manager in (in_time, late):
        assert sent_messages(manager.handle(2_040, Woken())) == [{"op": "ping"}]
    assert (in_time.handle(3_040, Woken(), unread_ms=3_039), in_time.wake_at_ms) == ([], 3_140)
    assert in_time.handle(3_100, text_frames({"op": "pong"}), arrived_ms=3_039) == []
    assert (in_time.phase, in_time.wake_at_ms) == (Phase.CONNECTED, 4_040)
    assert CloseUpstream() in late.handle(3_040, Woken(), unread_ms=3_040)


PONG_OF = {"to": {"$.op": "ping"}, "send": {"op": "pong", "id": "{$.id}", "text": "re {$.id}", "key": "${secret:key}"}}
ACK_OF = {"to": {"$.n": "*"}, "send": {"ack": "{$.n}", "more": "{$.more}"}}


def test_a_message_that_is_no_event_is_replied_to_at_once() -> None:
    """The reply to a heartbeat is sent even before the first answer; parts that are missing or unfit are left out."""
    manager = opened(reply=[PONG_OF, ACK_OF], heartbeat={"json": {"$.op": "ping"}})
    key = {"op": "pong", "key": "s3cret"}
    assert sent_messages(manager.handle(31, text_frames({"op": "ping", "id": 7}))) == [key | {"id": 7, "text": "re 7"}]
    manager.handle(40, text_frames(SUBSCRIBED))
    effects = manager.handle(50, text_frames({"op": "ping", "id": "{name}", "n": 1}, {"op": "ping", "id": [1]}))
    assert sent_messages(effects) == [key | {"id": "{name}", "text": "re {name}"}, key]
    long = b'{"op": "ping", "id": 1764487200.123456789}'
    (reply,) = (
        one.payload for one in manager.handle(55, text_frames(encoded_frame(TEXT, long))) if isinstance(one, Send)
    )
    assert reply.startswith(b'{"op":"pong","id":1764487200.123456789,"text":"re 1764487200.123456789",')
    for unfit in ('"\\ud800"', f'"{"x" * (MOST_PART_CHARACTERS + 1)}"', "null"):
        ping = encoded_frame(TEXT, b'{"op": "ping", "id": %b}' % unfit.encode())
        assert sent_messages(manager.handle(60, text_frames(ping))) == [key]


@pytest.mark.parametrize("flush_s", [None, 5])
def test_an_event_is_acknowledged_once_it_is_stored(flush_s: int | None) -> None:
    """The reply to an event is sent once its own write is stored; a connection that leaves sends none."""
    fields: dict[str, Any] = {} if flush_s is None else {"store": "log", "flush_s": flush_s}
    manager = opened(reply=ACK_OF, **fields)
    assert sent_messages(manager.handle(35, text_frames({"n": 1}))) == []
    effects = manager.handle(40, text_frames(SUBSCRIBED)) + manager.handle(50, text_frames({"n": 2}, {"op": "hello"}))
    effects += manager.handle(5_050, Woken())
    assert (sent_messages(effects), keys(effects)[:2]) == ([], ["1", "2"])
    writes = [one for one in effects if isinstance(one, Write)]
    assert [sent_messages(manager.handle(5_060, Written(len(one.events), 0))) for one in writes] == [
        [{"ack": 1}],
        [{"ack": 2}],
    ]
    effects = manager.handle(5_070, text_frames({"n": 3}))
    for _ in range(2):
        effects += manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken())
    assert sent_messages(effects + manager.handle(DEADLINE_MS, Written(1, 0))) == [(CLOSE, b"\x03\xe8")]


def test_an_event_that_is_left_out_is_acknowledged_too() -> None:
    """The reply to an event that the profile leaves out is sent, or the event would come again for ever."""
    manager = connected(reply=ACK_OF, keep={"path": "$.kind", "is": ["trade"]})
    assert sent_messages(manager.handle(50, text_frames({"n": 1, "kind": "quote"}))) == [{"ack": 1}]


def test_a_greeting_may_be_awaited() -> None:
    """A first entry without `send` awaits the upstream's own message; the next message is sent once it has come."""
    manager = opening_socket(subscribe=[{"expect": {"$.op": "welcome"}}, SUBSCRIBE])
    assert sent_messages(manager.handle(30, Opened(101))) == []
    assert sent_messages(manager.handle(40, text_frames({"op": "welcome"}))) == [FIRST]
    manager.handle(50, text_frames(SUBSCRIBED))
    assert manager.phase is Phase.CONNECTED


def test_pings_are_answered_and_a_close_is_returned() -> None:
    """A pong repeats the ping's content, even before the first answer, but no pong follows the close."""
    manager = opened()
    ping = encoded_frame(PING, b"x")
    assert sent_messages(manager.handle(35, text_frames(ping))) == [(PONG, b"x")]
    manager.handle(40, text_frames(SUBSCRIBED))
    assert sent_messages(manager.handle(45, text_frames(ping, {"n": 1}, ping))) == [(PONG, b"x")] * 2
    effects = manager.handle(50, text_frames({"n": 2}, close_frame(1001, "going away")))
    assert (sent_messages(effects), keys(effects)) == ([(CLOSE, b"\x03\xe9")], ["2"])
    assert manager.handle(55, text_frames(ping, {"n": 3})) == []
    assert manager.outcome_so_far.message == "the upstream closed the socket with 1001: going away"


@pytest.mark.parametrize(
    ("code", "codes", "error", "is_final"),
    [
        *((code, {}, "StreamDropped", None) for code in (1000, 1001, 1002, 1011, 1012, 1014, 3008, 4000)),
        *((code, {}, "StreamDropped", False) for code in (1003, 1007, 1008, 1009, 1010, 3000, 3003)),
        (1013, {}, "StreamThrottled", None),
        (4029, {"4029": "throttled"}, "StreamThrottled", None),
        (4003, {"4003": "rejected"}, "StreamRejected", True),
        (1008, {"1008": "retried"}, "StreamDropped", None),
        (1000, {"1000": "ended"}, "", None),
    ],
)
def test_the_close_code_of_a_socket_decides_how_the_connection_ends(
    code: int, codes: dict[str, str], error: str, is_final: bool | None
) -> None:
    """A close code means what `close_codes` say, else what the standard says; a refusal of the standard may pass."""
    manager = connected(close_codes=codes)
    manager.handle(50, text_frames(close_frame(code)))
    assert (manager.outcome_so_far.error, manager.refusal is not None) == (error, is_final is not None)


def test_a_close_code_or_a_message_may_expire_the_cursor() -> None:
    """If a close code or a message reports the cursor as too old, an empty cursor is saved in its place.

    This holds before the first answer too, and although the mark of a refusal fits the same message.
    """
    old = {"op": "error", "code": "too old"}
    fields: dict[str, Any] = {"close_codes": {"4010": "expired"}, "resume": {"expired": {"$.code": "too old"}}}
    for begins, said in itertools.product((connected, opening_socket), (close_frame(4010), old)):
        manager = begins(Resumption("7"), **fields)
        if manager.phase is Phase.OPENING:
            manager.handle(30, Opened(101))
        manager.handle(50, text_frames(said))
        assert (manager.progress.forgot_ms, manager.outcome_so_far.error) == (50, "StreamDropped")
        effects = manager.handle(60, Closed("ended_by_upstream"))
        assert [one.cursor for one in effects if isinstance(one, ReplaceCursor | Release)] == [""]


@pytest.mark.parametrize(
    ("wire", "code"), [(b"\x81\x81abcdx", 1002), (encoded_frame(TEXT, b"\xff"), 1007), (b"\x83\x00", 1002)]
)
def test_a_frame_that_breaks_the_protocol_closes_the_socket_with_its_code(wire: bytes, code: int) -> None:
    """A violation is closed with its code, connected or not. Earlier events are stored; no `leave` is sent."""
    effects = connected(leave={"send": {"op": "bye"}}).handle(50, text_frames({"n": 1}, wire))
    assert (sent_messages(effects), keys(effects)) == ([(CLOSE, code.to_bytes(2, "big"))], ["1"])
    early = opening_socket()
    early.handle(30, Opened(101))
    assert sent_messages(early.handle(40, text_frames(wire))) == [(CLOSE, code.to_bytes(2, "big"))]
    assert (early.outcome_so_far.error, early.progress.opened_ms) == ("StreamDropped", None)


def test_the_leave_message_is_sent_once_before_the_close() -> None:
    """If this side closes, the `leave` message goes out once, then the close; not if the upstream closes."""
    manager = connected(leave={"send": {"op": "bye", "channel": "{name}"}})
    effects = manager.handle(DEADLINE_MS - MARGIN_MS // 2, Woken())
    effects += manager.handle(DEADLINE_MS - MARGIN_MS // 2 + 1, Woken())
    said = [one for one in effects if isinstance(one, Send | CloseUpstream)]
    assert (sent_messages(effects), said[-1]) == (
        [{"op": "bye", "channel": "EUR"}, (CLOSE, b"\x03\xe8")],
        CloseUpstream(),
    )
    assert sent_messages(connected(leave={"send": ["bye"]}).handle(50, text_frames(close_frame(1000)))) == [
        (CLOSE, b"\x03\xe8")
    ]
    assert sent_messages(connected(leave={"send": "bye"}).handle(50, Closed("reset"))) == []


def test_a_hole_in_the_sequence_numbers_is_a_loss_of_that_many_events() -> None:
    """A hole right after the cursor counts too. A repetition or restart is no hole; a snapshot begins a new row."""
    manager = connected(Resumption("7"), sequence="$.n", snapshot={"json": {"$.type": "all"}})

    def lost(*numbers: int, **more: Any) -> list[int | None]:
        effects = manager.handle(100, text_frames(*({"n": number, **more} for number in numbers)))
        return [effect.count for effect in effects if isinstance(effect, RecordLoss)]

    assert lost(8) == []
    assert lost(9, 12) == [2]
    assert lost(10, 11, 12, 13) == []
    assert lost(1, 2, 5) == [2]
    assert lost(99, type="all") == []
    assert lost(100, 100, 102) == [1]
    first = connected(Resumption("7"), sequence="$.n")
    assert [one.count for one in first.handle(50, text_frames({"n": 10})) if isinstance(one, RecordLoss)] == [2]


@pytest.mark.parametrize("by", [None, "$.product"])
def test_an_event_that_is_too_long_leaves_no_hole_in_the_numbers(by: str | None) -> None:
    """An oversize event goes to the dead-letter queue, so its unknown number must not count as a loss as well."""
    long = {"n": 0, "text": "x" * 200}
    sequence = {"path": "$.seq"} if by is None else {"path": "$.seq", "by": by}
    manager = connected(sequence=sequence, max_frame_bytes=150)
    messages = [{"n": at, "seq": seq} for at, seq in enumerate((1, 0, 3, 0, 7, 9))]
    effects = manager.handle(50, text_frames(*(one if one["seq"] else long for one in messages)))
    assert [one.count for one in effects if isinstance(one, RecordLoss)] == [2, 1]
    after = connected(Resumption("7"), sequence="$.n", max_frame_bytes=150)
    assert [one for one in after.handle(50, text_frames(long, {"n": 9})) if isinstance(one, RecordLoss)] == []


@pytest.mark.parametrize(("count", "lost"), [(None, 3), (2, 3), (5, 5)])
def test_a_hole_before_a_frame_that_reports_a_loss_is_that_loss(count: int | None, lost: int) -> None:
    """A hole and the loss that the next frame reports are recorded once, with the larger of the two counts."""
    manager = connected(sequence="$.n", loss={"json": {"$.op": "lost"}, "count": "$.count"})
    effects = manager.handle(50, text_frames({"n": 1}, {"n": 5, "op": "lost", "count": count}, {"n": 6}))
    assert [one.count for one in effects if isinstance(one, RecordLoss)] == [lost]


def test_each_product_has_numbers_of_its_own() -> None:
    """With `sequence.by` each product has its own row of numbers; an event without a valid number makes no hole."""
    manager = connected(sequence={"path": "$.seq", "by": "$.product"})
    messages = [("a", 1), ("b", 7), ("a", 2), ("b", "9"), ("a", None), ("a", "x"), ("a", 4)]
    effects = manager.handle(
        50, text_frames(*({"n": at, "product": one, "seq": seq} for at, (one, seq) in enumerate(messages)))
    )
    assert [one.count for one in effects if isinstance(one, RecordLoss)] == [1, 1]


def test_a_heartbeat_or_an_answer_may_have_the_next_number() -> None:
    """A heartbeat or answer may take the next number of the row; another number in it, as of a request, is ignored."""
    pong = {"send": "ping", "every_s": 5, "answer": {"$.op": "pong"}}
    manager = connected(Resumption("7"), sequence="$.n", heartbeat={"json": {"$.op": "hb"}}, ping=pong)
    hb, answer = {"op": "hb"}, {"op": "pong"}
    for messages, lost in (
        (({"n": 8} | hb, {"n": 9}, {"n": 9} | hb, {"n": 10} | answer, {"n": 11}), []),
        (({"n": 4} | hb, {"n": 1} | answer, {"n": 12}, {"n": 99} | answer, {"n": 14}), [1]),
    ):
        effects = manager.handle(100, text_frames(*messages))
        assert [one.count for one in effects if isinstance(one, RecordLoss)] == lost


def test_each_element_of_a_batch_may_have_a_number() -> None:
    """The elements of a batch have numbers if the path leads into them, like that of the key; each hole is a loss."""
    numbers = {"path": "$.data[*].n", "by": "$.data[*].pair"}
    manager = connected(split={"path": "$.data"}, key="$.data[*].n", cursor=None, sequence=numbers, subscribe=None)
    batches = [[("a", 1), ("b", 5), ("a", 2)], [], [("a", 5), ("b", 6), ("b", 8)]]
    messages = ({"data": [{"pair": pair, "n": number} for pair, number in one]} for one in batches)
    effects = manager.handle(50, text_frames(*messages))
    assert [one.count for one in effects if isinstance(one, RecordLoss)] == [2, 1]
    assert len(keys(effects)) == 6


def test_a_snapshot_is_stored_under_its_name() -> None:
    """A snapshot is stored with the event name "snapshot", so that a reader can tell a state from a change."""
    manager = connected(snapshot={"json": {"$.type": "all"}})
    effects = manager.handle(50, text_frames({"n": 1, "type": "all"}, {"n": 2}))
    assert [event.name for one in effects if isinstance(one, Write) for event in one.events] == ["snapshot", None]


def test_an_answer_other_than_101_drops_a_websocket() -> None:
    """An answer other than 101, even 200, drops the connection, and the first message is not sent."""
    for status in (200, 204, 302, 404):
        manager = opening_socket()
        effects = manager.handle(30, Opened(status))
        assert (sent_messages(effects)[:-1], manager.outcome_so_far.error, manager.outcome_so_far.http_status) == (
            [],
            "StreamDropped",
            status,
        )


def test_a_ticket_fills_places_of_messages_and_is_not_shown() -> None:
    """Messages hold the token and the ticket of the answered opening; the report of a refusal hides them."""
    send = {"op": "login", "key": "{ticket}", "bearer": "{token}"}
    login = {"send": send, "expect": {"$.op": "in"}, "refuse": {"$.op": "no"}, "reason": "$.text"}
    token = {"kind": "client_credentials", "address": "https://a.example", "id": "i", "secret": "${secret:key}"}
    ticket = {"address": "https://a.example/key", "path": "$.key"}
    manager = opening_socket(subscribe=[login], token=token, ticket=ticket)
    places = {placeholder_reference("ticket"): "k{name}", placeholder_reference("token"): "t0k"}
    effects = manager.handle(30, Opened(101, places=places))
    assert sent_messages(effects) == [{"op": "login", "key": "k{name}", "bearer": "t0k"}]
    ended = manager.handle(40, text_frames({"op": "no", "text": "t0k is not k{name}"}))
    assert "t0k" not in repr(ended) + repr(manager.outcome_so_far)
    assert "… is not …" in manager.outcome_so_far.message
