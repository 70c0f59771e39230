"""What holds for the whole suite: how generated tests are made, and how several processes share the tests.

One process runs a file of tests (`--dist loadfile`), so what a file shares is made once; one process runs all the files
that share the local run (`tests/local_run.py`). The files that take longest come first: then no process is left alone
with one of them at the end. What the tests asked of AWS is judged where all
have ended: a run of several processes fails for a request that no role of the template allows.
"""

import fcntl
import functools
import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from local.checkout import ROOT
from tests import examples, permission_edges, rerun

if TYPE_CHECKING:
    from tests.local_run import LocalRun

# Examples have no time limit, and slow generation is no failure: a busy machine is not a counterexample. They are drawn
# anew in each run; a failure prints what replays it, and .hypothesis keeps it for the next run. Where CI is set they
# follow from the test alone: there a failure is the change's own, and the same commit gives the same answer.
for profile, number in (("all", examples.ALL), ("some", examples.SOME)):
    settings.register_profile(
        profile,
        max_examples=number,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=examples.IS_CI,
    )

# Nothing that the user's shell says of AWS reaches a test, nor what the tests start.
for name in [name for name in os.environ if name.startswith("AWS_")]:
    del os.environ[name]

# Hundreds of processes are started: each module is compiled for the first of them, whatever the shell says of that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What a shell adds to this run is not for those that tests start.
os.environ.pop("PYTEST_ADDOPTS", None)

# A model of a million states is walked again at each collection of garbage.
gc.set_threshold(50_000, 20, 20)

# Files whose tests wait or compute for many seconds, by the beginning of their path; the longest first.
SLOW = (
    "tests/chaos/test_model.py",
    "tests/test_types.py",
    "tests/chaos/test_chaos.py",
    "tests/deploy/test_whole_stage.py",
    "tests/chaos/real/",
    "tests/console/",
    "tests/bench/",
    "tests/local/service/test_lifecycle.py",
    "tests/real/",
    "tests/timelines/",
    "tests/test_install.py",
    "tests/deploy/",
    "tests/statemachines/",
    "tests/chaos/",
    "tests/local/",
    "tests/handlers/",
)
MOST_PROCESSES = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option of `tests/rerun.py`."""
    parser.addoption("--rerun-alone", action="store_true", help="run the few tests that failed again, alone")


def pytest_configure(config: pytest.Config) -> None:
    """Draws all examples if the long tests run too, otherwise a tenth of them."""
    if sys.version_info >= (3, 14):
        # Its collector finalizes the sockets of a client of boto3 before urllib3's pool, which would close them.
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
    settings.load_profile("some" if config.option.markexpr == "not long" else "all")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process for each core, and one more, because two of them have tests that share a local run, which wait. Each
    process collects all tests and makes what they share, so more processes would cost more than they win.
    """
    cores = os.cpu_count() or 2
    return cores if config.getoption("until", 0) else min(MOST_PROCESSES, cores + 1)


class _Files(LoadFileScheduling):  # type: ignore[misc]
    """Gives each file of tests to one process, and those that share a local run to two, as each half waits as long."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if not shares_the_run(file):
            return file
        return "the local run of tests/real" if file.startswith("tests/real/") else "the local run of the others"


@functools.cache
def shares_the_run(file: str) -> bool:
    """Returns whether a file's tests use the local run; the path begins at the root, outside of which none do."""
    path = ROOT / file
    return path.is_file() and "local_run" in path.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Distributes by file, as pyproject.toml says, with a local run's tests together."""
    return _Files(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Lets as many processes collect at a time as there are cores; the others find the compiled files of the first."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not worker.isdecimal():
        return (yield)
    count, cores = int(os.environ["PYTEST_XDIST_WORKER_COUNT"]), os.cpu_count() or 2
    place = int(worker) * min(cores, count) // count
    name = f"streamkeeper-collects-{os.environ['PYTEST_XDIST_TESTRUNUID']}-{place}"
    with open(Path(tempfile.gettempdir()) / name, "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            return (yield)
        finally:
            Path(turn.name).unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Has each process begin with other files of a folder, and read what the others have rewritten and compiled."""
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker.isdecimal() and isinstance(collector, pytest.Directory):
        first = len(report.result) * int(worker) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = report.result[first:] + report.result[:first]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts first the files that share the local run, then the slow ones; the order within a file stays.

    The tests of a room (`tests/room.py`) come in the order in which they are asked for.
    """
    if config.getoption("until", 0):
        return

    def place(item: pytest.Item) -> tuple[bool, int, tuple[str, ...]]:
        at = next((at for at, path in enumerate(SLOW) if item.nodeid.startswith(path)), len(SLOW))
        return not shares_the_run(item.nodeid.partition("::")[0]), at, item.path.parts

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Excludes all that is collected and imported from garbage collection, because it lives until the end."""
    gc.freeze()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def _run_of_this_process(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalRun]":
    from tests.local_run import start_run

    with start_run(tmp_path_factory.mktemp("local-run"), run_folder) as run:
        yield run


@pytest.fixture(scope="module")
def local_run(_run_of_this_process: "LocalRun") -> "Iterator[LocalRun]":
    """The one run of this process, which the files of tests have one after the other (`tests/local_run.py`)."""
    with _run_of_this_process.lend() as run:
        yield run


pytest_plugins = ["cpu_budget", "time_limit"]

permission_edges.begin()
_asked: list[permission_edges.Line] = []
_refused: list[str] = []


def pytest_testnodedown(node: Any) -> None:
    """Takes over the requests to AWS of a process's tests."""
    _asked.extend(node.workeroutput.get("asked", []) if hasattr(node, "workeroutput") else [])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands over the requests to AWS of this process's tests; the process that has all of them judges them."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["asked"] = permission_edges.lines()
    if not _asked:
        return
    from local.service import osls
    from tests.permission_check import STAGE, deliver, refused

    _refused.extend(refused(_asked, osls.template(STAGE, delivers=deliver(_asked))))
    if _refused:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names each request that no role of the template allows; without one, failed tests may run again."""
    for sentence in _refused:
        terminalreporter.write_line(f"REFUSED {sentence}", red=True)
    session = terminalreporter._session
    if config.option.rerun_alone and session is not None:
        rerun.rerun(session, terminalreporter, _refused)
