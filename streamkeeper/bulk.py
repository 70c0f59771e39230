"""Reads many stored events at a time: an archive's hours, and a stage's tables by boto3.

The time is cut into units. Several units are read at once and come in their order. AHEAD chunks of each wait, besides
those that the consumer takes, so memory is bounded however long the time is. Invariant: each event comes once: from the
archive in the time that it has whole, and from elsewhere before and after it.
"""

import contextlib
import itertools
import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import quote

from streamkeeper.archive_places import place_at
from streamkeeper.dataframes import COLUMNS, import_package
from streamkeeper.exceptions import InvalidRequest, StreamkeeperError
from streamkeeper.instants import instant

HOUR_MS = 3_600_000
# Later than any instant.
FOR_EVER = 10**15
# The folder beside the partitions. Spark, Athena and DuckDB's patterns ignore names that begin with _.
STATES = "_streamkeeper"
# How many chunks of a unit are read at a time, and into how many units per job the time is cut.
AHEAD, UNITS_A_JOB = 4, 8
ROWS = 1000
# The module that reads a stage's tables, with the code that answers the API. It belongs to the same distribution, but
# not to this package, which imports nothing else of ours.
_TABLES = "local.archive.event_readers"
Page = list[dict[str, Any]]
T = TypeVar("T")
U = TypeVar("U")


class Tables(Protocol):
    """Reads the tables of a stage."""

    def pages(self, stream_id: str, from_ms: int, to_ms: int, limit: int | None = None) -> Iterator[Page]:
        """The events of this time, in the API's JSON."""

    def is_by_key(self, stream_id: str) -> bool:
        """Whether the stream keeps no order, so that each reading reads all its events."""


def tables_of(stage: str) -> Tables:
    """The tables of a deployed stage, or of the run on this machine for "local"; raises StreamkeeperError."""
    try:
        reader = import_module(_TABLES)
    except ModuleNotFoundError as missing:
        raise StreamkeeperError(
            f"Reading tables needs the package {missing.name}, which `pip install streamkeeper` installs."
        ) from None
    with translate_errors("The tables"):
        return cast(Tables, reader.reader_of_stage(stage))


@contextlib.contextmanager
def translate_errors(subject: str) -> Iterator[None]:
    """An error of AWS or the system becomes a StreamkeeperError."""
    try:
        yield
    except StreamkeeperError:
        raise
    except Exception as problem:
        raise StreamkeeperError(f"{subject} cannot be read: {problem}") from problem


