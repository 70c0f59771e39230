"""`python -m bench.delivery`: measures the CPU of the function that delivers: of a call, and of each event and request.

The function is `handlers/delivery.py` as it is deployed, with its clients and sockets; a server in another thread
answers as SQS, EventBridge and DynamoDB do. Two sinks and two sizes of batch give the three figures, which
local/costs/measured.toml has. Beside them, in the same run, stands what boto3 takes for the two requests that a call
with one event makes, and nothing else. Invariant: every event was sent before anything is divided.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.consumers import LambdaContext
from bench.function import environment
from bench.harness import options, show
from bench.tables import serve
from local.costs.delivered import records

CALLS, FEW, MANY = 24, 1, 100
PROFILE = 'address = "https://upstream.invalid/"\ndeliver = %s\n'
SINKS = {"fifo": '{ sqs = "bench.fifo" }', "bus": '{ eventbridge = "bench" }'}


class Sinks:
    """Takes whatever is sent, as SQS, EventBridge and DynamoDB do."""

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response."""
        if operation == "UpdateItem":
            return 200, {}
        entries = [{"EventId": "1"} for _ in request.get("Entries", ())]
        attributes = {"DeduplicationScope": "messageGroup"}
        queue = {"QueueUrl": "http://sqs.invalid/000000000000/bench.fifo", "Attributes": attributes}
        return 200, queue | {"Entries": entries, "FailedEntryCount": 0}


@contextlib.contextmanager
def sinks() -> Iterator[str]:
    """Serve them in a thread of their own, whose processor time does not count; yield their address."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(serve(Sinks()))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


def measure(calls: int, event_bytes: int) -> dict[str, float]:
    """CPU in milliseconds of a call, an event and a request; of a call with one event, and of boto3's two requests."""
    with tempfile.TemporaryDirectory() as folder, sinks() as address:
        for name, sink in SINKS.items():
            Path(folder, f"{name}.toml").write_text(PROFILE % sink, encoding="utf-8")
        os.environ |= environment(Path(folder), address)
        one = _call_ms("fifo", FEW, calls, event_bytes)
        # A queue that keeps the order takes a request for each event of a stream, a bus one for ten.
        fifo, bus = (_call_ms(name, MANY, calls // 3, event_bytes) for name in SINKS)
        peer = _peer_ms(calls, event_bytes)
    request_ms = (fifo - bus) / (MANY - MANY / 10)
    event_ms = (bus - one - request_ms * (MANY / 10 - 1)) / (MANY - 1)
    return {
        "delivery_cpu_ms_per_call": one - event_ms - request_ms,
        "delivery_cpu_ms_per_event": event_ms,
        "delivery_cpu_ms_per_request": request_ms,
        "one_event": one,
        "boto3_alone": peer,
    }


def _peer_ms(calls: int, event_bytes: int) -> float:
    import boto3

    queue, table = boto3.client("sqs"), boto3.client("dynamodb")
    entry = {"Id": "0", "MessageBody": "x" * event_bytes, "MessageGroupId": "a", "MessageDeduplicationId": "1"}

    def both() -> None:
        queue.send_message_batch(QueueUrl="http://sqs.invalid/0/bench.fifo", Entries=[entry])
        table.update_item(
            TableName="control", Key={"PK": {"S": "bench"}, "SK": {"S": "delivery#sqs:bench.fifo"}},
            UpdateExpression="ADD #n :n", ExpressionAttributeNames={"#n": "n"},
            ExpressionAttributeValues={":n": {"N": "1"}},
        )  # fmt: skip

    return _median_ms(both, calls)


def _call_ms(profile: str, count: int, calls: int, event_bytes: int) -> float:
    from handlers import delivery

    event = {"Records": records([profile], count, event_bytes)}

    def call() -> None:
        if delivery.handler(event, LambdaContext())["batchItemFailures"]:
            raise SystemExit("an event was not taken, so nothing is measured")

    # The function prints its documents of metrics; on Lambda a pipe takes them.
    with Path(os.devnull).open("w", encoding="utf-8") as log, contextlib.redirect_stdout(log):
        return _median_ms(call, calls)


def _median_ms(work: Callable[[], None], calls: int) -> float:
    times = []
    for _ in range(calls + 5):
        began_s = time.thread_time()
        work()
        times.append((time.thread_time() - began_s) * 1000)
    return statistics.median(times[5:])  # the first calls make the clients


def main(argv: list[str] | None = None) -> int:
    """Prints the three figures, and a call with one event beside its peer."""
    asked = options(argv, __doc__, calls=(CALLS, "calls of each size"), event_bytes=(200, "of an event's body"))
    figures = measure(asked.calls, asked.event_bytes)
    one, peer = figures["one_event"], figures["boto3_alone"]
    lines = [f"{name} = {value:.3f}" for name, value in figures.items() if name.startswith("delivery_")]
    words = f"a call with one event {one:.2f} ms, boto3's two requests alone {peer:.2f} ms: {one / peer:.2f} times"
    return show(asked, figures, lines=[*lines, words])


if __name__ == "__main__":
    sys.exit(main())
