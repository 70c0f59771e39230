"""`streamkeeper doctor` at a run on this machine: it names what the run lacks, and shows a handover."""

import json

import pytest

from tests.local_run import LocalRun

STREAM = "demo:doctor"


def doctor(run: LocalRun, *options: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Returns the exit status, and each check by its subject."""
    ended = run.typed("doctor", "--json", *options)
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert found, ended.stderr
    return ended.returncode, {one["what"]: one for one in found}


@pytest.mark.cpu(6)
def test_a_demonstration_hands_over_and_is_stopped(local_run: LocalRun) -> None:
    """The demonstration hands over and stops. Parts that a local run lacks are no failure; unused secrets are notes."""
    code, found = doctor(local_run, "--demo", STREAM)
    assert code == 0, [one for one in found.values() if one["state"] in ("wrong", "unknown")]
    shown = {what.rpartition(", ")[2]: one for what, one in found.items() if what.startswith(f"demonstration {STREAM}")}
    assert {name: one["state"] for name, one in shown.items()} == dict.fromkeys(
        ("start", "handover", "gaps", "stop"), "ok"
    )
    assert local_run.status(STREAM) == "stopped"
    fences = [row["fence"] for row in local_run.connections(STREAM)]
    assert len(set(fences)) >= 2
    absent = {what for what, one in found.items() if one["state"] == "absent"}
    assert {"alarms", "API", "subscribers of the alarms", "EventsTable, encryption", "reserved concurrency"} <= absent
    # kubernetes has no secret here; the run itself puts the secret of demo-token.
    unused = found["profiles that no stream uses"]["found"]
    assert ("kubernetes" in unused, "demo-token" in unused) == (True, False)
