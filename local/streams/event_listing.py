"""The verb `events`: prints the stored events of a stream, or writes them into a file.

Invariant: the output file is always complete; an unfinished one has another name, and is removed if the command fails.
"""

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

from handlers.api.verdict import plural
from local.streams import api_session
from local.streams.api_session import DONE
from local.streams.follow import event_line
from local.streams.verbs import add_times
from local.terminal import UserError, explain_os_errors, whole_number
from streamkeeper import dataframes
from streamkeeper.transport import path_of

FORMATS = ("text", "ndjson", "parquet")
# For how long the request for a page is repeated while the API does not answer.
PATIENT_S = 600.0

Page = list[dict[str, Any]]
# Takes a page of events.
Write = Callable[[Page], Any]


def add(subparsers: Any) -> None:
    words = "Prints the stored events of a stream in their order, or exports them into a file with a progress bar."
    examples = [
        "events demo --from 15m",
        "events demo --json | jq -r .data",
        "events demo-trades --from 15m --order time",
        "events demo --from 2026-11-20 --to 2026-11-21 --format parquet --output demo.parquet",
    ]
    parser = api_session.add_verb(subparsers, "events", words, examples)
    add_times(parser)
    parser.add_argument("--after", metavar="POSITION", help="begin after the event with this position")
    parser.add_argument("--limit", metavar="N", help="at most N events")
    parser.add_argument("--order", choices=("time",), help="sort by the events' own time (the profile's `time`)")
    parser.add_argument("--format", choices=FORMATS, help="default: text, with --output ndjson; parquet needs --output")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a file, replacing an existing one")
    parser.set_defaults(run=run)


@api_session.print_refusals
def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status; raises UserError."""
    kind = arguments.format or ("ndjson" if arguments.json or arguments.output else "text")
    if kind == "parquet" and arguments.output is None:
        raise UserError("--format parquet needs --output FILE: a Parquet file is not for a terminal.")
    if arguments.output is not None and arguments.output.is_dir():
        raise UserError(f"--output must be a file, and {arguments.output} is a folder.")
    arguments.limit = arguments.limit and whole_number("--limit", arguments.limit, 1, 10**9)
    streams = api_session.open_session(arguments, PATIENT_S)
    query = api_session.read_times(streams, arguments) | {"after": arguments.after, "order": arguments.order}
    answers = streams.pages(path_of(arguments.stream_id, "/events"), query, arguments.limit)
    pages = (answer["events"] for answer in answers)
    if arguments.output is None:
        for event in itertools.chain.from_iterable(pages):
            print(format_event(event, kind))
    else:
        count = _export(arguments.output, kind, pages, _show_progress(arguments, query))
        print(f"{plural(count, 'event')} in {arguments.output}", file=sys.stderr)
    return DONE


def format_event(event: dict[str, Any], kind: str) -> str:
    return event_line(event) if kind == "text" else json.dumps(event, ensure_ascii=False)


def _export(target: Path, kind: str, pages: Iterator[Page], progress: AbstractContextManager[Any]) -> int:
    """Writes the file, and returns the number of its events."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    count = 0
    try:
        writer = _open_parquet_file(part) if kind == "parquet" else _open_text_file(part, kind)
        with explain_os_errors(f"{target} cannot be written"):
            with writer as write, progress as advance:
                for page in pages:
                    write(page)
                    count += len(page)
                    advance(count, page[-1]["received_at"] if page else None)
            os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):  # if nothing could be written, nothing can be removed
            part.unlink()
    return count


@contextlib.contextmanager
def _open_text_file(part: Path, kind: str) -> Iterator[Write]:
    with part.open("w", encoding="utf-8") as file:
        yield lambda events: file.writelines(f"{format_event(event, kind)}\n" for event in events)


@contextlib.contextmanager
def _open_parquet_file(part: Path) -> Iterator[Write]:
    """Writes a row group per page; a body of text is in `data`, one of bytes in `bytes`."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise UserError(
            "--format parquet needs the Python package pyarrow, which is not installed: `pip install pyarrow`."
        ) from None
    with parquet.ParquetWriter(part, dataframes.schema(), compression="zstd") as file:
        yield lambda events: file.write_batch(dataframes.batch(events)) if events else None


@contextlib.contextmanager
def _show_progress(arguments: argparse.Namespace, times: Mapping[str, str | None]) -> Iterator[Any]:
    """Yields a function that shows the progress on a terminal, by time if the end is known, else by count."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}")]
    console = Console(stderr=True)
    begin, end = (datetime.fromisoformat(text) if text else None for text in (times["from"], times["to"]))
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar:
        total = arguments.limit or ((end - begin).total_seconds() if begin and end else None)
        task = bar.add_task(arguments.output.name, total=total, count=plural(0, "event"))

        def advance(count: int, received_at: str | None) -> None:
            done: float | None = count if arguments.limit else None
            if not arguments.limit and total and begin and received_at:
                done = (datetime.fromisoformat(received_at) - begin).total_seconds()
            bar.update(task, completed=done, count=plural(count, "event"))

        yield advance
