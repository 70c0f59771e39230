"""The verb `profile`: whether a profile's file is sound; `profile_try` is its other half.

Decides nothing about profiles: the function's own rules do. Invariant: every problem of every file is told, one a line,
and a file that passes is not refused by the function for its profile.
"""

import argparse
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from handlers.stream.profiles import BadProfile, parse
from local import profile_try
from local.errors import UserError
from local.streams import placeholders


def add(subparsers: Any) -> None:
    """Adds the verb."""
    parser = subparsers.add_parser("profile", help="check stream profiles", description="Works on stream profiles.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    check = verbs.add_parser(
        "check",
        help="name every problem of a profile",
        description="Names every problem of each file. Exit status 0: all are sound; 1: there are problems.",
    )
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a profile, env/streams/NAME.toml")
    check.set_defaults(run=run)
    trial = verbs.add_parser(
        "try",
        help="connect to a stream once and show what its profile makes of it",
        description="Connects once, stores nothing. Exit status 0: the answer was a stream; 1: it was none.",
    )
    trial.add_argument("stream_id", metavar="STREAM_ID")
    trial.add_argument("--seconds", type=float, default=10, help="how long to read (10)")
    trial.add_argument("--cursor", help="where to go on from")
    trial.add_argument(
        "--played", action="store_true", help="its provider as it is played here, in place of the real one"
    )
    trial.set_defaults(run=profile_try.run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 where every file is sound, 1 where one has problems; one that cannot be read is a UserError."""
    found = [problem for path in arguments.files for problem in problems(path)]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def problems(path: Path) -> list[str]:
    """Returns the problems of one file, each a sentence that begins with the file's name."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        return [f"{path}: is no text in UTF-8"]
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        return [f"{path}: is no TOML: {problem}"]
    variables = placeholders(text) | dict(os.environ)
    try:
        parse(path.stem, table, variables)
    except BadProfile as bad:
        return [f"{path}: {problem}" for problem in bad.problems]
    return []
