"""The verbs on streams with a running service: their output, where it goes, and their exit status."""

import contextlib
import io
import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from handlers.connection.backoff import Backoff
from local import cli
from local.completion import SHELLS
from local.streams.list_verb import WORST_FIRST
from local.streams.verbs import sink_line
from tests.client.api_server import answers, asked
from tests.event_source import EventSource
from tests.handlers.api.shown import NOW, connection, shown
from tests.handlers.servers import serving
from tests.local.support import PROJECT, until
from tests.local_run import LocalRun

# After how many messages a client of the event stream is cut off.
CUTS = (3, 1, 7)


def test_each_method_works_from_start_to_stop(local_run: LocalRun, tmp_path: Path) -> None:
    """Each verb in turn has its words, its JSON and its exit status; without a terminal nothing is coloured."""
    for verb in ("status", "events", "gaps", "follow", "stop", "start"):
        done = local_run.typed(verb, "nobody")
        assert (done.returncode, done.stdout) == (4, ""), done.stderr
        assert "streamkeeper: 404 Not Found: There is no s" in done.stderr
    assert "Did you mean 'demo'?" in local_run.typed("start", "demmo").stderr
    assert local_run.typed("status", "demo:verbs").returncode == 4
    assert json.loads(local_run.typed("start", "demo:verbs", "--json").stdout)["already_running"] is False
    many = local_run.typed("start", "demo:verbs", "nobody", "demo:verbs-2")
    assert (many.returncode, many.stdout) == (4, "demo:verbs runs already\ndemo:verbs-2 is starting\n")
    assert "404 Not Found" in many.stderr
    stopped = local_run.typed("stop", "demo:verbs-2", "demo:verbs-2", "--json").stdout
    assert [json.loads(line)["stream"] for line in stopped.splitlines()] == ["demo:verbs-2"]
    assert until(lambda: local_run.typed("status", "demo:verbs").returncode == 0, 60)
    head, *lines = local_run.typed("list").stdout.splitlines()
    assert head == "status        stream                    for      last event  why"
    assert any(re.fullmatch(r"running       demo:verbs {14}  [0-9]+ (ms|s) +([0-9]+ (ms|s)|–)", one) for one in lines)
    assert "demo:verbs" in [json.loads(one)["stream"] for one in local_run.typed("list", "--json").stdout.splitlines()]
    assert "demo:verbs has no gaps in that time." in local_run.typed("gaps", "demo:verbs", "--to", "2020-01-01").stderr

    assert until(lambda: len(local_run.events("demo:verbs")) >= 3, 60)
    status = local_run.typed("status", "demo:verbs").stdout
    assert (status.splitlines()[0], "\x1b" in status) == ("demo:verbs  running", False)
    assert re.search(r"^  newest    event [0-9.]+ m?s ago(; usually one every [0-9.]+ m?s)?$", status, re.MULTILINE)
    lines = local_run.typed("events", "demo:verbs", "--limit", "3", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["key"] for event in events] == sorted(event["key"] for event in events)
    assert len(events) == 3
    for kind in ("ndjson", "parquet"):
        file = tmp_path / f"events.{kind}"
        file.write_text("what was there")
        done = local_run.typed("events", "demo:verbs", "--limit", "3", "--format", kind, "--output", str(file))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"3 events in {file}\n")
    assert (tmp_path / "events.ndjson").read_text().splitlines() == lines
    table = pyarrow.parquet.read_table(tmp_path / "events.parquet").to_pylist()
    assert [(row["key"], row["data"]) for row in table] == [(event["key"], event["data"]) for event in events]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.ndjson", "events.parquet"]

    done = local_run.typed("stop", "demo:verbs")
    assert (done.returncode, done.stdout.startswith("demo:verbs is stopp")) == (0, True)
    assert until(lambda: local_run.typed("status", "demo:verbs").returncode == 3, 60)


