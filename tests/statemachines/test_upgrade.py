"""The machine that upgrades: in which order it has its steps done, and how it ends whatever fails.

Its function is scripted here; what the steps do is tested with the function.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from handlers.upgrade.upgrade_steps import WHOLE
from states_language import TaskCall, TaskFailure
from tests.statemachines.connections import NAMES, definition, executed, loaded

ARN = f"arn:aws:states:us-east-1:111111111111:stateMachine:{NAMES['upgrade']}"
STEPS = ("check", "plan", "ask", "look", "promote", "back", "look back")
GOOD = ["check", "plan", "ask", "look", "look", "plan", "ask", "look", "look", "promote"]
# A failure that is tried again, and one that States.ALL does not match.
FAILURES = ("StoreUnavailable", "Sandbox.Timedout", "States.Timeout", "Lambda.Unknown", "States.DataLimitExceeded")


class Account:
    """A stage with two waves of streams. `bad` is in which look a wave is worse; `lost` who does not come back.

    `failures` names for a step how often it fails, and by which error; `said` is the Cause of each, and `person` is
    what the topic was told.
    """

    said = '{"errorMessage": "Another upgrade runs, mine."}'

    def __init__(self, bad: int = 0, *, lost: bool = False, needed: bool = True) -> None:
        self.bad, self.lost, self.needed = bad, lost, needed
        self.failures: dict[str, list[str]] = {}
        self.steps: list[str] = []
        self.person: list[Mapping[str, Any]] = []
        self.looks = 0

    async def perform(self, call: TaskCall) -> Any:
        """What AWS answers."""
        step = "publish" if call.service == "sns" else call.payload["step"]
        if self.failures.get(step):
            raise TaskFailure(self.failures[step].pop(), self.said)
        if step == "publish":
            self.person.append(call.parameters)
            return {"MessageId": "1"}
        assert call.function == NAMES["connection_upgrade"]
        self.steps.append(step)
        return self.answer(step, call.payload)

    def answer(self, step: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """What the function answers."""
        match step:
            case "check":
                return {
                    "version": "2",
                    "stable": "1" if self.needed else "$LATEST",
                    "definition": f"{ARN}:2",
                    "is_needed": self.needed,
                }
            case "plan":
                return {"end": WHOLE if event["begin"] else 1000, "size": 3, "is_aborted": False}
            case "ask":
                return {"begin": event["end"], "is_done": True}
            case "look":
                self.looks += 1
                if self.looks == self.bad:
                    return {"state": "worse", "reasons": "demo: 2 functions were killed"}
                return {"state": "waiting" if self.looks % 2 else "well", "reasons": ""}
            case "look back":
                return {"state": "worse" if self.lost else "well", "reasons": "demo: it is not connected again"}
        return {"begin": WHOLE, "is_done": True}

    def run(self) -> tuple[str, str, str]:
        """The name of the state in which an upgrade ends, its cause or "", and its last step."""
        execution = executed(loaded(definition("upgrade")), self.perform, {}, 1, name="mine", machine_arn=ARN)
        end = execution.error or execution.output["status"]
        return end, execution.cause or "", self.steps[-1] if self.steps else ""


def test_a_good_version_goes_through_all_waves() -> None:
    """Each wave hands over and is watched until it is healthy; then the alias moves."""
    account = Account()
    assert account.run() == ("Success", "", "promote")
    assert (account.steps, account.person) == (GOOD, [])


def test_what_runs_already_is_only_named() -> None:
    """The first upgrade of a stage moves no stream."""
    account = Account(needed=False)
    assert (account.run()[0], account.steps) == ("Success", ["check", "promote"])


@pytest.mark.parametrize("bad", [1, 2, 3, 4])
def test_a_bad_version_is_taken_back_from_any_look(bad: int) -> None:
    """If all streams are healthy again, no alert is sent; the cause says what was worse."""
    account = Account(bad)
    assert account.run() == ("FailureClean", "demo: 2 functions were killed", "look back")
    assert (account.steps[-2:], account.person) == (["back", "look back"], [])


def test_a_person_is_called_where_not_all_come_back() -> None:
    """The alarm topic gets a message with both reasons."""
    account = Account(1, lost=True)
    end, cause, _ = account.run()
    assert (end, cause) == (
        "FailureDirty",
        "demo: 2 functions were killed; not all are well again: demo: it is not connected again",
    )
    (message,) = account.person
    assert message["TopicArn"] == f"arn:aws:sns:us-east-1:111111111111:{NAMES['alerts']}"
    assert cause in message["Message"]


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_for_good_never_ends_unsaid(step: str, error: str) -> None:
    """Before any stream was touched, or once all went back, the end is clean; otherwise an alert is sent."""
    account = Account(0 if step in GOOD else 1)
    account.failures[step] = [error] * 1000
    end, cause, _ = account.run()
    dirty = step in ("promote", "back", "look back")
    assert (end, len(account.person), error in cause) == ("FailureDirty" if dirty else "FailureClean", int(dirty), True)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_for_a_while_is_tried_again(step: str) -> None:
    """A step that is killed, refused or timed out three times still leads to the same end."""
    account = Account(0 if step in GOOD else 1)
    account.failures[step] = ["StoreUnavailable", "Sandbox.Timedout", "States.Timeout"]
    assert account.run()[0] == ("Success" if step in GOOD else "FailureClean")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            '{"errorMessage": "Another upgrade runs, mine.", "errorType": "X"}',
            "Another upgrade runs, mine.",
        ),
        (json.dumps({"errorMessage": 'It said "\\{é}".\n'}), 'It said "\\{é}".\n'),
        ("killed", '{"Error":"UpgradeRefused","Cause":"killed"}'),
        ('{"errorMessage": "cut o', '{"Error":"UpgradeRefused","Cause":"{\\"errorMessage\\": \\"cut o"}'),
        ("", '{"Error":"UpgradeRefused","Cause":""}'),
    ],
)
def test_an_upgrade_that_is_refused_has_changed_nothing(said: str, cause: str) -> None:
    """A refusal (another upgrade runs, or the version does not start) is not retried. Any Cause can be read."""
    account = Account()
    account.failures["check"], account.said = ["UpgradeRefused"], said
    assert account.run() == ("FailureClean", f"Nothing was changed. {cause}", "")


def test_a_person_that_cannot_be_called_changes_no_end() -> None:
    """The end has the reason itself."""
    account = Account(1, lost=True)
    account.failures["publish"] = ["Sns.SnsException"] * 100
    assert account.run()[0] == "FailureDirty"
