"""`python -m bench.interpreter`: measures transitions a second beside moto and aws-local-stepfunctions.

It also measures how long definitions of 440 KB take to load, compared with json.loads.
The machine is a loop of a Pass and a Choice; entered states are counted, and the history is written. moto slows down as
the history grows, so it is stopped after `--moto-seconds` and its rate until then is reported. The interpreters run one
after the other, with the same lengths.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from timeit import repeat
from typing import Any
from unittest.mock import patch

import boto3
from moto import mock_aws

from bench.harness import Row, parse_options, say, show
from local.stages import ROOT
from states_language import load

LENGTHS = (1_000, 10_000, 100_000)
LOOP: dict[str, Any] = {
    "StartAt": "Count",
    "States": {
        "Count": {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)", "most.$": "$.most"}, "Next": "Look"},
        "Look": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.n", "NumericLessThanPath": "$.most", "Next": "Count"}],
            "Default": "Over",
        },
        "Over": {"Type": "Succeed"},
    },
}
END = {"Type": "Succeed"}
OURS, MOTO, NPM = "streamkeeper", "moto", "aws-local-stepfunctions"
_NODE = Path(__file__).with_name("interpreter.mjs")
_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}


def make_row(interpreter: str, most: int, transitions: int, spent_s: tuple[float, float], *, whole: bool) -> Row:
    """Return the row of one run of the loop, from its seconds and CPU seconds; `whole` if it reached the end."""
    seconds, cpu_s = spent_s
    rates = {"rate": round(transitions / seconds), "cpu_rate": round(transitions / cpu_s)}
    return {"interpreter": interpreter, "rounds": most, "transitions": transitions, "whole": whole} | rates


def clocks() -> tuple[float, float]:
    """Return the seconds, and the CPU seconds of this process, which do not depend on other work on the machine."""
    return time.perf_counter(), time.process_time()


def elapsed_since(begun: tuple[float, float]) -> tuple[float, float]:
    """Return what has passed on both clocks."""
    now = clocks()
    return now[0] - begun[0], now[1] - begun[1]


def rows_of_ours(lengths: tuple[int, ...]) -> Iterator[Row]:
    """Yield a row for each length, without the limit of 25,000 events, timed to the last of them."""
    load(LOOP).execute({"n": 0, "most": lengths[0]}, history_limit=None)
    for most in lengths:
        machine, begun = load(LOOP), clocks()
        execution = machine.execute({"n": 0, "most": most}, history_limit=None)
        assert len(execution.history) > execution.transitions
        yield make_row(OURS, most, execution.transitions, elapsed_since(begun), whole=execution.output["n"] == most)


def rows_of_npm(lengths: tuple[int, ...]) -> Iterator[Row]:
    """Yield a row for each length; needs Node.js and node_modules."""
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / NPM).is_dir():
        say(__doc__, f"{NPM} is left out: it needs Node.js and `make setup`.")
        return
    loops = json.dumps({"definition": LOOP, "lengths": lengths})
    run = subprocess.run([node, str(_NODE)], input=loops, capture_output=True, text=True, check=True, cwd=ROOT)
    for line in run.stdout.splitlines():
        figures = json.loads(line)
        most, spent_s = figures["iterations"], (figures["seconds"], figures["cpu_seconds"])
        yield make_row(NPM, most, 2 * most + 1, spent_s, whole=figures["reached"] == most)


def rows_of_moto(lengths: tuple[int, ...], limit_s: float) -> Iterator[Row]:
    """Yield a row for each length, stopped after limit_s; the API is polled ten times a second."""
    logging.getLogger("moto").setLevel(logging.CRITICAL)  # it logs a page of text when an execution stops
    settings: Any = {"stepfunctions": {"execute_state_machine": True}}
    with patch.dict(os.environ, _CREDENTIALS), mock_aws(config=settings):
        client = boto3.client("stepfunctions", region_name="us-east-1")
        arn = client.create_state_machine(
            name="loop", definition=json.dumps(LOOP), roleArn="arn:aws:iam::111111111111:role/loop"
        )["stateMachineArn"]
        for most in lengths:
            begun = clocks()
            input_ = json.dumps({"n": 0, "most": most})
            execution = client.start_execution(stateMachineArn=arn, name=f"loop-{most}", input=input_)
            named = {"executionArn": execution["executionArn"]}
            while client.describe_execution(**named)["status"] == "RUNNING" and elapsed_since(begun)[0] <= limit_s:
                time.sleep(0.1)
            spent_s = elapsed_since(begun)
            whole = client.describe_execution(**named)["status"] == "SUCCEEDED"
            events = client.get_execution_history(**named)["events"]
            if not whole:
                client.stop_execution(**named)
            yield make_row(
                MOTO, most, sum(one["type"].endswith("StateEntered") for one in events), spent_s, whole=whole
            )


def _large(state: Callable[[int], dict[str, Any]], language: str) -> str:
    """Return a definition of 440 KB: a line of as many of these states as that takes."""
    states: dict[str, Any] = {}
    for number in range(440_000 // (len(json.dumps(state(1000))) + 12)):
        states[f"S{number}"] = state(number)
    return json.dumps({"StartAt": "S0", "QueryLanguage": language, "States": {**states, f"S{len(states)}": END}})


def _task(number: int, **fields: Any) -> dict[str, Any]:
    handled = {
        "Retry": [{"ErrorEquals": ["States.TaskFailed"], "MaxAttempts": 3, "BackoffRate": 2.0}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": f"S{number + 1}"}],
    }
    return {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", **fields, **handled, "Next": f"S{number + 1}"}


def _paths(n: int) -> dict[str, Any]:
    payload = {"id.$": "$.order.id", f"of{n}.$": f"$.items[{n}].price", "text.$": "States.Format('{}-{}', $.a, $.b)"}
    return _task(n, Parameters={"FunctionName": f"f{n}", "Payload": payload}, ResultPath=f"$.r{n}")


def _queries(n: int) -> dict[str, Any]:
    payload = {"id": "{% $states.input.order.id %}", f"of{n}": f"{{% $states.input.items[{n}].price %}}"}
    return _task(n, Arguments={"FunctionName": f"f{n}", "Payload": payload}, Output="{% $states.result.Payload %}")


SHAPES: dict[str, tuple[Callable[[int], dict[str, Any]], str]] = {
    "Pass": (lambda n: {"Type": "Pass", "Comment": "one of many", "Next": f"S{n + 1}"}, "JSONPath"),
    "Task, JSONPath": (_paths, "JSONPath"),
    "Task, JSONata": (_queries, "JSONata"),
    "Task, a call in each": (lambda n: _task(n, Arguments={"FunctionName": f"{{% $string({n}) %}}"}), "JSONata"),
}


def rows_of_loading() -> Iterator[Row]:
    """Yield a row for each shape: milliseconds of CPU, the least of nine, of json.loads and of `load`."""
    for shape, (state, language) in SHAPES.items():
        text = _large(state, language)
        calls = (partial(json.loads, text), partial(load, text))
        read_ms, load_ms = (1000 * min(repeat(f, timer=time.process_time, number=1, repeat=9)) for f in calls)
        figures = {"loads_ms": round(read_ms, 1), "load_ms": round(load_ms, 1), "times": round(load_ms / read_ms, 1)}
        yield {"states": shape, "kb": len(text) // 1000} | figures


def add_ratios(rows: list[Row]) -> list[Row]:
    """Return the rows, each with our transitions a second as a multiple of its own."""
    own = {one["rounds"]: one["rate"] for one in rows if one["interpreter"] == OURS}
    return [one | {"ratio": round(own[one["rounds"]] / one["rate"], 1)} for one in rows]


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0."""
    asked = parse_options(
        argv, __doc__, moto_seconds=(20.0, "after how long moto is stopped"), lengths=(LENGTHS, "rounds of the loop")
    )
    lengths = tuple(asked.lengths)
    rows = add_ratios([*rows_of_ours(lengths), *rows_of_npm(lengths), *rows_of_moto(lengths, asked.moto_seconds)])
    return show(asked, {"rows": rows, "loads": [*rows_of_loading()]})


if __name__ == "__main__":
    sys.exit(main())
