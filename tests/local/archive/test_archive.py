"""`streamkeeper archive` puts each event once into the file of its hour, whatever is killed; DuckDB reads it."""

import base64
import json
import random
import re
import resource
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pyarrow.parquet
import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handlers.framing.events import StreamEvent
from handlers.profile.addresses import ProfileError
from handlers.profile.columns_field import KINDS, RESERVED, columns_of_profile
from handlers.profile.parse import parse
from handlers.redrive.redriving import Stage
from handlers.redrive.restore import Events
from handlers.store.event_items import StoragePolicy
from handlers.store.overflow import Objects
from handlers.store.typed_values import item_key, number_value
from local.archive import run
from local.archive.columns import make_table
from local.archive.command import run_archives
from local.archive.event_readers import TableReader
from local.archive.run import Archive, HourFiles
from local.cli import main
from local.simulation.shared_tasks import store_on
from local.simulation.tables import MemoryDynamoDB
from local.terminal import UserError
from streamkeeper import dataframes
from streamkeeper.archive_places import Folder, Place, place_at
from streamkeeper.bulk import folder_of
from tests.client.api_server import answers, asked, event, page
from tests.examples import examples
from tests.handlers import engine
from tests.handlers.context import Killed
from tests.handlers.servers import serving

STREAM = "prices:eur usd/1"
ORIGIN_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
HOUR_MS = 3_600_000
TABLES = {"events_table": "events", "control_table": "control"}
PROFILE = {"columns": {"price": "$.p", "side": "$.s", "count": {"path": "$.n", "type": "int64"}}}
STORES = ("items", "log", "none")


class KilledFolder(Folder):
    """A folder whose process is killed before its `nth` change."""

    def __init__(self, folder: Path, nth: int) -> None:
        super().__init__(folder)
        self.left = nth

    def _fill_file(self, name: str, fill: Callable[[Path], object]) -> Path:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return super()._fill_file(name, fill)


@dataclass
class Rig:
    """A stream in tables in memory, with events at these milliseconds after ORIGIN_MS, and its archive."""

    folder: Path
    offsets_ms: list[int]
    store: str = "items"
    bodies: Callable[[int], Any] = lambda n: {"n": n, "p": n / 4, "s": "buy"}
    stream_id: str = STREAM
    said: list[str] = field(default_factory=list)
    tables: MemoryDynamoDB = field(default_factory=lambda: MemoryDynamoDB("events", "control"))

    def __post_init__(self) -> None:
        layout: dict[str, Any] = {"partitions": number_value(0 if self.store == "log" else 1)}
        if self.store == "none":
            layout["order"] = {"S": "none"}
        self.tables.put_item(
            TableName="control", Item=item_key(self.stream_id, "lease") | {"fence": number_value(1)} | layout
        )
        found = [
            StreamEvent(str(n), json.dumps(self.bodies(n)), None, None, None, ORIGIN_MS + at)
            for n, at in enumerate(sorted(self.offsets_ms))
        ]
        store = store_on(self.tables, TABLES)
        if self.store == "log":
            now = [ORIGIN_MS]
            log = store.log_writer(self.stream_id, 1, lambda: now[0], window_ms=900_000, keep_days=0)
            for event in found:
                now[0] = event.received_at_ms
                log.write(0, [event])
        elif found:
            policy = StoragePolicy(order="none" if self.store == "none" else "index")
            store.write(self.stream_id, 1, 0, found, policy)

    def source(self, **environment: str) -> TableReader:
        events = Events(self.tables, "events", Objects(lambda: None, ""))
        return TableReader(Stage(None, "", self.tables, "control", events, None, ""), environment)

    def archive(self, place: Place | None = None, **more: Any) -> Archive:
        """Returns the archive as a new process has it."""
        columns = tuple(columns_of_profile("prices", PROFILE))
        return Archive(STREAM, self.source(), place or Folder(self.folder), columns, self.said.append, **more)

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields each row of each file, with the file's folder below that of the stream."""
        for path in sorted(self.folder.rglob("*.parquet")):
            place = str(path.parent.relative_to(self.folder / folder_of(STREAM)))
            yield from ((place, row) for row in pyarrow.parquet.ParquetFile(path).read().to_pylist())

    def check(self, until_ms: int) -> None:
        """Checks that every event before that instant is in one file, that of its hour, and that no other event is."""
        wanted = Counter(
            (run.partition(STREAM, ORIGIN_MS + at).partition("/")[2], str(n))
            for n, at in enumerate(sorted(self.offsets_ms))
            if ORIGIN_MS + at < until_ms
        )
        assert Counter((place, row["key"]) for place, row in self.rows()) == wanted


