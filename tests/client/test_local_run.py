"""The client with a real run: every method's answer, and a consumer that is killed and resumes from its checkpoint."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import bench.follow
from handlers.api.openapi.document import document
from streamkeeper import Client, Gap, NotFound, Refused, Started, Status, Stopped, StreamRow, dataframes
from tests.harness import STAGE
from tests.local.support import PROJECT, environment, until
from tests.local_run import LocalRun

CONSUMER = """
import asyncio, sys
from streamkeeper import Client, Seen, once

async def main(url, stream, folder):
    with Seen(folder + "/seen") as seen:
        events = Client(url).follow(stream, since="1h", checkpoint=folder + "/checkpoint", every_s=0.1)
        async for event in once(events, seen):
            print(event.key, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def client_of(local_run: LocalRun) -> Client:
    return Client(f"http://127.0.0.1:{local_run.port}")


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Status, "Stream"), (StreamRow, "BriefStream"), (Gap, "Gap"), (Started, "Started"), (Stopped, "Stopped")],
)
def test_the_clients_types_match_the_document_of_the_api(kind: Any, name: str) -> None:
    """Each type has the members that the document names, requires no others, and fits every answer."""
    described = document()["components"]["schemas"][name]
    # The type of a status is that of a list's row and more, though the row alone has a lag.
    assert (kind.__required_keys__ | kind.__optional_keys__) ^ set(described["properties"]) <= {"lag_ms"}
    assert kind.__required_keys__ <= set(described["required"])


def test_each_method_works_from_start_to_stop(local_run: LocalRun) -> None:
    """The methods are called in turn. An unknown stream raises an error of its own."""
    stream, client = "demo:client", client_of(local_run)
    with pytest.raises(NotFound) as unknown:
        client.status("nobody")
    assert unknown.value.kind == "unknown-stream"
    started = client.start(stream)
    assert (started["already_running"], client.start(stream)["already_running"]) == (False, True)
    assert until(lambda: client.status(stream)["status"] == "running", 60)
    assert [one["status"] for one in client.streams() if one["stream"] == stream] == ["running"]
    assert until(lambda: len([*client.events(stream)]) >= 3, 60)
    assert client.stop(stream)["stream"] == stream
    assert until(lambda: client.status(stream)["status"] == "stopped", 60)
    assert [one["cause"] for one in client.gaps(stream)] == []
    events = [*client.events(stream, since="1h")]
    assert [event.raw for event in events] == local_run.events(stream)
    assert all(isinstance(event.json()["n"], int) for event in events)
    assert [one.key for one in client.events(stream, after=events[0].position, limit=2)] == [
        one.key for one in events[1:3]
    ]
    assert [*client.events(stream, until=events[0].received_at)] == []
    assert [dataframes.event_json(row) for row in client.events(stream).to_arrow().to_pylist()] == [
        one.raw for one in events
    ]


def test_events_come_in_the_order_of_their_own_time(local_run: LocalRun) -> None:
    """Pages have no hole and no overlap, the command prints when events happened; a profile needs a `time`."""
    stream, client = "demo-trades:ordered", client_of(local_run)
    client.start(stream)
    assert until(lambda: any(one["stream"] == stream and one["last_event_at"] for one in client.streams()), 60)
    assert until(lambda: len([*client.events(stream)]) >= 5, 60)
    client.stop(stream)
    assert until(lambda: client.status(stream)["status"] == "stopped", 60)
    events = [*client.events(stream, order="time")]
    happened = [event.happened_at for event in events if event.happened_at is not None]
    assert (happened, len(happened)) == (sorted(happened), len([*client.events(stream)]))
    first, *rest = client.events(stream, order="time", limit=1)
    assert [first, *rest, *client.events(stream, order="time", after=first.position)] == events
    printed = local_run.typed("events", stream, "--order", "time")
    assert [line.split()[0] for line in printed.stdout.splitlines()] == [event.raw["happened_at"] for event in events]
    client.start("demo:client")
    assert until(lambda: any(one["stream"] == "demo:client" for one in client.streams()), 60)
    with pytest.raises(Refused) as refused:
        [*client.events("demo:client", order="time")]
    assert (refused.value.status, refused.value.kind, refused.value.field) == (409, "no-time", "order")
    printed = local_run.typed("events", "demo:client", "--order", "time")
    assert (printed.returncode, printed.stdout) == (1, "")
    assert printed.stderr.startswith("streamkeeper: 409 Conflict: The stream's profile does not name the events' own ")
    client.stop("demo:client")


