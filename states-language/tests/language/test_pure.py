"""Importing and using the package changes nothing else in its process. Each test starts fresh processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from language import watch

_PATH = os.pathsep.join([str(Path(watch.__file__).parent), *sys.path])


def _printed(script: str) -> Any:
    """Return the JSON that a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys, watch\n{script}"],
        env=os.environ | {"PYTHONPATH": _PATH}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.cpu(6)
def test_the_package_changes_nothing_of_its_process() -> None:
    """Recursion limit, jsonata, garbage settings and hooks are unchanged after runs, threads and a server."""
    begin = "import botocore.session, jsonata\nsys.setrecursionlimit(20_000)\nbefore = watch.all()\n"
    assert _printed(begin + "watch.work()\nwatch.report(before)") == {}


@pytest.mark.cpu(6)
def test_jsonata_that_is_imported_later_is_the_hosts_own() -> None:
    """A jsonata that the host imports later answers as if this package had never been imported."""
    table = "print(json.dumps([sys.getrecursionlimit(), 'jsonata' in sys.modules, watch.answers()]))"
    assert _printed("watch.work_here()\n" + table) == _printed(table)


@pytest.mark.cpu(4)
def test_the_hosts_recursion_limit_changes_no_answer() -> None:
    """A recursion 200 functions deep ends the same at any recursion limit, also where the host's own stack is deep."""
    deep = """
def nest(n):
    return nest(n - 1) if n else watch.work_here()

def at(limit, depth):
    sys.setrecursionlimit(limit)
    return nest(depth)

print(json.dumps([at(1000, 0), at(1000, 700), at(5000, 0)]))
"""
    assert _printed(deep) == ["SUCCEEDED"] * 3