def pages_from_tables(tables: Tables, stream_id: str, from_ms: int, to_ms: int, jobs: int) -> Iterator[Page]:
    """The events of this time in their order; several parts of the time are read at once."""
    with translate_errors("The tables"):
        if tables.is_by_key(stream_id):
            yield from tables.pages(stream_id, from_ms, to_ms)
            return
        first = next((page[0] for page in tables.pages(stream_id, from_ms, to_ms, 1)), None)
        if first is None:
            return
        # An event may have been received a little earlier than the one before it.
        begin_ms = max(from_ms, instant_ms(first["received_at"]) - HOUR_MS)
        now_ms = round(datetime.now(UTC).timestamp() * 1000)
        size_ms = max(60_000, (min(to_ms, now_ms) - begin_ms) // (UNITS_A_JOB * jobs) + 1)
        bounds = [*range(begin_ms, max(begin_ms + 1, min(to_ms, now_ms)), size_ms), to_ms]
        yield from side_by_side(lambda unit: tables.pages(stream_id, *unit), itertools.pairwise(bounds), jobs)


class Archive:
    """An archive that `streamkeeper archive` writes, at s3://BUCKET/PREFIX or in a folder."""

    def __init__(self, address: str) -> None:
        self.address, self._place = address, place_at(address)

    def span_ms(self, stream_id: str) -> tuple[int, int]:
        """The time of which it has all events of the stream; (0, 0) if it has none. Raises StreamkeeperError."""
        with translate_errors("The archive"):
            content = self._place.read(state_of(stream_id))
        try:
            if content is None:
                return 0, 0
            state = json.loads(content)
            return (instant_ms(state["from"]) if "from" in state else 0), instant_ms(state["until"])
        except (ValueError, KeyError, TypeError):
            raise StreamkeeperError(
                f"The archive's record of {stream_id!r} was not written by `streamkeeper archive`."
            ) from None

    def batches(self, stream_id: str, from_ms: int, to_ms: int, after: str, jobs: int) -> Iterator[Any]:
        """The events of this time after a position, in their order, as Arrow's record batches."""
        if after.startswith(("key.", "parts~")):
            raise InvalidRequest("This stream's archive has no order by time: give since instead of after.")
        import_package("pyarrow")
        with translate_errors("The archive"):
            names = self._names(stream_id, from_ms, to_ms)
            yield from side_by_side(lambda name: self._read(name, from_ms, to_ms, after), names, jobs)

    def _names(self, stream_id: str, from_ms: int, to_ms: int) -> list[str]:
        files = (name for name in self._place.names(folder_of(stream_id)) if name.endswith(".parquet"))
        return [name for name in files if from_ms - HOUR_MS < hour_ms(name) < to_ms]

    def _read(self, name: str, from_ms: int, to_ms: int, after: str) -> Iterator[Any]:
        pyarrow, parquet = import_package("pyarrow"), import_package("pyarrow.parquet")
        compute, moment = import_package("pyarrow.compute"), pyarrow.timestamp("ms", tz="UTC")
        is_whole = from_ms <= hour_ms(name) and hour_ms(name) + HOUR_MS <= to_ms and not after
        with self._place.open(name) as file:
            for batch in parquet.ParquetFile(file).iter_batches(ROWS, columns=list(COLUMNS)):
                if not is_whole:
                    at = batch.column("received_at")
                    wanted = compute.greater_equal(at, pyarrow.scalar(from_ms, moment))
                    wanted = compute.and_(wanted, compute.less(at, pyarrow.scalar(to_ms, moment)))
                    wanted = compute.and_(wanted, compute.greater(batch.column("position"), after))
                    batch = batch.filter(wanted)
                if batch.num_rows:
                    yield batch


def side_by_side(read: Callable[[U], Iterable[T]], units: Iterable[U], jobs: int) -> Generator[T]:
    """Yield the content of the units in their order; `jobs` of them are read at a time, ahead of the consumer."""
    waiting = deque[tuple[Iterator[T], Future[list[T]]]]()
    threads = ThreadPoolExecutor(jobs, "streamkeeper-bulk")

    def begun(content: Iterator[T]) -> "Future[list[T]]":
        return threads.submit(lambda: list(itertools.islice(content, AHEAD)))

    def drained(content: Iterator[T], chunks: "Future[list[T]]") -> Iterator[T]:
        while found := chunks.result():
            chunks = begun(content)
            yield from found

    try:
        for unit in units:
            content = iter(read(unit))
            waiting.append((content, begun(content)))
            if len(waiting) == jobs:
                yield from drained(*waiting.popleft())
        while waiting:
            yield from drained(*waiting.popleft())
    finally:
        threads.shutdown(cancel_futures=True)


def folder_of(stream_id: str) -> str:
    """The folder of a stream; a character of the id that a folder's name cannot have is percent-encoded."""
    return f"stream={quote(stream_id, safe='')}"


def state_of(stream_id: str) -> str:
    """The name of the file that says of which time an archive has the stream's events."""
    return f"{STATES}/{quote(stream_id, safe='')}.json"


def hour_ms(name: str) -> int:
    """The beginning of a file's hour, which its folders name."""
    day, hour = (part.partition("=")[2] for part in name.split("/")[1:3])
    return instant_ms(f"{day}T{hour}:00:00+00:00")


def api_instant(at_ms: int) -> str:
    """An instant in the form that the API takes."""
    return instant(datetime.fromtimestamp(at_ms / 1000, UTC))


def instant_ms(written: str) -> int:
    """The instant of a text that the API wrote."""
    return round(datetime.fromisoformat(written).timestamp() * 1000)
