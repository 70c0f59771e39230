"""Stores executions on disk: one file of JSON lines each, so that nothing is rewritten while an execution runs.

Invariants: a line is appended whole; only a kill can leave a torn line, at the end of the file, which readers skip, and
the lines before it stay valid. A redriven execution goes on after its last line. Files sort by name in the order of the
starts. A full disk ends no execution and refuses none: a line that could not be written is written before the next one
that can be.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from states_language.place import Part, open_map_runs
from states_language.scheduling.lanes import give_way
from states_language.server.definition_reader import pause_regularly
from states_language.server.machines import ROLE
from states_language.server.stored_events import EVENT, WrittenEvents

_MOST_REPORTED = 100
_reported: set[tuple[str, str]] = set()


@contextlib.contextmanager
def report_failure_only(what: str) -> Iterator[None]:
    """Runs code that only watches (a host's report, a journal): its exception is reported and goes no further.

    Each cause is reported once in a process, in one line on standard error.
    """
    try:
        yield
    except Exception as problem:
        cause = (what, type(problem).__name__)
        if cause in _reported or len(_reported) >= _MOST_REPORTED:
            return
        _reported.add(cause)
        sentence = f"states-language: {what} failed, and the service continues without it: {cause[1]}: {problem}"
        # Standard error may be the closed pipe or the full disk at fault; controls and odd characters are escaped.
        with contextlib.suppress(Exception):
            sys.stderr.write(sentence.encode("unicode_escape").decode("ascii") + "\n")
            sys.stderr.flush()


_NAME = re.compile(r"\d+-(\d{9})-[0-9a-f]{16}\.jsonl")
LONGEST_MS = 365 * 86_400_000
TOKENS, TOKEN_MS = 10, 15 * 60_000
"""How many client tokens are remembered, and for how long. Source: RedriveExecution in the API reference."""

PLACE_UNKNOWN = "Where the execution stood is not known, because the local service ended while it ran"
REDRIVEN_BY_MAP_RUN = "The execution is redriven by its Map Run: redrive the execution that started that"
MAP_RUN_NOT_OPEN = "The Map Run is not open in the execution that started it"
NOT_REDRIVABLE_STATUSES = ("RUNNING", "SUCCEEDED", "PENDING_REDRIVE")
TOO_LONG, TOO_OLD = "Execution history event limit exceeded", "Execution redrivable period exceeded"


@dataclass(frozen=True)
class Opening:
    """The first line: the execution, its machine, its input (JSON text) and its start (epoch).

    `definition` is the machine's definition at the execution's start, `started_arn` the machine's ARN as it was given,
    with the test case; "" in the records of older services.
    """

    arn: str
    name: str
    machine_arn: str
    input: str
    started_ms: int
    definition: str = ""
    role_arn: str = ROLE
    revision_id: str | None = None
    machine_updated_ms: int | None = None
    version_arn: str | None = None
    alias_arn: str | None = None
    started_arn: str = ""


@dataclass(frozen=True)
class Closing:
    """The closing line of an ended execution, which only a large part follows.

    `status` is AWS's, `output` JSON text, `events` the number of events.
    """

    status: str
    stopped_ms: int
    output: str | None = None
    error: str | None = None
    cause: str | None = None
    map_runs: list[dict[str, Any]] = field(default_factory=list)
    events: int = 0


@dataclass(frozen=True)
class Redrive:
    """One redrive: its time, and the client token of its request."""

    at_ms: int
    token: str | None = None


@dataclass
class Record:
    """An execution on disk; `closing` is None while it runs, or if it ran when the service ended.

    open_runs: the Map Runs that were open where it stood, None if that is not known.
    """

    opening: Opening
    path: Path
    closing: Closing | None = None
    redrives: list[Redrive] = field(default_factory=list)
    open_runs: frozenset[str] | None = None


MOST_OPEN = 64
"""How many files are open at once. A process may usually open 1,024, and more executions than that may wait."""


class Journal:
    """The file of one execution, for appending; `events` are those that were written through this object.

    files: the open files of the journals that share them; the one that was written last comes last.
    """

    def __init__(self, path: Path, files: OrderedDict["Journal", io.FileIO]) -> None:
        self.path = path
        self.events = WrittenEvents()
        self._files = files
        self._closed = False
        self._unwritten = b""

    def complete_torn_line(self) -> None:
        """Ends a line that a kill has torn, so that the next line is whole."""
        with report_failure_only("the journal of an execution"), self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 1))
            if file.read() not in (b"", b"\n"):
                self._write(b"\n")

    def write_event(self, event: dict[str, Any]) -> None:
        text = _encode_line(event)
        self.events.add(text)
        with report_failure_only("the journal of an execution"):
            self._write(EVENT + text + b"}\n")

    def write_closing(self, closing: Closing) -> None:
        """Writes the closing line and closes the file."""
        self.write_line(closing=vars(closing))
        self.close()

    def close(self) -> None:
        """Closes the file; an execution without a closing line counts as running."""
        self._closed = True
        if self in self._files:
            with report_failure_only("the journal of an execution"):
                self._files.pop(self).close()

    def write_line(self, **content: Any) -> None:
        """Writes a line: an `opening`, a `redrive`, or the `part` where an execution stands that ends without success.

        The part is None if no redrive could go on from there.
        """
        with report_failure_only("the journal of an execution"):
            self._write(_encode_line(content) + b"\n")

    def _write(self, data: bytes) -> None:
        if self._closed:
            return
        self._unwritten += data
        # If the disk is full, or too many files are open, open(2) or write(2) fails, or writes only a part.
        file = self._files.pop(self) if self in self._files else self.path.open("ab", buffering=0)
        self._files[self] = file
        if len(self._files) > MOST_OPEN:
            self._files.popitem(last=False)[1].close()
        while self._unwritten:
            self._unwritten = self._unwritten[file.write(self._unwritten) :]


_WRITER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _encode_line(line: dict[str, Any]) -> bytes:
    return _WRITER.encode(line).encode("utf-8", "replace")


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object; a hook in Python lets other threads go on while a long line is read."""
    return dict(pairs)


class Journals:
    """All executions of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._begun = max(map(_file_number, folder.glob("*.jsonl")), default=0)
        self._files: OrderedDict[Journal, io.FileIO] = OrderedDict()
        self.writer = ThreadPoolExecutor(1, "large parts", pause_regularly)

    def create_journal(self, opening: Opening) -> Journal:
        """Returns the journal of a new execution, with its first line written. The files' names sort by start."""
        # Two may start within one millisecond, so a number counts on from that of an earlier service.
        self._begun += 1
        digest = hashlib.sha256(opening.arn.encode()).hexdigest()[:16]
        journal = Journal(self._folder / f"{opening.started_ms:015d}-{self._begun:09d}-{digest}.jsonl", self._files)
        journal.write_line(opening=vars(opening))
        return journal

    def reopen_journal(self, path: Path) -> Journal:
        """Returns the journal that goes on in a file, beginning with a new line."""
        journal = Journal(path, self._files)
        journal.complete_torn_line()
        return journal

    def read_all(self) -> list[Record]:
        """Returns every execution on disk, oldest first; files without a readable first line are skipped."""
        records = (_read_record(path) for path in sorted(self._folder.glob("*.jsonl")))
        return [record for record in records if record is not None]

    def append_part(self, path: Path, part: Part) -> "asyncio.Future[None]":
        """Appends a large `part` after the closing, in a thread beside which the event loop goes on."""
        return asyncio.get_running_loop().run_in_executor(self.writer, self._append_in_bits, path, part)

    def _append_in_bits(self, path: Path, part: Part) -> None:
        with report_failure_only("the journal of an execution"), path.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            for text in _WRITER.iterencode({"part": part}):
                file.write(text.encode("utf-8", "replace"))
                give_way()
            file.write(b"\n")

    def read_part(self, path: Path) -> Part | None:
        """Returns where the execution in one file stood when it ended; None if the disk was too full to write it."""
        last = [line for line in _read_lines(path) if line.keys() & {"part", "redrive"}][-1:]
        return last[0].get("part") if last else None


def _read_record(path: Path) -> Record | None:
    opening, closing, part = None, None, None
    redrives: list[Redrive] = []
    for line in _read_lines(path):
        with contextlib.suppress(TypeError):  # another version may have written other members
            if "opening" in line:
                given = line["opening"]
                # Many executions have one definition, which is kept once.
                opening = Opening(**given | {"definition": sys.intern(given.get("definition", ""))})
            elif "closing" in line:
                closing = Closing(**line["closing"])
            elif "part" in line:
                part = line["part"]
            elif "redrive" in line:
                redrives.append(Redrive(**line["redrive"]))
                closing, part = None, None
    return None if opening is None else Record(opening, path, closing, redrives, find_open_runs(part))


def _file_number(path: Path) -> int:
    """Returns the second part of a file's name; names that older services gave have none."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields what a journal has besides events, which are nearly all of it and take long to parse."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if line.startswith(EVENT):
                continue
            with contextlib.suppress(ValueError):
                record = json.loads(line.decode("utf-8", "replace"), object_pairs_hook=_make_object)
                if isinstance(record, dict):
                    yield record


def find_open_runs(part: Part | None) -> frozenset[str] | None:
    """Returns the Map Runs that a redrive redrives; None if it is not known where the execution stood."""
    return None if part is None else frozenset(open_map_runs(part))


def reason_not_ended(status: str) -> str | None:
    """Returns why an execution of this status cannot be redriven: it runs, is about to run, or has succeeded."""
    return f"Execution is {status} and cannot be redriven" if status in NOT_REDRIVABLE_STATUSES else None


def find_repeated(redrives: list[Redrive], token: str | None, now_ms: int) -> Redrive | None:
    """Returns the redrive of an earlier request with this client token, as long as the token is remembered."""
    known = [one for one in redrives[-TOKENS:] if token is not None and one.token == token]
    return next((one for one in known if now_ms - one.at_ms <= TOKEN_MS), None)
