"""Each benchmark runs briefly: it measures what it says, and loses no event. Its speed is left to its goals."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench import coldstart, flood, handover, ingest, interpreter, memory, watch
from bench.delivery import SINKS
from bench.upstreams import FRAMES
from handlers.store.control_table import KEYS
from handlers.watching.lease_rounds import AT_ONCE
from local.checkout import ROOT
from local.costs import stage_costs
from tests.local.support import until

pytestmark = pytest.mark.long
BENCHES = sorted(
    path.stem for path in Path(handover.__file__).parent.glob("*.py") if "def main(argv" in path.read_text("utf-8")
)
Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a benchmark by its command line and return its JSON; the exit status must be 0."""

    def ran(line: str) -> dict[str, Any]:
        name, *options = line.split()
        status = import_module(f"bench.{name}").main(["--json", *options])
        figures: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert status == 0, figures.get("goals")
        return figures

    return ran


@pytest.mark.parametrize("name", BENCHES)
def test_each_benchmark_says_how_it_is_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each benchmark's help has its own name, and `--json` among its options."""
    with pytest.raises(SystemExit) as ended:
        import_module(f"bench.{name}").main(["--help"])
    said = capsys.readouterr().out
    assert (ended.value.code, said.startswith(f"usage: python -m bench.{name} "), "--json" in said) == (0, True, True)


def test_a_slow_store_costs_no_memory_and_no_event(run: Run) -> None:
    """18 MB wait for an endpoint that throttles: all are stored, in hardly more memory than without the wait."""
    figures = run("ingest --events 6000 --event-bytes 3000 --items-per-s 4000")
    fast, slow = figures["rows"]
    assert (fast["events"], slow["events"], slow["items_per_s"]) == (6_000, 6_000, 4_000)
    assert slow["max_rss_mb"] < figures["goal_mb"] == ingest.GOAL_MB == 128
    # The queue holds a megabyte, a read and a batch one more in all; without a bound it would be 18.
    assert slow["max_rss_mb"] < fast["max_rss_mb"] + 8


def test_ingestion_reports_what_each_kind_used(run: Run) -> None:
    """The benchmark runs each kind once at a small size; a kind that has not stored every event fails."""
    printed = run("ingest --events 2000 --times 1 --event-bytes 200")
    (row,) = printed["rows"]
    assert printed["goal"]["log_share"] < printed["goal"]["below"] == 0.5
    assert row["event_bytes"] == 200
    assert row["ratio"] == round(row["peer_us"] / row["ours_us"], 1)
    assert row["floors"] == round(row["ours_us"] / row["floor_us"], 2)
    assert row["log_share"] == round(row["log_us"] / row["ours_us"], 2)
    assert row["socket_share"] == round(row["socket_us"] / row["paths_us"], 2)
    assert min(row[f"{kind}_us"] for kind in ingest.KINDS) > 0
    assert set(row["events_per_s"]) == set(ingest.KINDS)


def test_a_cold_start_is_measured_beside_the_peers(run: Run) -> None:
    """Two starts of each are made; the figure is the interpreter's own CPU and more."""
    figures = run("coldstart --times 1 --uncompiled-times 0")
    (row,) = figures["rows"]
    assert row["ratio"] == round(row["peer_ms"] / row["ours_ms"], 2)
    assert 0 < row["bare_ms"] < min(row["ours_ms"], row["peer_ms"])
    assert figures["goal_ms"] == coldstart.GOAL_MS == 130


@pytest.mark.parametrize("framing", sorted(FRAMES))
def test_a_function_of_128_mb_suffices(framing: str, run: Run) -> None:
    """As many events as TLS carries, and large ones up to the bound, are stored in less than 90 MB, in both stores."""
    figures = run(f"memory --framing {framing} --seconds 2 --large 2")
    assert [row["store"] for row in figures["rows"]][:2] == ["items", "log"]
    assert min(row["events"] for row in figures["rows"]) > 1_000
    assert figures["most_mb"] < figures["goal_mb"] == 90


def test_a_function_of_128_mb_suffices_for_a_hundred_streams(run: Run) -> None:
    """Over TLS: calm ones, floods, events of 1 MB, and endless ones of 1 and 10 MB, all at once."""
    figures = run("memory --streams 100 --framing ndjson --store items --seconds 12")
    assert len(figures["rows"]) == len(memory.GROUP_KINDS)
    assert figures["most_mb"] < figures["goal_mb"] == 110


