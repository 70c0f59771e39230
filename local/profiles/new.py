"""The verb `profile new`: inspects the answer at an address, and writes a profile with a reason for each line.

It detects the framing from the content type and the bytes, looks for ids, heartbeats and a place in JSON whose value is
unique, and connects again to see whether the upstream resumes behind a place. Invariants: the written profile is valid;
a guess never loses an event; an existing file is not overwritten.
"""

import argparse
import ipaddress
import math
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from handlers.api.verdict import plural
from handlers.errors import StreamkeeperError
from handlers.framing.decoders import Framing, content_type_problem, framing_of
from handlers.framing.events import parse_json
from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.parse import parse
from handlers.upstream.socket_response import SWITCHED
from local.profiles import address_probe, certificates, folders, key_search
from local.profiles.address_probe import ProbedAddress, ProbeResult, probe, read_seconds
from local.profiles.profile_files import quote, to_toml
from local.terminal import UserError, explain_os_errors, printable, report_if_slow

_CREDENTIAL = "; if it requires a credential, write ${secret:NAME} into the address, or see docs/profiles.md (or --eks)"
_ADVICE = {
    **dict.fromkeys((401, 403), _CREDENTIAL),
    **dict.fromkeys((404, 410), "; check the path of the address"),
    405: "; if it takes a POST, give its body with --body",
    429: "; try again later",
}
# A line of text that belongs to no larger document: neither indented nor a bracket of JSON or HTML.
_TEXT_LINE = re.compile(rb"[^\s\[\]{}<\x00-\x1f][^\x00-\x08\x0e-\x1f]*")
# How what is not read begins, after the head of a wire frame on a socket.
_WIRE_HEAD = rb"(?s:[\x81\x82].{1,3}?)?"
_NOT_READ = {"Socket.IO": rb'0\{"sid":', "NATS": rb'INFO \{"server_id":', "SignalR": rb"\{\}\x1e"}
UNAUTHORIZED = 401
_SCHEMA = "#:schema ../profile.schema.json"
_LEAST_STALL_S, _STALL_S, _MISSED = 15, 60, 4


