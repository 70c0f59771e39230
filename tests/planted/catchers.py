"""Says whether a catcher catches a planted defect: `table.py` has the kinds of catchers.

`runner.py` imports it in a process of its own, once the defect is planted. It knows nothing of the defect.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.planted.table import ROOT, Catcher

Caught = tuple[bool | None, str]


def caught(catcher: Catcher) -> Caught:
    """Return whether it is caught, None if nobody can tell; and what was seen."""
    if "test" in catcher:
        return _by_a_test(catcher["test"])
    found = _found(catcher)
    expected = catcher["breaks"]
    wanted = {expected} if isinstance(expected, str) else set(expected)
    return bool(wanted & found), f"broken: {', '.join(sorted(found)) or 'nothing'}; wanted: {', '.join(sorted(wanted))}"


def _found(catcher: Catcher) -> set[str]:
    if "seed" in catcher:
        return _by_a_schedule(catcher)
    from tests.chaos import explorer, model_group, model_segments, model_steps

    budget = catcher.get("faults", {})
    model: explorer.Model[Any]
    if "model" in catcher:
        model = model_steps.Model(catcher["model"], budget)
    elif "group_model" in catcher:
        model = model_group.Model(catcher["group_model"].split(), budget, catcher.get("joined", 1))
    else:
        model = model_segments.Search(**catcher["log_model"])
    return {explorer.explore(model, depth=catcher.get("depth", 0)).violation} - {""}


def _by_a_schedule(catcher: Catcher) -> set[str]:
    from local.chaos import simulate
    from local.chaos.draws import generate
    from local.chaos.group_schedule import generate_groups
    from local.chaos.invariants import violations
    from tests.planted.schedules import NAMED

    seed = catcher["seed"]
    if "like" in catcher:
        like = NAMED[catcher["like"]]
        schedule = replace(like, seed=seed, group=tuple(replace(one, seed=seed) for one in like.group))
    else:
        schedule = generate_groups(seed) if catcher.get("groups") else generate(seed)
    later_ms = catcher.get("faults_later_ms", 0)
    faults = tuple(replace(one, at_ms=one.at_ms + later_ms) for one in schedule.faults)
    schedule = replace(schedule, faults=faults)
    return {violation.kind for violation in violations(simulate.run_world(schedule, more_ms=catcher.get("more_ms", 0)))}


class _Failures:
    """The failures of the tests."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def pytest_sessionstart(self) -> None:
        """Stop Hypothesis from searching a smaller example: that takes minutes, and nobody reads it."""
        phases = set(Phase) - {Phase.shrink, Phase.explain}
        settings.register_profile("first failure", settings(), phases=phases)
        settings.load_profile("first failure")

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        """Note an error of a test, of a fixture or of the collection."""
        assert call.excinfo is not None
        self.errors.append(call.excinfo.value)


def _by_a_test(test: str) -> Caught:
    """A test's own assertion catches a defect; another error may come from the planting."""
    failures = _Failures()
    # Whoever has imported what pytest would rewrite has no use for that.
    options = ["-q", "-x", "-m", "", "-p", "no:cacheprovider", "--tb=short", "-W", "ignore:Module already imported"]
    options += ["-p", "no:unraisableexception", "-p", "no:threadexception"]  # they collect all garbage at the end
    status = pytest.main([*options, "--rootdir", str(ROOT), str(ROOT / test)], plugins=[failures])
    if status == pytest.ExitCode.OK:
        return False, f"{test} passes"
    strange = [error for error in failures.errors if not isinstance(error, AssertionError | pytest.fail.Exception)]
    if strange or not failures.errors:
        return None, f"{test} ends with {status}: {strange}"
    return True, f"{test} fails"
