"""`python -m bench.starters WHO`: one cold start; the last line it prints is its CPU in milliseconds at the first byte.

Imports nothing that the one who is measured does not import, so that all CPU of the process is theirs: user and system,
from the start of the interpreter on. Invariant: the number is taken in the moment in which the first byte of the
stream's body has been read.
"""

import os
import resource
import sys


def cpu_ms() -> float:
    """The CPU of this process since it began."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1000


def ours() -> float:
    """The handler's module, then an invocation; what it does after the first chunk does not count."""
    from handlers.connection.effects import Chunk
    from handlers.connection_manager import handler
    from handlers.upstream.inbox import Inbox

    found: list[float] = []
    put = Inbox.put

    def watched(inbox: Inbox[object], item: object, size_bytes: int = 0) -> bool:
        if isinstance(item, Chunk) and not found:
            found.append(cpu_ms())
        return put(inbox, item, size_bytes)

    class LambdaContext:
        aws_request_id = "bench"

        def get_remaining_time_in_millis(self) -> int:
            return 900_000

    Inbox.put = watched  # type: ignore[method-assign, assignment]
    handler({"pathParameters": {"streamId": "bench"}}, LambdaContext())
    return found[0]


def peer() -> float:
    """The plain handler's imports, its client, and its stream; nothing is asked of DynamoDB."""
    import boto3
    import urllib3
    from aws_lambda_powertools import Logger, Metrics

    Logger(), Metrics(), boto3.client("dynamodb")
    with urllib3.PoolManager().request("GET", os.environ["UPSTREAM_BENCH"], preload_content=False) as response:
        for _ in response.stream():
            return cpu_ms()
    raise AssertionError("the stream held nothing")


def bare() -> float:
    """The interpreter."""
    return cpu_ms()


if __name__ == "__main__":
    spent_ms = {"ours": ours, "peer": peer, "bare": bare}[sys.argv[1]]()
    print(f"\n{spent_ms:.1f}")
