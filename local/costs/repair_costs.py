"""Prices the repair of gaps from a simulated repair: its requests, writes and reads, and its function's time.

The function, the store and the tables are the product's own; the address is simulated by
`local/simulation/virtual_rest.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.api.verdict import plural as number_of
from handlers.connection.effects import Progress
from handlers.connection.gap_record import OPEN, Gap
from handlers.framing.events import StreamEvent
from handlers.profile.parse import parse
from handlers.repair.function import repair_streams
from handlers.repair.gap_ports import Deps
from handlers.repair.work import RepairWork
from handlers.run.group_ports import perform_needs
from handlers.store.event_items import StoragePolicy
from handlers.store.event_reader import EventReader
from handlers.store.ledger_records import connection_item, connection_key, gap_item
from handlers.store.stream_records import StreamRecords
from handlers.store.typed_values import item_key, number_value
from local.costs.prices import Prices, read
from local.costs.request_meter import Counts, Meter, MeteredDynamoDb, control_table, events_table
from local.simulation.shared_tasks import store_on
from local.simulation.virtual_rest import RestWays, VirtualRest

NAMES = {"events_table": "events", "control_table": "control"}
# The time of an answer of the address, and of a request to DynamoDB, for which the function is paid.
ANSWER_MS, REQUEST_MS, START_MS = 200, 5, 500
PAGE = 100
# A walk reads a hundred pages, edges included; more events cost proportionally more.
MOST_EVENTS = 9_000
EDGES = 4
_STREAM = {
    "address": "https://stream.invalid",
    "framing": "ndjson",
    "key": "$.id",
    "repair": {
        "address": "https://rest.invalid/?after={after}&before={before}",
        "items": "$.events",
        "next": {"cursor": "$.next", "query": "page"},
        "after_s": 0,
    },
}


@dataclass(frozen=True, slots=True)
class RepairUsage:
    """The usage of the repair of one gap."""

    counts: Counts
    run_ms: int
    requests: int


def count_repair(events: int, event_bytes: int = 200) -> RepairUsage:
    """The repair of a gap with so many events of that size, at an address that leaves out the edges."""
    meter = Meter({NAMES["events_table"]: events_table(), NAMES["control_table"]: control_table()})
    client, total = MeteredDynamoDb(meter), events + 2 * EDGES
    now = [1_800_000_000_000 + total * 1000]
    emitted = [1_800_000_000_000 + one * 1000 for one in range(total)]
    profile = parse("cost", _STREAM, {})
    filler = "x" * max(1, event_bytes - 24)

    def body(one: int) -> str:
        return f'{{"id":{one},"text":"{filler}"}}'

    rest = VirtualRest(RestWays(limit=PAGE), lambda: now[0], emitted, body)
    store = store_on(client, NAMES)
    client.put_item(
        TableName="control", Item=item_key("cost", "lease") | {"fence": number_value(2), "partitions": number_value(1)}
    )
    client.put_item(TableName="control", Item=gap_item("cost", Gap(2, emitted[EDGES - 1], emitted[-EDGES], "", OPEN)))
    for fence, numbers in ((1, range(EDGES)), (2, range(total - EDGES, total))):
        seen = [StreamEvent(str(one), body(one), None, None, None, emitted[one]) for one in numbers]
        store.write("cost", fence, 0, seen, StoragePolicy())
    opened_ms = emitted[-EDGES]
    progress = Progress(fence=2, claimed_ms=opened_ms, opened_ms=opened_ms, seen_ms=now[0], live_ms=opened_ms)
    record = connection_item(progress, lane="A", execution="e", request_id="r")
    client.put_item(TableName="control", Item=item_key("cost", connection_key(2)) | record)
    work = RepairWork(client, "control")
    before, began_ms = meter.counts.copy(), now[0]
    work.request("cost", now[0], now[0])
    deps = Deps(
        work,
        StreamRecords(client, "control", "events"),
        store,
        EventReader(client, "events", lambda _: None),
        lambda _: profile,
        lambda _: {},
        rest.fetch,
        lambda *_: None,
        lambda: now[0],
        lambda: 1 << 40,
        "cost",
    )

    def ask(request: Callable[[], Any]) -> Any:
        asked, answer = len(rest.asked), request()
        now[0] += ANSWER_MS if len(rest.asked) > asked else REQUEST_MS
        return answer

    def wait(for_s: float) -> None:
        now[0] += round(for_s * 1000)

    perform_needs(repair_streams(deps, "cost"), ask, wait)
    return RepairUsage(meter.counts - before, now[0] - began_ms + START_MS, len(rest.asked))


def gap_usd(usage: RepairUsage, memory_mb: int, prices: Prices) -> dict[str, float]:
    """Its cost by part, without storage, which costs the same wherever an event comes from."""
    tables = ("events", "control")
    return {
        "lambda": prices.lambda_usd(2, usage.run_ms, memory_mb),
        "writes": prices.usd("dynamodb", "million_write_units") * sum(map(usage.counts.write_units, tables)),
        "reads": prices.usd("dynamodb", "million_read_units") * sum(map(usage.counts.read_units, tables)),
    }


def cost_usd(gaps: int, events: int) -> float:
    """The approximate cost of repairing so many gaps with so many events, with the default memory of a stage."""
    each = events / max(1, gaps)
    one = count_repair(min(math.ceil(each), MOST_EVENTS))
    return gaps * max(1.0, each / MOST_EVENTS) * sum(gap_usd(one, 256, read()).values())


def repair_json(events: int, event_bytes: int, memory_mb: int, prices: Prices) -> dict[str, Any]:
    """What `streamkeeper cost --repair --json` prints."""
    one = count_repair(events, event_bytes)
    parts = gap_usd(one, memory_mb, prices)
    return {"gap_usd": sum(parts.values()), "parts": parts, "requests": one.requests, "run_ms": one.run_ms}


def repair_text(events: int, event_bytes: int, memory_mb: int, found: dict[str, Any]) -> str:
    """The same for people."""
    missed, requests = number_of(events, "event"), number_of(found["requests"], "request")
    head = f"A gap that missed {missed} of {number_of(event_bytes, 'byte')}: ${found['gap_usd']:.6f} to repair"
    how = f"{requests} to the address in {found['run_ms'] / 1000:.1f} s of a function with {memory_mb} MB"
    return "\n".join([head, f"  {how}", *(f"  {name:<8} ${usd:.6f}" for name, usd in found["parts"].items())])