@pytest.mark.cpu(6)
def test_a_killed_consumer_misses_nothing(local_run: LocalRun, tmp_path: Path) -> None:
    """The consumer is killed twice amid a stream. It consumes every event, and one of them again after each kill."""
    stream, client, kills = "demo:consumer", client_of(local_run), 2
    printed = tmp_path / "printed"
    url = f"http://127.0.0.1:{local_run.port}"
    command = [sys.executable, "-W", "error", "-c", CONSUMER, url, stream, str(tmp_path)]
    client.start(stream)

    def keys() -> list[str]:
        return printed.read_text().split()

    def consumer() -> "subprocess.Popen[bytes]":
        with printed.open("ab") as file:
            return subprocess.Popen(command, cwd=PROJECT, env=environment(), stdout=file)

    for kill in range(1, kills + 1):
        process = consumer()
        try:
            assert until(lambda: len(keys()) >= 8 * kill, 60), keys()  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    client.stop(stream)
    assert until(lambda: client.status(stream)["status"] == "stopped", 60)
    stored = [event.key for event in client.events(stream)]
    process = consumer()
    try:
        assert until(lambda: set(keys()) >= set(stored), 60), set(stored) - set(keys())
    finally:
        process.terminate()
        process.wait(60)
    assert set(keys()) == set(stored)
    assert len(keys()) - len(stored) <= kills


@pytest.mark.long
def test_bench_follow_measures_how_late_events_arrive(local_run: LocalRun, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m bench.follow` prints a row for each interval, measured by the events' own instants."""
    arguments = ["--json", "--url", f"http://127.0.0.1:{local_run.port}", "--seconds", "2", "--every", "0.1", "0.2"]
    assert bench.follow.main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["follow"]
    assert [row["every_s"] for row in rows] == [0.1, 0.2]
    assert all(row["count"] > 0 < row["p50_ms"] <= row["p99_ms"] for row in rows)


def examples() -> list[str]:
    """Returns the programs of docs/client.md that need no other package."""
    page = (PROJECT / "docs" / "client.md").read_text(encoding="utf-8")
    programs: list[str] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [program for program in programs if not re.search("duckdb|to_pandas|fastapi", program)]


@pytest.mark.cpu(5)
def test_the_programs_of_docs_client_run(local_run: LocalRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program prints something; the programs that follow a stream are then cancelled."""
    monkeypatch.chdir(tmp_path)
    client_of(local_run).start("demo")
    assert until(lambda: len(local_run.events("demo")) > 1, 60)
    programs = examples()
    assert len(programs) == 5
    monkeypatch.setenv("PORT", str(local_run.port))
    monkeypatch.setenv("STREAMKEEPER_STAGE", STAGE)
    for program in programs:
        lines: list[Any] = []
        known: dict[str, Any] = {"print": lambda *words, lines=lines, **_: lines.append(words)}
        text = program.replace("127.0.0.1:3000", f"127.0.0.1:{local_run.port}")
        # No archive yet, so all of it comes from the tables of this run.
        text = text.replace("s3://my-bucket/events", str(tmp_path)).replace('"prod"', '"local"')
        exec(text.replace("asyncio.run(main())", ""), known)
        if "main" in known:
            asyncio.run(asyncio.wait_for(printed_some(known["main"](), lines), 60))
        assert lines
    client_of(local_run).stop("demo")


async def printed_some(program: Coroutine[Any, Any, None], lines: list[Any]) -> None:
    """Cancels the program once it has printed something; raises what the program raises."""
    task = asyncio.create_task(program)
    while not lines and not task.done():
        await asyncio.sleep(0.02)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
