"""`python -m bench.fleet`: keeps a thousand local streams connected by ten functions, and compares every event.

The service is that of `make run` with the settings of `prod`, except that a function's limit and a lane's wait are
both shortened by the same time: so several handovers happen, and each has as much time as on AWS. Functions, tables and
sockets are real. The upstream is a separate process (`bench/fleet_peers.py`), which also counts the functions' requests
to the tables. At the end, the tables are compared with what the upstream has sent, event by event. Invariant: a run,
even an interrupted one, leaves no process and no file behind.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from bench import harness
from bench.fleet_peers import data
from bench.harness import Goal, Row, at_least, goal_if, parse_options, run, say, show
from bench.stage import prepare_service
from handlers.api.verdict import plural
from handlers.store.segment_reader import SegmentReader
from local import stages
from local.api_client.http_client import Api
from local.checkout import ROOT
from local.costs import model, month, prices
from local.listener import HOST, port_of
from local.service import osls
from local.service.lifecycle import Service
from local.terminal import UserError

# The API only knows the shipped profiles, so it has one of their names.
STAGE, PROFILE = "fleet", "demo-log"
FLUSH_S = 5
EVENT_BYTES = 210
# All that a handover depends on is as in `prod`: its time, how often leases are read, how lanes get out of step.
AS_IN_PROD = ("margin_s", "jitter_s", "start_allowance_s", "lease_every_s", "progress_every_s")
LEAST_FUNCTION_S = 90
# POSTs at a time, and how long to wait before one that was answered by 503 or 429 is repeated.
AT_ONCE, AGAIN_S = 4, 2.0
TRIES = 10
# How long to wait for the last stream to connect, and for the last event to be stored.
CONNECTED_S, STORED_S = 600, 120
CHECK_EVERY_S = 10.0
# How often each stream must be handed over while it is watched.
HANDOVERS = 2


class Peers:
    """The process of the upstream and the counter, and their addresses."""

    def __init__(self, addresses: list[str], process: "subprocess.Popen[str]") -> None:
        self.upstream, self.tables = addresses
        self._process = process

    async def ask(self, line: str) -> Any:
        """The answer to a line, None if it has none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        has_answer = line in ("counts", "report")
        return json.loads(await asyncio.to_thread(self._process.stdout.readline)) if has_answer else None


@contextlib.asynccontextmanager
async def open_service(options: argparse.Namespace, peers: Peers) -> AsyncIterator[Service]:
    """Yields the running service, whose functions reach the tables through the counter."""
    profile = f"""
        address = "${{UPSTREAM_FLEET}}/{{name}}"
        allow_private = true
        framing = "sse"
        overlap_s = 1
        stall_after_s = {min(900, round(3 * options.every) + 30)}
        resume = {{ header = "Last-Event-ID" }}
        store = "log"
        flush_s = {FLUSH_S}
    """
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        folder = Path(name)
        (folder / "streams").mkdir()
        (folder / "streams" / f"{PROFILE}.toml").write_text(profile)
        (folder / "project").mkdir()
        template = await asyncio.to_thread(_template, folder / "project", options)
        counter = {"AWS_ENDPOINT_URL_DYNAMODB": peers.tables}
        for resource in template["Resources"].values():
            if resource["Type"] == "AWS::Lambda::Function":
                own = {"STREAMS_DIR": str(folder / "streams")}
                is_manager = str(resource["Properties"]["FunctionName"]).endswith("-connection-manager")
                resource["Properties"]["Environment"]["Variables"] |= own | (counter if is_manager else {})
        # Streams with a function each are more than the service promises of this machine.
        variables = {"UPSTREAM_FLEET": peers.upstream, "STREAMKEEPER_STREAMS": str(options.streams)}
        with prepare_service(folder / "data", template, variables) as service:
            host, _, port = service.endpoints.url_of("dynamodb").rpartition("/")[2].partition(":")
            await peers.ask(f"tables {host} {port}")
            try:
                await service.start()
                yield service
            finally:
                await service.stop()


