"""`python -m bench.endpoint`: measures the local Step Functions beside moto's server, over HTTP, in one run.

Each is a process of its own and is asked by the same client, plain HTTP or boto3's: starts of a machine of one Pass,
and all pages of the history of a loop. moto's server is installed from bench/moto.txt into an environment of its own.
Invariant: both histories have the same number of events before anything is compared.
"""

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import botocore.session
import urllib3
from botocore import xform_name
from botocore.config import Config

from bench import local_states
from bench.harness import Goal, at_most, options, python_of, show, table
from bench.interpreter import LOOP
from bench.processes import own_spent_s
from local.stages import ROOT

OURS, MOTO = "streamkeeper", "moto"
ROUNDS, STARTS, PAGE = 4000, 200, 100
"""Four thousand rounds of the loop are 16,004 events."""
_ROLE = "arn:aws:iam::000000000000:role/any"
_PASS = {"StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}}
# A tenth of what it took when it was first measured.
START_MS, HISTORY_MS = 5.4, 1300
Call = Callable[..., dict[str, Any]]
"""Asks for an action by its name with its parameters, and returns the answer."""


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
    cpu_ms = 1000 * own_spent_s(pid)
    # moto's server gives its executions no names.
    for number in range(starts):
        begun = time.perf_counter()
        call("StartExecution", stateMachineArn=arn, name=f"start-{number}")
        took_ms.append((time.perf_counter() - begun) * 1000)
    start_cpu_ms = (1000 * own_spent_s(pid) - cpu_ms) / starts
    looping = json.dumps({"n": 0, "most": rounds})
    loop = machine("loop", LOOP)
    execution = call("StartExecution", stateMachineArn=loop, name="long", input=looping)["executionArn"]
    while call("DescribeExecution", executionArn=execution)["status"] == "RUNNING":
        time.sleep(0.2)
    cpu_ms, begun, own_s = 1000 * own_spent_s(pid), time.perf_counter(), time.process_time()
    events, rest = 0, dict[str, str]()
    while events == 0 or rest:
        page = call("GetExecutionHistory", executionArn=execution, maxResults=PAGE, **rest)
        events += len(page["events"])
        rest = {"nextToken": page["nextToken"]} if page.get("nextToken") else {}
    history_ms, client_ms = (time.perf_counter() - begun) * 1000, (time.process_time() - own_s) * 1000
    start_ms = statistics.median(took_ms)
    return Row(server, start_ms, start_cpu_ms, history_ms, 1000 * own_spent_s(pid) - cpu_ms, client_ms, events)


def rows(
    rounds: int = ROUNDS, starts: int = STARTS, *, alone: bool = False, client: Callable[[str], Call] = plain
) -> list[Row]:
    """Return a row for each server, one after the other; `alone` leaves moto's out."""
    measured = []
    for name, server in ((OURS, local_states.endpoint), (MOTO, moto)):
        if name == OURS or not alone:
            with server() as (address, pid):
                measured.append(measure(name, client(address), pid, rounds, starts))
    counts = {row.events for row in measured}
    assert len(counts) == 1, f"the histories differ: {counts}"
    return measured


def goals(start_ms: float, history_ms: float) -> list[Goal]:
    """Return the goals: a start's median, and all pages of a history of 16,000 events."""
    return [
        at_most("endpoint", "the median StartExecution", START_MS, start_ms),
        at_most("endpoint", "all pages of a history", HISTORY_MS, history_ms),
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, or 1 where a goal was missed."""
    asked = options(
        argv, __doc__, rounds=(ROUNDS, "of the loop, four events each"), starts=(STARTS, "how many are started"),
        alone=(False, "leave moto's server out"), boto3=(False, "ask through boto3's client instead of plain HTTP"),
    )  # fmt: skip
    measured = rows(asked.rounds, asked.starts, alone=asked.alone, client=by_boto3 if asked.boto3 else plain)
    heads = ("server", "start ms", "its CPU", "history ms", "its CPU", "client CPU", "events")
    cells = [
        (
            row.server, f"{row.start_ms:.1f}", f"{row.start_cpu_ms:.1f}", f"{row.history_ms:.0f}",
            f"{row.history_cpu_ms:.0f}", f"{row.client_cpu_ms:.0f}", row.events,
        )
        for row in measured
    ]  # fmt: skip
    judged = goals(measured[0].start_ms, measured[0].history_ms)
    return show(asked, {"rows": [asdict(row) for row in measured]}, table(heads, cells), judged)


if __name__ == "__main__":
    sys.exit(main())
