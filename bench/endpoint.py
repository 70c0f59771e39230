"""`python -m bench.endpoint`: measures the local Step Functions beside moto's server, over HTTP, in one run.

Each is a separate process and has the same client, plain HTTP or boto3: it starts a machine of one Pass, and reads all
pages of the history of a loop. moto's server is installed from bench/moto.txt into a separate environment. Invariant:
both histories have the same number of events before anything is compared.
"""

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import urllib3
from botocore import xform_name
from botocore.config import Config

from bench.harness import Goal, Row, at_most, options, python_of, show, spent_s
from bench.interpreter import LOOP
from local.aws_endpoints import plain_session
from local.stages import ROOT

OURS, MOTO = "streamkeeper", "moto"
ROUNDS, STARTS, PAGE = 4000, 200, 100
"""Four thousand rounds of the loop are 16,004 events."""
_ROLE = "arn:aws:iam::000000000000:role/any"
_PASS = {"StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}}
# A tenth of the first measurement.
START_MS, HISTORY_MS = 5.4, 1300
Call = Callable[..., dict[str, Any]]
"""Asks for an action by its name with its parameters, and returns the answer."""


@contextlib.contextmanager
def served(name: str) -> Iterator[tuple[str, int]]:
    """Run one of the servers; yield its address and its process id."""
    with socket.socket() as free, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "states_language.server", "--port", f"{port}", "--data", folder]
        if name == MOTO:
            program = python_of("moto", ROOT / "bench" / "moto.txt").with_name("moto_server")
            command = [str(program), "-H", "127.0.0.1", "-p", f"{port}"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            # Only moto knows this path; the other server refuses it, which also shows that it is there.
            config = {"stepfunctions": {"execute_state_machine": True}}
            retries = urllib3.Retry(total=60, backoff_factor=0.2, backoff_max=1)
            urllib3.request("POST", f"{url}/moto-api/config", json=config, retries=retries)
            yield url, running.pid
        finally:
            running.terminate()
            running.wait()


def plain(address: str) -> Call:
    """Return a function that asks an endpoint by plain HTTP and JSON, and does nothing else."""
    http = urllib3.PoolManager(timeout=300, retries=False)
    # moto's server reads the service from the credential; neither server checks a signature.
    signed = "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/states/aws4_request, SignedHeaders=, Signature="
    headers = {"Content-Type": "application/x-amz-json-1.0", "Authorization": signed}

    def call(action: str, **parameters: Any) -> dict[str, Any]:
        target = headers | {"X-Amz-Target": f"AWSStepFunctions.{action}"}
        answer = http.request("POST", f"{address}/", body=json.dumps(parameters), headers=target)
        read: dict[str, Any] = json.loads(answer.data)
        assert answer.status == 200, f"{action}: {read}"
        return read

    return call


def client(address: str) -> Any:
    """Return boto3's client of an endpoint, which validates, signs, and reads each answer by its model."""
    return plain_session().create_client(
        "stepfunctions", region_name="us-east-1", endpoint_url=address, aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(read_timeout=300, retries={"total_max_attempts": 1}, inject_host_prefix=False),
    )  # fmt: skip


def by_boto3(address: str) -> Call:
    """Return a function that asks an endpoint by boto3's client."""
    made = client(address)
    return lambda action, **parameters: getattr(made, xform_name(action))(**parameters)


def measure(server: str, call: Call, pid: int, rounds: int, starts: int) -> Row:
    """Return the milliseconds and the CPU of a start (median) and of all pages of a history.

    `client_cpu_ms` is the client's CPU for the history.
    """

    def machine(name: str, definition: dict[str, Any]) -> str:
        answer = call("CreateStateMachine", name=name, definition=json.dumps(definition), roleArn=_ROLE)
        return str(answer["stateMachineArn"])

    arn, took_ms = machine("pass", _PASS), []
    cpu_ms = 1000 * spent_s(pid)
    # moto's server does not name its executions.
    for number in range(starts):
        begun = time.perf_counter()
        call("StartExecution", stateMachineArn=arn, name=f"start-{number}")
        took_ms.append((time.perf_counter() - begun) * 1000)
    start_cpu_ms = (1000 * spent_s(pid) - cpu_ms) / starts
    looping = json.dumps({"n": 0, "most": rounds})
    loop = machine("loop", LOOP)
    execution = call("StartExecution", stateMachineArn=loop, name="long", input=looping)["executionArn"]
    while call("DescribeExecution", executionArn=execution)["status"] == "RUNNING":
        time.sleep(0.2)
    cpu_ms, begun, own_s = 1000 * spent_s(pid), time.perf_counter(), time.process_time()
    events, rest = 0, dict[str, str]()
    while events == 0 or rest:
        page = call("GetExecutionHistory", executionArn=execution, maxResults=PAGE, **rest)
        events += len(page["events"])
        rest = {"nextToken": page["nextToken"]} if page.get("nextToken") else {}
    history_ms, client_ms = (time.perf_counter() - begun) * 1000, (time.process_time() - own_s) * 1000
    return {
        "server": server,
        "start_ms": round(statistics.median(took_ms), 1),
        "start_cpu_ms": round(start_cpu_ms, 1),
        "history_ms": round(history_ms),
        "history_cpu_ms": round(1000 * spent_s(pid) - cpu_ms),
        "client_cpu_ms": round(client_ms),
        "events": events,
    }


def rows(
    rounds: int = ROUNDS, starts: int = STARTS, *, alone: bool = False, ask: Callable[[str], Call] = plain
) -> list[Row]:
    """Return a row for each server, one after the other; `alone` leaves out moto's."""
    measured = []
    for name in (OURS,) if alone else (OURS, MOTO):
        with served(name) as (address, pid):
            measured.append(measure(name, ask(address), pid, rounds, starts))
    counts = {row["events"] for row in measured}
    assert len(counts) == 1, f"the histories differ: {counts}"
    return measured


def goals(start_ms: float, history_ms: float) -> list[Goal]:
    """Return the goals: a start's median, and all pages of a history of 16,000 events."""
    return [
        at_most("endpoint", "the median StartExecution", START_MS, start_ms),
        at_most("endpoint", "all pages of a history", HISTORY_MS, history_ms),
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, or 1 if a goal was missed."""
    asked = options(
        argv, __doc__, rounds=(ROUNDS, "of the loop, four events each"), starts=(STARTS, "how many are started"),
        alone=(False, "leave moto's server out"), boto3=(False, "ask through boto3's client instead of plain HTTP"),
    )  # fmt: skip
    measured = rows(asked.rounds, asked.starts, alone=asked.alone, ask=by_boto3 if asked.boto3 else plain)
    judged = goals(measured[0]["start_ms"], measured[0]["history_ms"])
    return show(asked, {"rows": measured}, judged)


if __name__ == "__main__":
    sys.exit(main())
