"""A stage that is upgraded in virtual time: tables, Lambda's versions, Step Functions' executions, and its streams.

The machine of `statemachines/upgrade.asl.yml` and the steps of `handlers/upgrade` run unchanged; AWS is played. A
stream does what its execution's definition and its function's version prescribe. Each request of a step may be refused,
lose its answer, or be the last before the function is killed. Invariant: the same seed gives the same run.
"""

import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from handlers.group import is_group
from handlers.store import ledger_records, typed_values
from handlers.upgrade.deployed_versions import Clients
from handlers.upgrade.upgrade_records import UpgradeRecords
from handlers.upgrade.upgrade_steps import Work, step
from local.simulation.tables import MemoryDynamoDB
from states_language import TaskCall, TaskFailure, load
from states_language.clock import VirtualClock
from tests.handlers.context import Killed
from tests.statemachines.connections import NAMES, definition

CONTROL, EVENTS = "control", "events"
MACHINE = f"arn:aws:states:us-east-1:111111111111:stateMachine:{NAMES['connections']}"
UPGRADE = f"arn:aws:states:us-east-1:111111111111:stateMachine:{NAMES['upgrade']}"
# The time from a start to the claim, from there to the connection, a function's life, and the time between two events.
CLAIM_MS, CONNECT_MS, LIFE_MS, EVENT_MS = 100, 400, 12_000, 100
STALE_MS = 8_000
FAULTS = ("", "refused", "lost", "killed before", "killed after")
FAULTY_CODE = ("raises", "rejects", "stores nothing", "says it stores", "dies", "leaks")
FAULTY_DEFINITION = ("fails before its claim", "fails after its claim")


class AlreadyExists(Exception):
    """An execution of this name was started with another input, or is over."""


class NotThere(Exception):
    """Step Functions does not know this name."""


@dataclass
class Run:
    """One execution of the machine that keeps a stream connected, from its start on."""

    arn: str
    stream_id: str
    renews: str
    definition: str
    started_ms: int
    code: str = ""
    claimed_ms: int | None = None
    is_over: bool = False


@dataclass
class Aws:
    """A client whose answers the world decides; `server` has its operations by boto3's names, after `mark`."""

    world: "World"
    server: object
    mark: str

    class exceptions:
        """Return the exceptions of boto3's client of Step Functions by name."""

        ExecutionAlreadyExists = AlreadyExists
        ExecutionDoesNotExist = NotThere
        StateMachineDoesNotExist = NotThere

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda **asked: self.world.answer(getattr(self.server, f"{self.mark}{name}"), asked)


