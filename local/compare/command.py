"""The verb `compare`: compares ways to keep a stream connected, in a table and in a picture.

Invariant: all strategies have the same settings, latencies, upstream and faults.
"""

import argparse
import json
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import Any, cast

from handlers.api.verdict import plural
from local import garbage_collection, stages, terminal
from local.compare import backoff_kinds, checkpoints, strategy_world
from local.compare.strategies import STRATEGIES, Strategy
from local.compare.strategy_world import StrategyResult
from local.costs import prices
from local.costs.prices import Prices
from local.history.pictures import check_path, write_picture
from local.simulation.scenario import POLICIES, Policy, Scenario, Upstream
from timeline import svg

INSTALL = "`pip install --no-deps aws-durable-execution-sdk-python aws-durable-execution-sdk-python-testing`"
WHAT = ("strategies", "backoff", "checkpoints")
HOURS, MOST_HOURS = 24.0, 24.0 * 31
LIMIT_S, WAIT_S, LONG_S, MOST_S = 900, 840, 300, 28_800
# Measured on AWS, in milliseconds (tests/timelines/recorded.json).
MEASURED_MS = {
    "start": (25,),
    "wait_overshoot": (55, 64, 60, 62),
    "wait_to_task": (56, 63, 165, 59),
    "connect": (0, 1582, 946, 912, 925),
}
COLUMNS = (
    ("connected", "connected_percent", "{:.4f} %"),
    ("gaps", "gaps", "{:,}"),
    ("gap s", "gap_ms", "{:,.1f}"),
    ("overlap s", "overlap_ms", "{:,.1f}"),
    ("lost", "lost", "{:,}"),
    ("twice", "duplicates", "{:,}"),
    ("connections", "connections", "{:,}"),
    ("transitions", "transitions", "{:,}"),
    ("$ a month", "usd_month", "{:,.2f}"),
)


def add(subparsers: Any) -> None:
    """Adds the verb and its options."""
    parser = subparsers.add_parser(
        "compare",
        formatter_class=terminal.WrappedHelp,
        description="Runs ways to keep a stream connected in virtual time, each with the same connection manager,\n"
        "upstream and faults. Shows how much of the time they cover, what they lose and what they cost.",
        epilog="strategies:\n" + "".join(f"  {one.name:<20}{one.description}\n" for one in STRATEGIES) + "\nexamples:\n"
        "  streamkeeper compare --faults rough --picture compare.html\n"
        "  streamkeeper compare --limit 45 --wait 35 --hours 0.05    the experiment that was measured on AWS\n"
        "  streamkeeper compare --limit 5400    what functions of 90 minutes would change",
    )
    parser.add_argument(
        "--what",
        default=WHAT[0],
        metavar="W",
        help="strategies; backoff: a thousand streams after an outage; checkpoints: their cost, durable or by hand",
    )
    parser.add_argument("--hours", default=f"{HOURS:g}", metavar="H", help=f"how long, in virtual time ({HOURS:g})")
    parser.add_argument(
        "--faults",
        default="none",
        metavar="KIND",
        help="none, calm, rough, or a YAML file: docs/strategies.md shows one",
    )
    limits = f"the functions' limit ({LIMIT_S}); up to 5400 for Managed Instances, {MOST_S} for MicroVMs"
    parser.add_argument("--limit", default=str(LIMIT_S), metavar="S", help=limits)
    waits = f"how long a lane waits ({WAIT_S}; if --limit is longer, {LIMIT_S - WAIT_S} less than that)"
    parser.add_argument("--wait", metavar="S", help=waits)
    margins = "how long before its limit a function leaves (20; 5 if --limit is under 300)"
    parser.add_argument("--margin", metavar="S", help=margins)
    parser.add_argument("--upstream", default="evicts", metavar="POLICY", help=f"{', '.join(POLICIES)} (evicts)")
    parser.add_argument(
        "--overlap-s",
        default="2",
        metavar="S",
        help="if the upstream tolerates two connections, how long both read (2)",
    )
    parser.add_argument("--resumes", action="store_true", help="the upstream resends what was missed since the cursor")
    parser.add_argument("--seed", default="0", metavar="N", help="seed of the faults and of the jitter (0)")
    parser.add_argument("--strategy", action="append", metavar="NAME", help="only this one; repeatable")
    parser.add_argument("--picture", type=Path, metavar="OUT", help="write the picture to OUT.svg or OUT.html")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lanes", action="store_true", help="with --json: what each lane did, to the millisecond")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 once the answer is printed; raises UserError if it cannot run."""
    if terminal.read_choice("--what", arguments.what, WHAT) == "checkpoints":
        listed = prices.read()
        if arguments.json:
            print(json.dumps(checkpoints.as_json(listed), indent=1))
        else:
            for line in checkpoints.checkpoints_text(listed).split("\n"):
                terminal.print_line(line, 8)
        return 0
    return _backoff(arguments) if arguments.what == "backoff" else _strategies(arguments)


