"""Fills the control table of the deployed template in the embedded database.

Invariant: after `database` neither the process nor its file is left.
"""

import contextlib
import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from handlers.connection import ledger
from handlers.connection.effects import Progress
from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.store import control_record, typed_values
from handlers.store.control_record import LAYOUT
from local import stages
from local.checkout import ROOT
from local.listener import HOST, bind, port_of
from local.service import osls
from local.service.embedded_dynamodb import program
from local.stack import read

TABLE = stages.names("test")["control_table"]
NOW_MS = 1_800_000_000_000
HELD_MS = 10_000
_AT_ONCE = 25
_FIELDS = ("AttributeDefinitions", "KeySchema", "BillingMode", "GlobalSecondaryIndexes")
_INSTANTS = [name for name in Progress.__slots__ if name.endswith("_ms")]
_EXECUTION = "arn:aws:states:eu-central-1:000000000000:execution:streamkeeper-prod-connections:"


def client(url: str) -> DynamoDb:
    """The client that the functions use."""
    signer = Signer(Credentials("bench", "bench", ""), "us-east-1")
    return DynamoDb(url, signer, tries=1, connect_timeout_s=5, read_timeout_s=60)


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The address of an empty database with the control table."""
    binary = program(ROOT)
    assert binary is not None, "npm installed no build of dynoxide for this machine"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        with bind(0, "the database") as free:
            port = port_of(free)
        options = ["--host", HOST, "--port", str(port), "--db-path", str(Path(folder) / "table.sqlite")]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(port, process)
            url = f"http://{HOST}:{port}"
            (control,) = [one for one in read(osls.template("test"), {}).tables if one["TableName"] == TABLE]
            with contextlib.closing(client(url)) as one:
                one.call("CreateTable", {"TableName": TABLE} | {name: control[name] for name in _FIELDS})
            yield url
        finally:
            process.terminate()
            process.wait()


def fill(url: str, streams: int, held: int) -> None:
    """Writes the leases of so many streams; those that are held are spread over the others."""
    leases = [
        lease(number, held=number * held // streams != (number + 1) * held // streams) for number in range(streams)
    ]
    groups = [leases[first : first + _AT_ONCE] for first in range(0, streams, _AT_ONCE)]
    with contextlib.closing(client(url)) as one, ThreadPoolExecutor(2) as pool:

        def write(group: list[dict[str, Any]]) -> None:
            requests = [{"PutRequest": {"Item": item}} for item in group]
            assert not one.call("BatchWriteItem", {"RequestItems": {TABLE: requests}}).get("UnprocessedItems")

        list(pool.map(write, groups))


def name(number: int) -> str:
    """The id of a stream."""
    return f"tickers:symbol-{number:07d}"


def lease(number: int, *, held: bool) -> dict[str, Any]:
    """A lease as machine and function write it, some 700 bytes with the cursor and the live part of the ledger."""
    item: dict[str, Any] = {
        "PK": {"S": name(number)},
        "SK": {"S": "lease"},
        "generation": {"N": str(number % 40 + 1)},
        "started_at": {"S": "2026-01-01T00:00:00.000Z"},
        "fence": {"N": str(number % 3000 + 1)},
        "connected": {"N": str(number % 3000 + 1)},
        "released": {"N": str(number % 3000)},
        "holder": {"S": "A/8f8a0a41-3d5e-4b57-9a0e-0f8a4c1c7d11"},
        "expires_at_ms": {"N": str(NOW_MS + HELD_MS)},
        "partitions": {"N": "1"},
        "layout": typed_values.number(LAYOUT),
        "known": control_record.known(ledger.Known()),
        "cursor": {"S": f"{number:032d}"},
        "live": {"M": {"fence": {"N": str(number % 3000 + 1)}} | {name: {"N": str(NOW_MS)} for name in _INSTANTS}},
    }
    if held:
        return item | {"execution": {"S": f"{_EXECUTION}{number:036d}"}}
    return item | {"ending": {"S": "StreamEnded"}, "ended_at": {"S": "2026-01-02T00:00:00.000Z"}}


def _wait(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        connection = http.client.HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.02)
        finally:
            connection.close()
    raise AssertionError("the database did not start")