times = st.lists(st.integers(0, 7 * HOUR_MS), max_size=25, unique=True)


@settings(max_examples=examples(200), deadline=None)
@given(times, st.sampled_from(STORES), st.lists(st.integers(0, 9), max_size=4), st.integers(1, 3), st.data())
def test_an_event_is_in_one_file_however_often_the_process_dies(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], store: str, kills: list[int], jobs: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    """After a kill at any instant the next run continues where the last one stopped, and replaces unfinished files."""
    rig = Rig(tmp_path_factory.mktemp("archive"), offsets, store)
    begin = ORIGIN_MS if store == "none" else None
    most, until_ms = data.draw(st.sampled_from([1, 400, 10**9])), ORIGIN_MS
    for nth in kills:
        until_ms = max(until_ms, ORIGIN_MS + data.draw(st.integers(0, 9)) * HOUR_MS)
        archive = rig.archive(KilledFolder(rig.folder, nth), jobs=jobs, most_bytes=most, least_bytes=most // 4)
        try:
            archive.run(until_ms, None if (rig.folder / "_streamkeeper").exists() else begin)
        except Killed:
            continue
        rig.check(until_ms)
    until_ms = ORIGIN_MS + 9 * HOUR_MS
    archive = rig.archive(jobs=jobs, most_bytes=most, least_bytes=most // 4)
    archive.run(until_ms, None if (rig.folder / "_streamkeeper").exists() else begin)
    rig.check(until_ms)
    assert rig.archive().run(until_ms) == 0


def test_files_of_a_killed_run_are_deleted(tmp_path: Path) -> None:
    """An unfinished hour may have more files than are needed now, because some of its events have expired since."""
    rig = Rig(tmp_path, [0, HOUR_MS])
    left = tmp_path / run.partition(STREAM, ORIGIN_MS + HOUR_MS) / "part-0001.parquet"
    rig.archive().run(ORIGIN_MS + HOUR_MS)
    left.parent.mkdir(parents=True)
    left.write_bytes((tmp_path / run.partition(STREAM, ORIGIN_MS) / "part-0000.parquet").read_bytes())
    rig.archive().run(ORIGIN_MS + 2 * HOUR_MS)
    rig.check(ORIGIN_MS + 2 * HOUR_MS)


def test_an_hour_is_over_once_nothing_more_is_stored() -> None:
    """An hour is over 16 minutes after its end, when the function that received its last event has ended."""
    at = {"08:59": 59, "09:15:59": 75.98, "09:16": 76, "10:16": 136}
    over = {name: run.end_of_settled_hours(ORIGIN_MS + round(minutes * 60_000)) for name, minutes in at.items()}
    assert over == {
        "08:59": ORIGIN_MS, "09:15:59": ORIGIN_MS, "09:16": ORIGIN_MS + HOUR_MS, "10:16": ORIGIN_MS + 2 * HOUR_MS,
    }  # fmt: skip
    assert run.partition(STREAM, ORIGIN_MS) == "stream=prices%3Aeur%20usd%2F1/day=2027-01-15/hour=08"


def test_a_column_keeps_the_type_of_its_first_hour(tmp_path: Path) -> None:
    """A later value that does not fit, such as 2^63, is null and counted, unless the profile names the type."""

    def body(n: int) -> Any:
        return [{"p": 1, "s": "buy", "n": "7"}, {"p": "1.5", "s": 3}, {"p": "high", "n": 2**63}, "no object"][n]

    rig = Rig(tmp_path, [0, HOUR_MS, HOUR_MS + 1, HOUR_MS + 2], bodies=body)
    for until in (1, 2):
        rig.archive().run(ORIGIN_MS + until * HOUR_MS)
    found = [(row["price"], row["side"], row["count"]) for _, row in rig.rows()]
    assert found == [(1.0, "buy", 7), (1.5, "3", None), (None, None, None), (None, None, None)]
    assert sorted(rig.said)[:2] == [
        f"{STREAM} 2027-01-15T08h: 1 event in 1 file, 0.0 MB",
        f"{STREAM} 2027-01-15T09h: 3 events in 1 file, 0.0 MB",
    ]
    assert sorted(rig.said)[2:] == [
        f"{STREAM}: 1 value of {name} with another type, written as null" for name in ("count", "price")
    ]
    schemas = {pyarrow.parquet.read_schema(path) for path in tmp_path.rglob("*.parquet")}
    assert len(schemas) == 1


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("int64", 2**53 + 1, 2**53 + 1), ("int64", str(2**63 - 1), 2**63 - 1), ("int64", 2.0, 2), ("int64", 2.5, None),
        ("int64", "1_000", None), ("double", "1_000", None), ("double", 10**400, None), ("double", ".5", 0.5),
        ("timestamp", 0, datetime(1970, 1, 1, tzinfo=UTC)), ("timestamp", 1e20, None),
        ("timestamp", "1795120112340", datetime(2026, 11, 19, 20, 28, 32, 340_000, UTC)),
        ("timestamp", "20261130", datetime(2026, 11, 30, tzinfo=UTC)),
        ("timestamp", "0001-01-01T00:00:00+14:00", None), ("timestamp", "9999-12-31T23:59:59-14:00", None),
        (None, 2**53 + 1, 2**53 + 1), (None, 2**63, str(2**63)), (None, 7, 7.0),
    ],
)  # fmt: skip
def test_a_cell_has_all_digits_or_is_null(kind: str | None, value: Any, cell: Any) -> None:
    """A number that a double cannot hold becomes an int64 or a string; an instant out of range is null."""
    chosen = columns_of_profile("prices", {"columns": {"c": {"path": "$.c", "type": kind} if kind else "$.c"}})
    one = event(1) | {"data": json.dumps({"c": value})}
    made = make_table(chosen, {}, [one])
    assert pyarrow.Table.from_pylist([made.row(one)], schema=made.schema())["c"].to_pylist() == [cell]
    assert made.misfits.total() == (cell is None)