@pytest.mark.parametrize(
    ("lease", "more", "line"),
    [
        ({}, {"rest": Backoff("http", 1, NOW + 9_000)}, r"a try after [-: 0-9]+"),
        ({"execution": "", "ending": "StreamBroken"}, {}, "for another answer start another id, such as name:2"),
        ({"execution": "", "stop": True}, {}, "start it to continue"),
        ({"execution": "", "ending": "Broken"}, {"damage": ("ended_at",)}, ""),
    ],
)
def test_a_status_has_the_next_step(
    lease: dict[str, Any], more: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status says when a stream that is away is tried again, or what a person must do; and 100 % means all."""
    away = connection(1, "A", 1_000, NOW - 10, ended_by="reset", error="StreamDropped", resumed=False)
    with serving(answers(shown(away, **lease, **more))) as server:
        assert cli.main(["status", "demo", "--url", server.address]) == 3
    said = capsys.readouterr().out
    assert re.search(rf"^  next      {line}$", said, re.MULTILINE) if line else "  next" not in said, said
    assert "connected 99.99 %" in said or lease


def test_the_list_begins_with_the_worst_as_the_page_does(capsys: pytest.CaptureFixture[str]) -> None:
    """A stream in a group stands with its group; JSON keeps the order of the ids; ages are by the API's clock."""
    script = (PROJECT / "handlers" / "console" / "streams.js").read_text(encoding="utf-8")
    (order,) = re.findall(r"WORST_FIRST = \[(.*?)\];", script, re.DOTALL)
    assert re.findall(r"\w+", order) == list(WORST_FIRST)
    fields: dict[str, Any] = dict.fromkeys(("since_at", "last_event_at", "holder", "reason", "since_before_at"))
    long = {"since_before_at": "2020-11-29T00:29:00Z"}
    rows = [("a", "stopped", 0, {}), ("b", "running", 0, long), ("c", "new", 0, {}), ("d", "running", 2, {}),
            ("e", "running", 0, {"group": "#1"}), ("f", "broken", 0, {}),
            ("g", "reconnecting", 0, {"group": "#12"})]  # fmt: skip
    streams = [
        {**fields, "stream": stream, "status": status, "open_gaps": gaps, **group}
        for stream, status, gaps, group in rows
    ]
    page = answers({"streams": streams, "next": None})
    with serving(page, answers({}, 200, "Date: Sun, 29 Nov 2020 03:30:00 GMT"), page) as server:
        for options in ([], ["--json"]):
            assert cli.main(["list", "--url", server.address, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()[:2]) for line in lines[:11]] == [
        "status stream", "new c", "broken f", "running d", "running b", "stopped a",
        "", "group #12:", "reconnecting g", "", "group #1:",
    ]  # fmt: skip
    assert [line[40:47].strip() for line in lines[3:5]] == ["–", ">3 h"]
    assert [json.loads(line)["stream"] for line in lines[12:]] == list("abcdefg")


def test_a_long_id_has_its_status_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal a long id stands below its status; escaped and wide characters move no column."""
    monkeypatch.setenv("COLUMNS", "80")
    fields: dict[str, Any] = dict.fromkeys(("since_at", "last_event_at", "holder", "reason", "since_before_at"))
    ids = ("a" * 100, "b\n", "c", "価格:e\u0301")
    rows = [{**fields, "stream": one, "status": "broken", "open_gaps": 0} for one in ids]
    with serving(answers({"streams": rows, "next": None}), answers({})) as server:
        assert cli.main(["list", "--url", server.address]) == 0
    _, first, second, _, *columns = capsys.readouterr().out.splitlines()
    assert (first, second) == ("broken", " " * 14 + "a" * 100)
    assert [line.index("–") for line in columns] == [40, 40, 40 - 2 + 1]


def test_a_sink_that_gathers_its_first_events_was_not_tried_yet() -> None:
    """The first events of a sink wait for `wait_s` of the profile, which is shown as not tried yet."""
    counts = dict.fromkeys(("delivered", "failed", "dead_lettered", "skipped"), 0) | {"waiting": 30, "lag_ms": 41_000}
    row = counts | {"sink": "s3:lake", "seen_at": None, "waits": None, "replaying": False}
    assert sink_line(row) == ("s3:lake  0 delivered, 0 failed, 0 dead-lettered, 30 waiting, oldest 41 s; not tried yet")


def test_the_commands_of_the_page_run(local_run: LocalRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of docs/command-line.md run, in order, as they are typed here."""
    monkeypatch.chdir(tmp_path)
    page = (PROJECT / "docs" / "command-line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) >= 11
    for command in commands:
        typed = command.replace("127.0.0.1:3002", f"127.0.0.1:{local_run.port + 2}").partition(" >")[0]
        program, *arguments = shlex.split(typed)
        assert program == ".venv/bin/streamkeeper"
        assert until(lambda: local_run.typed(*arguments).returncode == 0, 60), command  # noqa: B023


def test_a_failed_export_leaves_the_existing_file(local_run: LocalRun, tmp_path: Path) -> None:
    """The file of that name is unchanged, and no part is left beside it."""
    file = tmp_path / "events.ndjson"
    file.write_text("what was there")
    done = local_run.typed("events", "nobody", "--output", str(file))
    assert (done.returncode, file.read_text(), list(tmp_path.iterdir())) == (4, "what was there", [file])
    done = local_run.typed("events", "demo", "--format", "parquet")
    assert (done.returncode, "needs --output FILE" in done.stderr) == (2, True)


class Interrupting(io.StringIO):
    """A terminal at which Ctrl-C is pressed in the middle of a line."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._left = lines

    def write(self, text: str) -> int:
        """Writes the text, and then sends the signal."""
        written = super().write(text)
        self._left -= text.count("\n")
        if not self._left:
            signal.raise_signal(signal.SIGINT)
        return written


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Restores Python's handler, because a shell makes background programs ignore the signal."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def test_follow_continues_after_the_last_printed_event(
    local_run: LocalRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C exits with 130 and prints how to continue after the last printed event; none is missing.

    An event is both printed and remembered, or neither.
    """
    local_run.typed("start", "demo:follow")
    assert until(lambda: local_run.ask("GET", "demo:follow")[0] == 200, 30)  # its execution has claimed it
    keys: list[str] = []
    arguments = ["follow", "demo:follow", "--all", "--json"]
    for lines in (15, 5):
        with interruptible(), contextlib.redirect_stdout(Interrupting(lines)) as terminal:
            monkeypatch.setenv("PORT", str(local_run.port))
            assert cli.main(arguments) == 130
        events = [json.loads(line) for line in terminal.getvalue().splitlines()]
        keys += [event["key"] for event in events]
        place = max(event["position"] for event in events)
        assert f"continue with `streamkeeper follow demo:follow --after {place}`" in capsys.readouterr().err
        arguments = ["follow", "demo:follow", "--after", place, "--json"]
    numbers = [int(key) for key in keys]
    assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))
    local_run.typed("stop", "demo:follow")


