"""The embedded AWS as a child process, on its own and behind the run's choice of endpoints."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from local.aws_endpoints import Endpoints
from local.service import child
from local.service.backend import provision
from local.service.embedded_aws import lock
from local.terminal import UserError
from tests.local.service.embedded import QUEUE, TABLE, embedded_aws_in, is_saved
from tests.local.support import PROJECT, client, in_thread, running, until


def stored_keys(dynamodb: Any) -> list[str]:
    """Returns the keys in the table, in order."""
    return sorted(item["PK"]["S"] for item in dynamodb.scan(TableName="events")["Items"])


INDEX = {
    "IndexName": "by-position",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "position", "KeyType": "RANGE"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}
NAMES = [*TABLE["AttributeDefinitions"], {"AttributeName": "position", "AttributeType": "S"}]
LATER = TABLE | {"AttributeDefinitions": NAMES, "GlobalSecondaryIndexes": [INDEX]}


def test_what_is_stored_survives_a_clean_end(tmp_path: Path) -> None:
    """SIGTERM makes the child save everything, and the next child on the folder has the tables, the queues and the
    bodies in buckets.

    A table of an older release gets its index, which also finds the older items. If the disk refuses data at the next
    end, a line names the services and the log with the reason.
    """
    log: list[str] = []
    with in_thread(lambda: embedded_aws_in(tmp_path, log)) as aws:
        urls = provision(Endpoints({}, aws.url), [TABLE], [QUEUE], ["bodies"])
        assert urls == {"dead-letters": f"{aws.url}/000000000000/dead-letters"}
        dynamodb = client("dynamodb", aws.url)
        ttl = dynamodb.describe_time_to_live(TableName="events")["TimeToLiveDescription"]
        assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
        dynamodb.put_item(TableName="events", Item={"PK": {"S": "one"}, "position": {"S": "5"}})
        client("s3", aws.url).put_object(Bucket="bodies", Key="kept-30d/demo:a/1", Body=b"large")
    assert log == []
    with in_thread(lambda: embedded_aws_in(tmp_path, log)) as aws:
        # Creating what exists changes nothing.
        for table in (TABLE, LATER, LATER):
            provision(Endpoints({}, aws.url), [table], [QUEUE], ["bodies"])
        dynamodb = client("dynamodb", aws.url)
        assert stored_keys(dynamodb) == ["one"]
        wanted = {"KeyConditionExpression": "PK = :one", "ExpressionAttributeValues": {":one": {"S": "one"}}}
        (item,) = dynamodb.query(TableName="events", IndexName="by-position", **wanted)["Items"]
        assert item["position"] == {"S": "5"}
        assert client("s3", aws.url).get_object(Bucket="bodies", Key="kept-30d/demo:a/1")["Body"].read() == b"large"
        # The state is written to this name, and then renamed.
        (tmp_path / "engine" / "sqs.json.tmp").mkdir()
    reason = tmp_path / "logs" / "engine.log"
    assert log == [f"the embedded AWS could not save sqs: {reason} says why"]
    assert "Is a directory" in reason.read_text()


def test_the_child_ends_with_its_parent_and_saves(tmp_path: Path) -> None:
    """If the parent is killed with SIGKILL, the child saves and ends; only then is the folder free."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from local.aws_endpoints import Endpoints\n"
        "from local.service.backend import provision\n"
        "from tests.local.service.embedded import TABLE, embedded_aws_in\n"
        "async def main():\n"
        "    async with embedded_aws_in(pathlib.Path(sys.argv[1]), []) as aws:\n"
        "        await asyncio.to_thread(provision, Endpoints({}, aws.url), [TABLE], [])\n"
        "        print(aws.pid, flush=True)\n"
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
    assert is_saved(tmp_path, '"events"')


def test_a_child_that_takes_too_long_to_save_is_killed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that does not end in time is killed, and a line says which changes may be lost."""
    monkeypatch.setattr(child, "_STOP_WITHIN_S", 0.2)
    log: list[str] = []
    with in_thread(lambda: embedded_aws_in(tmp_path, log)) as aws:
        pid = aws.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    assert log == ["the embedded AWS took too long to save: changes of its last seconds are lost"]
    assert not running(pid)


def test_a_child_that_cannot_be_started_again_stops_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a killed child cannot be started again (memory is short), the service stops with a sentence that says why."""

    async def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    log: list[str] = []
    with in_thread(lambda: embedded_aws_in(tmp_path, log)) as aws:
        monkeypatch.setattr("asyncio.create_subprocess_exec", refused)
        aws.kill()
        assert until(lambda: len(log) == 3), log
    assert log[2] == "The embedded AWS cannot be started again (Cannot allocate memory), so the service stops."


def test_a_new_data_folder_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """A new data folder is readable by its owner only, because it holds the embedded Secrets Manager's secrets. An
    existing folder keeps its rights.
    """
    lock(tmp_path / "new").close()
    (tmp_path / "old").mkdir(mode=0o755)
    lock(tmp_path / "old").close()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "old")] == [0o700, 0o755]
