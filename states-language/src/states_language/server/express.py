"""Runs Express executions: they are not listed or described, and their history is not kept.

Invariant: none outlives `close`.
"""

import uuid
from dataclasses import dataclass
from typing import Any

from states_language import Execution
from states_language.clock import Clock
from states_language.server.executions import Executions


@dataclass(frozen=True)
class ExpressExecution:
    """One Express execution; `input` is JSON text."""

    arn: str
    name: str
    machine_arn: str
    input: str
    started_ms: int
    live: Execution


class Express:
    """Runs the executions of Express state machines."""

    def __init__(self, executions: Executions, clock: Clock) -> None:
        self._executions = executions
        self._clock = clock
        self._running: set[Execution] = set()

    def start(self, machine_arn: str, text: str, name: str | None) -> ExpressExecution:
        """Starts an execution and returns it; raises Refusal. Any number may have the same name."""
        started, document = self._executions.checked(machine_arn, text, name)
        assert self._executions.perform is not None
        name = name or str(uuid.uuid4())
        described = started.described
        arn = f"{described.arn.replace(':stateMachine:', ':express:')}:{name}:{uuid.uuid4()}"
        live = started.machine.start(
            document, clock=self._clock, perform=self._executions.perform, name=name, arn=arn,
            machine_name=described.name, machine_arn=described.arn, role_arn=described.role_arn,
            lanes=self._executions.lanes, keep_history=False,
        )  # fmt: skip
        self._running = {one for one in self._running if one.status == "RUNNING"} | {live}
        return ExpressExecution(arn, name, machine_arn, text, live.started_ms, live)

    async def run_to_end(self, machine_arn: str, text: str, name: str | None) -> dict[str, Any]:
        """Returns StartSyncExecution's answer when the execution has ended; raises Refusal."""
        run = self.start(machine_arn, text, name)
        live = await run.live.wait()
        stopped_ms = live.stopped_ms or run.started_ms
        answer: dict[str, Any] = {
            "executionArn": run.arn,
            "stateMachineArn": machine_arn,
            "name": run.name,
            "startDate": run.started_ms / 1000,
            "stopDate": stopped_ms / 1000,
            "status": "FAILED" if live.status == "ABORTED" else live.status,
            "input": text,
            "inputDetails": {"included": True},
            "error": live.error,
            "cause": live.cause,
            # Billed by 100 milliseconds and 64 MB (AWS Step Functions pricing).
            "billingDetails": {
                "billedMemoryUsedInMB": 64,
                "billedDurationInMilliseconds": -(-(stopped_ms - run.started_ms) // 100) * 100,
            },
        }
        if live.status == "SUCCEEDED":
            answer |= {"output": live.output_text, "outputDetails": {"included": True}}
        return {key: value for key, value in answer.items() if value is not None}

    def close(self) -> None:
        """Ends what runs."""
        for live in self._running:
            live.stop()
