"""`streamkeeper upgrade`: what it starts, shows, refuses and leaves running."""

from typing import Any

import pytest

from handlers.upgrade.upgrade_records import UpgradeRecords
from local.cli import INTERRUPTED, main
from local.simulation.tables import MemoryDynamoDB
from local.stage_clients import StageClients
from local.stages import names
from local.upgrades import command

NAMES = names("local")
MACHINES = "arn:aws:states:us-east-1:000000000000:stateMachine:"
UPGRADE = MACHINES + NAMES["upgrade"]
RUNS = "arn:aws:states:us-east-1:000000000000:execution:upgrade:first"


class States:
    """Step Functions: `runs` is the running upgrade, `ends` its descriptions, one after the other."""

    def __init__(self, runs: str = "", *ends: dict[str, Any]) -> None:
        self.runs = runs
        self.ends = list(ends)
        self.started: list[str] = []

    def list_executions(self, **asked: Any) -> Any:
        """As AWS answers."""
        assert asked == {"stateMachineArn": UPGRADE, "statusFilter": "RUNNING", "maxResults": 1}
        return {"executions": [{"executionArn": self.runs}] if self.runs else []}

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> Any:
        """As AWS answers."""
        assert (stateMachineArn, input) == (UPGRADE, "{}")
        self.started.append(name)
        return {"executionArn": RUNS}

    def describe_execution(self, **_: Any) -> Any:
        """As AWS answers."""
        end = self.ends.pop(0)
        if end["status"] == "Ctrl-C":
            raise KeyboardInterrupt
        return end


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> MemoryDynamoDB:
    """The control table; no time passes between two checks."""
    monkeypatch.setattr(command, "CHECK_EVERY_S", 0)
    return MemoryDynamoDB(NAMES["control_table"])


def run_upgrade(tables: MemoryDynamoDB, states: States, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Runs the command and returns its exit status."""
    stage = StageClients({"stepfunctions": states, "dynamodb": tables}, NAMES, "", "", MACHINES)
    monkeypatch.setattr(command, "connect_to_stage", lambda _: stage)
    return main(["upgrade", *words])


def description(status: str, **more: str) -> dict[str, Any]:
    """Returns an answer of DescribeExecution."""
    return {"status": status, **more}


@pytest.mark.parametrize(
    ("last", "code", "words"),
    [
        (description("SUCCEEDED"), 0, "Success"),
        (description("FAILED", error="FailureClean", cause="demo: bad\x1b[2J"), 1, "FailureClean: demo: bad\\x1b[2J"),
        (description("FAILED", error="FailureDirty", cause="demo: bad"), 3, "FailureDirty: demo: bad"),
        (description("ABORTED"), 3, "ABORTED"),
        (description("TIMED_OUT"), 3, "TIMED_OUT"),
    ],
)
def test_the_exit_status_says_how_an_upgrade_ended(
    tables: MemoryDynamoDB,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    last: Any,
    code: int,
    words: str,
) -> None:
    """The last line says why, with control characters escaped; each line of progress is printed once."""
    UpgradeRecords(tables, NAMES["control_table"], "").begin(RUNS, "")
    states = States("", description("RUNNING"), description("RUNNING"), last)
    assert run_upgrade(tables, states, monkeypatch) == code
    assert capsys.readouterr().out.splitlines() == ["the upgrade first runs", "it begins", words]
    assert len(states.started) == 1


def test_a_running_upgrade_is_followed_and_not_started_again(
    tables: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--follow shows the running upgrade; another upgrade is refused by its name."""
    states = States(RUNS, description("SUCCEEDED"))
    assert (run_upgrade(tables, states, monkeypatch, "--follow"), states.started) == (0, [])
    assert capsys.readouterr().out.splitlines() == ["the upgrade first runs", "Success"]
    assert (run_upgrade(tables, states, monkeypatch), states.started) == (2, [])
    assert "The upgrade first is running: `streamkeeper upgrade --follow` shows it" in capsys.readouterr().err


def test_an_upgrade_rolls_back_on_request(
    tables: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next step reads the request; an upgrade that has only begun cannot be aborted yet."""
    records = UpgradeRecords(tables, NAMES["control_table"], "")
    assert run_upgrade(tables, States(RUNS), monkeypatch, "--abort") == 2
    assert "first has only just begun: try again." in capsys.readouterr().err
    records.begin(RUNS, "")
    states = States(RUNS, description("FAILED", error="FailureClean", cause="a roll-back was requested"))
    assert (run_upgrade(tables, states, monkeypatch, "--abort"), records.read().is_aborted) == (1, True)
    # The next upgrade does not inherit it.
    assert (records.begin("arn:next", RUNS), records.read().is_aborted) == (True, False)


@pytest.mark.parametrize("option", ["--follow", "--abort"])
def test_without_an_upgrade_there_is_nothing_to_show_or_abort(
    tables: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """Without a running upgrade --follow and --abort are refused, and nothing is started."""
    states = States()
    assert (run_upgrade(tables, states, monkeypatch, option), states.started) == (2, [])
    assert capsys.readouterr().err == "streamkeeper: No upgrade runs.\n"


def test_ctrl_c_leaves_an_upgrade_running(
    tables: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C the upgrade continues, and the last line says how to see it again."""
    states = States("", description("RUNNING"), description("Ctrl-C"))
    assert (run_upgrade(tables, states, monkeypatch), len(states.started)) == (INTERRUPTED, 1)
    assert "it goes on; `streamkeeper upgrade --follow` shows it, --abort rolls it back" in capsys.readouterr().out
