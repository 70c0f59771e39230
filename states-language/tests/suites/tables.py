# ruff: noqa: E402  # a script, which imports the modules beside it
"""Runs the suites of others on this interpreter, and prints what differs with its reason: the tables of the docs.

    python tests/suites/tables.py jsonata CHECKOUT          # jsonata-js/jsonata
    python tests/suites/tables.py asl-validator CHECKOUT    # ChristopheBougere/asl-validator
    python tests/suites/tables.py aws-local CHECKOUT        # nibble-4bits/aws-local-stepfunctions, after `npm ci`
    python tests/suites/tables.py statelint CHECKOUT        # awslabs/statelint
    python tests/suites/tables.py jayway CHECKOUT           # json-path/JsonPath
    python tests/suites/tables.py moto CHECKOUT             # getmoto/moto, or its source distribution

CHECKOUT is a folder of yours; nothing is fetched, and nothing of it is in this package. Exit status 1: something
differs that REASONS does not name.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent / "testing")]

from states_language import load, problems
from states_language.definition.fields import DefinitionError
from states_language.jsonata.bounds import FULL_LIMITS, Exceeded
from states_language.jsonata.engine import Jsonata, begin_evaluation
from states_language.jsonata.functions import functions_frame
from states_language.jsonata.library import Utils
from states_language.jsonata.numbers import Unsupported, from_library, to_library
from states_language.jsonata.patterns import compile_pattern
from states_language.jsonata.syntax import coded_message, error_text, nodes
from states_language.jsonpath.grammar import compile_path
from states_language.values import is_equal, join_surrogates
from suites.reasons import REASONS


class Result(NamedTuple):
    """The result of one case: its name and its difference, which is "" if there is none."""

    name: str
    difference: str = ""


# ---- JSONata's own suite: test/test-suite ----


def jsonata(checkout: Path) -> Iterator[Result]:
    """Yield each case: its result, undefined or error code is compared."""
    folder = checkout / "test" / "test-suite"
    datasets = {file.stem: json.loads(file.read_text("utf-8")) for file in (folder / "datasets").glob("*.json")}
    for file in sorted((folder / "groups").rglob("*.json")):
        read = json.loads(file.read_text("utf-8"))
        for at, case in enumerate(read if isinstance(read, list) else [read]):
            number = f"[{at}]" if isinstance(read, list) else ""
            if "expr-file" in case:
                case["expr"] = (file.parent / case["expr-file"]).read_text("utf-8")
            data = case["data"] if "data" in case else datasets.get(case.get("dataset"), ABSENT)
            yield Result(f"{file.parent.name}/{file.stem}{number}", _jsonata_difference(case, data))


ABSENT = object()


def _jsonata_difference(case: dict[str, Any], data: Any) -> str:
    wanted = case.get("code") or (case.get("error") or {}).get("code")
    try:
        found = _evaluate(case["expr"], data, case.get("bindings", {}))
    except Exception as problem:
        # The suite's own harness gives U1001 for an expression that nests too deeply or takes too long.
        code = "U1001" if isinstance(problem, Exceeded) else (coded_message(problem) or str(problem)).partition(":")[0]
        return "" if wanted == code else f"{code} instead of {wanted or _to_text(case.get('result', ABSENT))}"
    if wanted:
        return f"{_to_text(found)} instead of {wanted}"
    expected = ABSENT if case.get("undefinedResult") else case.get("result", ABSENT)
    if case.get("unordered") and isinstance(found, list) and isinstance(expected, list):
        found, expected = (sorted(each, key=json.dumps) for each in (found, expected))
    equal = found is expected or (found is not ABSENT and expected is not ABSENT and is_equal(found, expected))
    return "" if equal else f"{_to_text(found)} instead of {_to_text(expected)}"


def _evaluate(text: str, data: Any, bindings: dict[str, Any]) -> Any:
    try:
        machine = Jsonata(text, compile_pattern)
    except Exception as problem:
        raise ValueError(error_text(problem)) from None
    if machine.errors:
        raise ValueError(error_text(machine.errors[0]))
    for node in nodes(machine.ast):
        if node.type in ("string", "name") and isinstance(node.value, str):
            node.value = join_surrogates(node.value)
    given = None if data is ABSENT else to_library(data)
    names = machine.create_frame(functions_frame(lambda: 0, lambda: 0.5))
    if isinstance(given, list):
        given = Utils.create_sequence(given)
        given.outer_wrapper = True
    names.bind("$", given)
    for name, value in bindings.items():
        names.bind(name, to_library(value))
    begin_evaluation(machine, FULL_LIMITS, {})
    found = machine.eval(machine.ast, given, names)
    try:
        return ABSENT if found is None else from_library(found)
    except Unsupported:
        return ABSENT  # a function: no case of the suite expects one as its result


def _to_text(value: Any) -> str:
    return "undefined" if value is ABSENT else json.dumps(value)[:60]


# ---- validators: which definitions are accepted ----


def _compare_verdict(name: str, definition: Any, valid: bool) -> Result:
    found = problems(definition)
    if valid is not bool(found):
        return Result(name)
    return Result(name, f"refused: {found[0]}" if valid else "accepted")


def asl_validator(checkout: Path) -> Iterator[Result]:
    """Yield the definitions whose file names begin with `valid` or `invalid`."""
    for file in sorted((checkout / "src" / "__tests__" / "definitions").glob("*valid-*.json")):
        yield _compare_verdict(file.stem, json.loads(file.read_text("utf-8")), file.stem.startswith("valid-"))


def statelint(checkout: Path) -> Iterator[Result]:
    """Yield the definitions of the examples that expect a number of problems."""
    for spec in sorted((checkout / "spec").glob("*_spec.rb")):
        for example in re.split(r"^  it ", spec.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            file = re.search(r"test/([\w.-]+\.json)", example)
            count = re.search(r"problems\.(?:size|length)\)\.to eq\(?\s*(\d+)", example)
            if file and count:
                definition = json.loads((checkout / "test" / file[1]).read_text("utf-8"))
                yield _compare_verdict(file[1], definition, int(count[1]) == 0)


def jayway(checkout: Path) -> Iterator[Result]:
    """Yield the paths and filters that its tests compile, or expect to be refused."""
    seen = set()
    for name in ("PathCompilerTest", "FilterCompilerTest"):
        file = checkout / "json-path/src/test/java/com/jayway/jsonpath" / f"{name}.java"
        for verb, written in _COMPILED.findall(file.read_text("utf-8")):
            text = re.sub(r"\\(.)", r"\1", written)
            path = text if name.startswith("Path") else f"${text}"
            if path not in seen:
                seen.add(path)
                accepted, valid = _is_path(path), verb == "compile"
                yield Result(path, "" if accepted is valid else "refused" if valid else "accepted")


_COMPILED = re.compile(
    r'(assertThrows\(Invalid[^"]*\bcompile|assertInvalidPathException|compile)\("((?:[^"\\]|\\.)*)"\)'
)


def _is_path(text: str) -> bool:
    try:
        return bool(compile_path(text))
    except ValueError:
        return False


# ---- suites that run under pytest ----

_OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) (?:\[\d+\] )?(\S+?)(?: - (.*)|: (.*))?$")


def moto(checkout: Path) -> Iterator[Result]:
    """Yield the tests of moto's interpreter, which run on this one."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "moto_adapter", "-rA", "--tb=no", "--color=no")
    command = [sys.executable, "-m", "pytest", *options, "tests/test_stepfunctions/parser"]
    variables = {**os.environ, "PYTHONPATH": str(TESTS / "suites"), "TESTS_SKIP_REQUIRES_DOCKER": "true"}
    done = subprocess.run(command, cwd=checkout, env=variables, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        if found := _OUTCOME.match(line):
            why = found[3] or found[4] or found[1]
            yield Result(found[2].rpartition("/")[2], "" if found[1] == "PASSED" else why)


# ---- aws-local-stepfunctions: the recorded calls of its functions by its tests, with their results ----


def aws_local(checkout: Path) -> Iterator[Result]:
    """Yield calls of intrinsic functions, data flow and Choice. jest records them in the checkout after `npm ci`."""
    transform = {r"^.+\.ts$": ["ts-jest", {"tsconfig": "./__tests__/tsconfig.json", "isolatedModules": True}]}
    config = {
        "rootDir": str(checkout),
        "testMatch": ["**/__tests__/**/*.test.ts"],
        "setupFilesAfterEnv": ["<rootDir>/__tests__/customMatchers.ts", str(TESTS / "suites/record-aws-local.cjs")],
        "transform": transform,
    }
    with TemporaryDirectory() as folder:
        (Path(folder) / "jest.json").write_text(json.dumps(config))
        recorded = Path(folder) / "recorded.jsonl"
        recorded.touch()
        parts = ["__tests__/intrinsicFunctions", "__tests__/InputOutputProcessing", "__tests__/stateActions/Choice"]
        command = ["npx", "jest", "--config", f"{folder}/jest.json", "-w", "1", "--silent", *parts]
        variables = {**os.environ, "CHECKOUT": str(checkout), "RECORD": str(recorded)}
        subprocess.run(command, cwd=checkout, env=variables, stderr=subprocess.DEVNULL, check=False)
        for at, line in enumerate(recorded.read_text("utf-8").splitlines()):
            asked = json.loads(line)
            yield Result(f"{at} {asked['what']}: {asked['test']}", _replay(asked))


def _replay(asked: dict[str, Any]) -> str:
    what = asked["what"]
    args: list[Any] = [None if one == "\0" else one for one in asked.get("args", [])]
    given, context = asked.get("input"), asked.get("context")
    state: dict[str, Any] = {"Type": "Pass", "End": True}
    wanted = asked.get("result", ABSENT)
    if what == "Choice":
        state, wanted = asked["state"], wanted["nextState"] if "result" in asked else ABSENT
    elif what.startswith("States."):
        state |= {"Parameters": {"v.$": f"{what}({', '.join(args)})"}}
    elif what == "processResultPath":
        given, state = args[1], state | {"Result": args[2]} | _field("ResultPath", asked["args"][0])
    else:
        given, context = args[1], args[2]
        name = "Parameters" if what == "processPayloadTemplate" else what.removeprefix("process")
        state |= _field(name, asked["args"][0])
    targets = [one["Next"] for one in state.get("Choices", [])] + [state[key] for key in ("Default",) if key in state]
    states = {"A": state, **{name: {"Type": "Succeed"} for name in targets}}
    try:
        execution = load({"StartAt": "A", "States": states}).execute(given, context=context or None)
    except DefinitionError as problem:
        return "" if wanted is ABSENT else f"refused: {problem}"
    if execution.status != "SUCCEEDED":
        return "" if wanted is ABSENT else str(execution.cause).partition("). ")[2]
    found: Any = execution.path[-1] if what == "Choice" else execution.output
    found = found["v"] if what.startswith("States.") else found
    return (
        "" if wanted is not ABSENT and is_equal(found, wanted) else f"{_to_text(found)} instead of {_to_text(wanted)}"
    )


def _field(name: str, value: Any) -> dict[str, Any]:
    return {} if value == "\0" else {name: value}


SUITES: dict[str, Callable[[Path], Iterator[Result]]] = {
    "asl-validator": asl_validator,
    "aws-local": aws_local,
    "jayway": jayway,
    "jsonata": jsonata,
    "moto": moto,
    "statelint": statelint,
}


def main() -> int:
    """Return the exit status of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("checkout", type=Path)
    arguments = parser.parse_args()
    results = list(SUITES[arguments.suite](arguments.checkout.resolve()))
    if not results:
        print(f"{arguments.checkout}: there is no case of {arguments.suite}", file=sys.stderr)
        return 2
    named, unnamed = REASONS.get(arguments.suite, {}), 0
    reasons: Counter[str] = Counter()
    for result in results:
        if result.difference:
            reason = next((why for pattern, why in named.items() if re.fullmatch(pattern, result.name)), "")
            reasons[reason or "not named"] += 1
            unnamed += not reason
            print(f"{result.name}: {result.difference}  [{reason or 'not named'}]")
    print(f"{arguments.suite}: {len(results)} cases, {len(results) - reasons.total()} as expected")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")
    return int(unnamed > 0)


if __name__ == "__main__":
    sys.exit(main())
