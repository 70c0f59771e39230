"""The embedded DynamoDB keeps every acknowledged write, whichever process is killed."""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from handlers.connection.inputs import Layout
from handlers.store.event_reader import EventReader
from local.aws_endpoints import Endpoints
from local.service import embedded_aws, osls
from local.service.backend import provision
from local.service.embedded_aws import EmbeddedDynamoDB, lock
from local.stack import read_stack
from tests.local.service.embedded import TABLE
from tests.local.service.test_embedded_aws import stored_keys
from tests.local.support import PROJECT, client, in_thread, until


@contextlib.asynccontextmanager
async def database_in(folder: Path, said: list[str]) -> AsyncIterator[EmbeddedDynamoDB]:
    """Yields a database on `folder`; its lines are appended to `said`."""
    binary = embedded_aws.find_dynoxide(PROJECT)
    assert binary is not None
    held = lock(folder, wait_s=5)
    database = EmbeddedDynamoDB(folder, binary, held, said.append, said.append)
    try:
        await database.start()
        yield database
    finally:
        await database.stop()
        held.close()


def table_of(database: EmbeddedDynamoDB) -> Any:
    """Creates the table in the database and returns a client."""
    provision(Endpoints({}, None, database.url), [TABLE], [])
    return client("dynamodb", database.url)


def is_answered(dynamodb: Any) -> bool:
    """Returns whether the database answers."""
    with contextlib.suppress(BotoCoreError):
        dynamodb.list_tables()
        return True
    return False


def test_the_databases_port_is_outside_the_range_of_ephemeral_ports(tmp_path: Path) -> None:
    """The database's port lies below 32,768. From there on the system gives ports to other programs, and seconds pass
    between the choice of the port and the start.
    """
    held, said = lock(tmp_path, wait_s=5), list[str]()
    with held:
        urls = {EmbeddedDynamoDB(tmp_path, tmp_path, held, said.append, said.append).url for _ in range(20)}
    assert all(10_000 <= int(url.rpartition(":")[2]) < 32_768 for url in urls)


def test_every_answered_write_survives_a_kill(tmp_path: Path) -> None:
    """After SIGKILL amid writes, the database comes back at its address with each acknowledged write."""
    said: list[str] = []
    with in_thread(lambda: database_in(tmp_path, said)) as database:
        dynamodb = table_of(database)
        answered: list[str] = []
        begun = threading.Event()

        def write() -> None:
            with contextlib.suppress(BotoCoreError):
                for number in itertools.count():
                    dynamodb.put_item(TableName="events", Item={"PK": {"S": f"{number:06d}"}})
                    answered.append(f"{number:06d}")
                    if number == 50:
                        begun.set()
                    if said:
                        return

        writer = threading.Thread(target=write)
        writer.start()
        assert begun.wait(60)
        first = database.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        writer.join(60)
        assert not writer.is_alive()
        assert until(lambda: is_answered(dynamodb))
        assert database.pid != first
        assert set(answered) <= set(stored_keys(dynamodb))
        assert len(answered) > 50
    assert [line.split(";")[0] for line in said] == ["the embedded DynamoDB died (-9)"]


def test_what_is_stored_survives_a_clean_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run on the folder has the items of the former; creating an existing table changes nothing.

    A relative folder is resolved where the command was typed, and its name may have characters with a meaning in URLs.
    """
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    with in_thread(lambda: database_in(Path("da ta#1?%41é"), said)) as database:
        table_of(database).put_item(TableName="events", Item={"PK": {"S": "one"}})
    assert (tmp_path / "da ta#1?%41é" / "dynamodb.sqlite").exists()
    with in_thread(lambda: database_in(tmp_path / "da ta#1?%41é", said)) as database:
        assert stored_keys(table_of(database)) == ["one"]
    assert said == []


def test_tables_in_two_places_are_named_at_each_start(tmp_path: Path) -> None:
    """A run without the folder's database, and each later run, reports the tables that it cannot read."""
    assert embedded_aws.unreadable_tables(tmp_path, is_embedded=True) == []
    assert embedded_aws.unreadable_tables(tmp_path, is_embedded=False) == []
    database_file = tmp_path / "dynamodb.sqlite"
    database_file.touch()
    (line,) = embedded_aws.unreadable_tables(tmp_path, is_embedded=False)
    assert line == f"ALERT: the tables in {database_file} cannot be read without dynoxide: this run uses new ones"
    for _ in range(2):
        (line,) = embedded_aws.unreadable_tables(tmp_path, is_embedded=True)
        assert line.startswith(f"ALERT: {tmp_path / 'engine'} has tables of earlier runs without dynoxide, ")
    (tmp_path / "tables-apart").unlink()
    assert embedded_aws.unreadable_tables(tmp_path, is_embedded=True) == []


@pytest.mark.long
def test_memory_and_pages_do_not_grow_with_the_events(tmp_path: Path) -> None:
    """With 2,500 events the database takes less than 32 MB, and a page of the index has the requested entries."""
    (events,) = [
        table for table in read_stack(osls.template("test"), {}).tables if table["TableName"].endswith("-events")
    ]
    name = events["TableName"]
    with in_thread(lambda: database_in(tmp_path, [])) as database:
        provision(Endpoints({}, None, database.url), [events], [])
        dynamodb = client("dynamodb", database.url)
        same = {"PK": {"S": "s"}, "data": {"S": "x" * 200}, "received_at_ms": {"N": "1"}, "fence": {"N": "1"}}
        keys = [{"S": f"{number:06d}"} for number in range(2500)]
        for first in range(0, len(keys), 25):
            items = [same | {"SK": key, "position": key} for key in keys[first : first + 25]]
            requests = [{"PutRequest": {"Item": item}} for item in items]
            assert not dynamodb.batch_write_item(RequestItems={name: requests})["UnprocessedItems"]
        entries = list(EventReader(dynamodb, name, lambda _: None).entries("s", Layout(), 0, "002321", 3))
        assert [entry.position for entry in entries] == ["002322", "002323", "002324"]
        status = Path(f"/proc/{database.pid}/status").read_text()
        assert int(status.partition("VmRSS:")[2].split()[0]) < 32 * 1024


def test_there_is_no_database_on_a_platform_without_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a platform without a build, or if npm installed none, the embedded AWS keeps the tables instead."""
    assert embedded_aws.find_dynoxide(PROJECT) is not None
    assert embedded_aws.find_dynoxide(tmp_path) is None
    monkeypatch.setattr(sys, "platform", "sunos")
    assert embedded_aws.find_dynoxide(PROJECT) is None