def add(verbs: Any, stage: str) -> None:
    """Adds the verb to those of `profile`; `stage` is the default of its option."""
    parser = verbs.add_parser(
        "new",
        help="inspect an address and write a commented profile",
        description="Connects to an address, detects framing, ids, heartbeats and resuming, and writes a profile with "
        "the reason for each line.",
        epilog="Exit status: 0 a profile was written, 1 the answer is not a stream, 2 a mistake.",
    )
    parser.add_argument("address", metavar="URL", help="http(s):// or ws(s)://; write a token as ${secret:NAME}")
    parser.add_argument("--name", help="the profile's name (default: the host's)")
    parser.add_argument("--body", metavar="JSON", help="send a POST with this body")
    parser.add_argument("--say", metavar="MESSAGE", action="append", help="send this first on a WebSocket; repeatable")
    parser.add_argument("--stage", default=stage, metavar="S", help=f"the stage whose secrets are read ({stage})")
    parser.add_argument(
        "--seconds", type=read_seconds, default=10.0, metavar="N", help="how long to read each time (10)"
    )
    parser.add_argument("--eks", metavar="CLUSTER:REGION", help="an EKS cluster; your AWS credentials sign its token")
    certificates.add(parser)
    folders.add(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write this file, - for standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if a profile was written, 1 if there is no stream; raises UserError."""
    says, trust = tuple(arguments.say or ()), certificates.read_trust(arguments)
    address = ProbedAddress(
        str(arguments.address), arguments.body, says, trust, _eks_token(arguments.eks), arguments.stage
    )
    if address.first_messages and not address.is_socket:
        raise UserError("--say is only for ws:// and wss:// addresses: an HTTP stream accepts no messages.")
    host = _host(address.url)
    name = arguments.name or re.sub(r"[^A-Za-z0-9_-]+", "-", host or "stream")[:64]
    target = arguments.output or folders.folder_for_new(folders.environment_of(arguments)) / f"{name}.toml"
    to_file, is_shipped = str(target) != "-", target.parent == folders.SHIPPED
    try:
        if check_stream_id(name) != name:
            raise ProfileError(f"{name!r} has a colon")
    except ProfileError as problem:
        raise UserError(f"--name cannot be {printable(name)!r}: {printable(str(problem))}.") from None
    if to_file and target.exists():
        raise UserError(f"{target} already exists; choose another with --name or --output.")
    try:
        with report_if_slow(f"reading the address for {arguments.seconds:g} s …"):
            seen = probe(address, "websocket" if address.is_socket else "sse", arguments.seconds)
        if (
            address.is_socket
            and not (seen.frames or seen.problem or address.first_messages)
            and (first := _prompt_first_message())
        ):
            address = replace(address, first_messages=(first,))
            seen = probe(address, "websocket", arguments.seconds)
    except (StreamkeeperError, ProfileError) as problem:
        reason = str(problem).removeprefix("the profile 'new': ")
        raise UserError(f"Nothing was requested: {printable(reason)}.") from None
    framing, why = _detect_framing(address, seen)
    if (refusal := _refusal(seen, framing)) is not None:
        print(f"streamkeeper: {refusal}", file=sys.stderr)
        return 1
    if framing not in ("sse", "websocket"):
        seen = probe(address, framing, arguments.seconds)
    text = _profile_lines(address, framing, why, seen, arguments.seconds) + certificates.tls_lines(address.trust, name)
    # Only there do editors find the schema.
    text = text if is_shipped else text.removeprefix(f"{_SCHEMA}\n")
    parse(name, tomllib.loads(text), {})
    if not to_file:
        print(text, end="")
        return 0
    with explain_os_errors(f"{target} cannot be written"):
        if arguments.output is None:
            target.parent.mkdir(exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    which = shlex.quote(str(target)) if arguments.output or arguments.profiles else name
    ended = ", although the upstream ended the answer" if seen.has_ended else ""
    print(f"{target} is written{ended}; try it: `streamkeeper profile try {which}`", file=sys.stderr)
    return 0


def _eks_token(text: str | None) -> Mapping[str, str] | None:
    """The token for a cluster of EKS; whether there can be such a cluster is the parser's to say."""
    cluster, _, region = (text or "").rpartition(":")
    return None if text is None else {"kind": "eks", "cluster": cluster, "region": region}


def _prompt_first_message() -> str:
    """The first message that the person at the terminal wants to send; nothing without a terminal."""
    if not sys.stdin.isatty():
        return ""
    print("Nothing came: many exchanges expect a request first.", file=sys.stderr)
    try:
        return input("The first message, as JSON or text (empty for none): ").strip()
    except EOFError:
        return ""


def _refusal(seen: ProbeResult, framing: Framing) -> str | None:
    """Why the answer is not a stream, or None."""
    if seen.problem:
        return seen.problem
    # Over HTTP, or in the first frame of a socket.
    protocol = next((name for name, begin in _NOT_READ.items() if re.match(_WIRE_HEAD + begin, seen.first)), None)
    if protocol is not None:
        return f"it is {protocol}'s, which is not read: docs/not-read.md says what to do"
    if framing == "websocket" and seen.status == SWITCHED:
        return None
    if not 200 <= seen.status < 300 or framing == "websocket":
        advice = _ADVICE.get(seen.status, "") if framing != "websocket" or seen.status == UNAUTHORIZED else ""
        return f"the answer is {seen.status}, not a {'WebSocket' if framing == 'websocket' else 'stream'}{advice}"
    if framing == "raw" and seen.has_ended:
        kind = printable(seen.content_type) or "no content type"
        return f"the answer ({kind}) is a document that ends, not a stream of events; docs/not-read.md has long polls"
    # A function would refuse it, and nothing in a profile changes that.
    what = content_type_problem(framing, seen.content_type or None)
    return f"the answer has {what}" if what else None


def _detect_framing(address: ProbedAddress, seen: ProbeResult) -> tuple[Framing, str]:
    """The framing, and how it was detected."""
    if address.is_socket:
        return "websocket", "the address says so"
    if (framing := framing_of(seen.content_type)) is not None:
        return framing, f"the content type is {seen.content_type.partition(';')[0].strip().lower()}"
    if seen.first.startswith(b"\x1e"):
        return "json-seq", "it begins with a record separator"
    whole = seen.first[: seen.first.rfind(b"\n") + 1]
    lines = [line for line in whole.splitlines() if line.strip()]
    # A document may also be one line, but it ends.
    if lines and all(isinstance(parse_json(line), dict) for line in lines) and (len(lines) > 1 or not seen.has_ended):
        return "ndjson", "each line is a JSON object"
    if re.match(rb"(data|event|id|retry|):", seen.first):
        return "sse", "its lines are those of an event stream"
    is_text = all(_TEXT_LINE.fullmatch(line) or parse_json(line) is not None for line in lines)
    if len(lines) > 1 and is_text and not seen.has_ended:
        return "ndjson", "it consists of lines, each of which becomes an event"
    return "raw", "neither the content type nor the bytes show the framing: each chunk is an event"


def _profile_lines(address: ProbedAddress, framing: str, why: str, seen: ProbeResult, seconds_: float) -> str:
    """The profile as TOML, each line with its reason."""
    lines = [
        _SCHEMA,
        f"# Written by `streamkeeper profile new`, which read {plural(len(seen.frames), 'event')} in {seconds_:g} s.",
        "# docs/profiles.md has every field.",
        f"address = {quote(address.url)}",
    ]
    if address.body is not None:
        lines += ['method = "POST"', f"body = {quote(address.body)}"]
        lines.append("again = true  # it was requested several times here; false if each answer costs money")
    if _is_private(_host(address.url)):
        lines.append("allow_private = true  # the address is of this machine or of a private network")
    if address.token is not None:
        lines.append(
            f"token = {to_toml(address.token)}  # signed with the function's role, which the cluster must admit"
        )
    lines.append(f'framing = "{framing}"  # {why}')
    if seen.has_ended and not address.is_socket:
        lines.append("# The upstream ended the answer. Streamkeeper connects again each time: is this a stream?")
    answers = address_probe.find_answers(address, seen)
    lines += _subscribe_lines(address, seen, answers)
    answered = {one[0] for one in answers if one is not None}
    seen.frames = [frame for place, frame in enumerate(seen.frames) if place not in answered]
    marks, why_heartbeats, seen.frames = key_search.find_heartbeats(seen.frames)
    if not seen.frames:
        lines.append("# No event came, so key and cursor are the defaults. Read for longer (--seconds) to learn more.")
    else:
        lines += key_search.key_lines(address, framing, seen, seconds_)
    if marks:
        listed = marks[0] if len(marks) == 1 else f"[{', '.join(marks)}]"
        lines.append(f"heartbeat = {listed}  # {why_heartbeats}")
    lines.append(_stall_line(seen, seconds_))
    return "\n".join(lines) + "\n"


def _subscribe_lines(address: ProbedAddress, seen: ProbeResult, answers: list[tuple[int, str] | None]) -> list[str]:
    """The lines about the messages on a socket."""
    if not address.is_socket:
        return []
    ended = [f"# It ended with: {seen.end}."] if seen.end else []
    if not address.first_messages:
        ask = "# Nothing was said first" + ("." if seen.frames else ", and nothing came: --say sends a message.")
        return [*ended, ask, '# subscribe = [{ send = { op = "subscribe" }, expect = { "$.op" = "subscribed" } }]']
    marks = ["" if one is None else f", expect = {one[1]}" for one in answers]
    messages = [f"{{ send = {to_toml(one)}{mark} }}" for one, mark in zip(address.parsed_messages, marks, strict=True)]
    why = "this answer came" if any(answers) else "no answer came"
    return [*ended, f"subscribe = [{', '.join(messages)}]  # {why}"]


def _stall_line(seen: ProbeResult, seconds_: float) -> str:
    """The silence after which to reconnect."""
    rests = [later - earlier for earlier, later in pairwise(seen.heartbeats_s)]
    if not rests:
        why = f"no regular heartbeat came within {seconds_:g} s; it must be longer than the longest silence"
        return f"stall_after_s = {_STALL_S}  # {why}"
    longest = max(rests)
    stall_s = max(_LEAST_STALL_S, math.ceil(_MISSED * longest))
    return f"stall_after_s = {stall_s}  # a sign of life came at least every {math.ceil(longest)} s"


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""  # the profile parser reports what is wrong


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(".local")
