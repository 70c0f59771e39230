"""The verb `archive`: writes the events of streams into Parquet files, hour by hour once each is over."""

import argparse
import contextlib
import math
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from handlers.profile.addresses import ProfileError
from handlers.profile.columns_field import Column, columns_of_profile
from handlers.profile.parse import parse
from local.archive.run import Archive, end_of_settled_hours
from local.profiles import folders
from local.profiles.profile_files import placeholders, read_profile_text
from local.streams import api_session
from local.terminal import UserError, printable, report_if_slow, whole_number
from streamkeeper.archive_places import place_at
from streamkeeper.exceptions import InvalidRequest
from streamkeeper.instants import NOW

# How often it checks whether another hour is over, and for how long a request is repeated without --follow.
EVERY_S, PATIENT_S = 60, 600.0


def add(subparsers: Any) -> None:
    words = (
        "Writes each finished hour of the streams into Parquet files, in the folders stream=/day=/hour=, and "
        "continues where it stopped."
    )
    examples = [
        "archive demo --to archive",
        "archive prices:eur-usd prices:btc-usd --to s3://my-bucket/events --follow",
        "archive demo --to s3://my-bucket/events --tables --stage prod --jobs 8",
    ]
    exits = {1: "the API refused, or events may have left the tables before they were archived"}
    parser = api_session.add_verb(subparsers, "archive", words, examples, stream=False, exits=exits)
    parser.add_argument("streams", nargs="+", metavar="STREAM", help=api_session.STREAM_HELP)
    parser.add_argument("--to", required=True, metavar="PLACE", help="s3://BUCKET/PREFIX, or a folder")
    parser.add_argument(
        "--from", dest="from_at", type=api_session.read_instant, metavar="WHEN", help="the first hour of a new archive"
    )
    parser.add_argument("--follow", action="store_true", help="continue with each new hour after its end, until Ctrl-C")
    parser.add_argument("--tables", action="store_true", help="read the tables directly, with AWS credentials")
    parser.add_argument("--stage", metavar="S", help="with --tables: a deployed stage (default: this machine)")
    parser.add_argument("--jobs", default="1", metavar="N", help="how many hours to read in parallel (1)")
    folders.add(parser)
    parser.set_defaults(run=run)


@api_session.print_refusals
def run(arguments: argparse.Namespace) -> int:
    """Returns 0 once all finished hours are archived, 1 if events may have left before that; raises UserError."""
    if arguments.stage and not arguments.tables:
        raise UserError("--stage works only with --tables; for the API of a stage give --url.")
    jobs = whole_number("--jobs", arguments.jobs, 1, 64)
    with _explain_failures(arguments.to):
        at_ms, archives = _open_archives(arguments, jobs)
        from_ms = at_ms(arguments.from_at) if arguments.from_at else None
    return run_archives(arguments, from_ms, at_ms, archives)


def run_archives(
    arguments: argparse.Namespace, from_ms: int | None, at_ms: Callable[[str], int], archives: Sequence[Archive]
) -> int:
    while True:
        until_ms = end_of_settled_hours(at_ms(NOW))
        for archive in archives:
            try:
                with _explain_failures(arguments.to), report_if_slow(f"archiving {printable(archive.stream_id)} …"):
                    if not archive.run(until_ms, from_ms) and not arguments.follow:
                        words = "nothing new to archive; an hour is archived 16 minutes after its end"
                        archive.say(f"{archive.stream_id}: {words}")
            except UserError as problem:
                # An outage does not end a command that has begun and follows for months.
                if not arguments.follow or not any(one.is_begun for one in archives):
                    raise
                archive.say(f"{archive.stream_id}: {problem} The next try is in {EVERY_S} seconds.")
        if not arguments.follow:
            return int(any(archive.is_late for archive in archives))
        time.sleep(EVERY_S)


@contextlib.contextmanager
def _explain_failures(place: str) -> Iterator[None]:
    """Raises as a UserError that the tables or the place cannot be used."""
    try:
        yield
    except StoreUnavailable as problem:
        raise UserError(f"The tables cannot be read: {str(problem).rstrip('.')}.") from None
    except (BotoCoreError, Boto3Error, ClientError, OSError) as problem:
        # boto3's upload error has AWS's answer in its context.
        why = getattr(problem, "strerror", None) or str(problem.__context__ or problem).rstrip(".")
        raise UserError(f"{place} cannot be used: {why}.") from None


def _open_archives(arguments: argparse.Namespace, jobs: int) -> tuple[Callable[[str], int], list[Archive]]:
    """Reads an instant by the clock that says which hours are over, and the archives."""
    # Imported late: boto3 and the reader of tables take a while.
    from local.archive.event_readers import ApiReader, TableReader
    from local.redrive.stage import connect_redrive_stage

    source: ApiReader | TableReader
    environment = folders.environment_of(arguments)
    try:
        place = place_at(arguments.to)
    except InvalidRequest:
        raise UserError(f"--to must be s3://BUCKET/PREFIX or a folder, not {arguments.to!r}.") from None
    if arguments.tables:
        source = TableReader(connect_redrive_stage(arguments.stage), environment)
    else:
        source = ApiReader(api_session.open_session(arguments, math.inf if arguments.follow else PATIENT_S))
    return source.at_ms, [
        Archive(stream_id, source, place, columns, _say, jobs, keep_days=keep_days)
        for stream_id in arguments.streams
        for columns, keep_days in [_columns_and_keep_days(stream_id, environment)]
    ]


def _columns_and_keep_days(stream_id: str, environment: dict[str, str]) -> tuple[tuple[Column, ...], int]:
    """The columns of the stream's profile, as this machine has it, and its `keep_days`, 0 if it has none."""
    name = stream_id.partition(":")[0]
    path = folders.known_profiles(environment).get(name)
    if path is None:
        words = folders.unknown_profile_sentence(name, environment)
        _say(f"{stream_id}: archived without the columns and keep_days of its profile. {words}")
        return (), 0
    text = read_profile_text(path)
    try:
        table = tomllib.loads(text)
        parse(name, table, placeholders(text))  # a mistake would be in each file of the archive
        return tuple(columns_of_profile(name, table)), table.get("keep_days", 0)
    except (ProfileError, tomllib.TOMLDecodeError) as problem:
        raise UserError(f"{os.path.relpath(path)} is wrong: {str(problem).rstrip('.')}.") from None


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)
