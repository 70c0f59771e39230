"""The roles allow what a local run requests of AWS: nothing less, and nothing more without a written reason."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from local.permissions import needs
from local.permissions.needs import Need, Role, Statement
from local.service import osls
from tests.handlers.servers import serving
from tests.harness import STAGE, Service, running
from tests.local.support import until
from tests.projects import changed, renewing
from tests.real import permissions

# A request that is not allowed fails every run of the tests (tests/test_permission_check.py).
pytestmark = pytest.mark.long

# By role, each permission that no run uses, `action resource`, and why.
UNUSED = Path(__file__).with_name("unused_permissions.toml")

Permission = tuple[str, str, str]

# The story has neither an upgrade nor a repair: those of tests/real/test_upgrade.py and test_repair.py have, and their
# permissions are enforced too.
OF_OTHERS = {"ConnectionUpgradeRole", "UpgradeRole", "ConnectionRepairRole"}


@dataclass(frozen=True)
class Story:
    """The roles of a stage, the requests to AWS in each role, and the run of the project that made them."""

    read: needs.Roles
    asked: tuple[tuple[str, Need], ...]
    service: Service
    project: Path

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles, in the order of their names."""
        return tuple(self.read.all())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A run that enforces the permissions, in which everything happens that a stream can meet."""
    folder = tmp_path_factory.mktemp("permissions")
    project = renewing(folder / "project")
    changed(project / "env" / "streams" / "oanda.toml", ("\nframing = ", "\nreject_after = 0\nframing = "))
    with (
        serving(permissions.breaks_off, permissions.upstream) as server,
        running(folder, project, UPSTREAM_DEMO=server.address, STREAMKEEPER_STREAMS="1") as service,
    ):
        try:
            permissions.everything(service, server)
        finally:
            service.check_permissions()
        read = needs.read(osls.template(STAGE, project))
        asked = [(role, need) for role, need, _ in permissions.recorded(folder / "data")]
        yield Story(read, tuple(asked), service, project)


def refused(roles_: tuple[Role, ...], asked: tuple[tuple[str, Need], ...]) -> list[tuple[str, str]]:
    """Returns each (role, action) of a request that is not allowed."""
    by_name = {role.name: role for role in roles_}
    return sorted({(name, need.action) for name, need in asked if by_name[name].refusal(need)})


def unused(roles_: tuple[Role, ...], asked: tuple[tuple[str, Need], ...]) -> list[Permission]:
    """Returns each (role, action, resource) that is allowed and that no request needed."""
    return sorted(
        (role.name, action, resource)
        for role, statement, action, resource in single(roles_)
        if not any(name == role.name and statement.matches(need) for name, need in asked)
    )


def single(roles_: tuple[Role, ...]) -> list[tuple[Role, Statement, str, str]]:
    """Returns each permission of the roles by itself, as a statement with one action and one resource."""
    return [
        (role, Statement(statement.effect, (action,), (resource,)), action, resource)
        for role in roles_
        for statement in role.statements
        for action, resource in product(statement.actions, statement.resources)
    ]


def test_every_request_is_allowed(story: Story) -> None:
    """The run refused no request, and the evaluator, which knows AWS's actions and resources, allows each. It also
    allows what Lambda itself requests in the role of each function.
    """
    by_name = {role.name: role for role in story.roles}
    asked = [(by_name[name], need) for name, need in (*story.asked, *permissions.of_the_platform(story.read))]
    assert {name for name, _ in story.asked} == set(by_name) - OF_OTHERS
    verdicts = permissions.verdicts(asked)
    wrong = [(role.name, need, said) for (role, need), said in zip(asked, verdicts, strict=True) if said != "Allowed"]
    assert wrong == []


def test_each_permission_is_used_or_explained(story: Story) -> None:
    """The permissions that no request needed are exactly the rows of unused_permissions.toml."""
    found = tomllib.loads(UNUSED.read_text(encoding="utf-8").replace("<stage>", STAGE))
    known = {(role, *spelled.split(" ")) for role, reasons in found.items() for spelled in reasons}
    spare = set(unused(story.roles, story.asked))
    assert (spare - known, known - spare) == (set(), set()), "not explained, and explained though used or not allowed"


def test_each_used_permission_is_missed_without_it(story: Story) -> None:
    """Without any single used permission a request of the run is refused, and the permission is named."""
    kept = set(unused(story.roles, story.asked))
    for role, _, action, resource in single(story.roles):
        if (role.name, action, resource) in kept:
            continue
        others = tuple(one for _, one, *place in single((role,)) if place != [action, resource])
        poorer = tuple(replace(one, statements=others) if one == role else one for one in story.roles)
        assert refused(poorer, story.asked) == [(role.name, action)]


def test_the_local_evaluator_agrees_with_the_other(story: Story) -> None:
    """The local evaluator and iam-simulate agree on each request in each role, including other roles' requests."""
    asked = [(role, need) for role in story.roles for need in dict.fromkeys(need for _, need in story.asked)]
    ours = ["ImplicitlyDenied" if role.refusal(need) else "Allowed" for role, need in asked]
    assert permissions.verdicts(asked) == ours
    assert set(ours) == {"ImplicitlyDenied", "Allowed"}


def test_a_missing_permission_fails_a_run_as_on_aws(story: Story) -> None:
    """If a permission is removed during the run, the API fails at once, and a line says why."""
    service, roles_file = story.service, story.project / "packaging" / "resources" / "roles.cjs"
    changed(roles_file, ("Query', BY_POSITION)", "Scan', BY_POSITION)"))
    service.refused = {"ConnectionControlRole dynamodb:Query"}
    assert until(lambda: "ConnectionControlRole" in service.log, 20), service.log
    status, _ = service.ask("GET", f"{permissions.STREAM}/events?limit=100")
    line = next(line for line in service.log.splitlines() if "ALERT: refused" in line)
    user = f"arn:aws:sts::000000000000:assumed-role/ConnectionControlRole/streamkeeper-{STAGE}-connection-control"
    index = f"arn:aws:dynamodb:us-east-1:000000000000:table/streamkeeper-{STAGE}-events/index/by-position"
    assert status == 503
    assert line.endswith(
        f"ALERT: refused: User: {user} is not authorized to perform: dynamodb:Query on resource: {index}"
        " because no identity-based policy allows the dynamodb:Query action"
    )
