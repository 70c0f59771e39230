"""The verb `profile try`: connects to a stream once and prints how its profile reads what arrives.

Requests, kinds of frames, keys and cursors are those of the function. It stores nothing and claims no stream.
Invariants: no secret and no header of the request is printed; the connection is always closed.
"""

import argparse
import functools
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import boto3

from handlers.api.answers import sentence
from handlers.api.verdict import plural
from handlers.aws.eks_tokens import sign_cluster_token
from handlers.aws.secret_values import SecretValues
from handlers.connection.ends import End
from handlers.connection.frame_reading import HoleFinder, read_frames, split_frame
from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.connection.judging import is_cursor_refused, is_resume_confirmed, judge_answer
from handlers.connection.opening_steps import Tokens
from handlers.errors import StreamDropped, StreamkeeperError
from handlers.framing.events import LEFT_OUT, StreamEvent, cursor_of_last_id
from handlers.framing.frames import Frame, FramingError, as_frames
from handlers.framing.marks import Kind
from handlers.framing.oversize import Oversize
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.profile.secret_references import Reference, Secrets
from handlers.profile.upstream_requests import request_of
from handlers.run.ports import preparation_of
from handlers.run.refresh_tokens import RefreshTokens
from handlers.tls import check_trust
from handlers.upstream.reader import Upstream
from local import stages
from local.profiles import advice, folders
from local.profiles.address_probe import SocketConversation
from local.profiles.profile_files import placeholders, read_profile_text, split_stream_argument
from local.terminal import UserError, printable, read_port, terminal_columns, truncate, width_of
from local.upstreams.behaviours import BEHAVIOURS
from local.upstreams.provider_player import point_to_player, serve_providers

KEEP_ALIVE = "keep-alive bytes without a frame"
# The width of a line without a terminal, and the least part of a body that is shown.
_COLUMNS, _LEAST = 100, 20
_ENDS = {
    Kind.END: "the stream has ended: the function would not connect again",
    Kind.DISCONNECT: "the upstream requests a new connection",
    Kind.EXPIRED: "the cursor is too old: a gap, and the stream continues without it",
}
# Tokens of EKS are signed with the credentials of whoever tries the profile.
SIGN_EKS_TOKEN = functools.partial(sign_cluster_token, None)
_SECRETS_HINT = " Secrets are read with the AWS settings of the environment; docs/profiles.md has those for `make run`."
ValuesOf = Callable[[list[Reference]], Secrets]
_FORGOTTEN = "the cursor is too old, and the upstream names its oldest place"


