"""Finds orphaned streams and starts an execution for each, for the watch in AWS and for the service on a laptop.

It also releases stopped streams whose execution is over and cannot release them.

handlers/connection/orphans.py has the rule. Step Functions is queried only for a stream without a living connection.
Invariants: nothing is started for a stream whose lease now names another execution or has a stop request; a stream is
started once a minute at most; a lease without a stop request is not written; a refusal by AWS is raised, and the next
check tries again.
"""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from handlers.aws.executions import UNKNOWN
from handlers.connection import orphans
from handlers.connection.lease import Lease
from handlers.group import is_group
from handlers.store import typed_values
from handlers.store.control_table import Table
from handlers.values import dataclass

# An execution releases a stopped stream within seconds, and a start that is under way is over after 29 s.
STOPS_WITHIN_MS = 30_000


@dataclass(frozen=True, slots=True)
class Orphan:
    """A stream whose lease names an execution that is over; `started` is the ARN of the execution that continues it.

    `started` is "" if none was started: the stream is over too (`is_done`), or no execution may be started now.
    """

    stream_id: str
    execution: str
    is_done: bool
    started: str

    @property
    def sentence(self) -> str:
        """The sentence about the orphan for people."""
        problem = f"the lease of {self.stream_id} names an execution that is over ({_name(self.execution)})"
        if self.is_done:
            return f"{problem}, and so is the stream: nothing is started; POST starts it again, DELETE ends this alert"
        if self.started:
            return f"{problem}, though no stop was requested; {_name(self.started)} continues the stream"
        return f"{problem}, though no stop was requested; another is started as soon as possible"


@dataclass(frozen=True, slots=True)
class ExecutionDescription:
    """Step Functions' answer about an execution; `started_ms` is -1 if there is no such execution."""

    arn: str
    verdict: orphans.Verdict
    started_ms: int


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """The requests to Step Functions; `client` returns boto3's, `machine_arn` is that of the connections' machine.

    `pace` waits until a request may be sent: the machines share the account's quota.
    """

    client: Callable[[], Any]
    machine_arn: str
    pace: Callable[[], None]

    def describe(self, arn: str) -> ExecutionDescription:
        """Returns Step Functions' answer about an execution."""
        self.pace()
        try:
            answer = self.client().describe_execution(executionArn=arn)
        except ClientError as refusal:
            if refusal.response["Error"]["Code"] not in UNKNOWN:
                raise
            return ExecutionDescription(arn, orphans.Verdict.OVER, -1)
        started_ms = round(answer["startDate"].timestamp() * 1000)
        return ExecutionDescription(
            arn, orphans.judge_execution(answer["status"], answer.get("output") or ""), started_ms
        )

    def describe_by_name(self, name: str) -> ExecutionDescription:
        """Returns Step Functions' answer about the machine's execution of this name."""
        return self.describe(f"{self.machine_arn.replace(':stateMachine:', ':execution:')}:{name}")

    def newest_successor(self, stream_id: str, execution: str) -> ExecutionDescription:
        """Returns the last successor in the line that begins with this execution of the stream."""
        last = self.describe(execution)
        while last.verdict is not orphans.Verdict.RUNS:
            successors = self._successors(stream_id, last.arn)
            after = [successor for successor in successors if successor.verdict is not orphans.Verdict.ASIDE]
            if not after:
                break
            last = max(after, key=lambda successor: successor.started_ms)
        return last

    def start(self, name: str, text: str) -> str:
        """Starts the execution of this name unless it runs, and returns its ARN."""
        self.pace()
        answer = self.client().start_execution(stateMachineArn=self.machine_arn, name=name, input=text)
        return str(answer["executionArn"])

    def _successors(self, stream_id: str, execution: str) -> list[ExecutionDescription]:
        known = []
        for names in orphans.successor_names(stream_id, execution):
            for name in names:
                described = self.describe_by_name(name)
                if described.started_ms < 0:
                    break
                known.append(described)
        return known


@dataclass(frozen=True, slots=True)
class Orphans:
    """Checks streams, and starts the orphaned streams again.

    `read_lease` reads a stream's lease consistently. `newest_successor` returns the youngest execution of a stream,
    from the one in its lease. `may_start` returns whether there is room for a stream.
    """

    states: StepFunctions
    read_lease: Callable[[str], Lease]
    newest_successor: Callable[[str, str], ExecutionDescription]
    may_start: Callable[[str], bool]

    def check(self, stream_id: str, lease: Lease, now_ms: int) -> Orphan | None:
        """Returns the orphan, with the execution that was started for it; None if the stream is not orphaned."""
        if not orphans.is_suspect(lease, now_ms):
            return None
        last = self.newest_successor(stream_id, lease.execution)
        if last.verdict is orphans.Verdict.RUNS:
            return None
        # Since the lease was read, a successor may have taken it and its predecessor ended.
        now = self.read_lease(stream_id)
        if now.execution != lease.execution or not orphans.is_suspect(now, now_ms):
            return None
        is_done = last.verdict is orphans.Verdict.DONE
        started = "" if is_done or not self.may_start(stream_id) else self._start(stream_id, lease.execution, now_ms)
        return Orphan(stream_id, lease.execution, is_done, started)

    def _start(self, stream_id: str, execution: str, now_ms: int) -> str:
        """Starts an execution and returns its ARN; "" if the last execution was started too recently.

        The last execution may be the one in the lease, if it claimed the stream and was over before it connected. A
        concurrent start, or a second start after a lost answer, uses the same name, and for the name of a running
        execution Step Functions returns that execution.
        """
        names = orphans.start_names(stream_id, execution)
        before_ms = (
            self.states.describe(execution).started_ms if orphans.is_replacement(execution) else -orphans.START_EVERY_MS
        )
        while (earlier := self.states.describe_by_name(name := next(names))).started_ms >= 0:
            if earlier.verdict is orphans.Verdict.RUNS:
                return earlier.arn
            before_ms = max(before_ms, earlier.started_ms)
        if now_ms - before_ms < orphans.START_EVERY_MS:
            return ""
        return self.states.start(name, orphans.start_input(stream_id, execution))


def is_release_overdue(lease: Lease, now_ms: int) -> bool:
    """Returns whether a stopped stream's lease names an execution or a group that should have released it by now."""
    asked_ms = max(lease.stop_at_ms, lease.started_at_ms)
    return lease.stop and bool(lease.execution) and now_ms - asked_ms >= STOPS_WITHIN_MS


def release_stopped(
    table: Table,
    stream_id: str,
    lease: Lease,
    now_ms: int,
    newest_successor: Callable[[str, str], ExecutionDescription],
) -> bool:
    """Removes the execution from the lease of a stopped stream if it is over; returns whether it did.

    A lease that names the group itself was left by a start that ended half way: no function has claimed the stream, and
    none will, because of the stop. `newest_successor` is that of `Orphans`.
    """
    if not is_group(lease.execution) and newest_successor(stream_id, lease.execution).verdict is orphans.Verdict.RUNS:
        return False
    ended = {"ending": "StreamEnded", "ending_cause": "stopped", "ended_at": typed_values.instant_text(now_ms)}
    condition, place = "#execution = :held AND #stop = :yes", typed_values.item_key(stream_id, "lease")
    return table.set_attributes(place, ended, condition, remove=("execution", "group"), held=lease.execution, yes=True)


def _name(execution: str) -> str:
    return execution.rpartition(":")[2]