def _backoff(arguments: argparse.Namespace) -> int:
    path, seed = check_path(arguments.picture), terminal.whole_number("--seed", arguments.seed, 0, 2**53)
    with terminal.report_if_slow("running the outage in virtual time …"):
        found = backoff_kinds.simulate_all(seed)
    lines = backoff_kinds.table_rows(found)
    if path is not None:
        write_picture(path, backoff_kinds.draw_picture(found), backoff_kinds.heading(), _html_table(lines))
    columns = terminal.terminal_columns(sys.stdout, terminal.NO_TERMINAL_COLUMNS)
    shown = "\n".join([*textwrap.wrap(backoff_kinds.heading(), columns), "", *terminal.align_table(lines, columns)])
    print(json.dumps(backoff_kinds.as_json(found)) if arguments.json else shown)
    return 0


def _strategies(arguments: argparse.Namespace) -> int:
    if arguments.lanes and not arguments.json:
        raise terminal.UserError("--lanes works only with --json.")
    path, source, plain = check_path(arguments.picture), read_scenario(arguments), prices.read()
    chosen, title = _choose_strategies(arguments.strategy), heading(source, arguments.faults)
    memory_mb, life = (
        source.settings["memory_mb"],
        strategy_world.shortest_lifetime(source.settings["function_timeout_s"]),
    )
    listed = life.replace_prices(plain, memory_mb)
    results = [life.add_instances(result, plain) for result in _run_strategies(chosen, source)]
    found = [one.as_json(memory_mb, listed) for one in results]
    # If functions live longer: the results with today's.
    before: list[dict[str, Any]] = []
    if life.most_s > LIMIT_S:
        usual = read_scenario(argparse.Namespace(**{**vars(arguments), "limit": str(LIMIT_S), "wait": None}))
        before = [result.as_json(memory_mb, plain) for result in _run_strategies(chosen, usual)]
    if path is not None:
        groups = [picture_group(result, listed, memory_mb) for result in results]
        write_picture(path, svg.draw(groups, source.run_for_ms, title), title, _html_table(table_rows(found)))
    if arguments.json:
        lanes = {"lanes": [result.lanes() for result in results]} if arguments.lanes else {}
        longer = {"life": life.as_json(), "with_900_s": before} if before else {}
        print(json.dumps({**as_json(source, arguments.faults, found), **longer, **lanes}, indent=1))
        return 0
    columns = terminal.terminal_columns(sys.stdout, terminal.NO_TERMINAL_COLUMNS)
    shown = [*textwrap.wrap(title, columns), "", *terminal.align_table(table_rows(found), columns)]
    if before:
        shown += ["", f"with functions of {svg.duration(LIMIT_S)} → with these:", ""]
        shown += [*terminal.align_table(strategy_world.table_of_changes(found, before), columns), ""]
        shown += [line for note in life.notes() for line in textwrap.wrap(note, columns)]
    print(terminal.encodable_picture(sys.stdout.encoding, "\n".join(shown)))
    return 0


def _run_strategies(chosen: list[Strategy], source: Scenario) -> list[StrategyResult]:
    results, life = [], svg.duration(source.settings["function_timeout_s"])
    with garbage_collection.no_garbage_collection():
        for at, strategy in enumerate(chosen, 1):
            of = f"{at} of {len(chosen)} with functions of {life}"
            print(f"streamkeeper: running {strategy.name} ({of}) …", file=sys.stderr, flush=True)
            results.append(strategy.run(source))
    return results