def test_duckdb_reads_the_archive_as_a_table(tmp_path: Path) -> None:
    """Partitions are columns, and the stream's id has its colon."""
    Rig(tmp_path, [0, 1, HOUR_MS, 20 * HOUR_MS]).archive().run(ORIGIN_MS + 21 * HOUR_MS)
    table = f"read_parquet('{tmp_path}/stream=*/*/*/*.parquet', hive_partitioning=true)"
    read = duckdb.sql(
        f"SELECT stream, CAST(day AS VARCHAR), CAST(hour AS VARCHAR), count(*), avg(price), min(received_at) = "
        f"max(received_at) FROM {table} GROUP BY ALL ORDER BY 2, 3"
    )
    assert read is not None
    assert read.fetchall() == [
        (STREAM, "2027-01-15", "08", 2, 0.125, False),
        (STREAM, "2027-01-15", "09", 1, 0.5, True),
        (STREAM, "2027-01-16", "04", 1, 0.75, True),
    ]


sizes = st.lists(st.integers(0, 3000), min_size=1, max_size=60)


@settings(max_examples=examples(200), deadline=None)
@given(sizes)
@example([3_000] * 40 + [0])
def test_files_are_neither_small_nor_large(tmp_path_factory: pytest.TempPathFactory, bodies: list[int]) -> None:
    """Each of several files has at least `least` bytes, and at most `most` plus a row group and `least`."""
    folder, schema = tmp_path_factory.mktemp("hour"), dataframes.schema()
    files = HourFiles(folder, schema, most=12_000, least=4_000)
    rows, noise = [], random.Random(len(bodies))
    for at, size in enumerate(bodies):
        event = {"position": f"{at:05d}", "received_at": None, "key": str(at), "id": None, "name": None}
        rows.append(dataframes.row(event | {"data_base64": base64.b64encode(noise.randbytes(size)).decode()}))
        files.add(rows[-1])
    paths = files.close()
    read = [row for path in paths for row in pyarrow.parquet.ParquetFile(path).read().to_pylist()]
    assert read == rows
    assert sorted(folder.iterdir()) == sorted(paths)
    assert [path.name for path in paths] == [f"part-{at:04d}.parquet" for at in range(len(paths))]
    # A row group ends with the row that fills it; what a file says of its columns takes less than 5,000 bytes.
    assert max(path.stat().st_size for path in paths) <= 12_000 + (12_000 + 3_100) + 4_000 + 5_000
    assert len(paths) == 1 or min(path.stat().st_size for path in paths) >= 4_000


