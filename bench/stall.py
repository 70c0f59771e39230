"""`python -m bench.stall`: measures how fast the local Step Functions answer while others evaluate costly expressions.

The endpoint and the attackers run in separate processes; otherwise the client would wait while their answers are
parsed. The attackers start costly executions one after the other, by StartSyncExecution and by TestState; meanwhile one
client calls DescribeStateMachine and runs a small Express machine in turn, every `PAUSE_S`. The row `none` is the same
without an attack: what the machine and the client take by themselves. Invariant: the outcome of each attack is reported
with the times, so that an attack that never began is seen.
"""

import contextlib
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from botocore.config import Config

from bench.harness import Goal, Row, goal_below, parse_options, run_program, say, show
from local.aws_endpoints import plain_session
from local.listener import HOST, bind, port_of

PAUSE_S = 0.02
# No other answer of the local Step Functions may take this long while expressions are evaluated.
STALL_MS = 100
_SPAWN = multiprocessing.get_context("spawn")
ROLE = "arn:aws:iam::000000000000:role/bench"
_ENDLESS = "($f := function($n) { $f($n + 1) }; $f(0))"
_LARGE = {"a": [{"b": [number, "x"]} for number in range(10_000)]}


@contextlib.contextmanager
def run_server() -> Iterator[str]:
    with bind(0, "the server") as free:
        port = port_of(free)
    url, server = f"http://{HOST}:{port}", (sys.executable, "-m", "states_language.server", "--port", f"{port}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, run_program(url, *server, "--data", folder):
        yield url


def client(address: str) -> Any:
    """Return boto3's client of the server, which validates, signs, and reads each answer by its model."""
    return plain_session().create_client(
        "stepfunctions",
        region_name="us-east-1",
        endpoint_url=address,
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(read_timeout=300, retries={"total_max_attempts": 1}, inject_host_prefix=False),
    )


def _jsonata(expression: str) -> dict[str, Any]:
    return {"Type": "Pass", "QueryLanguage": "JSONata", "Output": f"{{% {expression} %}}", "End": True}


def _jsonpath(expression: str) -> dict[str, Any]:
    return {"Type": "Pass", "Parameters": {"v.$": expression}, "End": True}


ATTACKS: dict[str, tuple[dict[str, Any], Any]] = {
    "none": (_jsonata("1"), {}),
    "endless recursion": (_jsonata(_ENDLESS), {}),
    "deep recursion": (_jsonata("($f := function($n) { 1 + $f($n) }; $f(0))"), {}),
    "backtracking": (_jsonata(f"$match('{'a' * 40}b', /^(a|aa)+$/)"), {}),
    "giant range": (_jsonata("$sum([1..10000000])"), {}),
    "large ranges": (_jsonata("$sum($map([1..800000], function($v) { $v * 2 }))"), {}),
    "padding": (_jsonata("$pad('x', 6000000) & $pad('y', 6000000)"), {}),
    "joins": (_jsonata("[1..300].([1..300].([1..300]))"), {}),
    "sort": (
        _jsonata("$sort($map([1..20000], function($v) { ($v * 7919) % 20011 }), function($a, $b) { $a > $b })"),
        {},
    ),
    "many expressions": (
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": ["{% $sum([1..100]) %}"] * 3_000, "End": True},
        {},
    ),
    "deep scans": (_jsonpath("$..*[?(@..b)]..*"), _LARGE),
    "nested filters": (_jsonpath("$..[?(@.b == $..c)]"), _LARGE),
    "unique": (_jsonpath("States.ArrayUnique($.a)"), {"a": list(range(30_000))}),
    "splits": (_jsonpath("States.StringSplit($.a, ',')"), {"a": "a," * 100_000}),
    "loop": ({"Type": "Pass", "Next": "A"}, {}),
    "maps": (
        {"Type": "Map", "ItemProcessor": {"StartAt": "B", "States": {"B": {"Type": "Pass", "End": True}}}, "End": True},
        list(range(3_000)),
    ),
    "definitions": (_jsonata("1"), {}),
    "histories": ({"Type": "Pass", "Next": "A"}, {}),
    "endings": (_jsonata("1"), {}),
}
"""The states that attack, and their inputs; "definitions" creates machines of LARGEST states instead, and "endings"
stops executions in which MANY others wait."""
UNTESTED = ("loop", "maps")
"""What TestState does not run."""
LOOPING = ("loop", "histories")
LARGEST = 11_000
MANY = 10_000


def looping_machine() -> str:
    """The definition of a machine that runs until its history is full."""
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.x", "IsPresent": True, "Next": "C"}], "Default": "A"}
    states = {"A": {"Type": "Pass", "Next": "B"}, "B": choice, "C": {"Type": "Succeed"}}
    return json.dumps({"StartAt": "A", "States": states})


def measure(url: str, attack: str, count: int, seconds: float, run: int = 0) -> Row:
    """Return the row of an attack by so many clients; `attack_ms` is the mean time of one of its executions."""
    made = client(url)

    def machine(kind: str, text: str) -> str:
        name = f"{kind}-{count}-{run}-{attack.replace(' ', '-')}"
        return str(
            made.create_state_machine(name=name, definition=text, roleArn=ROLE, type="EXPRESS")["stateMachineArn"]
        )

    try:
        attacked = machine("attack", looping_machine() if attack in LOOPING else _single_state(ATTACKS[attack][0]))
        small = machine("small", _single_state(_jsonata("$sum([1..9])")))
    except made.exceptions.ClientError as problem:
        raise SystemExit(f"bench.stall: {attack}: {problem}") from None
    ours, theirs = _SPAWN.Pipe()
    attackers = _SPAWN.Process(target=_attack, args=(url, attack, attacked, count, theirs))
    attackers.start()
    ours.recv()
    times = sorted(_times(made, small, seconds))
    ours.send("over")
    spent_s, outcomes = ours.recv()
    attackers.join()
    mean_ms = 1000 * sum(spent_s) / max(1, len(spent_s))
    outcome = max(set(outcomes), key=outcomes.count) if outcomes else "none ended"
    return {
        "attack": attack,
        "clients": count,
        "answers": len(times),
        "median_ms": round(times[len(times) // 2], 1),
        "p99_ms": round(times[len(times) * 99 // 100], 1),
        "slowest_ms": round(times[-1], 1),
        "attacks": len(outcomes),
        "attack_ms": round(mean_ms),
        "outcome": outcome,
    }


def _single_state(state: dict[str, Any]) -> str:
    return json.dumps({"StartAt": "A", "States": {"A": state}})


def _attack(url: str, attack: str, arn: str, count: int, port: Connection) -> None:
    """Attack until told to stop; send how long each execution took, and how it ended."""
    state, input_ = ATTACKS[attack]
    running = [_run_many(client(url)) for _ in range(count)] if attack == "endings" else []
    over, outcomes, spent_s = threading.Event(), [], []

    def attacks(at: int) -> None:
        own = client(url)
        while not over.is_set():
            begun_s = time.perf_counter()
            if attack == "definitions":
                answer = _create(own, f"{at}-{begun_s}")
            elif attack == "histories":
                answer = _fill(own)
            elif attack == "endings":
                many = running.pop() if running else _run_many(own)
                own.stop_execution(executionArn=many)
                answer = own.describe_execution(executionArn=many)
            elif at % 2 and attack not in UNTESTED:
                answer = own.test_state(definition=json.dumps(state), roleArn=ROLE, input=json.dumps(input_))
            else:
                answer = own.start_sync_execution(stateMachineArn=arn, input=json.dumps(input_))
            spent_s.append(time.perf_counter() - begun_s)
            outcomes.append(f"{answer['status']} {answer.get('cause', '')[-70:]}")

    threads = [threading.Thread(target=attacks, args=(at,), daemon=True) for at in range(count)]
    for thread in threads:
        thread.start()
    port.send("begun")
    port.recv()
    over.set()
    for thread in threads:
        thread.join(60)
    port.send((list(spent_s), list(outcomes)))


def _create(made: Any, name: str) -> dict[str, str]:
    """Create a new machine of about a megabyte."""
    states: dict[str, Any] = {
        f"S{number}": {"Type": "Pass", "Comment": f"{name:<30}", "Next": f"S{number + 1}"} for number in range(LARGEST)
    }
    text = json.dumps({"StartAt": "S0", "States": {**states, f"S{LARGEST}": {"Type": "Succeed"}}})
    made.create_state_machine(name=name, definition=text, roleArn=ROLE)
    return {"status": "created"}


def _fill(made: Any) -> dict[str, Any]:
    """Run an execution until its history is full."""
    machine = made.create_state_machine(name="filling", definition=looping_machine(), roleArn=ROLE)["stateMachineArn"]
    arn = made.start_execution(stateMachineArn=machine)["executionArn"]
    while (answer := made.describe_execution(executionArn=arn))["status"] == "RUNNING":
        time.sleep(0.2)
    return dict(answer)


def _run_many(made: Any) -> str:
    """Start an execution of a Map Run, and return its ARN once its MANY executions wait."""
    wait = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 86_400, "End": True}}}
    processor = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}, **wait}
    text = _single_state({"Type": "Map", "ItemProcessor": processor, "End": True})
    machine = made.create_state_machine(name="many", definition=text, roleArn=ROLE)["stateMachineArn"]
    arn = made.start_execution(stateMachineArn=machine, input=json.dumps([0] * MANY))["executionArn"]
    while True:
        for run in made.list_map_runs(executionArn=arn)["mapRuns"]:
            if made.describe_map_run(mapRunArn=run["mapRunArn"])["executionCounts"]["running"] == MANY:
                return str(arn)
        time.sleep(0.2)


