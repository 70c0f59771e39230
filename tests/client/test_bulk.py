"""Reading across an archive and the tables or the API: each event once, in order, even if it left the tables."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from hypothesis import given, settings
from hypothesis import strategies as st

from local.archive import run
from local.cli import main
from local.simulation.tables import MemoryDynamoDB
from local.terminal import UserError
from streamkeeper import Client, InvalidRequest, StreamkeeperError, dataframes
from streamkeeper.bulk import AHEAD, api_instant, instant_ms, pages_from_tables, side_by_side
from tests.client.api_server import STREAM as OF_API
from tests.client.api_server import asked, event, page
from tests.examples import examples
from tests.handlers.servers import serving
from tests.local.archive.test_archive import HOUR_MS, ORIGIN_MS, STORES, STREAM, Rig, times

NOWHERE = "http://127.0.0.1:1"


def leave(rig: Rig, from_ms: int, before_ms: int) -> None:
    """Deletes the events of that time from the tables, as `keep_days` does."""
    for item in list(rig.tables._tables["events"].values()):
        if "position" in item and from_ms <= int(item["position"]["S"].partition("/")[0]) < before_ms:
            rig.tables.delete_item(TableName="events", Key={name: item[name] for name in ("PK", "SK")})


@settings(max_examples=examples(60), deadline=None)
@given(times, st.sampled_from(STORES), st.integers(1, 4), st.data())
def test_reading_crosses_from_the_archive_to_the_tables_without_a_hole(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], store: str, jobs: int, data: st.DataObject
) -> None:
    """For any range of time and any archived hours, each event is read once, though archived ones have left the tables.

    An archive that began with `--from` lacks older events; those are read from the tables.
    """
    rig = Rig(tmp_path_factory.mktemp("archive"), offsets, store)
    until_ms = ORIGIN_MS + data.draw(st.integers(0, 8)) * HOUR_MS
    begin_ms = data.draw((st.none() if store != "none" else st.nothing()) | st.integers(ORIGIN_MS, until_ms))
    rig.archive().run(until_ms, begin_ms)
    if store == "items":
        first_ms = run.hour_of(begin_ms or ORIGIN_MS)
        leave(rig, first_ms, data.draw(st.integers(first_ms, until_ms)))
    first, last = sorted(ORIGIN_MS + data.draw(st.integers(-1, 8 * HOUR_MS)) for _ in range(2))
    client = Client(NOWHERE, archive=rig.folder, tables=rig.source(), jobs=jobs)
    found = client.events(STREAM, api_instant(first), api_instant(last + 1))
    wanted = [str(n) for n, at in enumerate(sorted(offsets)) if first <= ORIGIN_MS + at <= last]
    keys = [event.key for event in found]
    assert (sorted(keys, key=int) if store == "none" else keys) == wanted
    assert found.to_arrow()["key"].to_pylist() == keys


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(times, st.sampled_from(("items", "log"))), min_size=2, max_size=3), st.data())
def test_a_stream_in_parts_is_read_as_one(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[list[int], str]], data: st.DataObject
) -> None:
    """Each event of each part is read once, in the order of arrival, from the archive or from the tables.

    A part that was never started has no events. If no part was started, or no profile lists the parts, the reader gets
    one sentence.
    """
    folder, labels = tmp_path_factory.mktemp("archive"), ["a", "b", "c", "d"][: len(parts) + 1]
    (folder / "feed.toml").write_text(f"parts = {json.dumps(labels)}")
    names = [f"feed:{label}" for label in labels]
    rig = Rig(folder, *parts[0], stream_id=names[0])
    for name, one in zip(names[1:], parts[1:], strict=False):
        Rig(folder, *one, stream_id=name, tables=rig.tables)
    source = rig.source(STREAMKEEPER_PROFILES=str(folder))
    until_ms = ORIGIN_MS + data.draw(st.integers(0, 8)) * HOUR_MS
    replace(rig.archive(), stream_id="feed", source=source).run(until_ms)
    first, last = sorted(ORIGIN_MS + data.draw(st.integers(-1, 8 * HOUR_MS)) for _ in range(2))
    found = Client(NOWHERE, archive=folder, tables=source).events("feed", api_instant(first), api_instant(last + 1))
    wanted = [
        (ORIGIN_MS + at, name, str(n))
        for name, (offsets, _) in zip(names, parts, strict=False)
        for n, at in enumerate(sorted(offsets))
        if first <= ORIGIN_MS + at <= last
    ]
    events = [(instant_ms(one.raw["received_at"]), one.raw["stream"], one.key) for one in found]
    assert events == sorted(wanted)
    assert found.to_arrow()["part"].to_pylist() == [part for _, part, _ in events]
    with pytest.raises(UserError, match="If it is read in parts, STREAMKEEPER_PROFILES"):
        next(rig.source().pages("feed", 0, until_ms))


def test_the_api_is_asked_only_for_what_the_archive_lacks(tmp_path: Path) -> None:
    """The client requests the events from the end of the archive on, and those after the caller's position."""
    clock, none = page(), page()
    with serving(clock, none, page(1), none, page(1, 2), page(1, 2), none, page(3, 4), page(4)) as server:
        assert main(["archive", OF_API, "--to", str(tmp_path), "--url", server.address]) == 0
        client = Client(server.address, archive=tmp_path)
        events = list(client.events(OF_API))
        first = events[0].position
        assert [event.key for event in client.events(OF_API, after=first)] == ["2", "4"]
    assert [event.key for event in events] == ["1", "2", "3", "4"]
    assert {*events[0].raw} == {*events[2].raw}
    lines = [line.replace("%3A", ":").replace("%2F", "/") for line in asked(server)[-2:]]
    (state,) = (tmp_path / "_streamkeeper").iterdir()
    assert [f"from={json.loads(state.read_text())['until']}" in line for line in lines] == [True, True]
    assert f"after={first}" in lines[1]


