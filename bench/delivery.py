"""`python -m bench.delivery`: measures the CPU of the delivering function, and how fast a stream reaches each sink.

The function is `handlers/delivery.py` as it is deployed, with its clients and sockets; a server in another thread
answers as DynamoDB and the sinks do, after `--answer-ms` milliseconds. The figures of local/costs/measured.toml come
from calls that note events, send them at once, and answer a bell with one event and with many, at two sinks. The
ceilings are those of one stream at a sink; a stage can deliver many streams in parallel. With `--per-s` it measures how
late the events of a stream with so many events a second are at each sink, for `--seconds`. Invariant: every event was
sent before any rate is computed.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.consumers import LambdaContext
from bench.function import environment
from bench.harness import Row, parse_options, say, show
from bench.tables import TABLES, Tables, serve
from handlers.deliver.worker import BATCH
from local.costs.delivery_costs import POLLS_PER_S, make_records
from local.simulation.tables import METHODS, MemoryDynamoDB

CALLS, FEW, MANY, BACKLOG, ANSWER_MS, SECONDS = 24, 1, 100, 2000, 5, 10
PROFILE = 'address = "https://upstream.invalid/"\ndeliver = %s\n'
_HOOK = '{ webhook = "%s/hook", secret = "${ssm:x}", allow_private = true%s }'
SINKS = {
    "sqs, in order": '{ sqs = "bench.fifo" }',
    "sqs, batch = 100": '{ sqs = "bench.fifo", batch = 100 }',
    "sqs": '{ sqs = "bench.fifo", unordered = true }',
    "kinesis, in order": '{ kinesis = "bench" }',
    "kinesis, batch = 100": '{ kinesis = "bench", batch = 100 }',
    "kinesis": '{ kinesis = "bench", unordered = true }',
    "eventbridge": '{ eventbridge = "bench" }',
    "firehose": '{ firehose = "bench" }',
    "s3": '{ s3 = "bench", wait_s = 0 }',
    "lambda": '{ lambda = "bench" }',
    "webhook, in order": _HOOK,
    "webhook, unordered": _HOOK,
    "webhook, batch = 100": _HOOK,
}
_MORE = {"webhook, unordered": ", unordered = true", "webhook, batch = 100": ", batch = 100"}


class Sinks:
    """Accepts all requests as each sink does, and has tables; `called` has the bells that are due."""

    def __init__(self, after_s: float) -> None:
        self.memory = MemoryDynamoDB(*TABLES)
        self._tables = Tables(self.memory)
        self.after_s = after_s
        self.called: list[dict[str, Any]] = []
        self.sent = self.thread_id = 0
        self.came: list[tuple[float, int]] = []  # an instant, and how many were sent up to it

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the response."""
        if operation in METHODS or operation == "BatchExecuteStatement":
            return self._tables.answer(operation, request)
        if "bells" in request:
            self.called.append(request)
            return 202, {}
        listed: list[Any] = next((request[name] for name in ("Entries", "Records", "events") if name in request), [0])
        if "object" in request:
            listed = gzip.decompress(request["object"]).splitlines()
        self.sent += _count_batch(listed[0]) if len(listed) == 1 else len(listed)
        self.came.append((time.monotonic(), self.sent))
        if "object" in request:
            return 200, {}
        attributes = {"DeduplicationScope": "messageGroup"}
        queue = {"QueueUrl": "http://sqs.invalid/000000000000/bench.fifo", "Attributes": attributes}
        each: list[dict[str, Any]] = [{"EventId": "1"} for _ in listed]
        answers = {"Entries": each, "Records": each, "RequestResponses": each}
        answers["Successful"] = [{"Id": str(at)} for at in range(len(listed))]
        return 200, queue | answers | {"FailedEntryCount": 0, "Parameter": {"Value": "whsec_YmVuY2g="}}


