"""`python -m bench.watch`: measures how many streams the watch and a page of the list can handle within their limits.

It fills the control table of the deployed template in the embedded database with streams that were once started, some
of which are held, and runs one check of the watch and one page of the list on them, in a separate process with the
deployed client. For comparison it also reads some of them in the plain way, with a GetItem for each stream. Requests
are counted as sent, and read units as the database bills them, by DynamoDB's rules.

The duration of a check on AWS is computed from these counts, from the latencies below, which are assumed, and from the
processor time measured here, scaled to the share of a processor that Lambda gives to the function's memory. The memory
of a check is the largest resident set of that process, also when every stream is away.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from bench.function import environment
from bench.harness import Row, figures_of, goal_if, parse_options, resident_mb, run_program, say, show
from handlers.connection import evidence
from handlers.connection.effects import Progress
from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.store import control_record, typed_values
from handlers.watching.lease_rounds import AT_ONCE
from local import stages
from local.checkout import ROOT
from local.costs.stage_costs import MB_PER_CORE
from local.listener import HOST, bind, port_of
from local.service import osls
from local.service.embedded_aws import find_dynoxide
from local.stack import Stack, read_stack

# Amazon promises "consistent single-digit millisecond latency" for an item (DynamoDB, features). A batch is as slow as
# the slowest of its hundred items, and a page of the index has a megabyte, so several times as much is assumed.
BATCH_MS, PAGE_MS, ITEM_MS = 40, 150, 5
# How many times slower Lambda's processor may be than this machine's.
SLOWER = 1.5
GOAL = 100_000
# A page of the list.
LIMIT = 100
TABLE = stages.names("test")["control_table"]
NOW_MS = 1_800_000_000_000
HELD_MS, AWAY_MS = 10_000, 400_000
_FIELDS = ("AttributeDefinitions", "KeySchema", "BillingMode", "GlobalSecondaryIndexes")
_INSTANTS = [name for name in Progress.__slots__ if name.endswith("_ms")]
_EXECUTION = "arn:aws:states:eu-central-1:000000000000:execution:streamkeeper-prod-connections:"


def measure(stack: Stack, streams: int, held: int, sample: int) -> Row:
    """Return the figures of a check, of a page, and of the plain way, with a table of so many streams."""
    with database(stack) as url:
        say(__doc__, f"writes {streams} streams")
        fill(url, streams, held)
        say(__doc__, f"checks them, reads a page, then {sample} streams one by one")
        return {"streams": streams, "held": held, **figures_of("-m", "bench.watch", "of", url, str(sample))}


def capacity(figures: Row, memory_mb: int) -> Row:
    """Return how many held streams one check can reach in its time, and how many the plain way could."""
    check, plain, held = figures["check"], figures["plain"], figures["held"]
    check_s, share = figures["check_s"], min(1.0, memory_mb / MB_PER_CORE)

    def ms_a_stream(requests_ms: float, cpu_ms: float) -> float:
        # Python uses one processor: while it computes, it reads no answer.
        return requests_ms + cpu_ms * SLOWER / share

    batches, pages = check["requests"]["batch_get_item"], check["requests"]["query"]
    waits_ms = (batches * BATCH_MS / AT_ONCE + pages * PAGE_MS) / held
    check_ms = ms_a_stream(waits_ms, check["cpu_ms"] / held)
    plain_ms = ms_a_stream(ITEM_MS, plain["cpu_ms"] / plain["requests"]["get_item"])
    # The most memory that a stream takes, when it is away.
    mb_a_stream = (figures["away"]["max_rss_mb"] - figures["imported_mb"]) / held
    return {
        "in_time": int(check_s * 1000 / check_ms),
        "in_memory": int((memory_mb - figures["imported_mb"]) / mb_a_stream),
        "plain_in_time": int(check_s * 1000 / plain_ms),
        "ratio": round(plain_ms / check_ms, 1),
    }


def main(argv: list[str] | None = None) -> int:
    """Print the figures; return 1 if the watch cannot handle GOAL streams."""
    asked = parse_options(
        argv,
        __doc__,
        streams=(20_000, "streams that were ever started"),
        held=(10_000, "how many of them are held"),
        sample=(2_000, "streams read the plain way"),
    )
    if not 0 < asked.held <= asked.streams or not 0 < asked.sample <= asked.streams:
        say(__doc__, "error: --held and --sample must be from 1 to --streams")
        raise SystemExit(2)
    template = osls.template("test")
    ((memory_mb, timeout_s),) = (
        (int(one["Properties"]["MemorySize"]), int(one["Properties"]["Timeout"]))
        for one in template["Resources"].values()
        if one["Type"] == "AWS::Lambda::Function" and "watch" in one["Properties"]["Handler"]
    )
    figures = measure(read_stack(template, {}), asked.streams, asked.held, asked.sample)
    holds = capacity(figures, memory_mb)
    figures |= {"memory_mb": memory_mb, "timeout_s": timeout_s, "holds": holds, "goal": GOAL}
    reached = min(holds["in_time"], holds["in_memory"])
    return show(asked, figures, [goal_if("watch", f"{GOAL} held streams in one check: {reached}", reached >= GOAL)])


# --- the table --------------------------------------------------------------------------------------------------------


def client(url: str) -> DynamoDb:
    """Return the client that the functions use."""
    signer = Signer(Credentials("bench", "bench", ""), "us-east-1")
    return DynamoDb(url, signer, tries=1, connect_timeout_s=5, read_timeout_s=60)


@contextlib.contextmanager
def database(stack: Stack) -> Iterator[str]:
    """Yield the address of an empty database with the control table; no process and no file of it remains."""
    binary = find_dynoxide(ROOT)
    assert binary is not None, "npm installed no build of dynoxide for this machine"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        with bind(0, "the database") as free:
            port = port_of(free)
        arguments = ("--host", HOST, "--port", str(port), "--db-path", str(Path(folder) / "table.sqlite"))
        url = f"http://{HOST}:{port}"
        with run_program(url, str(binary), *arguments):
            (control,) = [one for one in stack.tables if one["TableName"] == TABLE]
            with contextlib.closing(client(url)) as one:
                one.call("CreateTable", {"TableName": TABLE} | {name: control[name] for name in _FIELDS})
            yield url


def fill(url: str, streams: int, held: int) -> None:
    """Write the leases of so many streams; the held ones are spread over the others."""
    leases = [
        lease_item(number, held=number * held // streams != (number + 1) * held // streams) for number in range(streams)
    ]
    with contextlib.closing(client(url)) as one, ThreadPoolExecutor(2) as pool:

        def write(first: int) -> None:
            requests = [{"PutRequest": {"Item": item}} for item in leases[first : first + 25]]
            assert not one.call("BatchWriteItem", {"RequestItems": {TABLE: requests}}).get("UnprocessedItems")

        list(pool.map(write, range(0, streams, 25)))


def stream_id_of(number: int) -> str:
    return f"tickers:symbol-{number:07d}"


def lease_item(number: int, *, held: bool) -> dict[str, Any]:
    """Return a lease as machine and function write it: some 700 bytes with cursor and live record."""
    fence = {"N": str(number % 3000 + 1)}
    item: dict[str, Any] = typed_values.item_key(stream_id_of(number), "lease") | {
        "generation": {"N": str(number % 40 + 1)},
        "started_at": {"S": "2026-01-01T00:00:00.000Z"},
        "fence": fence,
        "connected": fence,
        "released": {"N": str(number % 3000)},
        "holder": {"S": "A/8f8a0a41-3d5e-4b57-9a0e-0f8a4c1c7d11"},
        "expires_at_ms": {"N": str(NOW_MS + HELD_MS)},
        "partitions": {"N": "1"},
        "layout": typed_values.number_value(control_record.LAYOUT),
        "known": control_record.ledger_sum_value(evidence.Known()),
        "cursor": {"S": f"{number:032d}"},
        "live": {"M": {"fence": fence} | {name: {"N": str(NOW_MS)} for name in _INSTANTS}},
    }
    if held:
        return item | {"execution": {"S": f"{_EXECUTION}{number:036d}"}}
    return item | {"ending": {"S": "StreamEnded"}, "ended_at": {"S": "2026-01-02T00:00:00.000Z"}}


# --- what is measured, in a separate process, so that its memory is the function's ------------------------------------


class CountingClient:
    """A client that counts its requests, and the read units that the database bills for them."""

    def __init__(self, url: str) -> None:
        self._real = client(url)
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


def measure_work(url: str, work: Callable[[Any], Any]) -> Row:
    """Return the requests and the cost of the work."""
    counted, cpu_s = CountingClient(url), time.process_time()
    work(counted)
    cpu_ms = round((time.process_time() - cpu_s) * 1000, 1)
    counts = {"requests": dict(counted.requests), "read_units": counted.read_units}
    return counts | {"cpu_ms": cpu_ms, "max_rss_mb": round(resident_mb(), 1)}


def measure_all(url: str, sample: int) -> Row:
    """Return the figures of all four."""
    os.environ |= environment(
        Path(),
        "http://127.0.0.1:9",
        CONTROL_TABLE=TABLE,
        UNCONNECTED_AFTER_S="300",
        STATE_MACHINE_ARN="arn:aws:states:us-east-1:000000000000:stateMachine:machine",
        ALERTS_TOPIC_ARN="arn:aws:sns:us-east-1:000000000000:alerts",
    )
    from handlers import watch
    from handlers.api import status
    from handlers.api.last_error import Retries
    from handlers.store.leases import Leases
    from handlers.store.stream_records import StreamRecords
    from handlers.watching.lease_rounds import Rounds, Turn

    imported_mb = resident_mb()

    def check(now_ms: int) -> Row:
        return measure_work(url, lambda one: Rounds(Leases(one, TABLE), 1, Turn(100)).check(now_ms, lambda: False))

    def page(counted: Any) -> None:
        records = StreamRecords(counted, TABLE)
        ids = records.streams(stream_id_of(0), LIMIT + 1)
        read = records.read_for_status(ids[:LIMIT])
        status.page(ids, read, LIMIT, NOW_MS, 1, Retries(1, 1), lambda: False)

    def plain(counted: Any) -> None:
        leases = Leases(counted, TABLE)
        for number in range(sample):
            leases.read(stream_id_of(number))

    figures = {"check": check(NOW_MS), "page": measure_work(url, page), "plain": measure_work(url, plain)}
    # Last, because it takes the most memory.
    return figures | {"away": check(NOW_MS + HELD_MS + AWAY_MS), "imported_mb": imported_mb, "check_s": watch.READ_S}


if __name__ == "__main__":
    if sys.argv[1:2] == ["of"]:
        print(json.dumps(measure_all(sys.argv[2], int(sys.argv[3]))))
    else:
        sys.exit(main())
