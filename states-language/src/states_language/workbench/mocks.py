"""`mocks`: shows the test cases of a mock configuration of Step Functions Local, or runs them.

The exit status is 0, 1 if a test case does not fit the definition, 2 for a mistake of the user.
Invariant: it calls no service.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from states_language import Machine
from states_language.definition.pointers import states_of
from states_language.tasks.calls import Whole
from states_language.tasks.stubs import Behaviour, Mock, MockConfig, format_attempts
from states_language.values import compact, cut
from states_language.workbench import files
from states_language.workbench import run as runs
from states_language.workbench.files import Host, Mistake

LONGEST = 80
"""How many characters of a response or an output are printed."""


def add(subparsers: Any, _: Host) -> argparse.ArgumentParser:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "mocks",
        help="show the test cases of a MockConfigFile.json, or run them",
        description="Shows the test cases of Step Functions Local's MockConfigFile.json, or runs each on a definition.",
        epilog="Exit status: 0 every test case was shown or ran, 1 one does not fit the definition, 2 a file cannot be "
        "read. A state without a response returns its input if it calls a function, otherwise {}.",
    )
    parser.add_argument("config", metavar="CONFIG", help="the mock configuration")
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="the definition to run (without it: show the cases)"
    )
    parser.add_argument("--of", metavar="NAME", help="the machine's name in CONFIG, if it has several")
    parser.add_argument("--input", default="{}", metavar="JSON", help="the input, or @FILE that holds it ({})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the test cases, or their results, and return the exit status."""
    config = files.read_mock_config(args.config, lambda config: config)
    if args.file is None:
        found = config.cases if args.of is None else {args.of: config.cases[_machine_name(config, args.of)]}
        print(json.dumps(_as_json(found), indent=1) if args.json else "\n".join(_case_lines(found)))
        return 0
    name, machine, data = (
        _machine_name(config, args.of),
        files.load_machine(args.file, args),
        runs.read_input(args.input),
    )
    results = {case: _run_case(machine, data, states, args.host) for case, states in config.cases[name].items()}
    if args.json:
        print(json.dumps(results, ensure_ascii=False, indent=1))
    else:
        for case, result in results.items():
            print(f"{case}: " + _result_text(result), file=sys.stderr if "problem" in result else sys.stdout)
    return int(any("problem" in result for result in results.values()))


def _machine_name(config: MockConfig, name: str | None) -> str:
    if name is None and len(config.cases) == 1:
        return next(iter(config.cases))
    if name is None or name not in config.cases:
        raise Mistake(f"--of names one of the machines of the mock configuration: {', '.join(config.cases) or 'none'}.")
    return name


def _run_case(machine: Machine, data: Any, states: Mapping[str, Mock], host: Host) -> dict[str, Any]:
    """Return the execution's result with the responses of a test case, or the problem of the test case."""
    there = {path[-1] for path, _ in states_of(machine.definition)}
    for state in states:
        if state not in there:
            return {"problem": f"the definition has no state '{state}'"}
    try:
        execution = runs.run_virtually(machine, data, states, host)
    except Mistake as problem:
        return {"problem": str(problem)}
    result: dict[str, Any] = {"status": execution.status, "path": execution.path}
    if execution.status == "SUCCEEDED":
        return {**result, "output": execution.output}
    return {**result, "error": execution.error, "cause": execution.cause}


def _result_text(result: Mapping[str, Any]) -> str:
    if "problem" in result:
        return str(result["problem"])
    end = cut(compact(result["output"]), LONGEST) if "output" in result else f"{result['error']}: {result['cause']}"
    return f"{result['status']} by {' → '.join(result['path'])} with {end}"


def _case_lines(found: Mapping[str, Mapping[str, Mapping[str, Mock]]]) -> Iterator[str]:
    for machine, cases in found.items():
        for case, states in cases.items():
            yield f"{machine}#{case}"
            for state, mock in states.items():
                for attempts, behaviour in mock.attempts.items():
                    response = cut(compact(_response(behaviour)), LONGEST)
                    yield f"  {state}, attempt {format_attempts(attempts)}: {response}  ({mock.name})"


def _as_json(found: Mapping[str, Mapping[str, Mapping[str, Mock]]]) -> dict[str, Any]:
    return {
        f"{machine}#{case}": {
            state: {format_attempts(attempts): _response(behaviour) for attempts, behaviour in mock.attempts.items()}
            for state, mock in states.items()
        }
        for machine, cases in found.items()
        for case, states in cases.items()
    }


def _response(behaviour: Behaviour) -> Any:
    if behaviour.error is not None:
        return {"Throw": {"Error": behaviour.error, "Cause": behaviour.cause}}
    return {"Return": behaviour.answer.value if isinstance(behaviour.answer, Whole) else behaviour.answer}
