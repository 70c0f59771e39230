"""The embedded AWS as a child process, on its own and behind the run's choice of endpoints."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from local.service.aws_endpoints import Endpoints, needs_embedded
from local.service.embedded_aws import EmbeddedAws, lock
from local.service.listener import bind
from local.service.provision import provision
from local.user_error import UserError
from tests.local.support import PROJECT, client, in_thread, running, until

TABLE = {
    "TableName": "events",
    "BillingMode": "PAY_PER_REQUEST",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
    "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    "TimeToLiveSpecification": {"AttributeName": "expires_at", "Enabled": True},
}
QUEUE = {"QueueName": "dead-letters", "MessageRetentionPeriod": 1209600}


@contextlib.asynccontextmanager
async def engine_in(folder: Path, told: list[str]) -> AsyncIterator[EmbeddedAws]:
    """An engine on `folder`; what it says and does by itself is appended to `told`."""
    held = lock(folder, wait_s=5)

    async def restarted() -> None:
        told.append("restarted")

    engine = EmbeddedAws(
        folder, bind(0, "a test"), held, lambda: told.append("died"), restarted, told.append, told.append
    )
    try:
        await engine.start()
        yield engine
    finally:
        await engine.stop()
        held.close()


def stored(dynamodb: Any) -> list[str]:
    """The keys in the table."""
    return sorted(item["PK"]["S"] for item in dynamodb.scan(TableName="events")["Items"])


def on_disk(folder: Path, text: str) -> bool:
    """Whether the saved state holds `text`."""
    path = folder / "engine" / "dynamodb.json"
    return path.exists() and text in path.read_text()


def test_what_is_stored_survives_a_clean_end(tmp_path: Path) -> None:
    """SIGTERM saves everything, and the next engine on the folder has it, tables and queues too."""
    told: list[str] = []
    with in_thread(lambda: engine_in(tmp_path, told)) as engine:
        urls = provision(Endpoints({}, engine.url), [TABLE], [QUEUE])
        assert urls == {"dead-letters": f"{engine.url}/000000000000/dead-letters"}
        dynamodb = client("dynamodb", engine.url)
        ttl = dynamodb.describe_time_to_live(TableName="events")["TimeToLiveDescription"]
        assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
        dynamodb.put_item(TableName="events", Item={"PK": {"S": "one"}})
    with in_thread(lambda: engine_in(tmp_path, told)) as engine:
        # Making what is there changes nothing.
        provision(Endpoints({}, engine.url), [TABLE], [QUEUE])
        assert stored(client("dynamodb", engine.url)) == ["one"]
    assert told == []


def test_a_table_of_an_older_release_gets_its_index(tmp_path: Path) -> None:
    """What is in the table stays and is found through the index; a bucket that is there already is no error."""
    index = {
        "IndexName": "by-position",
        "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "position", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    names = [*TABLE["AttributeDefinitions"], {"AttributeName": "position", "AttributeType": "S"}]
    with in_thread(lambda: engine_in(tmp_path, [])) as engine:
        provision(Endpoints({}, engine.url), [TABLE], [], ["bodies"])
        dynamodb = client("dynamodb", engine.url)
        dynamodb.put_item(TableName="events", Item={"PK": {"S": "one"}, "position": {"S": "5"}})
        changed = {**TABLE, "AttributeDefinitions": names, "GlobalSecondaryIndexes": [index]}
        for _ in range(2):
            provision(Endpoints({}, engine.url), [changed], [], ["bodies"])
        found = dynamodb.query(
            TableName="events",
            IndexName="by-position",
            KeyConditionExpression="PK = :one",
            ExpressionAttributeValues={":one": {"S": "one"}},
        )["Items"]
        assert [item["position"] for item in found] == [{"S": "5"}]


def test_a_killed_engine_starts_again_from_its_last_save(tmp_path: Path) -> None:
    """A SIGKILL costs what was not saved yet; the address stays, and the run hears of it before and after."""
    told: list[str] = []
    with in_thread(lambda: engine_in(tmp_path, told)) as engine:
        provision(Endpoints({}, engine.url), [TABLE], [])
        dynamodb = client("dynamodb", engine.url)
        dynamodb.put_item(TableName="events", Item={"PK": {"S": "saved"}})
        assert until(lambda: on_disk(tmp_path, '"saved"'))
        first = engine.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert until(lambda: "restarted" in told)
        assert stored(dynamodb) == ["saved"]
        assert engine.pid != first
    assert told[1:] == ["died", "restarted"]
    assert told[0].startswith("the embedded AWS died (-9)")


def test_the_engine_ends_with_its_parent_and_saves(tmp_path: Path) -> None:
    """SIGKILL of the parent makes the engine save and end; the folder is free again then, and not before."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.local.service.test_embedded_aws import TABLE, engine_in, provision, Endpoints\n"
        "async def main():\n"
        "    async with engine_in(pathlib.Path(sys.argv[1]), []) as engine:\n"
        "        await asyncio.to_thread(provision, Endpoints({}, engine.url), [TABLE], [])\n"
        "        print(engine.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        with pytest.raises(UserError, match="in use by another run"):
            lock(tmp_path, wait_s=0)
        parent.kill()
    with lock(tmp_path, wait_s=10):
        assert not running(pid)
    assert on_disk(tmp_path, '"events"')


def test_only_the_sdks_variables_choose_another_endpoint() -> None:
    """AWS_ENDPOINT_URL takes the place of the embedded AWS, a service's own variable for that service alone."""
    embedded = "http://127.0.0.1:1"
    alone = Endpoints({"AWS_ACCESS_KEY_ID": "mine", "AWS_PROFILE": "work"}, embedded)
    assert alone.of("dynamodb") == embedded
    assert alone.environment()["AWS_ACCESS_KEY_ID"] == "local"
    one = Endpoints({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "AWS_ACCESS_KEY_ID": "mine"}, embedded)
    assert (one.of("dynamodb"), one.of("sqs")) == ("http://127.0.0.1:8000", embedded)
    assert one.environment()["AWS_ENDPOINT_URL_DYNAMODB"] == "http://127.0.0.1:8000"
    assert one.environment()["AWS_ACCESS_KEY_ID"] == "mine"
    assert not needs_embedded({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"})
    assert needs_embedded({"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000", "AWS_ENDPOINT_URL": ""})


def test_a_taken_port_is_named() -> None:
    """The sentence names the port and what it was for."""
    with bind(0, "a test") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"^Port {port}, needed for the HTTP API, is in use;"):
            bind(port, "the HTTP API")


def test_no_save_is_under_way_after_the_end(tmp_path: Path) -> None:
    """A stop right after a write has that write on disk."""

    async def body() -> None:
        async with engine_in(tmp_path, []) as engine:
            await asyncio.to_thread(provision, Endpoints({}, engine.url), [TABLE], [])
            dynamodb = client("dynamodb", engine.url)
            await asyncio.to_thread(dynamodb.put_item, TableName="events", Item={"PK": {"S": "last"}})

    asyncio.run(body())
    assert on_disk(tmp_path, '"last"')


def test_a_data_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """It holds the secrets of the embedded Secrets Manager; one that was there before keeps its rights."""
    lock(tmp_path / "new").close()
    (tmp_path / "old").mkdir(mode=0o755)
    lock(tmp_path / "old").close()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "old")] == [0o700, 0o755]
