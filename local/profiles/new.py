"""The verb `profile new`: looks at what answers at an address, and writes a profile with the reason of each line.

It connects for some seconds, tells the framing by the content type and the bytes, looks for ids, heartbeats and a place
in JSON that no two events share, and connects again to see whether the upstream goes on behind an id. Invariants: what
it writes is a sound profile; a file that is there is not overwritten; nothing is stored and no stream is claimed.
"""

import argparse
import ipaddress
import json
import re
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from handlers.connection.inputs import Chunk, Closed, Opened
from handlers.framing.decoders import FRAMINGS, Frame, FramingError, Oversize, as_frames
from handlers.profile.addresses import ProfileError
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.upstream.reader import Upstream
from local.checkout import ROOT
from local.printable import printable
from local.user_error import UserError

STREAMS = ROOT / "env" / "streams"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BY_TYPE = {
    "text/event-stream": "sse",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/json-seq": "json-seq",
}
# The places in which upstreams put ids, the likeliest first; then whatever no two events share.
_LIKELY = ("id", "_id", "event_id", "eventId", "uuid", "seq", "offset", "cursor", "revision")


@dataclass
class Look:
    """What one connection brought."""

    status: int = 0
    content_type: str = ""
    problem: str = ""
    frames: list[Frame] = field(default_factory=list)
    comments: int = 0
    empty: int = 0
    first: bytes = b""

    @property
    def ids(self) -> list[str]:
        """The ids of the frames that have one."""
        return [frame.id for frame in self.frames if frame.id]


