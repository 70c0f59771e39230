"""`python -m bench.endpoint`: measures the local Step Functions beside moto's server, over HTTP, in one run.

Each is a process of its own and is asked by the same client, plain HTTP or boto3's: starts of a machine of one Pass,
and all pages of the history of a loop. moto's server is installed from bench/moto.txt into an environment of its own.
Invariant: both histories have the same number of events before anything is compared.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import botocore.session
import urllib3
from botocore import xform_name
from botocore.config import Config

from bench.environments import python_of
from bench.goals import endpoint_goals
from bench.interpreter import LOOP
from local.aws_endpoints import Endpoints
from local.functions.function_pool import Pool
from local.listener import Listener, bind
from local.service.aws_server import AwsServer
from local.stages import ROOT
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer, settle

OURS, MOTO = "streamkeeper", "moto"
ROUNDS, STARTS, PAGE = 4000, 200, 100
"""Four thousand rounds of the loop are 16,004 events."""
_ROLE = "arn:aws:iam::000000000000:role/any"
_PASS = {"StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}}
Call = Callable[..., dict[str, Any]]
"""Asks for an action by its name with its parameters, and returns the answer."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """One server: milliseconds of a start (median) and of all pages of a history, and the CPU that it took for each.

    client_cpu_ms: the CPU that the client took for the history.
    """

    server: str
    start_ms: float
    start_cpu_ms: float
    history_ms: float
    history_cpu_ms: float
    client_cpu_ms: float
    events: int


async def serve(folder: Path) -> None:
    """Serve our endpoint alone on any port, which is printed, until the process ends."""
    clock, endpoints = RealClock(), Endpoints({}, "http://127.0.0.1:9")
    states = StepFunctions(folder, clock)
    pool = Pool([], {}, folder, folder / "logs")
    states.executions.perform = TaskPerformer(pool.invoke, endpoints.client, states).perform
    listener = Listener(AwsServer(states, pool, endpoints).app, bind(0, "a benchmark"))
    await listener.start()
    settle()
    print(listener.port, flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def ours() -> Iterator[tuple[str, int]]:
    """Run our endpoint; yield its address and its process id."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        running = subprocess.Popen(
            [sys.executable, "-m", "bench.endpoint", "--serve", folder], stdout=subprocess.PIPE, text=True
        )
        assert running.stdout is not None
        with _ended(running):
            yield f"http://127.0.0.1:{running.stdout.readline().strip()}", running.pid
        running.stdout.close()


