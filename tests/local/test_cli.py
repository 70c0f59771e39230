"""The command `streamkeeper` itself: rules of all verbs."""

import gc
import os
import re
import subprocess
import sys
from contextlib import chdir

import pytest

from local import garbage_collection
from local.cli import BROKEN_PIPE, GROUPS, main
from tests.harness import free_port
from tests.local.support import PROJECT


def test_a_closed_pipe_is_no_error_and_a_full_disk_is_one() -> None:
    """`streamkeeper … | head -1` prints nothing on standard error; the status is the shell's for SIGPIPE. A full disk
    gets one sentence, and 2.
    """
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "local.cli", "asl", "check", "statemachines/staggered.asl.yml"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=PROJECT, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=PROJECT, check=False)
    said = b"streamkeeper: The disk is full: free some space, and run the command again.\n"
    assert (done.returncode, done.stderr) == (2, said)


MISSING = {
    "asl check": "FILE",
    "asl run": "FILE",
    "asl graph": "FILE",
    "asl mocks": "FILE",
    "asl run statemachines/retry.asl.yml --functions": "FILE",
    "asl run statemachines/retry.asl.yml --input": "@FILE",
    "replay": "FILE",
    "timeline": "FILE",
    "apply": "FILE",
    "compare --faults": "FILE",
    "profile check": "FILE",
    "profile try": "FILE",
    "plan --rate 1/s --event-bytes 9 --profile": "FILE",
}
ABSENT = "/no/such/file.toml"


@pytest.mark.parametrize(
    ("command", "file"),
    [*((command, ABSENT) for command in MISSING)]
    + [(command, "README.md") for command in ("asl run", "asl graph", "replay", "timeline", "asl mocks")],
)
def test_a_file_that_cannot_be_used_gets_one_sentence(
    command: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each verb that reads a file names it once if it is missing or of another kind, in one line, and exits with 2."""
    with chdir(PROJECT):
        assert main([*command.split(), MISSING.get(command, "FILE").replace("FILE", file)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), said.err.count(file)) == ("", 1, 1), said.err


@pytest.mark.parametrize("command", ["doctor", "redrive", "status demo", "sinks demo replay --from 2d sqs:a.fifo"])
def test_without_a_run_one_sentence_names_the_address(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no service runs, the only line (besides one of progress) names its address; the exit status is 2."""
    monkeypatch.setenv("PORT", str(port := free_port()))
    assert main(command.split()) == 2
    said = capsys.readouterr()
    (sentence,) = (line for line in said.err.splitlines() if not line.endswith("…"))
    assert said.out == ""
    assert re.search(rf"http://127\.0\.0\.1:({port}|{port + 1})\b", sentence), sentence


@pytest.mark.parametrize(("typed", "meant"), [("lst", "list"), ("satus", "status"), ("profiles", "profile")])
def test_a_misspelled_verb_gets_a_suggestion(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelled verb gets one sentence; a word that resembles no verb gets the list of all."""
    assert main([typed, "demo"]) == 2
    assert capsys.readouterr().err == (
        f"streamkeeper: There is no verb '{typed}'. Did you mean '{meant}'? --help lists all verbs.\n"
    )
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    assert "choose from run, completion, list" in capsys.readouterr().err.replace("'", "")


def test_help_lists_every_verb_by_what_a_person_wants(capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb is listed once, below its group; a command without a verb is a question for help."""
    with pytest.raises(SystemExit):
        main([])
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{group}:\n") for group in GROUPS]
    assert places == sorted(places)
    for verbs, begin, end in zip(GROUPS.values(), places, [*places[1:], len(shown)], strict=True):
        assert re.findall(r"^  ([a-z]+) ", shown[begin:end].partition("\n\n")[0], re.MULTILINE) == list(verbs)


def test_garbage_collection_is_off_within_the_block() -> None:
    """Garbage collection is off within the block, even if blocks overlap, and on afterwards, whatever was raised."""
    with garbage_collection.no_garbage_collection():
        with garbage_collection.no_garbage_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), garbage_collection.no_garbage_collection():
        raise ZeroDivisionError
    assert gc.isenabled()