@dataclass
class Trial:
    """What arrived so far, printed line by line with `say`; `requested_cursor` is the cursor of the request."""

    profile: Profile
    say: Callable[[str], None]
    requested_cursor: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    cursor: str | None = None
    reconnection_ms: int | None = None
    has_ended: bool = False
    events: list[StreamEvent] = field(default_factory=list)
    numbers: HoleFinder | None = None
    is_numbered: bool = False

    def print_profile(self) -> None:
        """Prints how the profile resumes, how it stores if that is unusual, and warnings."""
        self.say(advice.resumption_sentence(self.profile))
        if stored := advice.storage_sentence(self.profile):
            self.say(stored)
        if self.profile.keep:
            self.say(advice.selection_sentence(self.profile))
        for warning in advice.warnings(self.profile):
            self.say(f"warning: {warning}")
        if (sequence := self.profile.sequence) is not None:
            is_row = self.profile.is_resumption(self.requested_cursor) and self.profile.cursor == sequence.path
            self.numbers = HoleFinder(sequence, self.requested_cursor if is_row else None, self.profile.split)

    def print_answer(self, answer: Opened) -> None:
        """Prints the upstream's answer."""
        self.say(f"answered {answer.status}, {printable(answer.headers.get('content-type', 'no content type'))}")
        if self.profile.is_resumption(self.requested_cursor) and is_cursor_refused(self.profile, answer.status):
            self.has_ended = True
            self.say(_ENDS[Kind.EXPIRED])
            return
        meaning, now_ms = self.profile.meaning_of_status(answer.status), time.time_ns() // 1_000_000
        if (refusal := judge_answer(self.profile, answer, meaning, now_ms)) is not None:
            self.print_end(refusal)
        elif self.requested_cursor and not is_resume_confirmed(self.profile, answer, self.requested_cursor):
            self.say("the answer does not begin after the cursor: a gap")

    def print_frame(self, frame: Frame) -> None:
        """Prints one frame; after an end, nothing counts."""
        if self.has_ended:
            return
        profile, is_resumed = self.profile, self.profile.is_resumption(self.requested_cursor)
        kind, batch = split_frame(profile, frame, 0)
        reading = read_frames(profile, [frame], None, 0, "", 0, is_resumed=is_resumed, numbers=self.numbers)
        for count in reading.losses if kind is not Kind.LOSS else ():
            self.say(f"{'hole':<10} {plural(count or 0, 'number')} missing before this: a loss")
        if self.numbers is not None and kind is Kind.EVENT:
            self.is_numbered |= any(True for _ in self.numbers.numbers_of(frame))
        for event in batch or (profile.to_event(frame, 0),):
            is_left_out = event.key == LEFT_OUT or (reading.left_out > 0 and not batch)
            self._print_event("left out" if is_left_out else Kind.EVENT.value if batch else kind.value, event)
        self.cursor = self.cursor if reading.cursor is None else reading.cursor
        if batch and kind is not Kind.EVENT:
            self.say(f"{kind.value:<10} beside these events")
        if kind in _ENDS:
            self.has_ended = True
            place = printable(reading.oldest or "")
            self.say(f"{_FORGOTTEN}: the next request begins at {place}" if place else _ENDS[kind])

    def _print_event(self, word: str, event: StreamEvent) -> None:
        self.counts[word] += 1
        if word == Kind.EVENT.value:
            self.events.append(event._replace(received_at_ms=time.time_ns() // 1_000_000))
        key = "unique" if self.profile.key == "each" else printable(event.key)
        head = f"{word:<10} key {key}  " if word == Kind.EVENT.value else f"{word:<10} "
        # A body fills the line; a cut one says so.
        most = max(_LEAST, terminal_columns(sys.stdout, _COLUMNS) - width_of(head))
        self.say(head + truncate(printable(_body_in_words(event.data)[: most + 1].replace("\n", " ")), most))

    def print_end(self, end: End) -> None:
        """Prints how the upstream's answer, or a message on the socket that came or is missing, ends the connection."""
        self.has_ended = True
        # Whether a refusal is final depends on how long it lasts, which only a function decides.
        error = "refused" if end.outcome.error == "StreamRejected" else end.outcome.error
        self.say(f"{error or end.outcome.status}: {printable(end.outcome.message)}")

    def record_last_id(self, last_id: str | None) -> None:
        """Records the last event ID; a block without an event may set it."""
        after = None if self.has_ended else cursor_of_last_id(last_id, self.profile.cursor)
        self.cursor = self.cursor if after is None else after

    def print_summary(self) -> None:
        """Prints what cannot be resumed, the counts and the cursor."""
        if warning := advice.cursor_warning(self.profile, self.counts[Kind.EVENT.value], self.cursor):
            self.say(f"warning: {warning}")
        if self.reconnection_ms is not None:
            rest_s = min(self.reconnection_ms, self.profile.retry_max_ms) / 1000
            self.say(f"its retry is {self.reconnection_ms / 1000:g} s: the next connection waits {rest_s:g} s")
        if self.counts["left out"] and not self.counts[Kind.EVENT.value]:
            self.say("warning: keep matches none of the events that came: nothing would be stored")
        if self.numbers is not None and not self.is_numbered and self.counts.keys() & {"event", "left out"}:
            self.say("warning: none of the events has a whole number where sequence says: no hole would be noticed")
        counted = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items())) or "nothing"
        self.say(f"total: {counted}; cursor {printable(self.cursor) if self.cursor is not None else 'none'}")


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the upstream answered with a stream, or else 1; raises UserError for a bad stream or secret."""
    arguments.stream_id, path = split_stream_argument(arguments.stream_id)
    profile = _load_profile(arguments.stream_id, path, folders.environment_of(arguments), is_played=arguments.played)
    if not arguments.played:
        return _try(profile, arguments, SecretValues(boto3.client, stages.names(arguments.stage)["secrets"]).read)
    if profile.name not in BEHAVIOURS:
        raise UserError(
            f"There is no imitation of a provider for {profile.name!r}; imitations: {', '.join(BEHAVIOURS)}."
        )
    with serve_providers() as (origin, _):
        return _try(point_to_player(profile, origin), arguments, lambda references: dict.fromkeys(references, "played"))


def _try(profile: Profile, arguments: argparse.Namespace, values_of: ValuesOf) -> int:
    """As `run`; `values_of` returns the values of the profile's secrets."""
    try:
        values = values_of(profile.secrets) if profile.secrets else {}
        request = request_of(profile, arguments.stream_id, arguments.cursor, values)
        check_trust(request.trust)
    except (StreamkeeperError, ProfileError) as problem:
        where = _SECRETS_HINT if isinstance(problem, StreamDropped) else ""
        raise UserError(f"{sentence(str(problem))}{where}") from None
    trial = Trial(profile, print, arguments.cursor)
    shared = None
    if profile.token is not None and profile.token.kind == "refresh_token" and not arguments.played:
        # The stage's functions share it: where the server replaces the secret's, that is void for them too.
        shared = RefreshTokens(boto3.client("dynamodb"), stages.names(arguments.stage)["control_table"])
    tokens, stream_id = Tokens(threading.Lock, shared, SIGN_EKS_TOKEN), arguments.stream_id
    upstream = Upstream(
        request,
        before=preparation_of(
            profile, stream_id, arguments.cursor, values, lambda: round(1000 * time.monotonic()), tokens
        ),
        connect_timeout_s=profile.connect_timeout_s,
        stall_after_s=profile.stall_after_s,
        joins=profile.may_join_chunks,
    )
    talking = SocketConversation(profile, arguments.stream_id, values, upstream)
    trial.print_profile()
    upstream.start()
    try:
        was_stream = _read_stream(upstream, trial, talking, time.monotonic() + arguments.seconds)
    finally:
        talking.send_close()
        upstream.close()
        trial.print_summary()
    is_good = was_stream and (not arguments.repair or _compare_with_repair(trial, stream_id, values_of, shared))
    return 0 if is_good else 1