def test_an_event_stream_goes_on_where_it_was_cut(local_run: LocalRun) -> None:
    """A client that is cut off after any number of messages returns with the last id: each event comes once, in order.

    The answer stays open: events that are stored later arrive on the same connection.
    """
    local_run.typed("start", "demo:tail")
    assert until(lambda: local_run.ask("GET", "demo:tail")[1].get("counts", {"stored": 0})["stored"] >= 5, 30)
    source = EventSource(f"http://127.0.0.1:{local_run.port}/connections/demo:tail/events?limit=4")
    seen: list[str] = []
    for count in CUTS:
        messages = source.connect()
        seen += [json.loads(next(messages))["position"] for _ in range(count)]
        assert (source.last_id, source.retry_ms) == (seen[-1], 3000)
        messages.close()
    local_run.typed("stop", "demo:tail")
    assert until(lambda: local_run.ask("GET", "demo:tail")[1]["status"] == "stopped", 30)
    stored = local_run.events("demo:tail")
    again = EventSource(source.url).connect()
    assert [json.loads(next(again)) for _ in stored] == stored
    again.close()
    assert seen == [event["position"] for event in stored[: sum(CUTS)]]
    assert source.opened == len(CUTS)


@pytest.mark.parametrize(("times", "when"), [([], ""), (["--from", "2h", "--to", "1h"], " in that time")])
def test_a_repair_without_a_gap_says_for_which_time(
    times: list[str], when: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer names the requested time, because events may be missing outside of it."""
    with serving(answers({"stream": "demo", "is_dry_run": False, "gaps": []})) as server:
        assert cli.main(["repair", "demo", *times, "--url", server.address]) == 0
    assert capsys.readouterr().out == f"demo has no gap{when} in which events may be missing\n"


def test_gaps_that_begin_at_one_instant_are_repaired_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pause after a connection and an announced loss begin at one instant; no earlier gap is read meanwhile.

    A third gap is closed by a connection meanwhile, without a repair.
    """
    monkeypatch.setattr("time.sleep", lambda _: None)
    when = {"from_at": "2026-11-28T00:00:00.000Z", "to_at": "2026-11-28T00:00:09.000Z"}
    repair = {"repair": {"stored": 2, "tries": 1, "reason": None, "next_at": None}}
    pause, loss = (when | {"cause": cause, "state": "repaired"} | repair for cause in ("reset", "announced"))
    brought = when | {"cause": "expired", "state": "delivered"}
    shown = [pause, loss | {"state": "open"}, brought], [pause, loss, brought]
    pages = [{"stream": "demo", "gaps": gaps, "next": None} for gaps in shown]
    with serving(answers({"stream": "demo", "gaps": [when] * 3}), *map(answers, pages)) as server:
        assert cli.main(["repair", "demo", "--url", server.address]) == 0
        assert asked(server)[1:] == ["GET /connections/demo/gaps?from=2026-11-28T00%3A00%3A00.000Z&limit=1000"] * 2
    assert "4 events fetched, 0 gaps still open" in capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_offers_every_verb_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The completion is made from the parsers themselves; if the shell is installed, it accepts the script."""
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for verb in cli.VERBS:
        assert verb in script
    for option in ("output", "parquet", "after", "from"):
        assert option in script
    if shutil.which(shell) is not None:
        checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_verbs_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    """bash completes `streamkeeper fol<Tab>` and `streamkeeper events --form<Tab>`."""
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for typed_so_far, wanted in (
        (["streamkeeper", "fol"], "follow"),
        (["streamkeeper", "events", "--form"], "--format"),
    ):
        words = " ".join(typed_so_far)
        asks = f"COMP_WORDS=({words}); COMP_CWORD={len(typed_so_far) - 1}; _shtab_streamkeeper; echo ${{COMPREPLY[@]}}"
        ran = subprocess.run(["bash", "-c", f"{script}\n{asks}"], capture_output=True, text=True, check=False)
        assert ran.stdout.split() == [wanted], ran.stderr
