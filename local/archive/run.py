"""Archives the finished hours of a stream, each once, and records its progress beside them.

An hour is read, written into files on this machine, uploaded under names that follow from the hour, and then marked as
done. So after a kill the hour is repeated, and the same files replace those that are there. Invariants: an event is in
one file; an hour is marked once all of its files are there, and never before an earlier one.
"""

import contextlib
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from handlers.api.queries import FOR_EVER
from handlers.api.verdict import plural
from handlers.profile.columns_field import Column
from local.archive import columns
from local.archive.columns import ColumnTable
from local.terminal import UserError, explain_os_errors
from streamkeeper import dataframes
from streamkeeper.archive_places import Place
from streamkeeper.bulk import HOUR_MS, Page, Tables, api_instant, folder_of, instant_ms, state_of

MOST_BYTES, LEAST_BYTES = 384 * 1024**2, 64 * 1024**2
# The size of a row group: good for readers, and small enough for the memory of a small machine.
ROWS, GROUP_BYTES = 100_000, 64 * 1024**2


class HourFiles:
    """The Parquet files of an hour, in a folder: as few as possible, of 64 to 512 MB each, or a single smaller one.

    A file ends once it has `most` bytes. If the last one has less than `least`, it is joined with the one before.
    Invariant: at most one row group is in memory.
    """

    def __init__(self, folder: Path, schema: Any, most: int = MOST_BYTES, least: int = LEAST_BYTES) -> None:
        self._folder = folder
        self._schema = schema
        self._most, self._least = most, least
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0
        self._files: list[Path] = []
        self._open: tuple[Any, BinaryIO] | None = None
        self.events = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows.append(row)
        self.events += 1
        self._bytes += len(row["data"] or "") + len(row["bytes"] or b"") + 100
        if len(self._rows) >= ROWS or self._bytes >= min(GROUP_BYTES, self._most):
            self._write()

    def close(self) -> list[Path]:
        """The complete files, in the order of their rows; none if there was no row."""
        self._write()
        self._close_file()
        if len(self._files) > 1 and self._files[-1].stat().st_size < self._least:
            self._join_last_two()
        return self._files

    def _write(self) -> None:
        if not self._rows:
            return
        pyarrow, parquet = dataframes.import_package("pyarrow"), dataframes.import_package("pyarrow.parquet")
        if self._open is None:
            path = self._folder / f"part-{len(self._files):04d}.parquet"
            self._files.append(path)
            file = path.open("wb")
            self._open = parquet.ParquetWriter(file, self._schema, compression="zstd"), file
        writer, sink = self._open
        writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0
        if sink.tell() >= self._most:
            self._close_file()

    def _close_file(self) -> None:
        if self._open is not None:
            writer, sink = self._open
            writer.close()
            sink.close()
            self._open = None

    def _join_last_two(self) -> None:
        """Joins the last two files, a row group at a time."""
        parquet = dataframes.import_package("pyarrow.parquet")
        last, before = self._files.pop(), self._files[-1]
        joined = before.with_suffix(".joined")
        with parquet.ParquetWriter(joined, self._schema, compression="zstd") as writer:
            for path in (before, last):
                with parquet.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group))
        last.unlink()
        joined.replace(before)


DAY_MS = 24 * HOUR_MS
# A function stores what it has received within its life of at most 15 minutes; one more minute is for clocks.
SETTLED_MS = 16 * 60_000


def hour_of(at_ms: int) -> int:
    """The beginning of the hour of an instant."""
    return at_ms - at_ms % HOUR_MS


def end_of_settled_hours(now_ms: int) -> int:
    """The end of the last hour for which nothing more will be stored."""
    return hour_of(now_ms - SETTLED_MS)


def partition(stream_id: str, hour_ms: int) -> str:
    """The folder of an hour, as Hive names it; characters of the id that no folder can have are percent-encoded."""
    at = datetime.fromtimestamp(hour_ms / 1000, UTC)
    return f"{folder_of(stream_id)}/day={at:%Y-%m-%d}/hour={at:%H}"


