"""`python -m bench.starters KIND`: runs one cold start and prints its CPU milliseconds at the first byte.

It imports nothing that the measured code does not import, so all CPU of the process is that code's: user and system,
from the start of Python. Invariant: the CPU is read at the moment at which the first byte of the stream's body has
been read.
"""

import os
import resource
import sys


def cpu_ms() -> float:
    """Return the CPU of this process since it began."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1000


def ours() -> float:
    """Import the handler and invoke it; its work after the first chunk does not count."""
    from handlers.connection.inputs import Chunk
    from handlers.connection_manager import handler
    from handlers.upstream.inbox import Inbox

    first_ms: list[float] = []
    put = Inbox.put

    def watched(inbox: Inbox[object], item: object, size_bytes: int = 0) -> bool:
        if isinstance(item, Chunk) and not first_ms:
            first_ms.append(cpu_ms())
        return put(inbox, item, size_bytes)

    class LambdaContext:
        aws_request_id = "bench"
        invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:bench"

        def get_remaining_time_in_millis(self) -> int:
            return 900_000

    Inbox.put = watched  # type: ignore[method-assign, assignment]
    handler({"pathParameters": {"streamId": "bench"}}, LambdaContext())
    return first_ms[0]


def peer() -> float:
    """Import what the plain handler does, make its client and open its stream, without a request to DynamoDB."""
    import boto3
    import urllib3
    from aws_lambda_powertools import Logger, Metrics

    Logger(), Metrics(), boto3.client("dynamodb")
    with urllib3.PoolManager().request("GET", os.environ["UPSTREAM_BENCH"], preload_content=False) as response:
        for _ in response.stream():
            return cpu_ms()
    raise AssertionError("the stream held nothing")


def bare() -> float:
    """Start Python alone."""
    return cpu_ms()


if __name__ == "__main__":
    spent_ms = {"ours": ours, "peer": peer, "bare": bare}[sys.argv[1]]()
    print(f"\n{spent_ms:.1f}")
