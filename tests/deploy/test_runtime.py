"""What ships does under the runtime's Python what its tests say, on whichever Python this suite runs."""

import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.internal import floats

from local.stages import ROOT
from tests.deploy.runtime import hypothesis_native
from tests.local.support import environment

SCRIPT = ROOT / "tests" / "deploy" / "runtime" / "run-tests.cjs"
# The rooms without sockets, threads and processes, which WebAssembly has not.
ROOMS = ("framing", "profile", "connection")
RUNTIME = "3.13"


def runtime_python() -> str:
    """The interpreter of the runtime's version; "" where this machine has none, or the suite itself runs on it."""
    program = shutil.which(f"python{RUNTIME}")
    if program is None or sys.version_info[:2] == tuple(int(part) for part in RUNTIME.split(".")):
        return ""
    # Where pyenv has several versions, its program of this name asks for one.
    asked = subprocess.run(
        [program, "-c", "import sys; print(sys.executable)"], env=os.environ | {"PYENV_VERSION": RUNTIME},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip() if asked.returncode == 0 else ""


@pytest.mark.long
def test_the_rooms_without_effects_pass_their_tests_under_the_runtimes_python(whole_package: Path) -> None:
    """All tests of framings, profiles and connections pass with the sources and compiled files of the zip.

    Without those that measure time, for WebAssembly has costs of its own, and those that plant defects into chaos.
    """
    node = shutil.which("node")
    assert node is not None
    tests = [f"tests/handlers/{room}" for room in ROOMS]
    command = [node, str(SCRIPT), str(whole_package / "streamkeeper.zip"), str(ROOT), sysconfig.get_path("purelib")]
    run = subprocess.run(
        [*command, "-k", "not linear_time", "--ignore-glob=*_teeth.py", *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = run.stdout.strip().splitlines()[-1]
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.fullmatch(r"\d{3,} passed, \d deselected in .*", summary), summary


if PYTHON := runtime_python():

    @pytest.mark.long
    def test_all_that_ships_passes_its_tests_under_cpython_itself() -> None:
        """All tests of handlers/, those too with sockets, threads and tables, where this machine has that Python."""
        venv = f".venv-{RUNTIME}"
        make = ["make", "--silent", f"{venv}/.installed", f"PYTHON={PYTHON}", f"VENV={venv}"]
        made = subprocess.run(make, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        command = [f"{venv}/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/handlers"]
        run = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        assert re.fullmatch(r"\d{4,} passed.*", run.stdout.strip().splitlines()[-1]), run.stdout


@given(st.floats(), st.floats(), st.sampled_from([16, 32, 64]), st.booleans())
def test_hypothesis_computes_there_as_it_does_here(one: float, other: float, width: int, allow: bool) -> None:
    """What stands in for Hypothesis's compiled arithmetic of floats gives the same bits."""
    ours, theirs = hypothesis_native, floats
    low, high = sorted(
        (fitting(one, width), fitting(other, width)), key=lambda value: (value, not ours.is_negative(value))
    )
    for name in ("next_up", "next_down"):
        assert bits(getattr(ours, name)(low, width)) == bits(getattr(theirs, name)(low, width))
    for name in ("next_up_normal", "next_down_normal"):
        assert bits(getattr(ours, name)(low, width, allow_subnormal=allow)) == bits(
            getattr(theirs, name)(low, width, allow_subnormal=allow)
        )
    if not math.isnan(low + high):
        assert ours.count_between_floats(low, high, width) == theirs.count_between_floats(low, high, width)
    assert ours.width_smallest_normals(width) == theirs.width_smallest_normals(width)
    assert ours.is_negative(low) == theirs.is_negative(low)
    assert ours.float_to_int(low, width) == theirs.float_to_int(low, width)
    assert bits(ours.float_of(low, width)) == bits(theirs.float_of(low, width))


def bits(value: float) -> int:
    """The bits of a float; one for all that are not a number."""
    return hypothesis_native.float_to_int(math.nan if math.isnan(value) else value)


def fitting(value: float, width: int) -> float:
    """The float of that width which is nearest, 1.0 where the value is too large for it."""
    try:
        return hypothesis_native.float_of(value, width)
    except OverflowError:
        return 1.0
