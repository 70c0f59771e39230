"""`pytest --rerun-alone`: a few failed tests run once more with no other beside them, and count as passed if they pass.

It is for a run of thousands of tests on a busy machine, where one of them may come too late. Invariant: only the
failure of a test is forgiven, and each forgiven test is named. A process that broke down, a file that could not be
collected, a run that was interrupted, many failures: in these cases the run fails as without the option.
"""

import subprocess
import sys
from collections.abc import Sequence

import pytest

MOST = 5
FORGIVEN = "passed alone"
"""How the last line counts them."""


def candidates(session: pytest.Session, reporter: pytest.TerminalReporter) -> list[str]:
    """Returns the ids of the tests to run again; none if anything else is wrong, or more than `MOST` failed."""
    reports = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    # xdist reports a process that broke down as a test that failed in no phase of its own.
    are_tests = all(isinstance(one, pytest.TestReport) and one.when in ("setup", "call", "teardown") for one in reports)
    is_whole = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not (session.shouldfail or session.shouldstop)
    ids = sorted({one.nodeid for one in reports})
    return ids if are_tests and is_whole and len(ids) <= MOST else []


def rerun(session: pytest.Session, reporter: pytest.TerminalReporter, refused: Sequence[str] = ()) -> None:
    """Runs the failed tests again, and if all of them pass, makes the session a passed one.

    If something else is wrong, such as a request that was `refused`, no test runs again.
    """
    ids = [] if refused else candidates(session, reporter)
    if not ids:
        return
    reporter.write_sep("=", f"{len(ids)} failed; running alone what failed", yellow=True)
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "0", "-m", session.config.option.markexpr, *ids]
    done = subprocess.run(
        command, cwd=session.config.rootpath, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        reporter.write(done.stdout)
        reporter.write_sep("=", "failed again", red=True)
        return
    for nodeid in ids:
        reporter.write_line(f"UNSTABLE {nodeid} failed beside others and {FORGIVEN}", yellow=True)
    forgiven = [*reporter.stats.pop("failed", []), *reporter.stats.pop("error", [])]
    reporter.stats[FORGIVEN] = list({one.nodeid: one for one in forgiven}.values())
    session.exitstatus = pytest.ExitCode.OK