def test_a_folder_without_an_archive_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A mistyped folder would otherwise hide the events that have left the tables."""
    with serving(page(1)) as server:
        assert [one.key for one in Client(server.address, archive=tmp_path / "typo").events(OF_API)] == ["1"]
    assert caplog.messages == [f"{tmp_path}/typo is no archive of 'prices': all is read elsewhere."]


def test_the_archive_may_grow_while_it_is_read(tmp_path: Path) -> None:
    """Events are archived and leave the tables before a slow reader comes to them. It reads them from the archive."""
    rig = Rig(tmp_path, [number * HOUR_MS for number in range(6)])
    rig.archive().run(ORIGIN_MS + 2 * HOUR_MS)
    found = iter(Client(NOWHERE, archive=rig.folder, tables=rig.source()).events(STREAM))
    keys = [next(found).key]
    rig.archive().run(ORIGIN_MS + 5 * HOUR_MS)
    leave(rig, 0, ORIGIN_MS + 5 * HOUR_MS)
    assert keys + [event.key for event in found] == [str(number) for number in range(6)]


def test_an_arrow_table_keeps_every_field_of_an_event() -> None:
    """The `stream` of a part becomes the column `part`, and an event from an archive equals the original."""
    events = [event(1) | {"stream": "prices:btc"}, event(2) | {"repaired": True}]
    batch = dataframes.batch(events)
    assert batch.column("part").to_pylist() == ["prices:btc", None]
    assert batch.column("repaired").to_pylist() == [False, True]
    assert [dataframes.event_json(one) for one in batch.to_pylist()] == events


def test_readers_are_at_most_a_few_chunks_ahead_of_the_consumer() -> None:
    """Each part's reader waits after a few chunks, and all threads end when the consumer stops."""
    read, before = [0] * 3, threading.active_count()

    def chunks(unit: int) -> Iterator[int]:
        for number in range(1000):
            read[unit] += 1
            yield number

    found = side_by_side(chunks, range(3), 3)
    assert [next(found) for _ in range(10)] == list(range(10))
    assert all(count <= 10 + AHEAD + 2 for count in read)
    found.close()
    assert threading.active_count() == before
    assert list(side_by_side(lambda unit: [unit] * unit, range(5), 2)) == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]


class Away(MemoryDynamoDB):
    """Tables that do not answer."""

    def get_item(self, **_: Any) -> Any:
        """Raises the error of boto3 for an endpoint that does not answer."""
        raise EndpointConnectionError(endpoint_url="")


def test_an_unreadable_archive_or_table_is_one_sentence(tmp_path: Path) -> None:
    """The error is a sentence of the client, whatever the tables or the archive raise."""
    rig, away = Rig(tmp_path, [0]), Rig(tmp_path, [], tables=Away("events", "control")).source()
    rig.archive().run(ORIGIN_MS + HOUR_MS)
    for file in tmp_path.rglob("*.parquet"):
        file.write_bytes(b"no Parquet")
    refused: dict[str, Callable[[], Any]] = {
        "The archive cannot be read": lambda: list(Client(NOWHERE, archive=tmp_path).events(STREAM)),
        "^The tables cannot be read: The stream": lambda: list(
            pages_from_tables(rig.source(), "other", 0, ORIGIN_MS, 1)
        ),
        "^The tables cannot be read: AWS": lambda: list(pages_from_tables(away, STREAM, 0, ORIGIN_MS, 1)),
        "limit and order work only with the API": lambda: Client(NOWHERE, archive=tmp_path).events(STREAM, limit=1),
        "jobs must be 1 or more": lambda: Client(NOWHERE, jobs=0),
        "s3://BUCKET/PREFIX or a folder, not 's3:///x'": lambda: Client(NOWHERE, archive="s3:///x"),
        "or a folder, not ''": lambda: Client(NOWHERE, archive=""),
        "or a folder, not 'gs://x/y'": lambda: Client(NOWHERE, archive="gs://x/y"),
    }
    for words, ask in refused.items():
        with pytest.raises(StreamkeeperError, match=words):
            ask()
    with pytest.raises(InvalidRequest):
        list(Client(NOWHERE, archive=tmp_path).events(STREAM, after="key.YQ"))
