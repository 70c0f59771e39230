"""The verb `profile`: `check` names every problem of profile files; `try` is in `trial`.

The rules are the function's own, and for a numeric address those of its network. Invariants: every problem of every
file is printed, one a line; the function accepts every profile that passes.
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
    parser = subparsers.add_parser("profile", description="Works on stream profiles.")
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
        help="connect to a stream once and show how its profile reads it",
        description="Connects once, stores nothing.",
        epilog="Exit status: 0 the upstream answered with a stream, 1 it did not, 2 no such stream, profile or secret.",
    )
    try_once.add_argument("stream_id", metavar="STREAM_ID")
    try_once.add_argument("--seconds", type=_seconds, default=10.0, metavar="N", help="how long to read (10)")
    try_once.add_argument("--cursor", help="the cursor to resume after")
    try_once.add_argument("--played", action="store_true", help="connect to the provider as it is played here")
    try_once.set_defaults(run=trial.run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where every file is sound, 1 where one has problems, 2 where one cannot be read."""
    status = 0
    for path in arguments.files:
        try:
            sentences = problems(path)
        except UserError as mistake:
            print(f"streamkeeper: {mistake}", file=sys.stderr)
            status = 2
            continue
        for problem in sentences:
            print(problem, file=sys.stderr)
        status = max(status, bool(sentences))
    return status


def problems(path: Path) -> list[str]:
    """Returns the problems of one file, each a sentence that begins with the file's name; raises UserError."""
    text = profile_text(path)
    sentences = _problems_of_name(path)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        return [f"{path}: {one}" for one in [*sentences, f"is not valid TOML: {problem}"]]
    try:
        profile = parse(path.stem, table, placeholders(text) | dict(os.environ))
    except BadProfile as bad:
        sentences += bad.problems
    else:
        sentences += _problems_of_address(profile)
    return [f"{path}: {problem}" for problem in sentences]


def _problems_of_name(path: Path) -> list[str]:
    """The problem of a file's name: the function never reads one that cannot begin a stream id."""
    try:
        named = path.suffix == ".toml" and check_stream_id(path.stem) == path.stem
    except ProfileError:
        named = False
    return [] if named else ["must be called NAME.toml, where NAME is 1 to 64 of the characters A-Z a-z 0-9 . _ -"]


def _problems_of_address(profile: Profile) -> list[str]:
    """The problem of a numeric address, however it is spelled, that the function never connects to."""
    host = (urlsplit(profile.address).hostname or "").rstrip(".")
    try:
        places = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []  # a name: its addresses are checked when it is connected to
    reasons = (refusal(str(place[0]), allow_private=profile.allow_private) for *_, place in places)
    return [f"the profile {profile.name!r}: address leads to {why}" for why in reasons if why]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MOST_S:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0 and at most {MOST_S}, not {text!r}")
    return seconds