def test_a_run_that_cannot_continue_says_why(tmp_path: Path) -> None:
    """Another --from, a missing beginning, a full disk and a broken state are refused with one sentence each."""
    rig = Rig(tmp_path, [0])
    rig.archive().run(ORIGIN_MS + HOUR_MS)
    with pytest.raises(UserError, match=r"continues at 2027-01-15T09:00:00.000Z: leave out --from; to begin again"):
        rig.archive().run(ORIGIN_MS + HOUR_MS, ORIGIN_MS)
    with pytest.raises(UserError, match="has no order, so its first event is unknown: give --from"):
        Rig(tmp_path / "none", [0], "none").archive().run(ORIGIN_MS)
    with pytest.raises(UserError, match="was never started in this stage"):
        replace(rig.archive(), stream_id="other").run(ORIGIN_MS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, before[1]))  # less than a file of Parquet takes
    try:
        with pytest.raises(UserError, match="A temporary file cannot be written: File too large; TMPDIR chooses"):
            Rig(tmp_path / "full", [0]).archive().run(ORIGIN_MS + HOUR_MS)
        with pytest.raises(OSError, match="File too large"):
            Folder(tmp_path / "full").write("place", b"-" * 500)
        assert not [*(tmp_path / "full").glob(".*")]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (state,) = (tmp_path / "_streamkeeper").iterdir()
    state.write_text("{}")
    with pytest.raises(UserError, match="in the archive was not written by this command"):
        rig.archive().run(ORIGIN_MS)


def test_an_archive_with_follow_survives_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage, --follow archives the events before and during it, with the --from of its first run."""
    rig = Rig(tmp_path, [0, HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS])
    query, ends = rig.tables.query, iter(ORIGIN_MS + run.SETTLED_MS + hour * HOUR_MS for hour in (1, 2, 3, 4))

    def away(**_: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="x")

    def sleep(_seconds: float) -> None:
        rig.tables.query = query if len(rig.said) > 1 else away  # type: ignore[method-assign]

    monkeypatch.setattr("time.sleep", sleep)
    arguments = Namespace(follow=True, to="x")
    with pytest.raises(StopIteration):
        run_archives(arguments, ORIGIN_MS, lambda _now: next(ends), [rig.archive()])
    rig.check(ORIGIN_MS + 4 * HOUR_MS)
    words = "The tables cannot be read: AWS did not answer Query: EndpointConnectionError."
    assert [line for line in rig.said if "try" in line] == [f"{STREAM}: {words} The next try is in 60 seconds."]
    rig.tables.query = away  # type: ignore[method-assign]
    with pytest.raises(UserError, match="The tables cannot be read"):
        run_archives(arguments, None, lambda _now: ORIGIN_MS, [rig.archive()])


@pytest.mark.parametrize("store", STORES)
def test_a_beginning_is_kept_until_its_hour_is_over(tmp_path: Path, store: str) -> None:
    """If the first hour is not over, a later run still begins at the --from, and archives no event before it."""
    rig = Rig(tmp_path, [0, HOUR_MS, 5 * HOUR_MS], store)
    assert rig.archive().run(ORIGIN_MS + 4 * HOUR_MS, ORIGIN_MS + 5 * HOUR_MS) == 0
    assert rig.archive().run(ORIGIN_MS + 6 * HOUR_MS) == 1
    assert [row["key"] for _, row in rig.rows()] == ["2"]


def test_events_that_may_have_expired_unarchived_are_reported(tmp_path: Path) -> None:
    """If the last run is longer ago than the profile keeps events, the run reports it and continues."""
    rig = Rig(tmp_path, [0, 30 * HOUR_MS])
    for hour, is_late in ((1, False), (25, False), (60, True)):
        archive = rig.archive(keep_days=1)
        archive.run(ORIGIN_MS + hour * HOUR_MS)
        assert archive.is_late is is_late
    assert [line for line in rig.said if "may be" in line] == [
        f"{STREAM}: events leave the tables after 1 day, and this archive ended at 2027-01-16T09:00:00.000Z: events "
        "received before 2027-01-16T20:00:00.000Z may be in neither."
    ]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({}, "columns must be a table of names and JSON paths"),
        ({"key": "$.k"}, "columns.key is a column that every archive has"),
        ({"Price": "$.p"}, "columns.Price must be a name of a-z, 0-9 and _"),
        ({"price": "p"}, "columns.price must be a JSON path"),
        ({"price": {"path": "$.p"}}, "columns.price.type is missing"),
        ({"price": {"path": "$.p", "type": "float"}}, "columns.price.type must be"),
        ({"price": {"path": "$.p", "type": "double", "of": 1}}, "columns.price.of is not a field of a column"),
    ],
)
def test_a_mistake_in_the_columns_of_a_profile_is_named(columns: dict[str, Any], problem: str) -> None:
    """A mistake in the columns is refused with one sentence that names the field."""
    with pytest.raises(ProfileError) as refused:
        parse("s", {"address": "https://s.example", "framing": "sse", "columns": columns}, {})
    assert problem in str(refused.value)


def test_the_reserved_names_are_those_of_every_archive() -> None:
    """The functions' code may not import the client's, so both have a list of the names."""
    assert {*dataframes.COLUMNS, "stream", "day", "hour"} == RESERVED
    assert KINDS == ("string", "double", "int64", "boolean", "timestamp")


def test_a_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake is found before anything is requested, because a column that is left out would be missing for good."""
    monkeypatch.delenv("STREAMKEEPER_URL", raising=False)
    (tmp_path / "demo.toml").write_text('address = "${UPSTREAM_X}/a"\nframing = "sse"\ncolumns = { price = 3 }\n')
    for options, words in (
        (["--profiles", str(tmp_path)], "demo.toml is wrong: the profile 'demo': columns.price must be a JSON path"),
        (["--stage", "prod"], "--stage works only with --tables"),
        (["--jobs", "0"], "--jobs must be a whole number from 1 to 64"),
        (["--to", "s3:///x"], "--to must be s3://BUCKET/PREFIX or a folder"),
    ):
        assert main(["archive", "demo", "--to", "here", *options]) == 2
        said = capsys.readouterr().err
        assert (words in said, said.count("\n")) == (True, 1), said