def _choose_strategies(names: list[str] | None) -> list[Strategy]:
    """The strategies to run, in order: the named ones, or all that can run here."""
    for name in names or []:
        terminal.read_choice("--strategy", name, [one.name for one in STRATEGIES])
    chosen = [one for one in STRATEGIES if not names or one.name in names]
    for one in chosen:
        if one.missing_package:
            lacks = f"{one.name} needs the package {one.missing_package.replace('_', '-')}; {INSTALL} installs it"
            if names:
                raise terminal.UserError(f"--strategy: {lacks}.")
            print(f"streamkeeper: one strategy is left out: {lacks}.", file=sys.stderr)
    return [one for one in chosen if not one.missing_package]


def read_scenario(arguments: argparse.Namespace) -> Scenario:
    """Returns the scenario of all strategies; raises a UserError that names the option."""
    hours = terminal.read_number("--hours", arguments.hours, 0.001, MOST_HOURS)
    limit_s = terminal.whole_number("--limit", arguments.limit, 10, MOST_S)
    usual_s = max(WAIT_S, limit_s - (LIMIT_S - WAIT_S))
    wait_s = usual_s if arguments.wait is None else terminal.whole_number("--wait", arguments.wait, 1, MOST_S)
    upstream = Upstream(
        policy=cast(Policy, terminal.read_choice("--upstream", arguments.upstream, POLICIES)),
        overlap_s=terminal.read_number("--overlap-s", arguments.overlap_s, 0, 300),
        resumes=arguments.resumes,
    )
    # Margins and back-offs are in proportion to the limit, as in the stages.
    base = stages.load("prod" if limit_s >= LONG_S else "local")
    settings = {name: value for name, value in base.items() if name not in stages.DERIVED}
    settings |= {"function_timeout_s": limit_s, "wait_s": wait_s}
    if arguments.margin is not None:
        settings["margin_s"] = terminal.whole_number("--margin", arguments.margin, 1, 900)
    source = Scenario(
        machine=stages.ROOT / "statemachines" / "connections.asl.yml",
        settings=stages.complete(settings, "--limit and --wait", MOST_S),
        run_for_ms=round(hours * 3_600_000),
        latencies_ms=MEASURED_MS,
        upstream=upstream,
        seed=terminal.whole_number("--seed", arguments.seed, 0, 2**53),
    )
    return strategy_world.with_faults(source, arguments.faults)


def heading(source: Scenario, faults: str) -> str:
    """Returns a line that says what is compared."""
    settings, upstream = source.settings, source.upstream
    named = "no faults" if faults == "none" else f"faults: {faults}"
    seconds = (source.run_for_ms / 1000, settings["function_timeout_s"], settings["wait_s"])
    length, limit, wait = map(svg.duration, seconds)
    policy = f"an upstream that {upstream.policy} a second connection"
    return f"{length}, functions of {limit}, waits of {wait}, {policy}, {named}"


def picture_group(result: StrategyResult, listed: Prices, memory_mb: int) -> svg.Group:
    """Returns the strategy's rows of the picture."""
    note = (
        f"{result.connected_percent:.4f} % connected\n{plural(len(result.gaps), 'gap')}, "
        f"{result.gap_ms / 1000:,.1f} s\n{result.usd_month(memory_mb, listed):.2f} $ a month"
    )
    return svg.Group(result.strategy, note, result.spans, result.connections, result.gaps)


def as_json(source: Scenario, faults: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the object that `--json` prints."""
    settings, upstream = source.settings, source.upstream
    return {
        "hours": source.run_for_ms / 3_600_000,
        "limit_s": settings["function_timeout_s"],
        "wait_s": settings["wait_s"],
        "upstream": upstream.policy,
        "faults": faults,
        "seed": source.seed,
        "strategies": results,
    }


def table_rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """Returns the table: its header, and a row for each strategy."""
    lines = [["strategy", *(title for title, _, _ in COLUMNS)]]
    for one in results:
        shown = {**one, "gap_ms": one["gap_ms"] / 1000, "overlap_ms": one["overlap_ms"] / 1000}
        lines.append([one["strategy"], *(form.format(shown[name]) for _, name, form in COLUMNS)])
    return lines


def _html_table(lines: list[list[str]]) -> str:
    head = "".join(f"<th scope=col>{escape(title)}</th>" for title in lines[0])
    body = (
        f"<tr><th scope=row>{escape(line[0])}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in line[1:]) + "</tr>"
        for line in lines[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
