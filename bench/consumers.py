"""`python -m bench.consumers KIND`: consumes and stores a stream in a process of its own, and prints its cost as JSON.

`ours` is the connection manager's handler, `log` the same where the profile stores in a log. `peer` is the plain
handler, one boto3 `put_item` for each chunk. `floor` is the least that the requests alone can cost: signed
BatchWriteItem of the same items, over a bare socket. The CPU of this process counts, user and system, after imports and
clients are made.
Invariant: every write is acknowledged when the clock stops.
"""

import hashlib
import hmac
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from bench.processes import resident_mb
from bench.source import data

BATCH = 25
STREAM = "bench"


class LambdaContext:
    """The part of Lambda's context that the handler uses."""

    aws_request_id = "bench"
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:bench"

    def get_remaining_time_in_millis(self) -> int:
        """Return the time of a function that has just started."""
        return 900_000


def ours() -> Callable[[], int]:
    """Return a run of the handler, which returns how many events were stored."""
    from handlers.connection_manager import handler

    def run() -> int:
        answer = handler({"pathParameters": {"streamId": STREAM}}, LambdaContext())
        return int(answer["stored"]) - 1  # the event that ends the stream is stored like any other

    return run


def peer() -> Callable[[], int]:
    """Return a run of the plain handler, which writes each chunk as it comes, under an id of its own."""
    import boto3
    import urllib3

    table, client, pool = os.environ["EVENTS_TABLE"], boto3.client("dynamodb"), urllib3.PoolManager()

    def run() -> int:
        count = 0
        with pool.request("GET", os.environ["UPSTREAM_BENCH"], preload_content=False) as response:
            for chunk in response.stream():
                item = {"PK": {"S": STREAM}, "SK": {"S": f"peer-{count}"}, "data": {"S": chunk.decode()}}
                client.put_item(TableName=table, Item=item)
                count += 1
        return count - 1

    return run


def floor() -> Callable[[], int]:
    """Return a run of the requests alone."""
    table, count = os.environ["EVENTS_TABLE"], int(os.environ["BENCH_EVENTS"])
    at = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    connection = socket.create_connection((at.hostname or "", at.port or 80))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    text = data(0, int(os.environ["BENCH_EVENT_BYTES"]))

    def run() -> int:
        for first in range(0, count, BATCH):
            writes = [{"PutRequest": {"Item": _item(n, text)}} for n in range(first, min(first + BATCH, count))]
            body = json.dumps({"RequestItems": {table: writes}}).encode()
            connection.sendall(_signed(at.netloc, body) + body)
            assert json.loads(_response(connection))["UnprocessedItems"] == {}
        return count

    return run


def _item(number: int, text: str) -> dict[str, dict[str, str]]:
    """Return the item that the handler stores for an event."""
    return {
        "PK": {"S": STREAM},
        "SK": {"S": str(number)},
        "position": {"S": f"{1_700_000_000_000 + number:015d}/{1:012d}/{number:012d}"},
        "received_at_ms": {"N": "1700000000000"},
        "fence": {"N": "1"},
        "id": {"S": str(number)},
        "data": {"S": text},
    }


def _signed(host: str, body: bytes) -> bytes:
    """Return the head of a request. Source: AWS's reference, "Create a signed AWS API request"."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    day, region, target = now[:8], os.environ["AWS_REGION"], "DynamoDB_20120810.BatchWriteItem"
    scope = f"{day}/{region}/dynamodb/aws4_request"
    names = "host;x-amz-date;x-amz-target"
    canonical = f"POST\n/\n\nhost:{host}\nx-amz-date:{now}\nx-amz-target:{target}\n\n{names}\n"
    canonical += hashlib.sha256(body).hexdigest()
    string_to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    for part in (day, region, "dynamodb", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, string_to_sign.encode(), "sha256").hex()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    return (
        f"POST / HTTP/1.1\r\nHost: {host}\r\nX-Amz-Date: {now}\r\nX-Amz-Target: {target}\r\n"
        f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}\r\n\r\n"
    ).encode()


def _response(connection: socket.socket) -> bytes:
    """Return the body of a response that has a Content-Length."""
    held = connection.recv(65536)
    head, _, body = held.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return body


def used() -> tuple[float, float]:
    """Return the CPU seconds of this process so far, and the wall clock."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, time.monotonic()


def main(who: str) -> dict[str, Any]:
    """Run one kind and return its figures."""
    run = {"ours": ours, "log": ours, "unordered": ours, "peer": peer, "floor": floor}[who]()
    cpu_s, since = used()
    events = run()
    cpu_to_s, until = used()
    return {
        "events": events,
        "cpu_us": round((cpu_to_s - cpu_s) / events * 1e6, 1),
        "events_per_s": round(events / (until - since)),
        "max_rss_mb": round(resident_mb(), 1),
    }


if __name__ == "__main__":
    print("\n" + json.dumps(main(sys.argv[1])))
