"""The verb `profile try`: connects to a stream once and shows what its profile makes of what comes.

Decides nothing about the stream: the request, the kinds of frames, keys and cursors are the function's own. It stores
nothing and claims nothing. Invariant: no secret and no header of the request is shown; the connection is closed however
the command ends.
"""

import argparse
import os
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import boto3

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Chunk, Closed, Opened
from handlers.connection.judging import is_confirmed, judge
from handlers.connection.reading import cursor_behind
from handlers.errors import StreamkeeperError
from handlers.framing.decoders import Frame, FramingError, as_frames
from handlers.framing.marks import Kind
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.profile.secret_references import Reference, Secrets
from handlers.upstream.reader import Upstream
from local.profiles.profile_files import placeholders, profile_text
from local.upstreams.behaviours import BEHAVIOURS
from local.upstreams.player_server import moved, playing
from local.user_error import UserError

STREAMS = Path(__file__).resolve().parents[2] / "env" / "streams"
_SHOWN_CHARACTERS = 70
_ENDS = {
    Kind.END: "the stream has ended: no connection would be made any more",
    Kind.DISCONNECT: "the upstream wants a new connection",
    Kind.EXPIRED: "the cursor is too old: a gap, and on without it",
}


@dataclass
class Trial:
    """What came so far, told line by line with `say`; `asked` is the cursor that was asked for."""

    profile: Profile
    say: Callable[[str], None]
    asked: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    cursor: str | None = None
    ended: bool = False

    def opened(self, given: Opened) -> None:
        """Tells of the answer."""
        self.say(f"answered {given.status}, {printable(given.headers.get('content-type', 'no content type'))}")
        meaning = self.profile.meaning(given.status)
        if meaning == "expired" and self.profile.asks(self.asked):
            self.ended = True
            self.say(_ENDS[Kind.EXPIRED])
            return
        refusal = judge(self.profile, given, meaning)
        if refusal is None and self.asked and not is_confirmed(self.profile, given, self.asked):
            self.say("the answer does not begin behind the cursor: a gap")
        if refusal is not None:
            self.ended = True
            self.say(f"this is {refusal.error or refusal.status}: {refusal.message}")

    def frame(self, frame: Frame) -> None:
        """Tells of one frame; what comes behind an end does not count."""
        if self.ended:
            return
        kind = self.profile.kind(frame)
        self.counts[kind.value] += 1
        shown = frame.data if isinstance(frame.data, str) else f"{len(frame.data)} bytes"
        shown = printable(shown[:_SHOWN_CHARACTERS].replace("\n", " "))
        event = self.profile.event(frame, 0)
        if not frame.is_comment and event.cursor is not None:
            self.cursor = event.cursor
        key = "of its own" if self.profile.key == "each" else printable(event.key)
        self.say(f"{kind.value:<10} key {key}  {shown}" if kind is Kind.EVENT else f"{kind.value:<10} {shown}")
        if kind in _ENDS:
            self.ended = True
            self.say(_ENDS[kind])

    def chunk_ended(self, last_id: str | None) -> None:
        """Takes note of the last event ID, which a block sets that is no event."""
        after = None if self.ended else cursor_behind(self.profile, last_id)
        self.cursor = self.cursor if after is None else after

    def summary(self) -> None:
        """Tells what came in all."""
        counted = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items())) or "nothing"
        self.say(f"in all: {counted}; cursor {printable(self.cursor) if self.cursor is not None else 'none'}")


def printable(text: str) -> str:
    """Returns the text with what a terminal would obey spelled out: an upstream may send anything."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where the upstream's answer was a stream, 1 where not; UserError for a bad stream or secret."""
    profile = _profile(arguments.stream_id, is_played=arguments.played)
    if not arguments.played:
        return _tried(profile, arguments, SecretValues(boto3.client).read)
    if profile.name not in BEHAVIOURS:
        raise UserError(f"Nobody plays the provider of {profile.name!r}; there are: {', '.join(BEHAVIOURS)}.")
    with playing() as (origin, _):
        return _tried(moved(profile, origin), arguments, lambda references: dict.fromkeys(references, "played"))


def _tried(profile: Profile, arguments: argparse.Namespace, read: Callable[[list[Reference]], Secrets]) -> int:
    """Returns what `run` does; `read` gives the values of the profile's secrets."""
    try:
        values = read(profile.secrets) if profile.secrets else {}
        request = profile.request(arguments.stream_id, arguments.cursor, values)
    except (StreamkeeperError, ProfileError) as problem:
        raise UserError(f"{problem}.") from None
    trial = Trial(profile, print, arguments.cursor)
    upstream = Upstream(
        request,
        connect_timeout_s=profile.connect_timeout_s,
        stall_after_s=profile.stall_after_s,
        joins=profile.joins_chunks,
    )
    upstream.start()
    try:
        return 0 if _read(upstream, trial, time.monotonic() + arguments.seconds) else 1
    finally:
        upstream.close()
        trial.summary()


def _read(upstream: Upstream, trial: Trial, until: float) -> bool:
    """Returns whether there was a stream; reads until the instant or its end."""
    decoder, was_stream = trial.profile.decoder(), False
    while not trial.ended and (left_s := until - time.monotonic()) > 0:
        arrival = upstream.get(left_s)
        if isinstance(arrival, Opened):
            trial.opened(arrival)
            was_stream = not trial.ended
        elif isinstance(arrival, Chunk):
            try:
                frames, failure = decoder.feed(arrival.data), None
            except FramingError as error:
                frames, failure = error.frames, error
            if not frames and failure is None and not decoder.unfinished_bytes:
                trial.counts["bytes without a frame (a sign of life)"] += 1
            for frame in as_frames(frames):
                trial.frame(frame)
            trial.chunk_ended(decoder.last_event_id)
            if failure is not None:
                trial.say(f"this cannot be framed: {failure}")
                return False
        elif isinstance(arrival, Closed):
            trial.say(f"closed: {arrival.reason}{': ' if arrival.detail else ''}{arrival.detail}")
            return was_stream
    if not was_stream and not trial.ended:
        trial.say("no answer came in this time")
    return was_stream


def _profile(stream_id: str, *, is_played: bool = False) -> Profile:
    variables = {"UPSTREAM_DEMO": f"http://127.0.0.1:{int(os.environ.get('PORT') or 3000) + 2}"} | dict(os.environ)
    try:
        name = check_stream_id(stream_id)
        path = STREAMS / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(file.stem for file in STREAMS.glob("*.toml")))
            raise UserError(f"There is no profile {name!r} in env/streams; there are: {known}.")
        text = profile_text(path)
        profile = parse(name, tomllib.loads(text), placeholders(text) if is_played else variables)
        profile.address_for(stream_id)
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"The profile {name!r} is no TOML: {problem}.") from None
    except ProfileError as problem:
        raise UserError(f"{problem}.") from None
    return profile