def add(verbs: Any) -> None:
    """Adds the verb to those of `profile`."""
    parser = verbs.add_parser(
        "new",
        help="look at what answers at an address and write a commented profile",
        description="Connects to an address, looks at framing, ids, heartbeats and resumption, and writes a profile.",
        epilog="Exit status: 0 a profile was written, 1 nothing that streams answers there, 2 a mistake.",
    )
    parser.add_argument("address", metavar="URL", help="http:// or https://; a token in it is refused")
    parser.add_argument("--name", help="the profile's name (that of the host)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="N", help="how long to look each time (10)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write this file, - for standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where a profile was written, 1 where nothing streams; raises UserError."""
    address = str(arguments.address)
    name = arguments.name or re.sub(r"[^A-Za-z0-9_-]+", "-", urlsplit(address).hostname or "stream")[:64]
    if not _NAME.fullmatch(name):
        raise UserError(f"--name must have letters, digits, _ and - alone, 64 at most, not {printable(name)!r}.")
    target = arguments.output or STREAMS / f"{name}.toml"
    to_file = str(target) != "-"
    if to_file and target.exists():
        raise UserError(f"{target} is there already; name another with --name or --output.")
    look = _first_look(address, arguments.seconds)
    if look.problem or not 200 <= look.status < 300:
        print(f"streamkeeper: {look.problem or f'the answer is {look.status}: no stream'}", file=sys.stderr)
        return 1
    framing, why = _framing(look)
    if framing != "sse":
        look = _connect(_table(address, framing), arguments.seconds)
    text = _written(address, framing, why, look, arguments.seconds)
    parse(name, tomllib.loads(text), {})
    if not to_file:
        print(text, end="")
        return 0
    target.write_text(text, encoding="utf-8")
    print(f"{target}; check it with `streamkeeper profile try {name}`", file=sys.stderr)
    return 0


def _first_look(address: str, seconds: float) -> Look:
    try:
        return _connect(_table(address, "sse"), seconds)
    except ProfileError as problem:
        raise UserError(f"The address cannot be used: {problem}.") from None


def _table(address: str, framing: str) -> dict[str, Any]:
    # What is refused for its address is refused for good; a look at one's own machine is what is asked for.
    return {"address": address, "framing": framing, "allow_private": True, "connect_timeout_s": 10}


def _connect(table: dict[str, Any], seconds: float, cursor: str | None = None) -> Look:
    """What arrives within these seconds."""
    profile: Profile = parse("new", table, {})
    upstream = Upstream(profile.request("new", cursor, {}), connect_timeout_s=10, stall_after_s=max(1.0, seconds))
    look, until_s, decoder = Look(), time.monotonic() + seconds, profile.decoder()
    upstream.start()
    try:
        while (left_s := until_s - time.monotonic()) > 0 and len(look.frames) < 1000:
            arrival = upstream.get(left_s)
            if isinstance(arrival, Opened):
                look.status, look.content_type = arrival.status, arrival.headers.get("content-type", "")
            elif isinstance(arrival, Closed):
                if not look.status:
                    look.problem = f"no answer: {arrival.reason} {arrival.detail}".rstrip()
                break
            elif isinstance(arrival, Chunk):
                look.first = (look.first + arrival.data)[:65_536]
                try:
                    frames = as_frames(decoder.feed(arrival.data))
                except FramingError as error:
                    look.frames += [one for one in as_frames(error.frames) if not one.is_comment]
                    break
                look.comments += sum(frame.is_comment for frame in frames)
                look.frames += [frame for frame in frames if not frame.is_comment]
                look.empty += not frames and not decoder.unfinished_bytes
    finally:
        upstream.close()
    return look


def _framing(look: Look) -> tuple[str, str]:
    """The framing, and how it is known."""
    kind = look.content_type.partition(";")[0].strip().lower()
    if kind in _BY_TYPE:
        return _BY_TYPE[kind], f"the content type is {kind}"
    if b"\x1e" in look.first[:1]:
        return "json-seq", "it begins with a record separator"
    lines = [line for line in look.first.splitlines()[:-1] if line.strip()]
    if lines and all(_is_json(line) for line in lines):
        return "ndjson", "each line is JSON"
    if re.match(rb"(data|event|id|retry|):", look.first):
        return "sse", "its lines are those of an event stream"
    return "raw", "neither the content type nor the bytes say which; each chunk is an event"


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _written(address: str, framing: str, why: str, look: Look, seconds: float) -> str:
    """The profile as TOML, each line with its reason."""
    lines = [
        "#:schema ../profile.schema.json",
        f"# Written by `streamkeeper profile new`, which looked for {seconds:g} s.",
    ]
    lines += [
        f"# docs/profiles.md has every field. {len(look.frames)} events came.",
        f"address = {json.dumps(address)}",
    ]
    if _is_private(address):
        lines.append("allow_private = true  # the address is of this machine or of a private network")
    lines.append(f'framing = "{framing}"  # {why}')
    if FRAMINGS[framing].has_ids and look.ids:  # type: ignore[index]
        lines.append(f"# {len(look.ids)} of them have an id, which is the dedup key and the cursor.")
        lines += _resumption(address, look, seconds)
    elif (place := _place(look.frames)) is not None:
        lines.append(f'key = "{place}"  # no two events that came have the same there')
        lines.append('# cursor = "$..." and resume = { query = "..." } where the upstream can go on from a place')
    else:
        lines.append('key = "hash"  # nothing in an event names it: equal bodies are one event')
    if look.comments or look.empty:
        lines.append(f"# It keeps the connection alive ({look.comments} comments, {look.empty} blank lines).")
    lines.append("stall_after_s = 60  # nothing for so long, heartbeats included, and the connection is made again")
    return "\n".join(lines) + "\n"


def _resumption(address: str, look: Look, seconds: float) -> list[str]:
    """Whether the upstream goes on behind an id, by asking it."""
    asked = look.ids[0]
    again = _connect(_table(address, "sse"), seconds, asked)
    later = look.ids[1] if len(look.ids) > 1 else None
    if again.ids and again.ids[0] == later:
        return ['resume = { header = "Last-Event-ID" }  # asked for what came after the first id, it sent that']
    if asked in again.ids:
        said = "it began again with that very event; events that come twice are stored once"
    elif again.ids:
        said = "it sent other events; whether some are missing between, nobody knows"
    else:
        said = "nothing came"
    return [f"# Asked by Last-Event-ID for what came after the first id, {said}."]


def _place(frames: list[Frame]) -> str | None:
    """A place in the JSON of all events whose value no two share; None where there is none."""
    bodies = []
    for frame in frames:
        try:
            body = json.loads(frame.data) if not isinstance(frame.data, Oversize) else None
        except ValueError:
            return None
        if not isinstance(body, dict):
            return None
        bodies.append(body)
    if len(bodies) < 2:
        return None
    names = [*(name for name in _LIKELY if name in bodies[0]), *bodies[0]]
    for name in names:
        values = [body.get(name) for body in bodies]
        sound = all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
        if sound and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and len(set(map(str, values))) == len(values):
            return f"$.{name}"
    return None


def _is_private(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(".local")