def _compare_with_repair(trial: Trial, stream_id: str, values_of: ValuesOf, shared: RefreshTokens | None) -> bool:
    """Whether the repair's address has what came on the stream."""
    profile = trial.profile
    if profile.repair is None:
        raise UserError(f"The profile {profile.name!r} has no repair: docs/repair.md explains how to give an address.")
    # Imported late, because it is rarely used.
    from handlers.repair.gap_ports import OwnTokens
    from local.profiles.repair_trial import compare_with_address

    own = profile.secrets if profile.repair.headers is None else []
    tokens = OwnTokens(lambda: time.time_ns() // 1_000_000, shared, SIGN_EKS_TOKEN)
    try:
        secrets = tokens.add_token(profile, values_of([*profile.repair.secrets, *own]))
    except StreamDropped as problem:
        print(f"repair: {problem}")
        return False
    return compare_with_address(profile, stream_id, trial.events, secrets, print)


def _read_stream(upstream: Upstream, trial: Trial, talking: SocketConversation, until_s: float) -> bool:
    """Reads until the end of the stream or the instant; returns whether there was a stream."""
    decoder, was_stream = trial.profile.decoder(), False
    while not trial.has_ended and (left_s := until_s - time.monotonic()) > 0:
        arrival = upstream.get(talking.wait_s(left_s))
        if (end := talking.send_due()) is not None:
            trial.print_end(end)
            return False
        if isinstance(arrival, Opened):
            trial.print_answer(arrival)
            was_stream = not trial.has_ended
            if was_stream:
                talking.begin(arrival, decoder, trial.requested_cursor)
        elif isinstance(arrival, Chunk):
            try:
                frames, failure = decoder.feed(arrival.data), None
            except FramingError as error:
                frames, failure = error.frames, error
            is_begun = decoder.is_inside_frame or decoder.unfinished_oversize() is not None
            if not (frames or failure or is_begun or trial.profile.is_socket):
                trial.counts[KEEP_ALIVE] += 1
            frames, end = talking.take_frames(frames, decoder, failure)
            for frame in as_frames(frames):
                trial.print_frame(frame)
            trial.record_last_id(decoder.last_event_id)
            trial.reconnection_ms = decoder.reconnection_ms
            if failure is not None:
                trial.say(f"framing error: {failure}")
                return False
            if end is not None:
                trial.print_end(end)
                return end.refused_ms is None
        elif isinstance(arrival, Closed):
            trial.say(f"closed: {arrival.reason}{': ' if arrival.detail else ''}{arrival.detail}")
            return was_stream
    missing = talking.missing_answer if was_stream else "no answer within this time"
    if missing and not trial.has_ended:
        trial.say(printable(missing))
    return was_stream and not missing


def _body_in_words(data: str | bytes | Oversize) -> str:
    if isinstance(data, Oversize):
        return f"{data.size_bytes} bytes, more than max_frame_bytes: to the dead-letter queue"
    return data if isinstance(data, str) else plural(len(data), "byte")


def _load_profile(stream_id: str, path: Path | None, environment: Mapping[str, str], *, is_played: bool) -> Profile:
    variables = {"UPSTREAM_DEMO": f"http://127.0.0.1:{read_port(environment) + 2}"} | dict(environment)
    try:
        name = check_stream_id(stream_id)
        path = path or folders.known_profiles(environment).get(name)
        if path is None:
            raise UserError(folders.unknown_profile_sentence(name, environment))
        text = read_profile_text(path)
        profile = parse(name, tomllib.loads(text), placeholders(text) if is_played else variables)
        profile.address_for(stream_id)
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"The profile {name!r} is not valid TOML: {problem}.") from None
    except ProfileError as problem:
        raise UserError(sentence(str(problem))) from None
    return profile