def _template(project: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The compiled template of the stage, which is `local` with limits of its own."""
    osls.copy_sources(ROOT, project)
    prod = yaml.safe_load((project / "env" / "prod.yml").read_text())
    settings = {name: prod[name] for name in AS_IN_PROD} | {"streams_per_function": options.per_function}
    settings |= {"function_timeout_s": options.function_s, "unconnected_after_s": 60}
    settings["wait_s"] = prod["wait_s"] - (prod["function_timeout_s"] - options.function_s)
    text = (project / "env" / "local.yml").read_text()
    for name, value in settings.items():
        text = re.sub(rf"^{name}: \S+", f"{name}: {value}", text, flags=re.MULTILINE)
    (project / "env" / f"{STAGE}.yml").write_text(text)
    return osls.template(STAGE, project)


# --- a run ------------------------------------------------------------------------------------------------------------


async def measure(options: argparse.Namespace) -> Row:
    """Returns the figures; raises UserError if the service cannot start, or refuses streams."""
    with harness.run_module("bench.fleet_peers", str(options.streams), str(options.every)) as process:
        return await _measure_service(options, Peers(*process))


async def _measure_service(options: argparse.Namespace, peers: Peers) -> Row:
    streams = options.streams
    async with open_service(options, peers) as service:
        begun_s = time.monotonic()
        await _start_all(streams, port_of(service.sockets.api))
        connected = await _wait_until_connected(peers, streams)
        connected_s = time.monotonic() - begun_s
        if connected < streams:
            raise UserError(f"{connected} of {streams} streams are connected after {CONNECTED_S} s.")
        watched = await _watch_fleet(peers, options.seconds, streams)
        # Before the comparison, which keeps the service's processor busy for a while.
        after = await peers.ask("counts")
        await peers.ask("quiet")
        compared = await _compare_events(peers, service.endpoints.client("dynamodb"))
    usd, functions = await asyncio.to_thread(_usd_month, options), -(-streams // options.per_function)
    figures = {"streams": streams, "functions": functions, "connected_s": round(connected_s, 1)} | watched
    gaps = {name: after[name] for name in ("gaps", "gap_ms")}
    return figures | gaps | compared | {"usd_stream_month": round(usd, 4)}


async def _start_all(streams: int, port: int) -> None:
    """Returns once every POST was accepted; raises UserError if one is refused for good."""
    begun, gate, api = 0, asyncio.Semaphore(AT_ONCE), Api(f"http://{HOST}:{port}")

    async def start(number: int) -> None:
        nonlocal begun
        async with gate:
            for _ in range(TRIES):
                refusal = await asyncio.to_thread(_refusal, api, number)
                if not refusal:
                    break
                await asyncio.sleep(AGAIN_S)
            else:
                raise UserError(f"{PROFILE}:{number} could not be started: {refusal}")
        begun += 1
        if begun % 100 == 0:
            say(__doc__, f"{begun} of {streams} streams are started")

    tasks = [asyncio.create_task(start(number)) for number in range(streams)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _refusal(api: Api, number: int) -> str:
    """The refusal of a POST that should be repeated, "" if the stream is started; UserError for another refusal."""
    answer = api.request("POST", f"/connections/{PROFILE}:{number}")
    if answer.is_success:
        return ""
    if answer.refusal.may_pass and answer.refusal.kind != "full":
        return str(answer.refusal)
    raise UserError(f"{PROFILE}:{number} was answered by {answer.refusal}")


async def _wait_until_connected(peers: Peers, streams: int) -> int:
    """How many streams are connected once all are, or once the time is over."""
    until_s = time.monotonic() + CONNECTED_S
    while True:
        connected: int = (await peers.ask("counts"))["connected"]
        if connected == streams or time.monotonic() > until_s:
            return connected
        say(__doc__, f"{connected} of {streams} streams are connected")
        await asyncio.sleep(2)


async def _watch_fleet(peers: Peers, seconds: float, streams: int) -> Row:
    """What the fleet did and used in these seconds; requests and CPU are per stream and minute."""
    before, begun_s = await peers.ask("counts"), time.monotonic()
    cpu_s, memory = _spent_s(), list[list[float]]()
    while (elapsed_s := time.monotonic() - begun_s) < seconds:
        await asyncio.sleep(min(CHECK_EVERY_S, seconds - elapsed_s))
        memory.append(await asyncio.to_thread(lambda: harness.memory_mb(harness.function_processes())))
        now, cpu_to_s = await peers.ask("counts"), _spent_s()
        progress = {name: now[name] - before[name] for name in ("openings", "sent")}
        say(__doc__, {"s": round(time.monotonic() - begun_s), "connected": now["connected"]} | progress)
    elapsed_s = time.monotonic() - begun_s
    minutes = streams * elapsed_s / 60
    requests = {name: count - before["requests"].get(name, 0) for name, count in now["requests"].items()}
    return {
        "seconds": round(elapsed_s, 1),
        "handovers": round((now["openings"] - before["openings"]) / streams, 2),
        "requests": {name: round(count / minutes, 3) for name, count in sorted(requests.items())},
        "functions_cpu_ms": round((cpu_to_s[0] - cpu_s[0]) * 1000 / minutes, 1),
        "service_cpu_ms": round((cpu_to_s[1] - cpu_s[1]) * 1000 / minutes, 1),
        "function_mb": round(max((most for sample in memory for most in sample), default=0.0), 1),
        "stream_mb": round(sum(map(sum, memory)) / len(memory) / streams, 2),
    }


def _spent_s() -> tuple[float, float]:
    """The processor time of functions, and of the service with its tables; all children that end are functions."""
    functions = harness.function_processes()
    others = {pid for pid in harness.descendants() if "fleet_peers" not in harness.command_of(pid)} - set(functions)
    return harness.spent_s(*functions) + harness.ended_spent_s(os.getpid()), harness.spent_s(os.getpid(), *others)


# --- what was stored --------------------------------------------------------------------------------------------------


async def _compare_events(peers: Peers, client: Any) -> Row:
    """How many events were sent, how many of them are lost or stored twice, and how many others are stored."""
    report: list[list[int]] = await peers.ask("report")
    reader = SegmentReader(client, f"{stages.SERVICE}-{STAGE}-events", lambda _key: None)
    until_s = time.monotonic() + STORED_S
    missing = dict(enumerate(map(set, report)))
    strange = twice = 0
    while missing and time.monotonic() < until_s:
        strange = twice = 0
        for number in list(missing):
            stored = await asyncio.to_thread(_stored, reader, number)
            sent = {(one, data(number, one)) for one in report[number]}
            strange += len(set(stored) - sent)
            twice += len(stored) - len(set(stored))
            missing[number] = {one for one, _ in sent - set(stored)}
            if missing[number] == set() and strange == twice == 0:
                del missing[number]
        if missing:
            say(__doc__, f"{plural(sum(map(len, missing.values())), 'event')} not stored yet")
            await asyncio.sleep(2)
    return {"sent": sum(map(len, report)), "lost": sum(map(len, missing.values())), "strange": strange, "twice": twice}


def _stored(reader: SegmentReader, number: int) -> list[tuple[int, str]]:
    """The number and the body of each stored event of a stream, in order."""
    entries = reader.entries(f"{PROFILE}:{number}", time.time_ns() // 1_000_000, "", sys.maxsize)
    return [(int(event.key), str(event.data)) for _, event in entries if event is not None]


def _usd_month(options: argparse.Namespace) -> float:
    """What one of the streams costs a month on AWS, by `streamkeeper cost`."""
    rate, together = 1 / options.every, options.per_function
    load = model.Load(options.streams, rate, EVENT_BYTES, "log", FLUSH_S, per_function=together, arrivals="clock")
    source = month.read_scenario("prod")
    return model.costs_of_loads(source, month.replay_months(source), [load], prices.read())[0].stream_month["sum"]


def goals(row: Row) -> list[Goal]:
    name = plural(row["streams"], "stream")
    return [
        goal_if(name, "each was handed over, several times", row["handovers"] >= HANDOVERS),
        goal_if(name, "no stream without a connection", row["gaps"] == 0),
        goal_if(name, "no event lost", row["lost"] == 0),
        goal_if(name, "each event stored once and as it was sent", row["strange"] == row["twice"] == 0),
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0; 2 if it cannot run, 130 if it is interrupted."""
    asked = parse_options(
        argv, __doc__, streams=(1000, "how many", at_least(1)), per_function=(100, "how many in each", at_least(1)),
        seconds=(240, "how long to watch them", at_least(1)), every=(10, "seconds from event to event", at_least(1)),
        function_s=(135, "a function's limit", at_least(LEAST_FUNCTION_S)),
    )  # fmt: skip
    try:
        row = run(__doc__, measure(asked))
    except KeyboardInterrupt:
        say(__doc__, "ended before the figures were known; nothing is left")
        return 130
    return show(asked, row, goals(row), judge=False)


if __name__ == "__main__":
    sys.exit(main())
