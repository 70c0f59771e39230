"""The verb `profile`: whether a profile's file is sound; `profile_try` is its other half.

Decides nothing about profiles: the function's own rules do, and those of its network for an address that is a number.
Invariant: every problem of every file is told, one a line, and a file that passes is not refused by the function for
its profile.
"""

import argparse
import os
import socket
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse
from handlers.upstream.address_policy import refusal
from local.profiles import trial
from local.profiles.profile_files import placeholders, profile_text
from local.user_error import UserError

MOST_S = 86_400


def add(subparsers: Any) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("profile", help="check stream profiles", description="Works on stream profiles.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    check = verbs.add_parser(
        "check",
        help="name every problem of a profile",
        description="Names every problem of each file.",
        epilog="Exit status: 0 no problem, 1 problems, 2 a file cannot be read.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a profile, env/streams/NAME.toml")
    check.set_defaults(run=run)
    try_once = verbs.add_parser(
        "try",
        help="connect to a stream once and show what its profile makes of it",
        description="Connects once, stores nothing.",
        epilog="Exit status: 0 the answer was a stream, 1 it was none, 2 there is no such stream, profile or secret.",
    )
    try_once.add_argument("stream_id", metavar="STREAM_ID")
    try_once.add_argument("--seconds", type=_seconds, default=10.0, metavar="N", help="how long to read (10)")
    try_once.add_argument("--cursor", help="where to go on from")
    try_once.add_argument(
        "--played", action="store_true", help="its provider as it is played here, in place of the real one"
    )
    try_once.set_defaults(run=trial.run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where every file is sound, 1 where one has problems, 2 where one cannot be read."""
    status = 0
    for path in arguments.files:
        try:
            found = problems(path)
        except UserError as mistake:
            print(f"streamkeeper: {mistake}", file=sys.stderr)
            status = 2
            continue
        for problem in found:
            print(problem, file=sys.stderr)
        status = max(status, bool(found))
    return status


def problems(path: Path) -> list[str]:
    """Returns the problems of one file, each a sentence that begins with the file's name; raises UserError."""
    text = profile_text(path)
    found = _problems_of_name(path)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        return [f"{path}: {one}" for one in [*found, f"is no TOML: {problem}"]]
    try:
        profile = parse(path.stem, table, placeholders(text) | dict(os.environ))
    except BadProfile as bad:
        found += bad.problems
    else:
        found += _problems_of_address(profile)
    return [f"{path}: {problem}" for problem in found]


def _problems_of_name(path: Path) -> list[str]:
    """The file's name is the stream's: one that no stream id can begin with is never read."""
    try:
        named = path.suffix == ".toml" and check_stream_id(path.stem) == path.stem
    except ProfileError:
        named = False
    return [] if named else ["must be called NAME.toml, where NAME is 1 to 64 of the characters A-Z a-z 0-9 . _ -"]


def _problems_of_address(profile: Profile) -> list[str]:
    """Whether an address that is a number, however it is spelled, is one that the function never connects to."""
    host = (urlsplit(profile.address).hostname or "").rstrip(".")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []  # a name: where it leads is judged when it is connected to
    reasons = (refusal(str(place[0]), allow_private=profile.allow_private) for *_, place in found)
    return [f"the profile {profile.name!r}: address leads to {why}" for why in reasons if why]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_S:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0 and at most {MOST_S}, not {text!r}")
    return seconds
