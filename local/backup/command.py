"""The verbs `backup`, `restore` and `move`: their arguments and their output.

Invariants: standard output has one line per stream, or one JSON document; a refused stream is named with the reason,
and the exit status says so; each command can be repeated and continues where it stopped.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

from handlers.api.verdict import plural
from handlers.errors import StoreUnavailable
from handlers.fleet.fleet_document import Pattern
from handlers.store.typed_values import instant_text, read_text
from local.backup.archive import FinishedBackup, files_at
from local.backup.backup_writer import BackupWriter
from local.backup.stream_move import StreamMove, start_copied_stream
from local.backup.stream_restore import RestoreCounts, StreamRestore
from local.backup.stream_source import FORMS, HERE, NotRestored, Place, Source, Tables, open_place
from local.terminal import UserError, WrappedHelp, printable, report_if_slow

VERBS = ("backup", "restore", "move")
DONE, REFUSED = 0, 1
EXIT = (
    "Exit status: 0 all streams are done, 1 some were refused and are named, 2 a mistake in the command or a place "
    "that cannot be reached, 130 Ctrl-C; repeat the command to continue. Credentials and endpoints are the AWS SDK's "
    f"(AWS_PROFILE, AWS_ENDPOINT_URL). A place is {FORMS}."
)


T = TypeVar("T")
# A single stream mostly waits for answers; this many keep two cores and a new table busy.
THREADS = 8
SHOWN_EVERY_S = 2.0


class Interrupted(Exception):
    """The user has pressed Ctrl-C."""


class Work:
    """The same work for many streams, some in parallel; `verb` begins the lines of progress.

    Invariant: after Ctrl-C no further step of a stream begins; the same command repeats unfinished steps.
    """

    def __init__(self, verb: str, *, is_quiet: bool) -> None:
        self._verb, self._is_quiet = verb, is_quiet
        self._is_interrupted = threading.Event()
        self._shown_s = time.monotonic()
        self.refused = 0

    def check(self) -> None:
        """Raises Unwanted after Ctrl-C."""
        if self._is_interrupted.is_set():
            raise Interrupted

    def say(self, line: str) -> None:
        """Prints a line about one stream."""
        if not self._is_quiet:
            print(printable(line), file=sys.stderr, flush=True)

    def run_for_each(self, stream_ids: Sequence[str], act: Callable[[str], T]) -> Iterator[tuple[str, T]]:
        """Yields the outcome of each stream; for a refused stream it prints the reason and counts it."""
        done, words = 0, f"{self._verb}: {plural(len(stream_ids), 'stream')} …"
        with report_if_slow(words, is_quiet=self._is_quiet), ThreadPoolExecutor(THREADS) as threads:
            asked = {threads.submit(act, one): one for one in stream_ids}
            try:
                for future in as_completed(asked):
                    try:
                        result = future.result()
                        done += 1
                        yield asked[future], result
                    except (NotRestored, StoreUnavailable) as problem:
                        self.refused += 1
                        print(printable(f"{asked[future]}: {problem}."), file=sys.stderr, flush=True)
                    self._print_progress(done + self.refused, len(asked))
            except BaseException:
                self._is_interrupted.set()
                threads.shutdown(cancel_futures=True)
                if done < len(asked):
                    words = f"{done:,} of {plural(len(asked), 'stream')} done; run the same command for the others."
                    print(f"streamkeeper: {words}", file=sys.stderr)
                raise

    def _print_progress(self, done: int, total: int) -> None:
        if not self._is_quiet and time.monotonic() - self._shown_s > SHOWN_EVERY_S:
            self._shown_s = time.monotonic()
            print(f"{self._verb}: {done:,} of {plural(total, 'stream')}", file=sys.stderr, flush=True)


def add(subparsers: Any, name: str) -> None:
    {"backup": _add_backup, "restore": _add_restore, "move": _add_move}[name](subparsers)


def _add_backup(subparsers: Any) -> None:
    words = (
        "Copies streams into a folder or a bucket: events, control records, gaps and large bodies, everything that a "
        "stream needs to continue. Streams may run meanwhile. Repeat the command to finish an interrupted backup. The "
        "dead-letter queue is not included."
    )
    parser = _parser(
        subparsers,
        "backup",
        words,
        ["backup --to backup-of-friday", "backup --stage prod --to s3://vault/prod/2026-11-28 --match 'orders:*'"],
    )
    parser.add_argument("--stage", default=HERE, metavar="PLACE", help="where the streams are (default: this machine)")
    parser.add_argument("--to", required=True, metavar="WHERE", help="a folder, or s3://BUCKET/PREFIX")
    parser.set_defaults(run=_backup)


def _add_restore(subparsers: Any) -> None:
    words = (
        "Copies streams from a backup, or from other tables, into a stage. Existing events stay as they are; a "
        "stream that runs there, or has a newer record, is refused by name. A restored stream is stopped until "
        "you start it, and then continues from its cursor: the time since the backup is a gap unless the upstream "
        "resends it. Sinks do not get restored events."
    )
    parser = _parser(
        subparsers,
        "restore",
        words,
        [
            "restore --from backup-of-friday",
            "restore --from s3://vault/prod/2026-11-28 --stage prod@eu-west-1 --start",
            "restore --from prod/restored-events,restored-control --stage prod --match 'orders:*' --dry-run",
        ],
    )
    parser.add_argument("--from", required=True, dest="source", metavar="WHERE", help="a folder, s3://…, or a place")
    parser.add_argument("--stage", default=HERE, metavar="PLACE", help="where to restore them (default: this machine)")
    parser.add_argument("--start", action="store_true", help="start the streams that ran when they were copied")
    parser.add_argument("--replace", action="store_true", help="also restore streams that have a newer record there")
    parser.add_argument("--dry-run", action="store_true", help="change nothing; show what would be restored or refused")
    parser.set_defaults(run=_restore)


def _add_move(subparsers: Any) -> None:
    words = (
        "Stops streams at one place, copies them to another, and starts them there from their cursors. After an "
        "interruption, repeat the command. The original stays, stopped; its sinks still deliver what was waiting."
    )
    parser = _parser(
        subparsers,
        "move",
        words,
        ["move orders:eu --from prod --to prod@eu-west-1", "move --match 'demo*' --from local --to dev"],
    )
    parser.add_argument("stream_ids", nargs="*", metavar="STREAM", help="which streams")
    parser.add_argument("--from", required=True, dest="source", metavar="PLACE", help="where the streams are")
    parser.add_argument("--to", required=True, metavar="PLACE", help="where to move them")
    parser.set_defaults(run=_move)


def _parser(subparsers: Any, name: str, words: str, examples: list[str]) -> argparse.ArgumentParser:
    shown = "\n".join(f"  streamkeeper {example}" for example in examples)
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, description=words, epilog=f"examples:\n{shown}\n\n{EXIT}", formatter_class=WrappedHelp
    )
    parser.add_argument("--match", action="append", metavar="PATTERN", help="only these streams (orders:*); repeatable")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _backup(arguments: argparse.Namespace) -> int:
    place, files, work = (open_place(arguments.stage), files_at(arguments.to), Work("backup", is_quiet=arguments.json))
    began_s, tables = time.monotonic(), Tables(place)
    taking = BackupWriter(tables, files, work.check)
    match = arguments.match or []
    begun = taking.begin_or_continue(place.name, match, _choose_streams(tables.stream_ids(), match), _now())
    summaries = []
    for _, summary in work.run_for_each(begun["streams"], taking.back_up_stream):
        if summary is not None:
            summaries.append(summary)
    if work.refused:
        print("streamkeeper: the backup is not finished; run the same command again.", file=sys.stderr)
        return REFUSED
    manifest = taking.finish(begun, _now(), summaries)
    total, seconds = manifest["total"], time.monotonic() - began_s
    if arguments.json:
        print(json.dumps(manifest | {"streams": len(summaries), "seconds": round(seconds, 1)}))
    else:
        print(
            f"{plural(len(summaries), 'stream')} in {arguments.to}: {plural(total['events'], 'event')}, "
            f"{plural(total['gaps'], 'gap')}, {plural(total['objects'], 'object')} with a large body, "
            f"{plural(total['bytes'], 'byte')}, in {seconds:.1f} s{_missing_bodies_in_words(total['gone'])}"
        )
    return DONE


def _restore(arguments: argparse.Namespace) -> int:
    place, work = open_place(arguments.stage), Work("restore", is_quiet=arguments.json)
    if arguments.start:
        _check_starts(place, "leave out --start")
    source, label = _open_source(arguments.source, place)
    restoring = StreamRestore(place, label, work.check, replace=arguments.replace)

    def act(stream_id: str) -> tuple[RestoreCounts, bool]:
        has_run = source.has_run(stream_id)
        restored = restoring.restore(source, stream_id, ran=has_run, dry_run=arguments.dry_run)
        if not (arguments.start and has_run) or arguments.dry_run:
            return restored, False
        stopped_at = read_text(restoring.tables.lease(stream_id) or {}, "stop_at") or ""
        return restored, start_copied_stream(place, stream_id, stopped_at, work.check)

    ids = _choose_streams(source.stream_ids(), arguments.match)
    return _print_outcomes(work, ids, act, arguments, "would be restored" if arguments.dry_run else "restored")


def _open_source(text_: str, place: Place) -> tuple[Source, str]:
    """The source of the streams, and the origin that is written into them."""
    if "://" in text_ or Path(text_).is_dir():
        archived = FinishedBackup(files_at(text_))
        return archived, archived.name
    try:
        other = open_place(text_)
    except UserError as problem:
        raise UserError(f"There is no folder {text_}, and as a place it fails: {problem}") from None
    if other.tables == place.tables:
        raise UserError("--from and --stage name the same tables: choose another place for one of them.")
    return Tables(other), f"{other.name} {_now()}"


def _move(arguments: argparse.Namespace) -> int:
    if bool(arguments.stream_ids) == bool(arguments.match):
        raise UserError("Give either STREAMs or --match PATTERN.")
    here, there, work = (open_place(arguments.source), open_place(arguments.to), Work("move", is_quiet=arguments.json))
    if here.tables == there.tables:
        raise UserError("--from and --to name the same tables: choose another place for one of them.")
    _check_starts(there, "use `restore`")
    ids = list(dict.fromkeys(arguments.stream_ids)) or _choose_streams(Tables(here).stream_ids(), arguments.match)
    moving = StreamMove(here, there, work.check, work.say)
    return _print_outcomes(work, ids, moving.move, arguments, "moved")


def _print_outcomes(work: Work, ids: Sequence[str], act: Any, arguments: argparse.Namespace, verb: str) -> int:
    """Prints the outcome of each stream, and returns the exit status."""
    began_s, found = time.monotonic(), []
    for stream_id, (done, is_started) in work.run_for_each(ids, act):
        one = {"stream": stream_id, "events": done.events, "kept": done.kept, "objects": done.objects}
        found.append(one | {"gone": done.gone, "was_there": done.was_there, "started": is_started})
        if arguments.json:
            continue
        words = "was there already" if done.was_there else verb
        if not done.was_there and not getattr(arguments, "dry_run", False):
            words += f": {plural(done.events, 'event')}"
            words += f", of which {done.kept:,} exist with another body and stay as they are" if done.kept else ""
            words += _missing_bodies_in_words(done.gone)
        print(printable(f"{stream_id}: {words}{', started' if is_started else ''}"), flush=True)
    seconds = time.monotonic() - began_s
    if arguments.json:
        print(json.dumps({"streams": found, "refused": work.refused, "seconds": round(seconds, 1)}))
    else:
        print(f"{plural(len(found), 'stream')} {verb} in {seconds:.1f} s, {work.refused} refused", file=sys.stderr)
    return REFUSED if work.refused else DONE


def _missing_bodies_in_words(bodies: int) -> str:
    return f"; large bodies that no longer exist there: {bodies:,}" if bodies else ""


def _check_starts(place: Place, otherwise: str) -> None:
    if not place.start_machine:
        raise UserError(f"{place.name} names tables, where no stream can be started: name a stage, or {otherwise}.")


def _choose_streams(ids: Sequence[str], patterns: Sequence[str] | None) -> list[str]:
    """The streams that a pattern matches, or all; raises UserError if there is none."""
    # As a fleet's document: a stream's id may have a bracket.
    wanted = [Pattern(one, is_connected=True) for one in patterns or ()]
    chosen = [one for one in ids if not patterns or any(pattern.matches(one) for pattern in wanted)]
    if not chosen and patterns:
        raise UserError(f"No stream matches {' or '.join(patterns)}. The parts of a stream prices match prices:*.")
    if not chosen:
        raise UserError("There are no streams.")
    return sorted(chosen)


def _now() -> str:
    return instant_text(time.time_ns() // 1_000_000)
