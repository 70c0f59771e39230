"""Streams at one deployed stage, and their copies at another, whole or killed at any request."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from handlers.connection.inputs import LOG
from handlers.store.control_record import to_record
from handlers.store.event_items import StoragePolicy
from handlers.store.event_reader import EventReader
from handlers.store.overflow import Objects
from local.backup.archive import files_at
from local.backup.backup_writer import BackupWriter
from local.backup.stream_move import StreamMove
from local.backup.stream_restore import StreamRestore
from local.backup.stream_source import Place, Tables
from tests.handlers.aws import CountingClient
from tests.handlers.context import Killed
from tests.handlers.store.events import an_event, noise
from tests.local.deployed_stage import Deployed

# Attributes that a copy does not have, or has of its own.
OF_A_COPY = ("execution", "holder", "expires_at_ms", "restored_from", "stop", "stop_at", "released")
PLAIN, SPREAD, LOGGED, UNORDERED = "demo", "demo:spread", "demo:lög", "demo:none"


def write_streams(stage: Deployed) -> None:
    """Writes four running streams: with a large body, with three partitions, with a log, and without an order."""
    store = stage.store(events_bucket=stage.bucket, s3=lambda: stage.aws.s3)
    for number, (stream_id, policy, more) in enumerate(
        [
            (PLAIN, StoragePolicy(), {}),
            (SPREAD, StoragePolicy(3), {"partitions": {"N": "3"}}),
            (UNORDERED, StoragePolicy(order="none"), {"order": {"S": "none"}}),
        ]
    ):
        stage.run(stream_id, 2 + number, **more)
        store.write(stream_id, 1, 0, [an_event(f"{one}", f"body {one}") for one in range(7)], policy)
    store.write(PLAIN, 2, 7, [an_event("large", noise(500_000))])
    stage.run(LOGGED, 3, partitions={"N": str(LOG)})
    stage.put(LOGGED, "gap#000000000002", from_ms={"N": "1"}, to_ms={"N": "2"}, cause={"S": "x"}, state={"S": "open"})
    for fence in (2, 3):
        log = store.log_writer(LOGGED, fence, lambda: 5, window_ms=900_000, keep_days=0)
        log.write(0, [an_event(f"{fence}/{one}", "b") for one in range(4)])


def read_events(stage: Deployed, stream_id: str, now_ms: int = 10) -> list[tuple[str, Any]]:
    """Returns the events of a stream as a reader gets them."""
    record = to_record(stage.items()["control"][stream_id, "lease"])
    fetch = Objects(lambda: stage.aws.s3, stage.bucket).find
    reader = EventReader(stage.aws.dynamodb, stage.events_table, fetch)
    entries = reader.entries(stream_id, record.layout, now_ms, "", 99)
    return [(entry.position, entry.event and entry.event.data) for entry in entries]


def place_of(stage: Deployed, dynamodb: Any = None) -> Place:
    """Returns the stage in the commands' form; `dynamodb` replaces its client. It starts no execution."""
    aws = stage.aws
    objects = Objects(lambda: aws.s3, stage.bucket)
    client = dynamodb or aws.dynamodb
    return Place(stage.stage, client, stage.control_table, stage.events_table, objects, aws.states, "")


def client_killed_at(stage: Deployed, last: int) -> CountingClient:
    """Returns a client that raises Killed in place of its request number `last`."""

    def before(_name: str, _parameters: dict[str, Any]) -> None:
        if len(client.requests) == last:
            raise Killed

    client = CountingClient(stage.aws.dynamodb, before)
    return client


def kill_anywhere(stage: Deployed, act: Callable[[Any], object]) -> Iterator[int]:
    """Lets `act` die at each of the stage's requests in turn, and yields after each death, until `act` survives."""
    for last in itertools.count():
        try:
            act(client_killed_at(stage, last))
        except Killed:
            yield last
        else:
            return


def back_up(stage: Deployed, folder: Path, dynamodb: Any = None) -> Any:
    """Backs up the stream `demo` and returns its summary."""
    return BackupWriter(Tables(place_of(stage, dynamodb)), files_at(str(folder)), lambda: None).back_up_stream(PLAIN)


def copy_demo(here: Deployed, there: Deployed, dynamodb: Any = None, **more: bool) -> Any:
    """Copies the stream `demo` from one stage to the other and returns the result."""
    restoring = StreamRestore(place_of(there, dynamodb), "a test", lambda: None, **more)
    return restoring.restore(Tables(place_of(here)), PLAIN, ran=True)


def write_demo(stage: Deployed, *keys: str) -> None:
    """Writes the stream `demo` as it runs, with an event of each key."""
    stage.run(PLAIN, 2)
    stage.write(PLAIN, *map(an_event, keys))


def move_demo(source: Deployed, target: Deployed, dynamodb: Any = None) -> Any:
    """Moves the stream `demo` and returns the result of its copy."""
    return StreamMove(place_of(source, dynamodb), place_of(target), lambda: None, lambda _: None).move(PLAIN)[0]