def test_the_api_is_read_page_by_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command requests the API's time, the stream's order and beginning, each hour, and the next hour with events.

    An hour is over by the API's clock, even if this machine's is ahead. The command says what the files lack: the
    columns of a profile that this machine does not have, and bodies.
    """
    monkeypatch.chdir(tmp_path)
    last = answers({"stream": "prices", "events": [event(3) | {"data": None, "left_out": "key"}], "next": None})
    clock = answers({"streams": [], "next": None}, 200, "Date: Tue, 24 Nov 2026 01:17:00 GMT")
    with serving(clock, page(), page(1), page(), page(1), page(1, 2, is_last=False), last, page()) as server:
        assert main(["archive", "prices", "--to", "archive", "--url", server.address]) == 0
    asked_for = [re.sub(r"%3A00\.000Z|%3A|%2F", "", line.partition("?")[2]) for line in asked(server)]
    assert json.loads(Path("archive/_streamkeeper/prices.json").read_text())["until"] == "2026-11-24T01:00:00.000Z"
    assert asked_for == [
        "limit=1",
        "limit=1",
        "from=1970-01-01T0000&limit=1",
        "from=2026-11-23T2300&to=2026-11-24T0000&limit=1000",
        "from=2026-11-24T0000&limit=1",
        "from=2026-11-24T0000&to=2026-11-24T0100&limit=1000",
        "from=2026-11-24T0000&to=2026-11-24T0100&after=000000000000002000000000000000000000000&limit=1000",
        "from=2026-11-24T0100&limit=1",
    ]
    said = capsys.readouterr().err
    assert "prices 2026-11-24T00h: 3 events in 1 file, 0.0 MB; 1 without their bodies (left_out)\n" in said
    # Nobody would find a column missing before it is needed.
    assert said.startswith("prices: archived without the columns and keep_days of its profile. There is no profile ")
    with serving(clock, page(), page()) as server:
        assert main(["archive", "prices", "--to", "archive", "--url", server.address]) == 0
    assert "prices: nothing new to archive; an hour is archived 16 minutes after" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.cpu(20)
def test_a_bucket_has_the_same_files_as_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded S3 has the same files under the same names, and no file of a killed run."""
    with engine.running(tmp_path / "engine") as address:
        for name, value in {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "local")
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="archive")
        left = f"events/{run.partition(STREAM, ORIGIN_MS)}/part-0007.parquet"
        s3.put_object(Bucket="archive", Key=left, Body=b"left")
        rig = Rig(tmp_path / "folder", [0, 1, 5 * HOUR_MS])
        for place in (Folder(rig.folder), place_at("s3://archive/events")):
            for until in (1, 7):
                rig.archive(place).run(ORIGIN_MS + until * HOUR_MS)
        kept = s3.list_objects_v2(Bucket="archive", Prefix="events/")["Contents"]
        found = {
            one["Key"].removeprefix("events/"): s3.get_object(Bucket="archive", Key=one["Key"])["Body"].read()
            for one in kept
        }
    files = [path for path in rig.folder.rglob("*") if path.is_file()]
    assert found == {str(path.relative_to(rig.folder)): path.read_bytes() for path in files}
    assert len(found) == 3
