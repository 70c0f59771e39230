"""`check`: prints the problems of definitions on standard error, and everything else on standard output.

The exit status is 0 if every file loads, 1 if one does not (or, with --strict, has a warning), 2 if one cannot be read.
Invariant: every file gets its report, whatever is wrong with the files before it.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from states_language import DefinitionError, problems, warnings
from states_language.definition.hints import hint
from states_language.workbench import files
from states_language.workbench.files import Host, Mistake

Report = dict[str, Any]
"""What --json prints of a file: its problems and warnings; `unreadable` is the error if it cannot be read."""


def examine(path: Path, args: argparse.Namespace) -> Report:
    try:
        definition = files.read_definition_file(path, args)
    except Mistake as problem:
        return {"file": str(path), "unreadable": str(problem), "problems": [], "warnings": []}
    except DefinitionError as problem:
        return {"file": str(path), "problems": [_describe_problem({}, problem)], "warnings": []}
    broken = [_describe_problem(definition, one) for one in problems(definition)]
    advised = [] if broken else [asdict(one) for one in warnings(definition)]
    return {"file": str(path), "problems": broken, "warnings": advised}


def _describe_problem(definition: dict[str, Any], problem: DefinitionError) -> dict[str, str]:
    """Return one problem; its `pointer` is / for the whole definition."""
    return {"pointer": problem.pointer, "rule": problem.rule, "hint": hint(definition, problem)}


def add(subparsers: Any, _: Host) -> argparse.ArgumentParser:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="list every problem of definitions, and practices worth a warning",
        description="Lists every problem of definitions in YAML or JSON: the JSON pointer, the rule and a hint.",
        epilog="Exit status: 0 no problem, 1 problems (with --strict warnings too), 2 a file cannot be read.",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a definition in YAML or JSON")
    parser.add_argument("--strict", action="store_true", help="treat a warning as a problem")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the reports and return the exit status."""
    reports = [examine(path, args) for path in args.files]
    if args.json:
        print(json.dumps({"files": reports}, ensure_ascii=False, indent=1))
    else:
        for report in reports:
            print(
                "\n".join(_report_lines(report)),
                file=sys.stderr if "unreadable" in report or report["problems"] else sys.stdout,
            )
    if any("unreadable" in report for report in reports):
        return 2
    return int(any(report["problems"] or (args.strict and report["warnings"]) for report in reports))


def _report_lines(report: Report) -> list[str]:
    if "unreadable" in report:
        return [report["unreadable"]]
    counts = [(len(report["problems"]), "problem"), (len(report["warnings"]), "warning")]
    said = ", ".join(files.count_noun(*count) for count in counts if count[0])
    lines = [f"{report['file']}: {said or 'good'}"]
    for one in report["problems"]:
        lines += [f"  problem at {one['pointer']}", f"    {one['rule']}", f"    {one['hint']}"]
    for one in report["warnings"]:
        lines += [f"  warning ({one['practice']}) at {one['pointer']}", f"    {one['says']}", f"    {one['hint']}"]
    return lines