@dataclass(frozen=True)
class ArchivedUnit:
    """The result of a unit: its end, the number of events, that of bodies it lacks, and its files and sizes."""

    from_ms: int
    until_ms: int
    events: int
    left_out: int
    files: int
    size_bytes: int


@dataclass
class Archive:
    """The archive of one stream at a place; `say` prints a line about each unit that had events.

    Events leave the tables after `keep_days`, 0 for never; `is_late` says that some may have left before this run.
    `is_begun` says that the tables and the place have answered.
    """

    stream_id: str
    source: Tables
    place: Place
    columns: tuple[Column, ...]
    say: Callable[[str], None]
    jobs: int = 1
    most_bytes: int = MOST_BYTES
    least_bytes: int = LEAST_BYTES
    keep_days: int = 0
    is_late: bool = False
    is_begun: bool = False
    _state: dict[str, Any] = field(default_factory=dict)

    def run(self, until_ms: int, from_ms: int | None = None) -> int:
        """Returns how many events of the hours before `until_ms` it has archived; raises UserError.

        It goes on where it stopped, or begins at `from_ms` or at the first event.
        """
        dataframes.import_package("pyarrow")
        self._state = self._read_state()
        by_key, count, misfits = self.source.is_by_key(self.stream_id), 0, Counter[str]()
        self._report_late(until_ms)
        begin_ms = self._first_hour_ms(from_ms, by_key=by_key)
        self.is_begun = True
        while begin_ms is not None and begin_ms < until_ms:
            table = self._make_table(begin_ms)
            with ThreadPoolExecutor(self.jobs) as threads:
                units = list(self._next_units(begin_ms, until_ms, by_key=by_key))
                for done in threads.map(lambda unit, table=table: self._archive_unit(table, *unit), units):
                    self._say(done)
                    count += done.events
                    self._save(done.until_ms, table)
            misfits += table.misfits
            begin_ms = units[-1][1] if by_key else self._next_hour_ms(units[-1][1])
        if "until" in self._state and instant_ms(self._state["until"]) < until_ms:
            self._save(until_ms, columns.make_table((), {}, ()))  # no event came since
        for name, number in misfits.items():
            words = f"{plural(number, 'value')} of {name} with another type, written as null"
            self.say(f"{self.stream_id}: {words}")
        return count

    def _report_late(self, until_ms: int) -> None:
        """Reports that the last run was so long ago that events may have expired since without being archived."""
        left_ms = until_ms - self.keep_days * DAY_MS
        if self.keep_days and "until" in self._state and instant_ms(self._state["until"]) < left_ms:
            self.is_late = True
            self.say(
                f"{self.stream_id}: events leave the tables after {plural(self.keep_days, 'day')}, and this archive "
                f"ended at {self._state['until']}: events received before {api_instant(left_ms)} may be in neither."
            )

    def _first_hour_ms(self, from_ms: int | None, *, by_key: bool) -> int | None:
        if "until" in self._state:
            known_ms, begun_at = instant_ms(self._state["until"]), self._state.get("from")
            # A command that is started again, such as by a timer, has the same --from.
            if from_ms is not None and hour_of(from_ms) != known_ms and api_instant(hour_of(from_ms)) != begun_at:
                raise UserError(
                    f"The archive of {self.stream_id} continues at {self._state['until']}: leave out --from; to "
                    f"begin again, remove {state_of(self.stream_id)} and {folder_of(self.stream_id)}/ there."
                )
            return known_ms if by_key else self._next_hour_ms(known_ms)
        if from_ms is not None:
            # Earlier events are not in the archive, so the client reads them elsewhere. Its first hour may not be over.
            self._state["from"] = api_instant(hour_of(from_ms))
            self._save(hour_of(from_ms), columns.make_table((), {}, ()))
            return hour_of(from_ms)
        if by_key:
            raise UserError(f"{self.stream_id} has no order, so its first event is unknown: give --from.")
        return self._next_hour_ms(0)

    def _next_hour_ms(self, since_ms: int) -> int | None:
        """The hour before that of the first event, which may not have come first; None if there is no event."""
        pages = self.source.pages(self.stream_id, since_ms, FOR_EVER, 1)
        first = next(itertools.chain.from_iterable(pages), None)
        if first is None:
            return None
        return max(since_ms, hour_of(instant_ms(first["received_at"])) - HOUR_MS)

    def _make_table(self, from_ms: int) -> ColumnTable:
        known = self._state.get("columns", {})
        sample: Page = []
        if any(one.name not in known and one.kind is None for one in self.columns):
            pages = self.source.pages(self.stream_id, from_ms, FOR_EVER, columns.SAMPLE)
            for event in itertools.chain.from_iterable(pages):
                if sample and event["received_at"][:13] != sample[0]["received_at"][:13]:
                    break
                sample.append(event)
        return columns.make_table(self.columns, known, sample)

    def _next_units(self, from_ms: int, until_ms: int, *, by_key: bool) -> Iterator[tuple[int, int]]:
        """The next units, as many as are read in parallel."""
        for _ in range(self.jobs):
            if from_ms >= until_ms:
                return
            # A run by key reads all events of the stream, so it archives the rest of the day at once.
            end_ms = min(from_ms - from_ms % DAY_MS + DAY_MS if by_key else from_ms + HOUR_MS, until_ms)
            yield from_ms, end_ms
            from_ms = end_ms

    def _archive_unit(self, table: ColumnTable, from_ms: int, until_ms: int) -> ArchivedUnit:
        schema, by_hour, left_out = table.schema(), dict[int, HourFiles](), 0
        with contextlib.ExitStack() as held:
            with explain_os_errors("A temporary file cannot be written", "; TMPDIR chooses another folder"):
                name = held.enter_context(tempfile.TemporaryDirectory(prefix="streamkeeper-archive-"))
                for event in itertools.chain.from_iterable(self.source.pages(self.stream_id, from_ms, until_ms)):
                    hour_ms = hour_of(instant_ms(event["received_at"]))
                    if hour_ms not in by_hour:
                        folder = Path(name, str(hour_ms))
                        folder.mkdir()
                        by_hour[hour_ms] = HourFiles(folder, schema, self.most_bytes, self.least_bytes)
                    by_hour[hour_ms].add(table.row(event))
                    left_out += "left_out" in event
                paths_of = {hour_ms: one.close() for hour_ms, one in by_hour.items()}
            size = sum(path.stat().st_size for paths in paths_of.values() for path in paths)
            for hour_ms in range(from_ms, until_ms, HOUR_MS):
                self._upload_hour(partition(self.stream_id, hour_ms), paths_of.get(hour_ms, []))
        events = sum(one.events for one in by_hour.values())
        return ArchivedUnit(from_ms, until_ms, events, left_out, sum(map(len, paths_of.values())), size)

    def _upload_hour(self, partition: str, paths: list[Path]) -> None:
        """Uploads the files of an hour, and removes what a killed run has left there."""
        names = [f"{partition}/{path.name}" for path in paths]
        for name, path in zip(names, paths, strict=True):
            self.place.put(name, path)
        for name in self.place.names(partition):
            if name not in names:
                self.place.remove(name)

    def _say(self, done: ArchivedUnit) -> None:
        if done.events:
            words = f"{plural(done.events, 'event')} in {plural(done.files, 'file')}, {done.size_bytes / 1e6:,.1f} MB"
            words += f"; {done.left_out:,} without their bodies (left_out)" if done.left_out else ""
            self.say(f"{self.stream_id} {api_instant(done.from_ms)[:13]}h: {words}")

    def _read_state(self) -> dict[str, Any]:
        content = self.place.read(state_of(self.stream_id))
        if content is None:
            return {}
        try:
            state = json.loads(content)
            instant_ms(state["until"])
        except (ValueError, KeyError, TypeError):
            words = "in the archive was not written by this command: remove it, or name another place by --to."
            raise UserError(f"{state_of(self.stream_id)} {words}") from None
        assert isinstance(state, dict)
        return state

    def _save(self, until_ms: int, table: ColumnTable) -> None:
        self._state |= {"until": api_instant(until_ms), "columns": self._state.get("columns", {}) | table.kinds}
        self.place.write(state_of(self.stream_id), json.dumps(self._state, indent=1).encode())
