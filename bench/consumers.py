"""`python -m bench.consumers KIND EVENTS BYTES`: stores a stream in this process, and prints its cost as JSON.

Kinds with `-start` are a cold start instead: they print the CPU milliseconds of the process from the start of Python
until the first byte of the stream's body was read. The module imports nothing that the measured code does not import,
so all CPU and memory are that code's.
"""

import os
import resource
import sys
import time
from collections.abc import Callable

STREAM, BATCH = "bench", 25


class LambdaContext:
    """The part of Lambda's context that the handler uses."""

    aws_request_id = "bench"
    invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:bench"

    def get_remaining_time_in_millis(self) -> int:
        """Return the time of a function that has just started."""
        return 900_000


def cpu_ms() -> float:
    """Return the CPU of this process since it began, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1000


# --- a cold start -----------------------------------------------------------------------------------------------------


def start_ours() -> float:
    """Import the handler and invoke it; its work after the first chunk does not count."""
    from handlers.connection.inputs import Arrival, Chunk
    from handlers.connection_manager import handler
    from handlers.upstream import reader
    from handlers.upstream.inbox import Inbox

    first_ms: list[float] = []

    class Watched(Inbox[Arrival]):
        """An inbox that notes when the first chunk is put; as a subclass, mypy compares its `put` with the inbox's."""

        def put(self, item: Arrival, size_bytes: int = 0, came: float | None = None) -> bool:
            if isinstance(item, Chunk) and not first_ms:
                first_ms.append(cpu_ms())
            return super().put(item, size_bytes, came)

    vars(reader)["Inbox"] = Watched
    handler({"pathParameters": {"streamId": STREAM}}, LambdaContext())
    return first_ms[0]


def start_peer() -> float:
    """Import what the plain handler imports, make its client and open its stream, without a request to DynamoDB."""
    import boto3
    import urllib3
    from aws_lambda_powertools import Logger, Metrics

    Logger(), Metrics(), boto3.client("dynamodb")
    with urllib3.PoolManager().request("GET", os.environ["UPSTREAM_BENCH"], preload_content=False) as response:
        for _ in response.stream():
            return cpu_ms()
    raise AssertionError("the stream was empty")


# --- a stream ---------------------------------------------------------------------------------------------------------


def measure_ours(_events: int, _event_bytes: int) -> Callable[[], int]:
    """Return a function that runs the handler and returns how many events were stored."""
    from handlers.connection_manager import handler

    def run() -> int:
        answer = handler({"pathParameters": {"streamId": STREAM}}, LambdaContext())
        return int(answer["stored"]) - 1  # the event that ends the stream is stored like any other

    return run


def measure_peer(_events: int, _event_bytes: int) -> Callable[[], int]:
    """Return a function that runs the plain handler, which writes each chunk as it comes, under a new id."""
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


def measure_floor(events: int, event_bytes: int) -> Callable[[], int]:
    """Return a function that sends only the requests."""
    import json
    import socket
    from urllib.parse import urlsplit

    from handlers.dynamodb.sigv4 import Credentials, Signer

    at, signer = urlsplit(os.environ["AWS_ENDPOINT_URL"]), Signer(Credentials("bench", "bench"), "us-east-1")
    connection = socket.create_connection((at.hostname or "", at.port or 80))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run() -> int:
        for first in range(0, events, BATCH):
            numbers = range(first, min(first + BATCH, events))
            writes = [{"PutRequest": {"Item": _item(number, event_bytes)}} for number in numbers]
            body = json.dumps({"RequestItems": {os.environ["EVENTS_TABLE"]: writes}}).encode()
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            headers = signer.headers(at.netloc, "BatchWriteItem", body, stamp) | {"content-length": str(len(body))}
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.sendall(f"POST / HTTP/1.1\r\n{head}\r\n".encode() + body)
            assert connection.recv(65536).endswith(b'{"UnprocessedItems":{}}')
        return events

    return run


def _item(number: int, event_bytes: int) -> dict[str, dict[str, str]]:
    """Return the item that the handler stores for an event."""
    return {
        "PK": {"S": STREAM},
        "SK": {"S": str(number)},
        "position": {"S": f"{1_700_000_000_000 + number:015d}/{1:012d}/{number:012d}"},
        "received_at_ms": {"N": "1700000000000"},
        "fence": {"N": "1"},
        "id": {"S": str(number)},
        "data": {"S": "x" * event_bytes},
    }


def cost_of_storing(kind: Callable[[int, int], Callable[[], int]], events: int, event_bytes: int) -> str:
    """Return the JSON of a kind's cost, counted after its imports and clients."""
    run = kind(events, event_bytes)
    before_ms, since_s = cpu_ms(), time.monotonic()
    count = run()
    spent_ms, lasted_s = cpu_ms() - before_ms, time.monotonic() - since_s
    with open("/proc/self/status", encoding="ascii") as status:
        most_kb = int(status.read().partition("VmHWM:")[2].split()[0])
    return (
        f'{{"events": {count}, "cpu_us": {spent_ms / count * 1000:.1f}, "events_per_s": {count / lasted_s:.0f},'
        f' "max_rss_mb": {most_kb / 1024:.1f}}}'
    )


if __name__ == "__main__":
    name, *asked = sys.argv[1:]
    if name.endswith("-start"):
        starts = {"ours-start": start_ours, "peer-start": start_peer, "bare-start": cpu_ms}
        print(f"\n{starts[name]():.1f}")
    else:
        kinds = {"ours": measure_ours, "peer": measure_peer, "floor": measure_floor}
        print("\n" + cost_of_storing(kinds[name], int(asked[0]), int(asked[1])))
