"""The command `streamkeeper` itself: what all verbs have in common."""

import os
import re
import subprocess
import sys

import pytest

from local.cli import BROKEN_PIPE, GROUPS, main
from tests.local.support import PROJECT


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """`streamkeeper ...

    head -1` prints nothing on standard error; the status is the shell's for SIGPIPE.
    """
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "local.cli", "asl", "check", "statemachines/staggered.asl.yml"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=PROJECT, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")


def test_help_lists_every_verb_by_what_a_person_wants(capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb is listed once, below its group."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    for verbs, begin, end in zip(GROUPS.values(), places, [*places[1:], len(shown)], strict=True):
        assert re.findall(r"^  ([a-z]+) ", shown[begin:end].partition("\n\n")[0], re.MULTILINE) == list(verbs)
