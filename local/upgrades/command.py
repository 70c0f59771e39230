"""The verb `upgrade`: moves the streams of a stage to what is deployed, in waves, and reports the outcome.

A machine of the stage does the work (`statemachines/upgrade.asl.yml`); the command starts it and prints its progress.
Invariants: only one upgrade runs at a time; the machine continues however the command ends.
"""

import argparse
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from handlers.upgrade.upgrade_records import UpgradeRecords
from local.stage_clients import connect_to_stage
from local.terminal import UserError, printable

SUCCESS, CLEAN, DIRTY = 0, 1, 3
CHECK_EVERY_S = 2.0
_CODES = {"SUCCEEDED": SUCCESS, "FailureClean": CLEAN}


@dataclass(frozen=True)
class StageUpgrades:
    """The upgrades of a stage; `option` names the stage on a command line."""

    states: Any
    records: UpgradeRecords
    machine_arn: str
    option: str

    def running_execution(self) -> str:
        """The running upgrade's execution, or ""."""
        answer = self.states.list_executions(stateMachineArn=self.machine_arn, statusFilter="RUNNING", maxResults=1)
        return "".join(one["executionArn"] for one in answer["executions"][:1])

    def start(self) -> str:
        """Starts an upgrade and returns its execution; raises UserError if another one runs."""
        if other := self.running_execution():
            raise UserError(
                f"The upgrade {_name(other)} is running: `streamkeeper upgrade{self.option} --follow` shows it, "
                "--abort rolls it back."
            )
        name = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + uuid.uuid4().hex[:6]
        arn: str = self.states.start_execution(stateMachineArn=self.machine_arn, name=name, input="{}")["executionArn"]
        return arn

    def abort(self) -> str:
        """Rolls the upgrade back and returns its execution; raises UserError if none runs."""
        arn = self.running_execution()
        if not arn or not self.records.abort(arn):
            raise UserError("No upgrade runs." if not arn else f"{_name(arn)} has only just begun: try again.")
        return arn

    def follow(self, arn: str, say: Callable[[str], None]) -> int:
        """Prints the progress of the upgrade, and returns the exit status once it has ended."""
        last = ""
        while True:
            described = self.states.describe_execution(executionArn=arn)
            upgrade = self.records.read()
            if upgrade.execution == arn and upgrade.progress != last:
                last = upgrade.progress
                say(last)
            if described["status"] != "RUNNING":
                break
            time.sleep(CHECK_EVERY_S)
        end = "Success" if described["status"] == "SUCCEEDED" else described.get("error") or described["status"]
        cause = described.get("cause") or ""
        say(f"{end}{f': {cause}' if cause else ''}")
        return _CODES.get(described["status"], _CODES.get(end, DIRTY))


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "upgrade",
        description="Moves the streams to the deployed function and machine, a few first and then in waves, and moves "
        "them back if they get worse. Run it after each deployment.",
        epilog="Exit status: 0 Success, 1 FailureClean (every stream runs the version that it ran before), 2 a mistake "
        "in the command, 3 FailureDirty (a person is needed), 130 Ctrl-C, which leaves the upgrade running. "
        "Without --stage, PORT (3000) and STREAMKEEPER_STAGE (local) choose the run on this machine.",
    )
    parser.add_argument("--stage", metavar="S", help="a deployed stage; without it, the run on this machine")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--follow", action="store_true", help="show the running upgrade; start nothing")
    which.add_argument("--abort", action="store_true", help="roll the running upgrade back, and show it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns the exit status; raises UserError."""
    stage = connect_to_stage(arguments.stage)
    option = f" --stage {arguments.stage}" if arguments.stage else ""
    records = UpgradeRecords(stage.clients["dynamodb"], stage.names["control_table"], stage.names["events_table"])
    upgrades = StageUpgrades(stage.clients["stepfunctions"], records, stage.machine_arn("upgrade"), option)
    try:
        if arguments.abort:
            arn = upgrades.abort()
        elif arguments.follow:
            arn = upgrades.running_execution()
            if not arn:
                raise UserError("No upgrade runs.")
        else:
            arn = upgrades.start()
        print(f"the upgrade {_name(arn)} runs", flush=True)
        return upgrades.follow(arn, lambda text: print(printable(text), flush=True))
    except (BotoCoreError, ClientError, StoreUnavailable) as problem:
        raise UserError(f"The upgrade cannot be reached: {problem}".rstrip(".") + ".") from None
    except KeyboardInterrupt:
        print(f"\nit goes on; `streamkeeper upgrade{option} --follow` shows it, --abort rolls it back", flush=True)
        raise


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]
