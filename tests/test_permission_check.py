"""The tests' requests to AWS are recorded, and judged by the roles of the packaged template."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.errors import StoreUnavailable
from handlers.store.leases import Leases
from handlers.store.stream_records import StreamRecords
from local.permissions import needs
from local.service import osls
from local.simulation.tables import MemoryDynamoDB
from local.stages import ROOT
from tests import permission_check, permission_edges
from tests.permission_check import NAMES, STAGE
from tests.permission_edges import ROLE, TASK, Line

CONTROL, EVENTS = NAMES["control_table"], NAMES["events_table"]
TABLES = "arn:aws:dynamodb:us-east-1:000000000000:table/"
READ_LEASE = (TASK, "Read lease", "arn:aws:states:::dynamodb:getItem")


@pytest.fixture(scope="module")
def template() -> dict[str, Any]:
    """The template as it is packaged."""
    return osls.template(STAGE)


def test_a_request_that_no_role_allows_is_named(template: dict[str, Any]) -> None:
    """A refused request is named with the first test that made it; allowed requests beside it are not."""
    lines: list[Line] = [
        (("handlers.store.leases", "handlers.watch"), "dynamodb:GetItem", f"{TABLES}{CONTROL}", "one"),
        (("handlers.store.leases", "handlers.watch"), "dynamodb:PutItem", f"{TABLES}{CONTROL}", "two"),
        (("handlers.store.leases", "handlers.watch"), "dynamodb:PutItem", f"{TABLES}{CONTROL}", "three"),
        (READ_LEASE, "dynamodb:GetItem", f"{TABLES}{CONTROL}", "four"),
        (READ_LEASE, "dynamodb:GetItem", f"{TABLES}{EVENTS}", "five"),
        ((ROLE, "ConnectionControlRole"), "dynamodb:DeleteItem", f"{TABLES}{EVENTS}", "six"),
    ]
    assert permission_check.refused(lines, template) == [
        f"two: ConnectionWatchRole may not dynamodb:PutItem on {TABLES}{CONTROL}",
        f"five: ConnectionsRole or StartRole may not dynamodb:GetItem on {TABLES}{EVENTS}",
        f"six: ConnectionControlRole may not dynamodb:DeleteItem on {TABLES}{EVENTS}",
    ]


def test_each_permission_of_the_tables_is_missed(template: dict[str, Any]) -> None:
    """Each permission of one function on the tables is reported if another function, without it, makes the request."""
    read = needs.read(template)
    manager = next(role for role in read.all() if role.name == "ConnectionManagerRole")
    lines: list[Line] = [
        (("handlers.watch",), action, resource, action)
        for statement in manager.statements
        for action in statement.actions
        for resource in statement.resources
        if resource == f"{TABLES}{EVENTS}"
    ]
    named = [sentence.partition(":")[2].partition(" ")[0] for sentence in permission_check.refused(lines, template)]
    assert named == [action.partition(":")[2] + ":" for _, action, *_ in lines]


CALLERS = [
    *("ConnectionControlRole", "ConnectionFleetRole", "ConnectionManagerRole"),
    *("ConnectionRepairRole", "ConnectionUpgradeRole", "ConnectionWatchRole"),
]


def test_the_sender_of_a_request_is_known_by_its_callers(template: dict[str, Any]) -> None:
    """A module of several functions is narrowed down by its callers; the inner one sends. A test has no role."""
    actors = permission_check.Actors(template)

    def names(*who: str) -> list[str]:
        return [role.name for role in actors.of(who)]

    assert names("handlers.store.leases") == CALLERS
    assert names("handlers.store.leases", "handlers.watching.lease_rounds") == ["ConnectionWatchRole"]
    writing = ["ConnectionManagerRole", "ConnectionRepairRole"]
    assert names("handlers.store.overflow", "handlers.store.connection_store") == writing
    assert names("handlers.store.stream_records", "handlers.store.connection_store") == ["ConnectionRepairRole"]
    assert names("handlers.nothing") == names(TASK, "Read lease", "arn:aws:states:::dynamodb:putItem") == []


def test_other_names_stand_for_the_resources_of_the_stage() -> None:
    """Another stage's name stands for this stage's, anywhere; a made-up name for each of its kind."""
    tables = (f"{TABLES}{EVENTS}/index/i", f"{TABLES}{CONTROL}/index/i")
    gov = "arn:aws-us-gov:dynamodb:us-gov-west-1:111111111111:table/"
    assert permission_check.usual(f"{gov}streamkeeper-prod-events/index/i") == tables[:1]
    assert permission_check.usual(f"{TABLES}events/index/i") == tables[:1]
    assert permission_check.usual(f"{TABLES}mine/index/i") == tables
    execution = "arn:aws:states:us-east-1:000000000000:execution:"
    assert permission_check.usual("arn:aws:states:eu-west-1:1:execution:machine:a:b") == (
        f"{execution}{NAMES['connections']}:one",
    )
    assert permission_check.usual("arn:aws:s3:::bodies/a/b\nc") == (
        f"arn:aws:s3:::{EVENTS}-000000000000-us-east-1/one",
    )


def test_requests_are_recorded_at_the_edge(request: pytest.FixtureRequest) -> None:
    """Requests in virtual time and by the functions' client are recorded, answered or not; a test's own are not."""
    table = f"only-{request.node.name}"
    memory = MemoryDynamoDB(table)
    memory.get_item(TableName=table, Key={"PK": {"S": "a"}, "SK": {"S": "lease"}})
    StreamRecords(memory, table).stop("a", "2026-01-01T00:00:00.000Z", may_start=True)
    client = DynamoDb(
        "http://127.0.0.1:9", Signer(Credentials("a", "b", ""), "us-east-1"),
        tries=1, connect_timeout_s=1, read_timeout_s=1,
    )  # fmt: skip
    with pytest.raises(StoreUnavailable):
        Leases(client, table).read("a")
    recorded = [line for line in permission_edges.lines() if line[2] == f"{TABLES}{table}"]
    assert [(who[-1], action) for who, action, *_ in recorded] == [
        ("handlers.store.stream_records", "dynamodb:UpdateItem"),
        ("handlers.store.leases", "dynamodb:GetItem"),
    ]
    assert {test for *_, test in recorded} == {request.node.nodeid}


@pytest.mark.long
def test_a_run_fails_if_a_passing_test_made_a_refused_request(tmp_path: Path) -> None:
    """If a process saw a request that no role allows, the run fails and names the test."""
    (tmp_path / "test_one.py").write_text(f"""
from handlers.store.stream_records import StreamRecords
from local.simulation.tables import MemoryDynamoDB

def test_one():
    StreamRecords(MemoryDynamoDB("{EVENTS}"), "{EVENTS}").stop("a", "2026-01-01T00:00:00.000Z", may_start=True)
""")
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-p", "tests.conftest", "-n", "1"]
    run = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    (refused,) = [line for line in run.stdout.splitlines() if line.startswith("REFUSED")]
    assert (run.returncode, "1 passed" in run.stdout) == (1, True), run.stdout + run.stderr
    roles = "ConnectionControlRole or ConnectionFleetRole or ConnectionRepairRole"
    allowed = f"{roles} may not dynamodb:UpdateItem on {TABLES}{EVENTS}"
    assert refused.endswith(f"test_one.py::test_one: {allowed}")
