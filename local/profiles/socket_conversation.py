"""Holds the conversation on the WebSocket of a trial or a probe as a function does: first messages, pings, the close.

For a stream that is not a socket it sends nothing, and passes on what arrives.
"""

import time

from handlers.connection.conversation import Conversation
from handlers.connection.effects import Effect, Send
from handlers.connection.ends import End
from handlers.connection.inputs import Opened
from handlers.framing.frames import Decoded, Decoder, FramingError
from handlers.framing.websocket import encoded_frame
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.run.ports import random_mask
from handlers.upstream.reader import Upstream


class SocketConversation:
    """The conversation with one upstream for a stream."""

    def __init__(self, profile: Profile, stream_id: str, secrets: Secrets, upstream: Upstream) -> None:
        self._talk = Conversation(profile, stream_id, secrets) if profile.is_socket else None
        self._upstream = upstream

    def begin(self, answer: Opened, decoder: Decoder, cursor: str | None) -> None:
        """Sends the first messages, to resume behind the cursor."""
        decoder.take_headers(answer.headers)
        if self._talk is not None:
            self._send(self._talk.begin(_now_ms(), cursor, answer.places))

    @property
    def missing_answer(self) -> str:
        """Describes the first message that has no answer yet, and what came instead; "" if none is awaited."""
        return (
            f"still no answer to {self._talk.awaited_message}"
            if self._talk is not None and self._talk.awaited_message
            else ""
        )

    def wait_s(self, left_s: float) -> float:
        """Returns how long to wait for the next input, at most `left_s`."""
        due_ms = None if self._talk is None else self._talk.due_ms
        return left_s if due_ms is None else min(left_s, max(0.0, (due_ms - _now_ms()) / 1000))

    def take_frames(
        self, decoded: Decoded, decoder: Decoder, failure: FramingError | None
    ) -> tuple[Decoded, End | None]:
        """Returns the input that counts by now, and the end of the connection if there is one."""
        if self._talk is None:
            return decoded, None
        said, counted, end = self._talk.take_frames(_now_ms(), decoded, decoder, failure)
        self._send(said)
        return (counted if self._talk.is_connected else ()), end

    def send_due(self) -> End | None:
        """Sends the messages that are due; returns the end of the connection if an answer has not come in time."""
        if self._talk is None:
            return None
        said, end = self._talk.due_messages(_now_ms())
        self._send(said)
        return end

    def send_close(self) -> None:
        if self._talk is not None:
            self._send(self._talk.closing_messages())

    def _send(self, effects: list[Effect]) -> None:
        for one in effects:
            if isinstance(one, Send):
                self._upstream.send(encoded_frame(one.opcode, one.payload, random_mask()))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
