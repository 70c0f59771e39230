"""`python -m bench.year`: measures a year of the deployed machine in virtual time, including its renewals.

The function is a stand-in: each connection lasts until the next one takes over, in its own execution or in the
successor, or until a function's time is over. Nothing fails, so the figures are those of the machine and the
interpreter. No peer has virtual time; it would need the year. `--beside FOLDER` measures the same year by another
checkout too, such as the state before a change, and prints how much less CPU this one takes. Invariant: every run has
the same year.
"""

import asyncio
import functools
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from bench.harness import Row, figures_of, goal_if, parse_options, resident_mb, say, show
from handlers.store.typed_values import DAY_S
from local import stages
from states_language import Execution, Machine, TaskCall, load
from states_language.clock import VirtualClock
from states_language.tasks.lambdas import Functions, LambdaContext

STAGE = "prod"
OVERLAP_MS = 2_000


# How the function ends a connection: a newer one of the same execution has the stream; the function's time is nearly
# over and no other has taken over; or, with the name of either before it, when a renewal is due.
TAKEN_OVER, EXPIRED, DUE = (
    type(name, (Exception,), {}) for name in ("StreamTakenOver", "ConnectionExpired", "RenewalDue")
)


class Year:
    """One year of a stream: its connection, and the executions that keep it connected."""

    def __init__(self, machine: Machine, clock: VirtualClock, margin_s: int) -> None:
        self.machine, self.clock, self.margin_ms = machine, clock, margin_s * 1000
        self.sandbox = Functions(
            clock, {f"streamkeeper-{STAGE}-connection-manager": self.connect}, other=self.answer_service
        )
        self.holder: tuple[str, asyncio.Future[str | None]] | None = None
        self.running: list[Execution] = []
        self.executions = self.connections = self.events = self.transitions = self.failed = 0

    def start(self, data: Any) -> Execution:
        """Start an execution; ended ones are counted and dropped."""
        for ended in [one for one in self.running if one.status != "RUNNING"]:
            self.running.remove(ended)
            self.transitions += ended.transitions
            self.failed += ended.status != "SUCCEEDED"
        execution = self.machine.start(
            data, clock=self.clock, perform=self.sandbox.perform, on_event=self._count, keep_history=False
        )
        self.executions += 1
        self.running.append(execution)
        return execution

    async def connect(self, payload: Any, context: LambdaContext) -> Any:
        """Return or raise what the connection manager does at the end of a connection."""
        self.connections += 1
        before, taken = self.holder, asyncio.get_running_loop().create_future()
        self.holder = payload["execution"], taken
        if before is not None and not before[1].done():
            before[1].set_result(payload["execution"])
        limit = self.clock.call_at(context.deadline_ms - self.margin_ms, functools.partial(_expire, taken))
        taker = await taken
        limit.cancel()
        if taker is not None:
            await self.clock.sleep_until(self.clock.now_ms() + OVERLAP_MS)
        if taker not in (None, payload["execution"]):
            return {"status": "superseded"}
        error = EXPIRED if taker is None else TAKEN_OVER
        if payload["cycles"] + 1 >= payload["renew_after"]:
            raise DUE(f"{error.__name__}: a renewal is due")
        raise error

    async def answer_service(self, call: TaskCall) -> Any:
        """Return the response of a service: DynamoDB accepts everything, Step Functions starts the successor."""
        if call.action == "startExecution":
            execution = self.start(call.parameters["Input"])
            return {"ExecutionArn": execution.arn, "StartDate": execution.started_ms / 1000}
        return {}

    def _count(self, _event: Any) -> None:
        self.events += 1


def _expire(taken: asyncio.Future[str | None]) -> None:
    if not taken.done():
        taken.set_result(None)


def measure(days: int) -> Row:
    """Return the figures of so many days; `resident_mb` is the largest memory of the process."""
    definition = yaml.safe_load((stages.ROOT / "statemachines" / "connections.asl.yml").read_text())
    values = stages.load(STAGE)
    begun_s, before_s = time.perf_counter(), time.process_time()
    clock = VirtualClock()
    year = Year(load(stages.resolve(definition, values, stages.names(STAGE))), clock, int(values["margin_s"]))

    async def run() -> None:
        year.start({"pathParameters": {"streamId": "year"}})
        await clock.sleep_until(clock.now_ms() + days * DAY_S * 1000)

    clock.run(run())
    return {
        "days": days,
        "seconds": round(time.perf_counter() - begun_s, 2),
        "cpu_seconds": round(time.process_time() - before_s, 2),
        "resident_mb": round(resident_mb()),
        "executions": year.executions,
        "connections": year.connections,
        "transitions": year.transitions + sum(one.transitions for one in year.running),
        "events": year.events,
        "failed": year.failed,
    }


def measure_other_checkout(checkout: Path, days: int) -> Row:
    """Return the figures of another checkout, which runs in the same environment."""
    found = os.pathsep.join(str(checkout / folder) for folder in (".", "states-language/src"))
    code = f"import json; from bench import year; print(json.dumps(year.measure({days})))"
    return dict(figures_of("-P", "-c", code, variables={**os.environ, "PYTHONPATH": found}))


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, or 1 where the other checkout has another year."""
    asked = parse_options(argv, __doc__, days=(365, "how long"), beside=(None, "a folder: another checkout", Path))
    if asked.beside is not None and not (asked.beside / "bench" / "year.py").is_file():
        say(__doc__, f"--beside: {asked.beside} is no checkout of this project")
        return 2
    figures = measure(asked.days)
    if asked.beside is None:
        return show(asked, figures)
    before = measure_other_checkout(asked.beside.resolve(), asked.days)
    same = all(before[name] == figures[name] for name in ("connections", "transitions", "events", "executions"))
    figures |= {"cpu_seconds_beside": before["cpu_seconds"]}
    figures |= {"cpu_ratio": round(figures["cpu_seconds"] / before["cpu_seconds"], 2)}
    return show(asked, figures, [goal_if("beside", "has the same year", same)])


if __name__ == "__main__":
    sys.exit(main())
