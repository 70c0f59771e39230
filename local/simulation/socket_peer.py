"""The upstream's side of a WebSocket in virtual time: reads the client's frames, and writes frames other than events.

The independent library `wsproto` reads the client's frames, so a breach of the protocol is a fault of ours. Invariant:
each message is returned once, whole.
"""

import json
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import ProtocolError

from handlers.framing.websocket import CLOSE, PING, TEXT, encoded_frame

# How often a profile of the run pings, and how soon the pong must come.
PING_EVERY_S, WITHIN_S = 2, 1.5
# How late a pong may be, because a function may be waiting for a slow store.
PONG_MS = 20_000


def fields(*, resumes: bool) -> dict[str, Any]:
    """Returns the profile's fields for the socket; without `resumes` no message has a {cursor}."""
    since = {"since": "{cursor}"} if resumes else {}
    return {
        "framing": "websocket",
        "cursor": "$.seq",
        "sequence": "$.seq",
        "subscribe": [{"send": {"op": "subscribe", **since}, "expect": {"$.op": "subscribed"}, "within_s": WITHIN_S}],
        "ping": {"send": {"op": "ping"}, "every_s": PING_EVERY_S, "answer": {"$.op": "pong"}, "within_s": WITHIN_S},
        "leave": {"send": {"op": "bye"}},
        "reply": {"to": {"$.seq": "*"}, "send": {"op": "stored", "seq": "{$.seq}"}},
        # The end of a stream has no code of its own.
        "statuses": {"204": "ended"},
    }


def message_frame(message: dict[str, Any]) -> bytes:
    """Returns a message as a frame."""
    return encoded_frame(TEXT, json.dumps(message).encode())


def close_frame(code: int) -> bytes:
    """Returns a close as a frame."""
    return encoded_frame(CLOSE, code.to_bytes(2, "big"))


class SocketPeer:
    """One connection; `pings` has the unanswered pings, with the instants at which they were sent."""

    def __init__(self) -> None:
        self._connection = Connection(ConnectionType.SERVER)
        self.pings: dict[bytes, int] = {}
        self._count = 0
        self.is_closed = False

    def read_messages(self, frame: bytes) -> list[dict[str, Any]]:
        """Returns the messages that the client sent; raises AssertionError if a frame breaks the protocol."""
        messages = []
        # RFC 6455, section 5.1, which `wsproto` leaves to its caller.
        assert frame[1] & 0x80, "the client breaks the protocol: it does not mask its frames"
        try:
            self._connection.receive_data(frame)
            for event in self._connection.events():
                match event:
                    case TextMessage(data=data):
                        assert not self.is_closed, "the client speaks after its close"
                        messages.append(json.loads(data))
                    case Pong(payload=payload):
                        self.pings.pop(bytes(payload), None)
                    case CloseConnection():
                        self.is_closed = True
                    case Ping():
                        pass
        except ProtocolError as error:
            raise AssertionError(f"the client breaks the protocol: {error}") from None
        return messages

    def ping(self, now_ms: int) -> bytes:
        """Returns a ping as a frame."""
        self._count += 1
        payload = b"%d" % self._count
        self.pings[payload] = now_ms
        return encoded_frame(PING, payload)

    def unanswered_pings(self, now_ms: int) -> int:
        """Returns how many pings the client should have answered by now."""
        return sum(1 for sent_ms in self.pings.values() if sent_ms < now_ms - PONG_MS)