@contextlib.contextmanager
def moto() -> Iterator[tuple[str, int]]:
    """Run moto's server, which executes machines; yield its address and its process id."""
    python = python_of("moto", ROOT / "bench" / "moto.txt")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [str(python.with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    with _ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) as running:
        retries = urllib3.Retry(connect=60, backoff_factor=0.2, backoff_max=1)
        config = {"stepfunctions": {"execute_state_machine": True}}
        urllib3.request("POST", f"{url}/moto-api/config", json=config, retries=retries)
        yield url, running.pid


@contextlib.contextmanager
def _ended(process: "subprocess.Popen[Any]") -> Iterator["subprocess.Popen[Any]"]:
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def plain(address: str) -> Call:
    """Return what asks an endpoint by HTTP alone: JSON is written and read, and nothing else."""
    http = urllib3.PoolManager(timeout=300, retries=False)
    # moto's server finds the service by the credential; neither checks a signature.
    signed = "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/states/aws4_request, SignedHeaders=, Signature="
    headers = {"Content-Type": "application/x-amz-json-1.0", "Authorization": signed}

    def call(action: str, **parameters: Any) -> dict[str, Any]:
        target = headers | {"X-Amz-Target": f"AWSStepFunctions.{action}"}
        answer = http.request("POST", f"{address}/", body=json.dumps(parameters), headers=target)
        read: dict[str, Any] = json.loads(answer.data)
        assert answer.status == 200, f"{action}: {read}"
        return read

    return call


def by_boto3(address: str) -> Call:
    """Return what asks an endpoint through botocore, which validates, signs, and reads each answer by its model."""
    client = botocore.session.Session().create_client(
        "stepfunctions",
        region_name="us-east-1",
        endpoint_url=address,
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(read_timeout=300, retries={"total_max_attempts": 1}),
    )

    def call(action: str, **parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(client, xform_name(action))(**parameters)
        return answer

    return call


def measure(server: str, call: Call, pid: int, rounds: int, starts: int) -> Row:
    """Return the figures of a server, asked by a client."""

    def machine(name: str, definition: dict[str, Any]) -> str:
        answer = call("CreateStateMachine", name=name, definition=json.dumps(definition), roleArn=_ROLE)
        return str(answer["stateMachineArn"])

    arn, took_ms = machine("pass", _PASS), []
    cpu_ms = _cpu_ms(pid)
    # moto's server gives its executions no names.
    for number in range(starts):
        begun = time.perf_counter()
        call("StartExecution", stateMachineArn=arn, name=f"start-{number}")
        took_ms.append((time.perf_counter() - begun) * 1000)
    start_cpu_ms = (_cpu_ms(pid) - cpu_ms) / starts
    looping = json.dumps({"n": 0, "most": rounds})
    loop = machine("loop", LOOP)
    execution = call("StartExecution", stateMachineArn=loop, name="long", input=looping)["executionArn"]
    while call("DescribeExecution", executionArn=execution)["status"] == "RUNNING":
        time.sleep(0.2)
    cpu_ms, begun, own_s = _cpu_ms(pid), time.perf_counter(), time.process_time()
    events, rest = 0, dict[str, str]()
    while events == 0 or rest:
        page = call("GetExecutionHistory", executionArn=execution, maxResults=PAGE, **rest)
        events += len(page["events"])
        rest = {"nextToken": page["nextToken"]} if page.get("nextToken") else {}
    history_ms, client_ms = (time.perf_counter() - begun) * 1000, (time.process_time() - own_s) * 1000
    start_ms = statistics.median(took_ms)
    return Row(server, start_ms, start_cpu_ms, history_ms, _cpu_ms(pid) - cpu_ms, client_ms, events)


def _cpu_ms(pid: int) -> float:
    """Return the CPU of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / _TICKS


def rows(
    rounds: int = ROUNDS, starts: int = STARTS, *, alone: bool = False, client: Callable[[str], Call] = plain
) -> list[Row]:
    """Return a row for each server, one after the other; `alone` leaves moto's out."""
    measured = []
    for name, server in ((OURS, ours), (MOTO, moto)):
        if name == OURS or not alone:
            with server() as (address, pid):
                measured.append(measure(name, client(address), pid, rounds, starts))
    counts = {row.events for row in measured}
    assert len(counts) == 1, f"the histories differ: {counts}"
    return measured


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, or 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.endpoint", description="Measures the local Step Functions.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of the loop, four events each ({ROUNDS})")
    parser.add_argument("--starts", type=int, default=STARTS, help=f"how many executions are started ({STARTS})")
    parser.add_argument("--alone", action="store_true", help="leave moto's server out")
    parser.add_argument("--boto3", action="store_true", help="ask through boto3's client instead of plain HTTP")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve is not None:
        asyncio.run(serve(options.serve))
        return 0
    client = by_boto3 if options.boto3 else plain
    measured = rows(options.rounds, options.starts, alone=options.alone, client=client)
    goals = endpoint_goals(measured[0].start_ms, measured[0].history_ms)
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in measured], "goals": [asdict(goal) for goal in goals]}))
    else:
        print(
            f"{'server':<14}{'start':>10}{'its CPU':>10}{'history':>12}{'its CPU':>12}{'client CPU':>12}{'events':>9}"
        )
        for row in measured:
            times = f"{row.start_ms:>7.1f} ms{row.start_cpu_ms:>7.1f} ms{row.history_ms:>9.0f} ms"
            shares = f"{row.history_cpu_ms:>9.0f} ms{row.client_cpu_ms:>9.0f} ms"
            print(f"{row.server:<14}{times}{shares}{row.events:>9}")
        for goal in goals:
            print(goal.line)
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