def _count_batch(entry: Any) -> int:
    """Return how many events a request's only entry has."""
    if not isinstance(entry, dict) or not ("MessageBody" in entry or "Data" in entry):
        return 1
    message = json.loads(entry["MessageBody"] if "MessageBody" in entry else base64.b64decode(entry["Data"]))
    return len(message.get("events", [0]))


@contextlib.contextmanager
def serve_sinks(after_s: float) -> Iterator[tuple[str, Sinks]]:
    """Serve in another thread, whose processor time does not count; yield the address and what was sent."""
    loop, sinks = asyncio.new_event_loop(), Sinks(after_s)
    server = loop.run_until_complete(serve(sinks))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sinks.thread_id = thread.ident or 0
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", sinks
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


class Bench:
    """The function, and streams whose events are stored and noted."""

    def __init__(self, address: str, folder: Path, sinks: Sinks, event_bytes: int) -> None:
        for name, sink in SINKS.items():
            text = sink % (address, _MORE.get(name, "")) if "%s" in sink else sink
            (folder / f"{self._profile(name)}.toml").write_text(PROFILE % text, encoding="utf-8")
        names = {"DELIVERY_TABLE": "delivery", "CONNECTION_DELIVERY": "bench-delivery"}
        os.environ |= environment(folder, address) | names
        self._sinks, self._bytes, self._number, self._made = sinks, event_bytes, 0, 0
        self._server_clock = time.pthread_getcpuclockid(sinks.thread_id)

    @staticmethod
    def _profile(sink: str) -> str:
        return "".join(letter for letter in sink if letter.isalnum())

    def note_events(self, sink: str, count: int, *, is_new: bool = True) -> float:
        """Store and note so many events of a new stream, or of the last one; return the note's CPU milliseconds."""
        from handlers import delivery

        self._number += is_new
        now_ms = time.time_ns() // 1_000_000
        made = make_records([f"{self._profile(sink)}:{self._number}"], count, self._bytes, self._made, now_ms)
        self._made += count
        for record in made:
            self._sinks.memory.put_item(TableName="events", Item=record["dynamodb"]["NewImage"])
        began_s = self._own_s()
        for first in range(0, count, BATCH):
            delivery.handler({"Records": made[first : first + BATCH]}, LambdaContext())
        return (self._own_s() - began_s) * 1000

    def answer_bells(self, count: int) -> tuple[float, float]:
        """Answer the bells; return the process's CPU in milliseconds, and the duration in seconds."""
        before, cpu_s, began_s = self._sinks.sent, self._own_s(), time.monotonic()
        self._answer()
        took_s = time.monotonic() - began_s
        if (sent := self._sinks.sent - before) < count:
            raise SystemExit(f"only {sent} of {count} events were taken, so nothing can be measured")
        return (self._own_s() - cpu_s) * 1000, took_s

    def _answer(self) -> None:
        from handlers import delivery

        while self._sinks.called:
            delivery.handler(self._sinks.called.pop(0), LambdaContext())

    def measure_lateness_ms(self, sink: str, per_s: int, seconds: int) -> list[float]:
        """Return how late the events of each poll were taken, for a stream with so many events a second."""
        self.note_events(sink, 1)
        self._answer()
        each, sent, ends = per_s // POLLS_PER_S, self._sinks.sent, list[tuple[float, int]]()
        self._sinks.came.clear()
        began_s = time.monotonic()
        with ThreadPoolExecutor(4) as calls:
            for poll in range(1, POLLS_PER_S * seconds + 1):
                time.sleep(max(0.0, began_s + poll / POLLS_PER_S - time.monotonic()))
                # The events were readable at that instant, however late this process is.
                ends.append((began_s + poll / POLLS_PER_S, sent + each * poll))
                self.note_events(sink, each, is_new=False)
                calls.submit(self._answer)
        self._answer()
        came = iter(self._sinks.came)
        late, (at_s, total) = list[float](), next(came)
        for due_s, until in ends:
            while total < until:
                at_s, total = next(came, (float("inf"), until))
            late.append(max(0.0, at_s - due_s) * 1000)
        return late

    def _own_s(self) -> float:
        """Return the processor time of this process without the server's thread."""
        return time.process_time() - time.clock_gettime(self._server_clock)


