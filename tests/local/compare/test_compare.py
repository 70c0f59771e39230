"""`streamkeeper compare`: the results of the strategies, under the same conditions for all."""

import contextlib
import io
import json
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local import stages
from local.cli import main
from local.compare import backoff_kinds, strategy_world
from local.compare import strategies_page as page
from local.compare.command import COLUMNS, MEASURED_MS, table_rows
from local.compare.strategies import MACHINES, STRATEGIES, Strategy, run_group
from local.costs import prices
from local.generated_pages import table
from local.simulation.scenario import read
from local.terminal import UserError
from tests.examples import examples
from tests.local.support import PROJECT

FIELDS = {"strategy", *(name for _, name, _ in COLUMNS)}
SHORT = ["--hours", "0.05", "--limit", "45", "--wait", "35"]
GROUP = "streamkeeper-group"
# The strategies that hand over from one function to the next.
STAGGERED = ("staggered", "streamkeeper", "self-invoke", "durable", "queue")
# A group of five instead of a hundred, if the number does not matter.
FEW = Strategy(GROUP, "", partial(run_group, GROUP, MACHINES / "connections.asl.yml", streams=5))


def run_compare(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, Any]]:
    """Returns what the command prints about each strategy, by name."""
    assert main(["compare", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    return {one["strategy"]: one for one in found["strategies"]}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The output of `--json` for all strategies in the measured experiment, and the page with their picture."""
    path, said = tmp_path_factory.mktemp("compared") / "out.html", io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["compare", "--json", "--lanes", *SHORT, "--picture", str(path)]) == 0
    return json.loads(said.getvalue()), path.read_text(encoding="utf-8")


def test_the_measured_experiment(measured: tuple[dict[str, Any], str]) -> None:
    """Under the measured latencies the retried Task has a gap of one to two seconds and a connect in each cycle, the
    joined pair one in each iteration, and the two branches none."""
    found = {one["strategy"]: one for one in measured[0]["strategies"]}
    lanes = {one["strategy"]: one for one in measured[0]["lanes"]}
    # As in the record, with which tests/timelines compares all of it.
    spans = [(span["lane"], span["kind"], span["from_ms"]) for span in lanes["staggered"]["spans"]]
    assert {("B", "task", 25), ("A", "wait", 144_974)} <= {*spans}
    assert lanes["staggered"]["gaps"] == []
    assert [set(one) for one in found.values()] == [FIELDS] * len(STRATEGIES)
    # 180 s are four whole cycles of 40 s: 1 s of back-off each, and the connects that were measured.
    assert (found["retry"]["gaps"], found["retry"]["gap_ms"]) == (4, 4 * 1000 + 1582 + 946 + 912 + 925)
    assert found["staggered-join"]["gaps"] == 2
    assert [found[name]["gaps"] for name in STAGGERED] == [0] * 5
    # A hundred streams open eight at a time, and each connect takes nearly a second: ten seconds are too short, and
    # the lane of each function that was relieved so late waits for less.
    assert found[GROUP]["gaps"] == 5
    assert (found[GROUP]["transitions"], found[GROUP]["connections"]) == (0.17, 6)
    assert dict(read(PROJECT / "tests" / "timelines" / "recorded.yml", "local").latencies_ms) == MEASURED_MS


def test_two_connections_overlap_where_that_is_tolerated(capsys: pytest.CaptureFixture[str]) -> None:
    """A strategy that hands over overlaps, and its duplicates are counted; one with a single lane never overlaps."""
    names = [f"--strategy={name}" for name in ("retry", *STAGGERED)]
    found = run_compare(capsys, *SHORT, "--upstream", "tolerates", "--overlap-s", "10", *names)
    assert found["retry"]["overlap_ms"] == found["retry"]["duplicates"] == 0
    assert all(found[name]["overlap_ms"] >= 7_000 for name in STAGGERED)
    assert all(found[name]["duplicates"] >= 7 for name in STAGGERED)


def test_a_function_whose_process_dies_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine calls another function at once; without a machine, Lambda waits a minute before it calls again."""
    faults = tmp_path / "kills.yml"
    faults.write_text("kills: [{at_ms: 60000}]")
    names = ["--strategy", "self-invoke", "--strategy", "streamkeeper"]
    found = run_compare(capsys, "--hours", "0.2", "--limit", "45", "--wait", "35", "--faults", str(faults), *names)
    # The third connect takes 946 ms.
    assert found["self-invoke"]["gap_ms"] == 60_000 + 946
    assert 0 < found["streamkeeper"]["gap_ms"] < 10_000


@settings(max_examples=examples(8))
@given(st.sampled_from(["calm", "rough"]), st.integers(0, 2**53), st.sampled_from(["evicts", "tolerates", "forbids"]))
def test_the_same_question_has_the_same_answer(kind: str, seed: int, policy: str) -> None:
    """Equal options give equal, plausible results: gaps fit into the run, and each lost event fell into a gap."""
    asked = page.scenario_of(["--hours", "0.15", "--faults", kind, "--seed", str(seed), "--upstream", policy])
    strategies = [FEW if one.name == GROUP else one for one in STRATEGIES]
    first, second = ([one.run(asked) for one in strategies] for _ in range(2))
    assert first == second
    for result in first:
        assert 0 <= result.gap_ms <= result.until_ms == asked.run_for_ms
        assert 0 <= result.connected_percent <= 100
        assert result.deliveries.lost <= result.gap_ms // 1000 + len(result.gaps)
        billed_ms = result.billed_ms * (5 if result.strategy == GROUP else 1)
        assert billed_ms >= result.until_ms - result.gap_ms - max(c.from_ms for c in result.connections[:1])


def test_the_picture_and_its_table(
    measured: tuple[dict[str, Any], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The picture names each strategy; the page has the table too, and loads nothing."""
    _, text = measured
    drawn = text[text.index("<svg") : text.index("</svg>") + len("</svg>")]
    labels = {node.text for node in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")}
    assert {one.name for one in STRATEGIES} <= labels
    assert text.count("<th scope=row>") == len(STRATEGIES)
    assert not any(word in text for word in ("<script", "src=", "href="))
    monkeypatch.setenv("COLUMNS", "120")  # a narrower terminal gets the table in two halves
    # Without --json the table is printed, and the picture alone is as good.
    assert main(["compare", *SHORT, "--strategy", "queue", "--picture", str(tmp_path / "out.svg")]) == 0
    assert ElementTree.parse(tmp_path / "out.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert capsys.readouterr().out.count("queue") == 1


def test_the_page_has_the_commands_results_for_cheap_runs() -> None:
    """Only cheap runs are repeated here: the back-off, and a rough day of one strategy."""
    text, question = ((PROJECT / page.PAGE).read_text(encoding="utf-8"), page.scenario_of(page.COMPARISONS["rough"]))
    memory_mb, listed = question.settings["memory_mb"], prices.read()
    day = [one.run(question).as_json(memory_mb, listed) for one in STRATEGIES if one.name == "retry"]
    for name, lines in (
        ("rough", page.page_columns(table_rows(day))),
        ("backoff", backoff_kinds.table_rows(backoff_kinds.simulate_all())),
    ):
        said = text[text.index(f"<!-- compare: {name} -->") :].partition("<!-- /compare -->")[0]
        assert [line for line in table(lines[0], lines[1:])[2:] if line not in said] == []


@pytest.mark.long
@pytest.mark.cpu(90)
def test_the_page_has_all_of_the_commands_results() -> None:
    """docs/strategies.md and its picture are as `python -m local.compare.strategies_page` writes them."""
    assert [path.name for path, text in page.page_files().items() if path.read_text(encoding="utf-8") != text] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hours", "0"], "--hours must be a number from 0.001 to 744, not '0'."),
        (["--limit", "1e3"], "--limit must be a whole number from 10 to 28800, not '1e3'."),
        (
            ["--limit", "5400", "--wait", "5390"],
            "--limit and --wait: wait_s + margin_s + lease_every_s must be less than function_timeout_s",
        ),
        (["--upstream", "kind"], "--upstream must be one of evicts, tolerates, forbids, not 'kind'."),
        (["--picture", "out.png"], "--picture must end in .svg or .html, not 'out.png'."),
        (["--picture", "no/out.svg"], "--picture no/out.svg cannot be written: there is no folder no."),
        (["--strategy", "hope"], f"--strategy must be one of {', '.join(one.name for one in STRATEGIES)}, not 'hope'."),
        (["--faults", "x" * 300], "--faults must be none, calm, rough, or a YAML file: there is none at xxx"),
        (["--margin", "0"], "--margin must be a whole number from 1 to 900, not '0'."),
        (["--lanes"], "--lanes works only with --json."),
    ],
)
def test_a_mistake_is_one_sentence(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the options gets one sentence and exit status 2, before anything runs."""
    assert main(["compare", "--strategy", "retry", *SHORT, *options]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"streamkeeper: {message}")
    assert said.err.count("\n") == 1


def test_the_first_service_whose_limit_is_long_enough_is_compared() -> None:
    """Each service names its limit's source and the day it was read; a stage allows 900 s at most nevertheless."""
    found = {limit_s: strategy_world.shortest_lifetime(limit_s) for limit_s in (10, 900, 901, 5400, 5401, 28_800)}
    names = ["Lambda", "Lambda Managed Instances", "Lambda MicroVMs"]
    assert [life.name for life in found.values()] == [one for one in names for _ in range(2)]
    assert all(life.sources and life.read_on for life in found.values())
    with pytest.raises(UserError, match=r"function_timeout_s must be a whole number from 1 to 900, not 901\.$"):
        stages.load("prod", {"function_timeout_s": 901})


def test_a_longer_limit_prints_its_gaps_and_cost_beside_lambdas(capsys: pytest.CaptureFixture[str]) -> None:
    """A retried Task has a gap at each end: in nine hours 36 with Lambda, six with 90 minutes, one with eight hours.

    A lone stream pays for three instances, or for a quarter of a vCPU and half a GB by the hour.
    """
    options = ["--hours", "9", "--strategy", "retry"]
    for limit, life, gaps, usd in (
        ("5400", "Lambda Managed Instances", 6, 3 * 0.0816 * 1.15 * 730),
        ("28800", "Lambda MicroVMs", 1, (0.25 * 0.0997 + 0.5 * 0.0132) * 730),
    ):
        assert main(["compare", "--json", "--limit", limit, *options]) == 0
        found = json.loads(capsys.readouterr().out)
        (now,), (was,) = found["strategies"], found["with_900_s"]
        assert (found["life"]["name"], now["gaps"], was["gaps"]) == (life, gaps, 36)
        assert now["usd_month"] == pytest.approx(usd, rel=0.001)
        assert main(["compare", "--limit", limit, *options]) == 0
        said = capsys.readouterr().out
        assert f"36 → {gaps}" in said
        assert f"{life} (read on " in said
    assert main(["compare", "--json", *options]) == 0
    assert {"life", "with_900_s"}.isdisjoint(json.loads(capsys.readouterr().out))


def test_an_unknown_field_of_the_faults_is_refused(tmp_path: Path) -> None:
    """Faults are written as in a replay; an unknown field is refused with status 2."""
    path = tmp_path / "faults.yml"
    for text in ("kills: [{at: 5}]", "upstream: {policy: forbids}", "drops: []"):
        path.write_text(text)
        assert main(["compare", *SHORT, "--faults", str(path)]) == 2


def test_the_margins_follow_from_the_length_of_the_functions_life() -> None:
    """Functions that live for minutes have the margins of prod, shorter ones those of a laptop."""
    margins = [page.scenario_of(["--hours", "0.01", "--limit", s, "--wait", "30"]).settings for s in ("45", "900")]
    assert [one["margin_s"] for one in margins] == [5, 20]
