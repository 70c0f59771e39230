"""`python -m bench.stall`: measures the answers of the local Step Functions while others evaluate costly expressions.

The endpoint runs in a process of its own, and so do the attackers, or the client would wait for their answers' JSON.
They start costly executions one after the other, by StartSyncExecution and by TestState; meanwhile one client asks
DescribeStateMachine and runs a small Express machine in turn, every `PAUSE_S`. Invariant: each attack's outcome is
reported beside the times, so that one that failed to begin shows.
"""

import json
import multiprocessing
import sys
import threading
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

from botocore.config import Config

from bench.harness import Goal, below, live, options, show
from bench.local_states import endpoint
from local.aws_endpoints import plain_session

PAUSE_S = 0.02
# No other answer of the local Step Functions takes so long while somebody's expressions are evaluated.
STALL_MS = 100
_SPAWN = multiprocessing.get_context("spawn")
ROLE = "arn:aws:iam::000000000000:role/bench"
_ENDLESS = "($f := function($n) { $f($n + 1) }; $f(0))"
_LARGE = {"a": [{"b": [number, "x"]} for number in range(10_000)]}


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
        {
            "Type": "Map",
            "ItemProcessor": {"StartAt": "B", "States": {"B": {"Type": "Pass", "End": True}}},
            "End": True,
        },
        list(range(3_000)),
    ),
    "definitions": (_jsonata("1"), {}),
    "histories": ({"Type": "Pass", "Next": "A"}, {}),
}
"""The states that attack, and their inputs; "definitions" creates machines of LARGEST states instead."""
UNTESTED = ("loop", "maps")
"""What TestState does not run."""
LARGEST = 11_000


@dataclass(frozen=True)
class Row:
    """The answers during one attack; times in milliseconds. attack_ms: the mean time of one execution of it."""

    attack: str
    clients: int
    answers: int
    median_ms: float
    p99_ms: float
    slowest_ms: float
    attacks: int
    attack_ms: float
    outcome: str

    @property
    def line(self) -> str:
        """The row of the table."""
        times = f"{self.median_ms:>8.1f}{self.p99_ms:>8.1f}{self.slowest_ms:>9.1f}"
        ended = f"{self.attacks:>8}{self.attack_ms:>9.0f}  {self.outcome}"
        return f"{self.attack:<20}{self.clients:>4}{self.answers:>8}{times}{ended}"


def _client(url: str) -> Any:
    return plain_session().create_client(
        "stepfunctions", endpoint_url=url, region_name="us-east-1", aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=300, inject_host_prefix=False),
    )  # fmt: skip


def measure(url: str, attack: str, count: int, seconds: float) -> Row:
    """Return the row of one attack by so many clients."""
    state = ATTACKS[attack][0]
    client = _client(url)
    name = attack.replace(" ", "-")
    definition = json.dumps({"StartAt": "A", "States": {"A": state}})
    small = json.dumps({"StartAt": "A", "States": {"A": _jsonata("$sum([1..9])")}})
    try:
        arns = [
            client.create_state_machine(name=f"{kind}-{count}-{name}", definition=text, roleArn=ROLE, type="EXPRESS")[
                "stateMachineArn"
            ]
            for kind, text in (("attack", _loop() if attack in ("loop", "histories") else definition), ("small", small))
        ]
    except client.exceptions.ClientError as problem:
        raise SystemExit(f"bench.stall: {attack}: {problem}") from None
    ours, theirs = _SPAWN.Pipe()
    attackers = _SPAWN.Process(target=_attack, args=(url, attack, arns[0], count, theirs))
    attackers.start()
    ours.recv()
    times = sorted(_times(client, arns[1], seconds))
    ours.send("over")
    spent_s, outcomes = ours.recv()
    attackers.join()
    mean_ms = 1000 * sum(spent_s) / max(1, len(spent_s))
    outcome = max(set(outcomes), key=outcomes.count) if outcomes else "none ended"
    return Row(
        attack, count, len(times), round(times[len(times) // 2], 1), round(times[len(times) * 99 // 100], 1),
        round(times[-1], 1), len(outcomes), round(mean_ms), outcome,
    )  # fmt: skip


def _attack(url: str, attack: str, arn: str, count: int, port: Connection) -> None:
    """Attack by so many clients until the word comes that it is over; send how long each took, and how it ended."""
    state, input_ = ATTACKS[attack]
    over, outcomes, spent_s = threading.Event(), [], []

    def attacks(at: int) -> None:
        own = _client(url)
        while not over.is_set():
            begun_s = time.perf_counter()
            if attack == "definitions":
                answer = _create(own, f"{at}-{begun_s}")
            elif attack == "histories":
                answer = _fill(own)
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


def _create(client: Any, name: str) -> dict[str, str]:
    """Create a machine that nobody has created, of about a megabyte."""
    states: dict[str, Any] = {
        f"S{number}": {"Type": "Pass", "Comment": f"{name:<30}", "Next": f"S{number + 1}"} for number in range(LARGEST)
    }
    text = json.dumps({"StartAt": "S0", "States": {**states, f"S{LARGEST}": {"Type": "Succeed"}}})
    client.create_state_machine(name=name, definition=text, roleArn=ROLE)
    return {"status": "created"}


def _fill(client: Any) -> dict[str, Any]:
    """Run an execution until its history is full."""
    machine = client.create_state_machine(name="filling", definition=_loop(), roleArn=ROLE)["stateMachineArn"]
    arn = client.start_execution(stateMachineArn=machine)["executionArn"]
    while (answer := client.describe_execution(executionArn=arn))["status"] == "RUNNING":
        time.sleep(0.2)
    return dict(answer)


def _loop() -> str:
    states = {"A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Choice", "Choices": [{"Variable": "$.x", "IsPresent": True, "Next": "C"}], "Default": "A"}, "C": {"Type": "Succeed"}}  # fmt: skip  # noqa: E501
    return json.dumps({"StartAt": "A", "States": states})


def _times(client: Any, arn: str, seconds: float) -> list[float]:
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while (begun_s := time.perf_counter()) < end_s:
        if len(times) % 2:
            client.describe_state_machine(stateMachineArn=arn)
        else:
            client.start_sync_execution(stateMachineArn=arn, input="{}")
        times.append(1000 * (time.perf_counter() - begun_s))
        time.sleep(PAUSE_S)
    return times


def goal(attack: str, clients: int, slowest_ms: float) -> Goal:
    """Return the goal of the other answers during an attack by so many clients."""
    return below(attack, f"the slowest other answer, attacked by {clients}", STALL_MS, slowest_ms)


def main(argv: list[str] | None = None) -> int:
    """Print the rows; return 1 where a goal was missed."""
    asked = options(
        argv, __doc__, seconds=(5.0, "how long each attack is measured"), clients=([1, 4], "attackers at once"),
        attacks=([*ATTACKS], "which", [*ATTACKS]),
    )  # fmt: skip
    live(
        asked, f"{'attack':<20}{'by':>4}{'answers':>8}{'median':>8}{'p99':>8}{'slowest':>9}{'attacks':>8}{'each ms':>9}"
    )
    rows = []
    with endpoint() as (url, _):
        for attack in asked.attacks:
            for count in asked.clients if attack != "none" else [0]:
                rows.append(measure(url, attack, count, asked.seconds))
                live(asked, rows[-1].line)
    figures = {"rows": [asdict(row) for row in rows], "limit_ms": STALL_MS}
    return show(asked, figures, [], [goal(row.attack, row.clients, row.slowest_ms) for row in rows])


if __name__ == "__main__":
    sys.exit(main())
