"""The benchmark of the cold start runs whole: each kind reads the first byte, and the report follows from it."""

import json
import subprocess
import sys

import pytest

from bench import coldstart


@pytest.mark.long
def test_it_runs_and_reports_what_each_kind_used(capsys: pytest.CaptureFixture[str]) -> None:
    """Two starts of each; what is reported is the interpreter's own CPU and more."""
    assert coldstart.main(["--json", "--times", "1", "--uncompiled-times", "0"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["ratio"] == round(figures["peer_ms"] / figures["ours_ms"], 2)
    assert 0 < figures["bare_ms"] < min(figures["ours_ms"], figures["peer_ms"])
    assert figures["goal_ms"] == 130


def test_no_client_but_dynamodbs_is_loaded_by_a_cold_start() -> None:
    """The connection manager's modules import neither boto3 nor botocore before one of their services is needed."""
    modules = "handlers.connection.reconnection, handlers.aws.clients, handlers.store"
    code = f"import sys, {modules}; print('boto3' in sys.modules, 'botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