def _times(made: Any, arn: str, seconds: float) -> list[float]:
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while (begun_s := time.perf_counter()) < end_s:
        if len(times) % 2:
            made.describe_state_machine(stateMachineArn=arn)
        else:
            made.start_sync_execution(stateMachineArn=arn, input="{}")
        times.append(1000 * (time.perf_counter() - begun_s))
        time.sleep(PAUSE_S)
    return times


def _spin() -> None:
    while True:
        pass


@contextlib.contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    """Has so many processes calculate until the context ends."""
    processes = [_SPAWN.Process(target=_spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def goal(attack: str, clients: int, slowest_ms: float) -> Goal:
    """Return the goal of the other answers during an attack by so many clients."""
    return goal_below(attack, f"the slowest other answer, attacked by {clients}", STALL_MS, slowest_ms)


def main(argv: list[str] | None = None) -> int:
    """Print the rows; return 1 if a goal was missed."""
    asked = parse_options(
        argv,
        __doc__,
        seconds=(5.0, "how long each attack is measured"),
        clients=([1, 4], "attackers at once"),
        attacks=([*ATTACKS], "which", [*ATTACKS]),
        runs=(1, "how often each is measured"),
        load=(0, "processes that calculate beside it all, which is the machine's load"),
    )
    rows = []
    with _busy_processes(asked.load), run_server() as url:
        for run in range(asked.runs):
            for attack in asked.attacks:
                for count in asked.clients if attack != "none" else [0]:
                    rows.append(measure(url, attack, count, asked.seconds, run))
                    say(__doc__, rows[-1])
    judged = [goal(row["attack"], row["clients"], row["slowest_ms"]) for row in rows]
    return show(asked, {"limit_ms": STALL_MS, "rows": rows}, judged)


if __name__ == "__main__":
    sys.exit(main())
