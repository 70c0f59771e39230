"""The upstream's side of a WebSocket in virtual time: what it receives, and what it sends besides events.

The independent library `wsproto` reads what the client sends, so a breach of the protocol is a fault of ours.
Invariant: a message is taken once, whole.
"""

import json
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import ProtocolError

from handlers.framing.websocket import CLOSE, PING, TEXT, encoded_frame

# How a profile of the run talks; {cursor} is left out where the upstream does not go on from one.
PING_EVERY_S, WITHIN_S = 2, 1.5
# How late a pong may be: a function may be asking a slow store meanwhile.
PONG_MS = 20_000


def fields(*, resumes: bool) -> dict[str, Any]:
    """The profile's fields for the socket."""
    since = {"since": "{cursor}"} if resumes else {}
    return {
        "framing": "websocket",
        "cursor": "$.seq",
        "sequence": "$.seq",
        "subscribe": [{"send": {"op": "subscribe", **since}, "expect": {"$.op": "subscribed"}, "within_s": WITHIN_S}],
        "ping": {"send": {"op": "ping"}, "every_s": PING_EVERY_S, "answer": {"$.op": "pong"}, "within_s": WITHIN_S},
        "leave": {"send": {"op": "bye"}},
        # The end of a stream has no code of its own.
        "statuses": {"204": "ended"},
    }


def said(message: dict[str, Any]) -> bytes:
    """A message on the wire."""
    return encoded_frame(TEXT, json.dumps(message).encode())


def closing(code: int) -> bytes:
    """A close on the wire."""
    return encoded_frame(CLOSE, code.to_bytes(2, "big"))


class SocketPeer:
    """One connection; `pinged` are its pings that are not answered yet, and when they were sent."""

    def __init__(self) -> None:
        self._connection = Connection(ConnectionType.SERVER)
        self.pinged: dict[bytes, int] = {}
        self._count = 0
        self.is_closed = False

    def hears(self, frame: bytes) -> list[dict[str, Any]]:
        """The messages in what the client sent; raises AssertionError where that breaks the protocol."""
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
                        self.pinged.pop(bytes(payload), None)
                    case CloseConnection():
                        self.is_closed = True
                    case Ping():
                        pass
        except ProtocolError as error:
            raise AssertionError(f"the client breaks the protocol: {error}") from None
        return messages

    def ping(self, now_ms: int) -> bytes:
        """A ping on the wire."""
        self._count += 1
        payload = b"%d" % self._count
        self.pinged[payload] = now_ms
        return encoded_frame(PING, payload)

    def unanswered(self, now_ms: int) -> int:
        """How many pings the client should have answered by now."""
        return sum(1 for sent_ms in self.pinged.values() if sent_ms < now_ms - PONG_MS)
