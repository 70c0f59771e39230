"""`python -m bench.delivery`: measures the CPU of the function that delivers: of a call, and of each event and request.

The function is `handlers/delivery.py` as it is deployed, with its clients and sockets; a server in another process
answers as SQS, EventBridge and DynamoDB do. Two sinks and two sizes of batch give the three figures, which
local/costs/measured.toml has. Beside them, in the same run, stands what boto3 takes for the two requests that a call
with one event makes, and nothing else. Invariant: every event was sent before anything is divided.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.harness import options, show
from local.costs.delivered import records

CALLS, FEW, MANY = 24, 1, 100
PROFILE = 'address = "https://upstream.invalid/"\ndeliver = %s\n'
SINKS = {"fifo": '{ sqs = "bench.fifo" }', "bus": '{ eventbridge = "bench" }'}


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet: else each answer waits for the acknowledgement of its head

    def log_message(self, *_: Any) -> None:
        return

    def do_POST(self) -> None:
        """Takes whatever is sent."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        answer = {
            "QueueUrl": "http://sqs.invalid/000000000000/bench.fifo",
            "Attributes": {"DeduplicationScope": "messageGroup"},
            "Entries": [{"EventId": "1"} for _ in request.get("Entries", ())],
            "FailedEntryCount": 0,
        }
        is_count = self.headers.get("x-amz-target", "").endswith(".UpdateItem")
        body = json.dumps({} if is_count else answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _serve(pipe: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    pipe.send(server.server_port)
    server.serve_forever()


class _Context:
    aws_request_id = "bench"

    def get_remaining_time_in_millis(self) -> int:
        return 120_000


def measure(calls: int, event_bytes: int) -> dict[str, float]:
    """CPU in milliseconds of a call, an event and a request; of a call with one event, and of boto3's two requests."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        for name, sink in SINKS.items():
            Path(folder, f"{name}.toml").write_text(PROFILE % sink, encoding="utf-8")
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ours.recv()}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "y",
            "AWS_SESSION_TOKEN": "z",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "CONTROL_TABLE": "control",
            "DEAD_LETTER_QUEUE_URL": "http://sqs.invalid/000000000000/dead",
            "STREAMS_DIR": folder,
            "SECRETS_PREFIX": "/bench/",
            "METRICS_BY": "stage",
            "POWERTOOLS_METRICS_NAMESPACE": "bench",
            "POWERTOOLS_SERVICE_NAME": "bench",
            "POWERTOOLS_LOG_LEVEL": "WARNING",
        }
        try:
            one = _call_ms("fifo", FEW, calls, event_bytes)
            # A queue that keeps the order takes a request for each event of a stream, a bus one for ten.
            fifo, bus = (_call_ms(name, MANY, calls // 3, event_bytes) for name in SINKS)
            peer = _peer_ms(calls, event_bytes)
        finally:
            server.terminate()
            server.join()
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
    times = []
    for _ in range(calls + 5):
        began = time.thread_time()
        queue.send_message_batch(QueueUrl="http://sqs.invalid/0/bench.fifo", Entries=[entry])
        table.update_item(
            TableName="control", Key={"PK": {"S": "bench"}, "SK": {"S": "delivery#sqs:bench.fifo"}},
            UpdateExpression="ADD #n :n", ExpressionAttributeNames={"#n": "n"},
            ExpressionAttributeValues={":n": {"N": "1"}},
        )  # fmt: skip
        times.append((time.thread_time() - began) * 1000)
    return statistics.median(times[5:])


def _call_ms(profile: str, count: int, calls: int, event_bytes: int) -> float:
    from handlers import delivery

    event = {"Records": records([profile], count, event_bytes)}
    times = []
    for _ in range(calls + 5):
        # The function prints its documents of metrics; on Lambda a pipe takes them.
        with Path(os.devnull).open("w", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            began = time.thread_time()
            answer = delivery.handler(event, _Context())
            times.append((time.thread_time() - began) * 1000)
        if answer["batchItemFailures"]:
            raise SystemExit("an event was not taken, so nothing is measured")
    return statistics.median(times[5:])  # the first calls make the clients


def main(argv: list[str] | None = None) -> int:
    """Prints the three figures, and a call with one event beside its peer."""
    asked = options(argv, __doc__, calls=(CALLS, "calls of each size"), event_bytes=(200, "of an event's body"))
    figures = measure(asked.calls, asked.event_bytes)
    one, peer = figures["one_event"], figures["boto3_alone"]
    lines = [f"{name} = {value:.3f}" for name, value in figures.items() if name.startswith("delivery_")]
    words = f"a call with one event {one:.2f} ms, boto3's two requests alone {peer:.2f} ms: {one / peer:.2f} times"
    return show(asked, figures, [*lines, words])


if __name__ == "__main__":
    sys.exit(main())
