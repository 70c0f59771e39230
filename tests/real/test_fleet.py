"""The local service applies a document: streams start and stop, a mistake is refused, and the command reports it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from local import cli
from tests.harness import Service
from tests.local.support import until
from tests.local_run import LocalRun


def done(service: Service, query: str = "") -> Any:
    """Returns GET /fleet's answer once the document is applied."""
    answer = until(lambda: (said := service.ask_at("GET", f"fleet{query}")[1])["state"] == "done" and said, 60)
    assert answer, service.ask_at("GET", f"fleet{query}")
    return answer


def command(service: Service, *words: str) -> "subprocess.CompletedProcess[str]":
    """Returns what a verb prints of this service."""
    return service.typed(*words, "--url", f"http://127.0.0.1:{service.port}")


def test_a_document_is_applied(local_run: LocalRun, tmp_path: Path) -> None:
    """A dry run changes nothing; then the streams run; a pattern stops them; an unknown profile is named."""
    service = local_run
    path = tmp_path / "streams.toml"
    path.write_text('connected = ["demo:fleet-{1..2}"]\nstopped = ["demo:fleet-3"]\n')
    dry = command(service, "apply", str(path), "--dry-run")
    assert (dry.returncode, dry.stdout.splitlines()[-3:]) == (
        0,
        [
            "2 streams would be started, 0 stopped; 1 as wanted already.",
            "  demo:fleet-1  would be started: it was not started yet",
            "  demo:fleet-2  would be started: it was not started yet",
        ],
    )
    assert service.ask("GET", "demo:fleet-1")[0] == 404
    ran = command(service, "apply", str(path))
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "2 streams started, 0 stopped; 3 as wanted."), ran
    assert service.status("demo:fleet-2") == "running"
    stopped = command(service, "stop", "--match", "demo:fleet-*")
    assert (stopped.returncode, stopped.stdout.splitlines()[-1]) == (0, "0 streams started, 2 stopped; 2 as wanted.")
    assert service.status("demo:fleet-1") == "stopped"
    status, answer = service.ask_at("PUT", "fleet", "nothing:1")
    assert (status, answer["detail"], answer["field"]) == (404, "No profile is named 'nothing'.", "connected")
    assert done(service)["left"] == 0


def test_a_mistake_of_the_command_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the command sends a request, it names the wrong entry and says what is wrong."""
    path = tmp_path / "streams.txt"
    path.write_text("demo:1\n!demo:1\n")
    for words, said in (
        (("apply", str(path)), "The document is invalid (line 2): 'demo:1' is listed as connected and as stopped."),
        (("start",), "Give a STREAM, --all or --match PATTERN."),
        (("stop", "demo", "--all"), "Give only one of STREAM, --all and --match PATTERN."),
        (("stop", "demo", "--dry-run"), "--dry-run works only with --all or --match."),
    ):
        assert (cli.main(words), capsys.readouterr().err) == (2, f"streamkeeper: {said}\n")