@contextlib.contextmanager
def open_bench(event_bytes: int, answer_ms: float) -> Iterator[Bench]:
    """Yield the function beside its server, and drop what it prints."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_sinks(answer_ms / 1000) as (address, sinks),
        Path(os.devnull).open("w", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
    ):
        yield Bench(address, Path(folder), sinks, event_bytes)


def measure(calls: int, event_bytes: int, backlog: int, answer_ms: float) -> Row:
    """Return the figures of a call, and in `ceilings` how many events of one stream each sink gets in a second."""
    with open_bench(event_bytes, answer_ms) as bench:
        figures = _figures(bench, calls)
        ceilings: list[Row] = []
        for sink in SINKS:
            bench.note_events(sink, 1)
            bench.answer_bells(1)  # makes the clients
            count = backlog if "order" not in sink or "un" in sink else backlog // 10
            bench.note_events(sink, count)
            ceilings.append({"sink": sink, "events_per_s": count / bench.answer_bells(count)[1]})
    return figures | {"ceilings": ceilings}


def _figures(bench: Bench, calls: int) -> dict[str, float]:
    """Return the CPU milliseconds of a note, a wake, an event and a request."""
    notes, wakes = [], dict[tuple[str, int], float]()
    for sink, count in (("sqs, in order", FEW), ("sqs, in order", MANY), ("eventbridge", MANY)):
        times = []
        for _ in range((calls if count == FEW else calls // 3) + 3):
            note_ms = bench.note_events(sink, count)
            times.append(bench.answer_bells(count)[0])
            if count == FEW:
                notes.append(note_ms)
        wakes[sink, count] = statistics.median(times[3:])  # the first calls make the clients
    one, fifo, bus = wakes["sqs, in order", FEW], wakes["sqs, in order", MANY], wakes["eventbridge", MANY]
    # A queue that keeps the order needs a request for each event of a stream, a bus only one for ten.
    request_ms = (fifo - bus) / (MANY - MANY / 10)
    event_ms = (bus - one - request_ms * (MANY / 10 - 1)) / (MANY - 1)
    bench.note_events("sqs, in order", FEW)
    bench.answer_bells(FEW)
    once = statistics.median(bench.note_events("sqs, in order", FEW, is_new=False) for _ in range(calls))
    return {
        "delivery_cpu_ms_per_note": statistics.median(notes[3:]),
        "delivery_cpu_ms_at_once": once - event_ms - request_ms,
        "delivery_cpu_ms_per_wake": one - event_ms - request_ms,
        "delivery_cpu_ms_per_event": event_ms,
        "delivery_cpu_ms_per_request": request_ms,
    }


def main(argv: list[str] | None = None) -> int:
    """Print the figures and the ceilings."""
    asked = parse_options(
        argv,
        __doc__,
        calls=(CALLS, "calls of each size"),
        event_bytes=(200, "of an event's body"),
        backlog=(BACKLOG, "events that wait at a sink"),
        answer_ms=(ANSWER_MS, "after which the server answers"),
        per_s=(0, "events a second of one stream, instead of all else"),
        seconds=(SECONDS, "for how long"),
    )
    if asked.per_s:
        late: list[Row] = []
        with open_bench(asked.event_bytes, asked.answer_ms) as bench:
            for sink in SINKS:
                all_ms = bench.measure_lateness_ms(sink, asked.per_s, asked.seconds)
                # A sink that falls behind gets its events later and later.
                late.append({"sink": sink, "median_ms": statistics.median(all_ms), "last_ms": all_ms[-1]})
                say(__doc__, late[-1])
        return show(asked, {"late": late})
    return show(asked, measure(asked.calls, asked.event_bytes, asked.backlog, asked.answer_ms))


if __name__ == "__main__":
    sys.exit(main())
