"""The verb `profile`: `check` names every problem of profile files, or says that they are sound; `try` is in `trial`.

The rules are those of the function and, for numeric addresses, of its network. Invariants: every problem of every file
is printed, one per line; the function accepts every profile that passes.
"""

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handlers.profile.addresses import ProfileError, check_stream_id
from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse
from handlers.tls import check_trust
from handlers.upstream.address_policy import numeric_refusal
from local.profiles import advice, folders, new
from local.profiles.address_probe import read_seconds
from local.profiles.profile_files import placeholders, read_profile_text
from local.terminal import UserError, printable


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("profile", description="Works on stream profiles.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    check = verbs.add_parser(
        "check",
        help="list every problem of a profile, and show how it resumes",
        description="Lists every problem of each file. For a valid profile it also prints how the stream resumes.",
        epilog="Exit status: 0 no problem, 1 problems (with --strict also warnings), 2 a file cannot be read.",
    )
    check.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="a file, or a profile's NAME (default: all profiles)"
    )
    check.add_argument("--strict", action="store_true", help="treat warnings as problems")
    folders.add(check)
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=run)
    try_once = verbs.add_parser(
        "try",
        help="connect to a stream once and show how its profile reads it",
        description="Connects to the stream once and prints how the profile reads what arrives. Stores nothing.",
        epilog="Exit status: 0 the upstream answered with a stream, 1 it did not, 2 no such stream, profile or secret.",
    )
    try_once.add_argument("stream_id", metavar="STREAM_ID", help="a stream's id, or a profile's FILE")
    try_once.add_argument("--seconds", type=read_seconds, default=10.0, metavar="N", help="how long to read (10)")
    try_once.add_argument("--cursor", help="the cursor to resume after")
    stage = os.environ.get("STREAMKEEPER_STAGE") or "local"
    try_once.add_argument("--stage", metavar="S", default=stage, help=f"the stage whose secrets are read ({stage})")
    try_once.add_argument("--played", action="store_true", help="connect to this machine's imitation of the provider")
    try_once.add_argument("--repair", action="store_true", help="also compare with the profile's repair address")
    folders.add(try_once)
    try_once.set_defaults(run=_try)
    new.add(verbs, stage)


@dataclass(frozen=True)
class FileReport:
    """The result for one file; `profile` is None if it has problems or cannot be read."""

    path: Path
    profile: Profile | None = None
    problems: tuple[str, ...] = ()
    unreadable: str = ""
    misplaced: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What is valid but may not be intended."""
        return [*([] if self.profile is None else advice.warnings(self.profile)), *self.misplaced]

    def as_json(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "name": self.path.stem,
            "sound": self.profile is not None,
            "store": None if self.profile is None else self.profile.store,
            "order": None if self.profile is None or self.profile.store == "log" else self.profile.order,
            "resume": None if self.profile is None else advice.resumption_as_json(self.profile),
            "warnings": self.warnings,
            "errors": [self.unreadable] if self.unreadable else list(self.problems),
        }

    def print(self) -> None:
        """Prints problems on standard error, and all else on standard output."""
        if self.unreadable:
            print(f"streamkeeper: {printable(self.unreadable)}", file=sys.stderr)
        for problem in self.problems:
            print(printable(f"{self.path}: {problem}"), file=sys.stderr)
        if self.profile is not None:
            stored = advice.storage_sentence(self.profile)
            says = (
                advice.resumption_sentence(self.profile)
                if self.profile.again
                else advice.single_request_sentence(self.profile)
            )
            says += f"; it {stored}" if stored else ""
            says += f"; it {advice.selection_sentence(self.profile)}" if self.profile.keep else ""
            says += f"; it {advice.parts_sentence(self.profile)}" if self.profile.parts else ""
            print(printable(f"{self.path}: valid; it {says}"))
        for warning in self.warnings:
            print(printable(f"  warning: {warning}"))


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if every file is sound, 1 if one has problems, 2 if one cannot be read."""
    environment = folders.environment_of(arguments)
    reports = [check_file(path, environment) for path in profile_paths(arguments.files, environment)]
    if arguments.json:
        print(json.dumps({"files": [report.as_json() for report in reports]}, indent=1))
    else:
        for report in reports:
            report.print()
    if any(report.unreadable for report in reports):
        return 2
    return int(any(report.problems or (arguments.strict and report.warnings) for report in reports))


def _try(arguments: argparse.Namespace) -> int:
    from local.profiles import trial  # imported late: boto3 and the interpreter take a second

    return trial.run(arguments)


def profile_paths(named: list[Path], environment: Mapping[str, str]) -> list[Path]:
    """Returns the files that are given by path or by profile name; by default all of the user's own."""
    if not named:
        folder = folders.folder_for_new(environment)
        if not (paths := sorted(folder.glob("*.toml"))):
            raise UserError(f"There is no profile in {folder}: `streamkeeper profile new URL` writes one.")
    else:
        known = folders.known_profiles(environment)
        paths = [path if path.exists() else known.get(str(path), path) for path in named]
    here = Path.cwd()
    return [path.relative_to(here) if path.is_relative_to(here) else path for path in paths]


def check_file(path: Path, environment: Mapping[str, str]) -> FileReport:
    """Returns the report of one file, or of a name that neither a profile nor a file has."""
    try:
        text = read_profile_text(path)
    except UserError as mistake:
        is_name = path.name == str(path) and not path.suffix and not path.exists()
        return FileReport(
            path, unreadable=folders.unknown_profile_sentence(path.name, environment) if is_name else str(mistake)
        )
    problems = _problems_of_name(path)
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        return FileReport(path, problems=(*problems, f"is not valid TOML: {problem}"))
    misplaced = tuple(advice.misplaced_fields(table))
    try:
        profile = parse(path.stem, table, placeholders(text) | dict(os.environ))
    except BadProfile as bad:
        return FileReport(path, problems=(*problems, *bad.problems), misplaced=misplaced)
    problems += _problems_of_address(profile) + _problems_of_tls(profile)
    return FileReport(path, None if problems else profile, tuple(problems), misplaced=misplaced)


def _problems_of_tls(profile: Profile) -> list[str]:
    """Problems of the certificates in the profile itself; secrets are not read."""
    trust = profile.tls
    if trust is None or profile.secrets:
        return []
    try:
        check_trust(trust)
    except ProfileError as problem:
        return [f"the profile {profile.name!r}: {problem}"]
    return []


def _problems_of_name(path: Path) -> list[str]:
    """The problem of a file's name: the function never reads a file whose name cannot begin a stream id."""
    try:
        named = path.suffix == ".toml" and check_stream_id(path.stem) == path.stem
    except ProfileError:
        named = False
    return [] if named else ["must be called NAME.toml, where NAME is 1 to 64 of the characters A-Z a-z 0-9 . _ -"]


def _problems_of_address(profile: Profile) -> list[str]:
    """The problems of numeric addresses to which the function never connects."""
    others = {"token": profile.token, "ticket": profile.ticket, "repair": profile.repair}
    addresses = {f"{field}.address": one.address for field, one in others.items() if one is not None and one.address}
    return [
        f"the profile {profile.name!r}: {field} leads to {why}"
        for field, address in {"address": profile.address, **addresses}.items()
        if (why := numeric_refusal(address, allow_private=profile.allow_private))
    ]
