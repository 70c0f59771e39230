"""The bench of the delivery runs the real function to its end."""

import re
import subprocess
import sys

import pytest

from tests.local.support import PROJECT


@pytest.mark.long
def test_it_prints_the_three_figures() -> None:
    """Under the names that local/costs/measured.toml has, and what boto3 takes beside them."""
    command = [sys.executable, "-m", "bench.delivery", "--calls", "3"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *figures, beside = done.stdout.splitlines()
    names = [line.partition(" = ")[0] for line in figures]
    assert names == ["delivery_cpu_ms_per_call", "delivery_cpu_ms_per_event", "delivery_cpu_ms_per_request"]
    assert re.fullmatch(r"a call with one event .* ms, boto3's two requests alone .* ms: \d+\.\d\d times", beside)
