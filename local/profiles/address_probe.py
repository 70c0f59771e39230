"""Probes an address: connects, reads for some seconds, and keeps what came.

`profile new` draws its conclusions from such probes. Invariants: nothing is stored and no stream is claimed; the
connection is always closed.
"""

import argparse
import functools
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from handlers.aws.eks_tokens import sign_cluster_token
from handlers.aws.secret_values import SecretValues
from handlers.connection.conversation import Conversation
from handlers.connection.effects import Effect, Send
from handlers.connection.ends import End
from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.opening_steps import Tokens
from handlers.framing.events import parse_json
from handlers.framing.frames import Decoded, Decoder, Frame, FramingError, as_frames
from handlers.framing.websocket import encoded_frame
from handlers.profile.addresses import with_query
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.profile.secret_references import Secrets
from handlers.profile.tls_field import Trust
from handlers.profile.upstream_requests import request_of
from handlers.run.ports import preparation_of, random_mask
from handlers.upstream.reader import Upstream
from local import stages
from local.profiles.profile_files import to_toml


class SocketConversation:
    """The conversation on the WebSocket of a trial or a probe, as a function holds it: first messages, pings, the
    close. For a stream that is no socket it sends nothing.
    """

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


MOST_S = 86_400
# This many frames, and the first bytes, are enough to judge by.
_FRAMES, _BYTES = 1000, 65_536
# The name of a profile that has none yet.
_NAME = "new"
# A member's name that a JSON path can have.
MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class ProbedAddress:
    """The request: a GET, or a POST with a JSON body; and the first messages on a socket.

    `trust` is needed unless the authority is a public one. `token` is the profile's field. `stage` has the secrets that
    both refer to.
    """

    url: str
    body: str | None = None
    first_messages: tuple[str, ...] = ()
    trust: Trust | None = None
    token: Mapping[str, str] | None = None
    stage: str = "local"

    @property
    def is_socket(self) -> bool:
        return self.url.lower().startswith(("ws://", "wss://"))

    @property
    def parsed_messages(self) -> list[Any]:
        """The first messages in a profile's form, parsed if they are JSON."""
        parsed = [(text, parse_json(text)) for text in self.first_messages]
        return [value if isinstance(value, dict | list) else text for text, value in parsed]

    def profile_fields(self) -> dict[str, Any]:
        said = {"subscribe": [{"send": one} for one in self.parsed_messages]} if self.first_messages else {}
        return (
            {"address": self.url}
            | said
            | ({} if self.token is None else {"token": dict(self.token)})
            | ({} if self.body is None else {"method": "POST", "body": self.body, "again": True})
        )

    def with_query(self, name: str, value: str) -> "ProbedAddress":
        """Returns the address with one more parameter."""
        return replace(self, url=with_query(self.url, name, value))


@dataclass
class ProbeResult:
    """The result of one connection; `heartbeats_s` has the instants of bytes that are not frames.

    `end` says how a socket was closed; `secrets` are the values that were sent, which must not be written.
    """

    status: int = 0
    content_type: str = ""
    problem: str = ""
    has_ended: bool = False
    end: str = ""
    frames: list[Frame] = field(default_factory=list)
    heartbeats_s: list[float] = field(default_factory=list)
    first: bytes = b""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ids(self) -> list[str]:
        """The ids of the frames that have one."""
        return [frame.id for frame in self.frames if frame.id]

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        """The frames as JSON; none if one is not an object."""
        bodies = [parse_json(frame.data) for frame in self.frames]
        return bodies if all(isinstance(body, dict) for body in bodies) else []


