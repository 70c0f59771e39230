"""Runs one look of the watch, one page of the list and the plain way in this process, and prints what they took.

`python -m bench.watch_run <url> <sample>`, a process of its own, so that its memory is the function's.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

from bench.processes import resident_mb
from bench.watch_table import HELD_MS, NOW_MS, TABLE, client, name

ENVIRONMENT = {
    "CONTROL_TABLE": TABLE,
    "STATE_MACHINE_ARN": "arn:aws:states:us-east-1:000000000000:stateMachine:machine",
    "ALERTS_TOPIC_ARN": "arn:aws:sns:us-east-1:000000000000:alerts",
    "DEAD_LETTER_QUEUE_URL": "http://127.0.0.1:9/none",
    "UNCONNECTED_AFTER_S": "300",
    "POWERTOOLS_METRICS_NAMESPACE": "bench",
    "POWERTOOLS_SERVICE_NAME": "bench",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
}
# A page of the list, and one that begins deep within the streams.
LIMIT = 100


class Counted:
    """A client that counts its requests, and the read units that the database bills for them."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._lock = Lock()
        self.requests: Counter[str] = Counter()
        self.read_units = 0.0

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        call = getattr(self._real, operation)

        def counted(**parameters: Any) -> Any:
            answer = call(**parameters, ReturnConsumedCapacity="TOTAL")
            consumed = answer["ConsumedCapacity"]
            units = sum(one["CapacityUnits"] for one in (consumed if isinstance(consumed, list) else [consumed]))
            with self._lock:
                self.requests[operation] += 1
                self.read_units += units
            return answer

        return counted


def measured(client: Counted, work: Callable[[], Any]) -> dict[str, Any]:
    """What the work requested and took."""
    began_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return {
        "requests": dict(client.requests),
        "read_units": client.read_units,
        "wall_ms": round((time.perf_counter() - began_s) * 1000, 1),
        "cpu_ms": round((time.process_time() - cpu_s) * 1000, 1),
        "max_rss_mb": resident_mb(),
    }


def run(url: str, sample: int) -> dict[str, Any]:
    """The figures of all four."""
    os.environ.update(ENVIRONMENT)
    from handlers import watch
    from handlers.api import status
    from handlers.api.last_error import Retries
    from handlers.store.leases import Leases
    from handlers.store.stream_records import StreamRecords
    from handlers.watching.lease_rounds import Rounds, Turn

    imported_mb = resident_mb()

    def look(now_ms: int) -> dict[str, Any]:
        counted = Counted(client(url))
        rounds = Rounds(Leases(counted, TABLE), 1, Turn(100))
        return measured(counted, lambda: rounds.check(now_ms, lambda: False))

    def page() -> dict[str, Any]:
        counted = Counted(client(url))
        records = StreamRecords(counted, TABLE)

        def work() -> None:
            ids = records.streams(name(0), LIMIT + 1)
            read = records.read_briefly(ids[:LIMIT])
            status.page(ids, read, LIMIT, NOW_MS, 1, Retries(1, 1), lambda: False)

        return measured(counted, work) | {"limit": LIMIT}

    def plain() -> dict[str, Any]:
        counted = Counted(client(url))
        leases = Leases(counted, TABLE)
        return measured(counted, lambda: [leases.read(name(number)) for number in range(sample)])

    figures = {"look": look(NOW_MS), "page": page(), "plain": plain() | {"sample": sample}}
    # Last, for it takes the most memory.
    return figures | {"away": look(NOW_MS + HELD_MS + 400_000), "imported_mb": imported_mb, "look_s": watch.READ_S}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