@dataclass
class World:
    """A stage whose streams run version 1 and the definition `D1`; `bad` is the fault of version 2 or of `D2`.

    `faults` are the faults of the first requests, one each. `stops` are the streams that a person stops, by the second
    of the upgrade; `aborts_ms` is when a person requests to go back, 0 for never. `renewed` are the streams that were
    renewed since the deployment. `is_late` returns whether a step must end. `failures` has the errors by which a step
    fails, or "publish", and `said` their Cause.

    "Executions started immediately after" an update "may use the previous state machine definition"
    (UpdateStateMachine, AWS Step Functions API reference): here all do for `stale_ms`.
    """

    ids: Sequence[str]
    bad: str = ""
    faults: Sequence[str] = ()
    stops: Mapping[int, str] = field(default_factory=dict)
    aborts_ms: int = 0
    renewed: Collection[str] = ()
    seed: int = 0
    stale_ms: int = STALE_MS
    is_late: Callable[[], bool] = lambda: False
    failures: dict[str, list[str]] = field(default_factory=dict)
    said: str = '{"errorMessage": "no"}'

    def __post_init__(self) -> None:
        self.clock = VirtualClock(seed=self.seed)
        self.start_ms = self.clock.now_ms()
        self.tables, self.ticked_ms = MemoryDynamoDB(CONTROL, EVENTS), 0
        self.waiting = list(self.faults)
        self.alias, self.code = "1", "2"
        self.former, self.new = "D1", "D2" if self.bad in ("", *FAULTY_DEFINITION) else "D1"
        self.deployed, self.versions = self.new, list[str | None](["D1"])
        self.stale, self.updated_ms = self.deployed, self.start_ms - self.stale_ms
        self.published, self.revision = 1, 1 if self.new == "D1" else 2
        self.runs: dict[str, Run] = {}
        self.people: list[str] = []
        self.steps: list[str] = []
        self.aws, self.dynamodb = Aws(self, self, "_"), Aws(self, self.tables, "")
        self.records = UpgradeRecords(self.tables, CONTROL, EVENTS)
        self.tables.put_item(
            TableName=CONTROL, Item=typed_values.item_key("#", "upgrade") | {"definition": {"S": f"{MACHINE}:1"}}
        )
        for stream_id in self.ids:
            deployed = self.new if stream_id in self.renewed else "D1"
            run = Run(f"arn:first:{stream_id}", stream_id, "", deployed, self.start_ms - 60_000)
            self.runs[run.arn] = run
            self._put(stream_id, {"started_at": {"S": typed_values.instant_text(run.started_ms)}})
            for member in self.members(stream_id) if is_group(stream_id) else ():
                self._put(member, {"group": {"S": stream_id}, "execution": {"S": stream_id}})
                self.tables.put_item(TableName=CONTROL, Item=typed_values.item_key(stream_id, f"stream#{member}"))
        self.tick(-59_000)
        self.tick()

    # --- the upgrade --------------------------------------------------------------------------------------------------

    def upgrade(self, name: str = "mine") -> tuple[str, str]:
        """Run an upgrade; return its end and the cause."""

        async def run() -> Any:
            execution = _machine().start({}, clock=self.clock, perform=self.perform, name=name, machine_arn=UPGRADE)
            await execution.wait()
            return execution

        execution = self.clock.run(run())
        return execution.error or execution.output["status"], execution.cause or ""

    async def perform(self, call: TaskCall) -> Any:
        """Return the answer to a Task of the upgrade's machine."""
        self.tick()
        event = {"step": "publish"} if call.service == "sns" else call.payload
        if self.failures.get(event["step"]):
            raise TaskFailure(self.failures[event["step"]].pop(), self.said)
        if call.service == "sns":
            assert call.parameters["TopicArn"] == f"arn:aws:sns:us-east-1:111111111111:{NAMES['alerts']}"
            self.people.append(call.parameters["Message"])
            return {"MessageId": "1"}
        assert call.function == NAMES["connection_upgrade"]
        self.steps.append(event["step"])
        if self.aborts_ms and self.clock.now_ms() - self.start_ms >= self.aborts_ms:
            self.records.abort(event["execution"])
        try:
            return json.loads(json.dumps(step(self.work(event["execution"]), event)))
        except Killed:
            raise TaskFailure("Sandbox.Timedout", "killed") from None
        except Exception as problem:
            cause = {"errorMessage": str(problem), "errorType": type(problem).__name__}
            raise TaskFailure(cause["errorType"], json.dumps(cause)) from None

    def work(self, execution: str) -> Work:
        """Return the steps of this upgrade."""
        clients = Clients(self.aws, self.aws, "manager", MACHINE, lambda: None)
        records = UpgradeRecords(self.dynamodb, CONTROL, EVENTS)
        return Work(records, clients, execution, self.clock.now_ms, self.is_late)

    def answer(self, call: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
        """Decide what happens to a request."""
        self.tick()
        match self.waiting.pop(0) if self.waiting else "":
            case "refused":
                raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "Any")
            case "killed before":
                raise Killed
            case "lost":
                call(**asked)
                raise ReadTimeoutError(endpoint_url="https://aws")
            case "killed after":
                call(**asked)
                raise Killed
        return call(**asked)

    # --- Lambda and Step Functions ------------------------------------------------------------------------------------

    def _get_alias(self, **_: Any) -> Any:
        return {"FunctionVersion": self.alias}

    def _update_alias(self, *, FunctionVersion: str, **_: Any) -> Any:
        self.alias = FunctionVersion
        return {}

    def _publish_version(self, **_: Any) -> Any:
        return {"Version": self.code}

    def _invoke(self, **_: Any) -> Any:
        return {"Payload": io.BytesIO(b'{"errorType": "InvalidRequest", "errorMessage": "it names no stream"}')}

    def _describe_execution(self, *, executionArn: str) -> Any:
        raise NotThere(executionArn)

    def _publish_state_machine_version(self, **_: Any) -> Any:
        if self.published != self.revision:
            self.versions.append(self.deployed)
            self.published = self.revision
        return {"stateMachineVersionArn": f"{MACHINE}:{len(self.versions)}"}

    def _list_state_machine_versions(self, **_: Any) -> Any:
        numbers = [number for number, one in enumerate(self.versions, 1) if one is not None]
        return {"stateMachineVersions": [{"stateMachineVersionArn": f"{MACHINE}:{one}"} for one in numbers[::-1]]}

    def _delete_state_machine_version(self, *, stateMachineVersionArn: str) -> Any:
        self.versions[int(stateMachineVersionArn.rpartition(":")[2]) - 1] = None
        return {}

    def _describe_state_machine(self, *, stateMachineArn: str) -> Any:
        number = stateMachineArn.removeprefix(MACHINE).removeprefix(":")
        return {"definition": self.versions[int(number) - 1] if number else self.deployed}

    def _describe_state_machine_for_execution(self, *, executionArn: str) -> Any:
        return {"definition": self.runs[executionArn].definition}

    def _update_state_machine(self, *, definition: str, **_: Any) -> Any:
        self.stale, self.updated_ms = self.deployed, self.clock.now_ms()
        self.deployed, self.revision = definition, self.revision + 1
        return {}

    def begins_with(self, machine_arn: str) -> str:
        """Return the definition that a start gets: without a version, the former one for a while after an update."""
        if machine_arn != MACHINE:
            return str(self._describe_state_machine(stateMachineArn=machine_arn)["definition"])
        is_fresh = self.clock.now_ms() >= self.updated_ms + self.stale_ms
        return self.deployed if is_fresh else self.stale

    def _start_execution(self, *, stateMachineArn: str, name: str, input: str) -> Any:
        arn, asked = f"arn:of:{name}", json.loads(input)
        if arn in self.runs and self.runs[arn].is_over:
            raise AlreadyExists(arn)
        stream_id = asked["pathParameters"]["streamId"]
        self.runs.setdefault(
            arn, Run(arn, stream_id, asked["renews"], self.begins_with(stateMachineArn).strip(), self.clock.now_ms())
        )
        return {"executionArn": arn}

    # --- the streams --------------------------------------------------------------------------------------------------

    def lease(self, stream_id: str) -> dict[str, Any]:
        """Return the stream's control record."""
        key = typed_values.item_key(stream_id, "lease")
        item: dict[str, Any] = self.tables.get_item(TableName=CONTROL, Key=key)["Item"]
        return item

    def members(self, stream_id: str) -> list[str]:
        """Return the streams of a group; of a single stream, itself."""
        return [f"{stream_id[1:]}:{number}" for number in range(2)] if is_group(stream_id) else [stream_id]

    def _put(self, stream_id: str, changes: Mapping[str, Any], *removed: str) -> None:
        old = self.tables.get_item(TableName=CONTROL, Key=typed_values.item_key(stream_id, "lease")).get("Item", {})
        item = {**old, **typed_values.item_key(stream_id, "lease"), **changes}
        self.tables.put_item(TableName=CONTROL, Item={name: item[name] for name in item if name not in removed})

    def wrong(self, run: Run, *kinds: str) -> bool:
        """Return whether the execution has this fault."""
        if self.bad not in kinds:
            return False
        return run.definition == "D2" if self.bad in FAULTY_DEFINITION else run.code == "2"

    def tick(self, back_ms: int = 0) -> None:
        """Let all streams act until now, or until some time before."""
        now_ms = self.clock.now_ms() + back_ms
        if now_ms == self.ticked_ms:
            return
        self.ticked_ms = now_ms
        for second, stream_id in self.stops.items():
            if now_ms >= self.start_ms + 1000 * second and stream_id in self.ids:
                self._put(stream_id, {"stop": {"BOOL": True}}, "execution")
        for run in list(self.runs.values()):
            if not run.is_over and run.claimed_ms is None and now_ms >= run.started_ms + CLAIM_MS:
                self._claim(run, now_ms)
        for run in self.runs.values():
            if run.claimed_ms is not None and not run.is_over and now_ms >= run.claimed_ms + CONNECT_MS:
                self._go_on(run, now_ms)

    def _claim(self, run: Run, now_ms: int) -> None:
        lease = self.lease(run.stream_id)
        holder = typed_values.read_text(lease, "execution") or ""
        fails = self.wrong(run, "fails before its claim")
        if fails or "stop" in lease or holder not in ("", run.renews):
            run.is_over = True
            return
        run.code, run.claimed_ms = typed_values.read_text(lease, "code_version") or self.alias, now_ms
        self._put(run.stream_id, {"execution": {"S": run.arn}}, "ending", "ended_at")
        run.is_over = self.wrong(run, "fails after its claim")
        if self.wrong(run, "rejects"):
            run.is_over = True
            ending = {"ending": {"S": "InvalidRequest"}, "ended_at": {"S": typed_values.instant_text(now_ms)}}
            self._put(run.stream_id, ending, "execution")

    def _go_on(self, run: Run, now_ms: int) -> None:
        """Let the execution connect or continue; a superseded execution continues until a newer one is connected."""
        lease = self.lease(run.stream_id)
        assert run.claimed_ms is not None
        live = ledger_records.live_record(self.lease(self.members(run.stream_id)[0])) or {}
        is_shown = typed_values.read_text(live, "execution") == run.arn
        if typed_values.read_text(lease, "execution") != run.arn:
            if not is_shown or "stop" in lease or now_ms - run.claimed_ms > 60_000 + LIFE_MS:
                run.is_over = not is_shown or "stop" in lease
                return
        elif self.wrong(run, "raises"):
            return
        dies = self.wrong(run, "dies") and is_shown
        fence = (typed_values.read_int(lease, "fence") or 0) + (not is_shown or dies)
        until_ms = now_ms + 2_000
        changes = {"fence": typed_values.number_value(fence), "connected": typed_values.number_value(fence)}
        changes["expires_at_ms"] = typed_values.number_value(until_ms)
        if is_group(run.stream_id):
            changes["beat:1"] = {"S": f"{fence}/{now_ms}/{until_ms}/1"}
        self._put(run.stream_id, changes)
        for stream_id in self.members(run.stream_id):
            self._record(run, stream_id, fence, now_ms, dies=dies)

    def _record(self, run: Run, stream_id: str, fence: int, now_ms: int, *, dies: bool) -> None:
        """Write the records of a connection and of the one before, and the newest event that it stores."""
        live = ledger_records.live_record(self.lease(stream_id)) or {}
        if live and typed_values.read_int(live, "fence") != fence:
            end = {} if dies else {"closed_ms": typed_values.number_value(now_ms)}
            row = typed_values.item_key(stream_id, ledger_records.connection_key(fence - 1))
            self.tables.put_item(TableName=CONTROL, Item={**live, **row, **end})
        assert run.claimed_ms is not None
        begun_ms = run.claimed_ms + CONNECT_MS
        count = (now_ms - begun_ms) // EVENT_MS
        kept = 0 if self.wrong(run, "stores nothing") else count
        numbers = {
            "fence": fence, "claimed_ms": run.claimed_ms, "opened_ms": begun_ms, "seen_ms": now_ms, "frames": count,
            "stored": kept, "memory_mb": 60 + (count if self.wrong(run, "leaks") else 0),
        }  # fmt: skip
        shown = {name: typed_values.number_value(value) for name, value in numbers.items()}
        self._put(stream_id, {"live": {"M": {"execution": {"S": run.arn}, **shown}}})
        if kept and not self.wrong(run, "says it stores"):
            position = {"S": f"{now_ms:015d}/{fence:012d}/{count:012d}"}
            item = {"PK": {"S": stream_id}, "SK": {"S": "newest"}, "position": position}
            self.tables.put_item(TableName=EVENTS, Item=item)


@cache
def _machine() -> Any:
    return load(definition("upgrade"))