def test_a_benchmark_above_its_goal_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the memory exceeds the goal, the exit status is 1 and the last line names the goal."""
    monkeypatch.setattr(memory, "GOAL_MB", 10)
    options = ["--framing", "raw", "--store", "items", "--seconds", "0.2", "--large", "1"]
    assert memory.main(options) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("missed  a function: below 10 MB: ")


def test_calm_streams_are_stored_in_time_beside_each_fault(run: Run) -> None:
    """99 calm streams beside one that floods, sends 10 MB events, drips, stalls, lies, ends or refuses: a second, p99.

    The stream that floods stores its events meanwhile, and so does the one with large events.
    """
    rows = {row["fault"]: row for row in run("flood --seconds 6")["rows"]}
    assert [*rows] == ["none", *flood.FAULTS]
    assert rows["flood"]["stored"] > 1_000
    assert rows["large"]["stored"] >= 1


def test_both_machines_are_measured_in_one_run(run: Run) -> None:
    """Each stream has a row; no event is lost, and each stream is handed over and dropped."""
    report = run("handover --seconds 12")
    rows = report["rows"]
    assert [(row["machine"], row["policy"]) for row in rows] == [(row.machine, row.policy) for row in handover.STREAMS]
    for row in rows:
        assert (row["lost"], row["stored"] > 0, row["duplicates"] >= 0) == (0, True, True), row
        assert all(row[kind]["count"] for kind in ("handover", "drop", "connect")), row
    assert [goal["met"] for goal in report["goals"] if goal["goal"] == "no event lost"] == [True] * 5


def test_the_capacity_run_measures_every_column(run: Run) -> None:
    """Each stream is handed over, and every column is measured."""
    rows = run("capacity --first 1 --step 1 --most 2 --seconds 9 --stage test")["rows"]
    assert all(min(row["handovers"], row["cores"], row["stream_mb"]) > 0 for row in rows)
    assert len(rows) == (2 if rows[0]["holds"] else 1)


def test_four_streams_are_kept_by_two_functions(run: Run) -> None:
    """Real functions hand over, and each event is stored once."""
    report = run("fleet --streams 4 --per-function 2 --seconds 40 --every 2 --function-s 90")
    assert (report["functions"], report["lost"], report["strange"], report["twice"]) == (2, 0, 0, 0)
    assert report["sent"] > 0
    assert report["requests"]["UpdateItem"] > 0


def test_ctrl_c_leaves_nothing_of_a_fleet() -> None:
    """After Ctrl-C no process of the fleet is left; one line says so, and the status is 130."""
    command = [sys.executable, "-m", "bench.fleet", "--streams", "2", "--per-function", "2", "--every", "7.25"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as fleet:
        assert fleet.stderr is not None
        seen = [fleet.stderr.readline()]
        fleet.send_signal(signal.SIGINT)
        seen += fleet.stderr.readlines()
    assert (fleet.returncode, seen[-1]) == (130, "bench.fleet: ended before the figures were known; nothing is left\n")
    commands = ["ps", "-eo", "args"]
    assert until(
        lambda: "fleet_peers 2 7.25" not in subprocess.run(commands, capture_output=True, text=True).stdout, 15
    )


def test_a_hundred_thousand_streams_are_watched(capsys: pytest.CaptureFixture[str]) -> None:
    """The requests and read units of one check are counted: half a unit for a held stream, almost none for another."""
    watch.main(["--json", "--streams", "2000", "--held", "500", "--sample", "200"])
    figures = json.loads(capsys.readouterr().out)
    check, page, plain = figures["check"], figures["page"], figures["plain"]
    assert check["requests"] == figures["away"]["requests"] == {"query": 1, "batch_get_item": 5}
    assert 250 < check["read_units"] < 250 + 2000 / 40
    # The leases in one request, the newest connections of twenty streams in each of five.
    assert page["requests"] == {"query": 101, "batch_get_item": 6}
    assert (plain["requests"], plain["read_units"]) == ({"get_item": 200}, 200.0)
    assert (figures["timeout_s"], figures["check_s"], figures["memory_mb"]) == (55, 30, 1024)
    # Half a minute is enough for the requests alone, whatever processor there is.
    assert figures["check_s"] * 1000 > 100_000 / KEYS / AT_ONCE * watch.BATCH_MS


def test_the_figures_of_a_delivery_are_printed() -> None:
    """The printed figures have the names of local/costs/measured.toml, and each sink has a ceiling."""
    command = [sys.executable, "-m", "bench.delivery", "--calls", "3", "--backlog", "20", "--json"]
    figures = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert [one["sink"] for one in figures.pop("ceilings")] == list(SINKS)
    assert figures.keys() == {name for name in stage_costs.measurements() if name.startswith("delivery_cpu_")}


def test_each_interpreter_runs_the_same_loop_to_its_end() -> None:
    """Five rounds are eleven transitions for all three, each with its ratio to ours."""
    rows = [*interpreter.rows_of_ours((5,)), *interpreter.rows_of_npm((5,)), *interpreter.rows_of_moto((5,), 20)]
    assert [(row["interpreter"], row["transitions"], row["whole"]) for row in rows] == [
        (interpreter.OURS, 11, True), (interpreter.NPM, 11, True), (interpreter.MOTO, 11, True),
    ]  # fmt: skip
    assert interpreter.add_ratios(rows)[0]["ratio"] == 1.0