def probe(
    address: ProbedAddress, framing: str, seconds: float, cursor: str | None = None, most_frames: int = _FRAMES
) -> ProbeResult:
    """Returns what arrives within these seconds, at most `most_frames` frames.

    Raises ProfileError for a bad address, StreamkeeperError for a secret that cannot be read.
    """
    # An address that is refused is refused for good; probing one's own machine is allowed.
    table = {**address.profile_fields(), "framing": framing, "allow_private": True, "connect_timeout_s": 10}
    profile: Profile = replace(parse(_NAME, table, {}), tls=address.trust)
    secrets: Secrets = {}
    if profile.secrets:
        # Imported late, because few addresses need it.
        import boto3

        secrets = SecretValues(boto3.client, stages.names(address.stage)["secrets"]).read(profile.secrets)
    # A token of EKS is signed with the credentials of whoever probes.
    tokens = Tokens(threading.Lock, sign=functools.partial(sign_cluster_token, None))
    before = preparation_of(profile, _NAME, cursor, secrets, lambda: round(1000 * time.monotonic()), tokens)
    request = request_of(profile, _NAME, cursor, secrets)
    upstream = Upstream(request, connect_timeout_s=10, stall_after_s=max(1.0, seconds), before=before)
    seen, until_s = ProbeResult(secrets=tuple(secrets.values())), time.monotonic() + seconds
    decoder, talking = profile.decoder(), SocketConversation(profile, _NAME, secrets, upstream)
    upstream.start()
    try:
        while (left_s := until_s - time.monotonic()) > 0 and len(seen.frames) < most_frames:
            arrival = upstream.get(left_s)
            if isinstance(arrival, Opened):
                seen.status, seen.content_type = arrival.status, arrival.headers.get("content-type", "")
                talking.begin(arrival, decoder, cursor)
            elif isinstance(arrival, Closed):
                seen.has_ended = True
                if not seen.status:
                    seen.problem = ": ".join(filter(None, ("no answer", arrival.reason, arrival.detail)))
                elif arrival.reason == "rejected":
                    seen.problem = arrival.detail
                break
            elif isinstance(arrival, Chunk) and not _read_chunk(seen, arrival.data, decoder, talking):
                break
    finally:
        talking.send_close()
        upstream.close()
    if not seen.status and not seen.problem:
        seen.problem = f"nothing answered within {seconds:g} s"
    return seen


def _read_chunk(seen: ProbeResult, data: bytes, decoder: Decoder, talking: SocketConversation) -> bool:
    """Reads a chunk; returns false if it is invalid, or if the socket was closed."""
    seen.first = (seen.first + data)[:_BYTES]
    try:
        frames = [frame for frame in as_frames(decoder.feed(data)) if not frame.is_comment]
    except FramingError as error:
        seen.frames += as_frames(error.frames)
        return False
    seen.frames += frames
    _, end = talking.take_frames([], decoder, None)
    if end is not None:
        seen.has_ended, seen.end = True, end.outcome.message
        return False
    # A reconnection time comes only once, at the beginning.
    is_begun = decoder.is_inside_frame or decoder.unfinished_oversize() is not None
    if not (frames or is_begun or b"retry:" in data):
        seen.heartbeats_s.append(time.monotonic())
    return True


def read_seconds(text: str) -> float:
    """The seconds to read, from the command line."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_S:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0 and at most {MOST_S}, not {text!r}")
    return value


def find_answers(address: ProbedAddress, seen: ProbeResult) -> list[tuple[int, str] | None]:
    """Returns the answer to each first message, as its frame's place and a mark; None for a message without one.

    An answer repeats a value of the message, such as its id; or it is the next frame, and has other members than an
    event, or another value where all later frames have the same. A mark holds no secret.
    """
    parsed, answered, first = [parse_json(frame.data) for frame in seen.frames], list[tuple[int, str] | None](), 0
    bodies: list[Mapping[str, Any]] = [body if isinstance(body, dict) else {} for body in parsed]
    usual = bodies[-1] if bodies else {}
    for number, message in enumerate(address.parsed_messages, start=1):
        said, later = set(_scalars_in(message)), set(_scalars_in(address.parsed_messages[number:]))
        found = [
            at for at in range(first, len(bodies)) if not said.isdisjoint(_own_members(bodies[at], usual).values())
        ]
        if not found and first < len(bodies):
            own, others = _own_members(bodies[first], usual), bodies[first + 1 :]
            same = any(all(name in one and one[name] == usual[name] for one in others) for name in own if name in usual)
            is_other = set(bodies[first]) != set(usual) or (len(others) > 1 and same)
            found = [first] if is_other and later.isdisjoint(own.values()) else []
        names = [
            name
            for at in found[:1]
            for name, value in _own_members(bodies[at], usual).items()
            if (value in said or re.fullmatch(r"[A-Za-z_:-]+", str(value)))
            and not any(secret in str(value) for secret in seen.secrets)
        ]
        # A number that is repeated is the message's id; a text may be a version that every answer has.
        names.sort(key=lambda name: isinstance(bodies[found[0]][name], str))
        answered.append((found[0], f'{{ "$.{names[0]}" = {to_toml(bodies[found[0]][names[0]])} }}') if names else None)
        first = found[0] + 1 if names else first
    return answered


def _own_members(body: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, str | int]:
    """Returns the texts and whole numbers among a body's members that an event does not have."""
    own = {name: value for name, value in body.items() if MEMBER.fullmatch(name) and usual.get(name) != value}
    return {name: value for name, value in own.items() if isinstance(value, str) or type(value) is int}


def _scalars_in(message: Any) -> Iterator[str | int]:
    """Yields all texts and whole numbers in a message."""
    if isinstance(message, dict | list):
        for one in message.values() if isinstance(message, dict) else message:
            yield from _scalars_in(one)
    elif isinstance(message, str) or type(message) is int:
        yield message
