"""Reads the files that the user names: definitions, answers of functions, and other JSON or YAML.

Invariant: a file that cannot be used is a Mistake whose sentence names the file.
"""

import argparse
import importlib
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from states_language.definition.fields import DefinitionError
from states_language.definition.load import load
from states_language.definition.source import read_data, read_definition
from states_language.machine import Machine
from states_language.tasks import stubs
from states_language.tasks.lambdas import Function

DRAW_LIMIT_S = 60


class Mistake(Exception):
    """The user's input or computer is at fault; the message says in one sentence what is wrong and what to do."""


def drawn(text: str, command: tuple[str, ...] = ("dot", "-Tsvg"), folder: Path | None = None) -> str:
    """Return the SVG that Graphviz makes of DOT; raises Mistake if that fails."""
    if shutil.which(command[0]) is None:
        needed = "Graphviz (`dot`)" if command[0] == "dot" else f"`{command[0]}`"
        raise Mistake(f"An SVG needs {needed}; --format dot and --format mermaid do not.")
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", timeout=DRAW_LIMIT_S, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise Mistake(f"`{command[0]}` took more than {DRAW_LIMIT_S} s; --format dot needs it not.") from None
    if done.returncode != 0:
        raise Mistake(f"The picture could not be laid out: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def count_noun(number: int, noun: str) -> str:
    """Return a number and what it counts: 1 event, 2 events."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Host:
    """The program that offers these commands.

    name: begins each line of progress. command: what the user types before `check`. settings: returns a definition with
    the variables of a stage filled in, or raises Mistake; None if definitions have no variables. svg: lays out DOT.
    page: the page that describes the commands.
    """

    name: str = "states-language"
    command: str = "python -m states_language"
    settings: Callable[[dict[str, Any], str], dict[str, Any]] | None = None
    svg: Callable[[str], str] = drawn
    page: str = "docs/command.md"


def read_definition_file(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the definition in a file, its variables filled in.

    Raises Mistake if the file does not exist or names an unknown variable, DefinitionError for no definition.
    """
    if path.is_dir() or not os.access(path, os.R_OK):
        wrong = "is a folder" if path.is_dir() else "may not be read" if path.exists() else "does not exist"
        raise Mistake(f"{path} {wrong}.")
    unresolved = read_definition(path, dict(args.substitute) if args.substitute else None, args.machine)
    host: Host = args.host
    if host.settings is None:
        return unresolved
    try:
        return host.settings(unresolved, args.stage)
    except Mistake as problem:
        raise Mistake(f"{path}: {problem}") from None


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def add_substitute(parser: argparse.ArgumentParser) -> None:
    """Add the option that fills names in."""
    parser.add_argument(
        "--substitute",
        type=_parse_pair,
        action="append",
        metavar="NAME=VALUE",
        help="the value for ${NAME} (repeatable)",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the definition in a file is."""
    add_substitute(parser)
    parser.add_argument("--machine", metavar="ID", help="the logical id of one of several state machines in a template")


def load_machine(path: Path, args: argparse.Namespace) -> Machine:
    """Return the machine in a file; raises Mistake with the first problem if it does not load."""
    try:
        return load(read_definition_file(path, args))
    except DefinitionError as problem:
        # The sentence about the file as a whole names it, and is the only problem.
        if problem.rule.startswith(str(path)):
            raise Mistake(f"{problem.rule}.") from None
        raise Mistake(f"{path}: {problem}. `{args.host.command} check {path}` lists all.") from None


def data(path: Path, what: str) -> Any:
    """Return the JSON or YAML in a file; raises Mistake, in which `what` names the file's purpose."""
    try:
        return read_data(path)
    except DefinitionError as problem:
        place = "" if problem.rule.startswith(str(path)) else f"{path}: "
        raise Mistake(f"{what} {place}{problem.rule}.") from None


T = TypeVar("T")

KEYS = ("answer", "error", "cause", "delay_s", "never", "sequence")


def read_answers(name: str | None, case: str | None = None) -> Mapping[str, stubs.Answer]:
    """Return the answers in a file (.yml, .yaml, .json or .py) or in a module by its dotted name; raises Mistake.

    case: a test case; the file is then a mock configuration of Step Functions Local.

    A file has an entry for each function:

        resize: {answer: {width: 100}, delay_s: 1.5}
        notify: {sequence: [{error: Throttled}, {answer: sent}]}

    Invariant: the error for a mistake in such a file names the function under which it stands.
    """
    if name is None and case is not None:
        raise Mistake("--case needs --functions, a mock configuration of Step Functions Local.")
    if name is None:
        return {}
    if case is not None:
        return read_mock_config(name, lambda config: config.case(case))
    path = Path(name)
    if path.suffix in (".yml", ".yaml", ".json"):
        return _read_behaviours(name, data(path, "The file of functions"))
    return _module_functions(_import_module(name, path))


def read_mock_config(name: str, wanted: Callable[[stubs.MockConfig], T]) -> T:
    """Return what `wanted` reads from a mock configuration; raises Mistake."""
    try:
        return wanted(stubs.read_mocks(name))
    except stubs.MockError as problem:
        raise Mistake(f"{problem}.") from None


def _import_module(name: str, path: Path) -> ModuleType:
    try:
        if path.suffix == ".py":
            spec = importlib.util.spec_from_file_location(f"functions.{path.stem}", path)
            if spec is None or spec.loader is None or not path.is_file():
                raise Mistake(f"{name}: there is no such file.")
            module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        sys.path.insert(0, "")
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove("")
    except Mistake:
        raise
    except (Exception, SystemExit) as problem:  # whatever the user's module does when it is imported
        raise Mistake(f"{name} cannot be imported: {type(problem).__name__}: {problem}.") from None


def _module_functions(module: ModuleType) -> dict[str, Function]:
    """Return the module's FUNCTIONS, or its public functions, each under its name and its name with - for _."""
    listed = getattr(module, "FUNCTIONS", None)
    if isinstance(listed, dict):
        return {str(name): function for name, function in listed.items()}
    own: dict[str, Function] = {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == module.__name__
    }
    if not own:
        raise Mistake(f"{module.__name__} has no function: give it a dictionary FUNCTIONS, or functions by name.")
    return {name.replace("_", "-"): function for name, function in own.items()} | own


def _read_behaviours(where: str, value: Any) -> dict[str, stubs.InTurn]:
    if not isinstance(value, dict):
        raise Mistake(f"{where}: must be a mapping from functions' names to their answers.")
    if "StateMachines" in value:
        raise Mistake(f"{where} is a mock configuration of Step Functions Local: --case or --mocks takes it.")
    return {
        str(name): stubs.in_turn(*_read_sequence(f"{where}: {name}", behaviour)) for name, behaviour in value.items()
    }


def _read_sequence(where: str, value: Any) -> list[stubs.Behaviour]:
    _check_keys(where, value)
    if "sequence" not in value:
        return [_read_behaviour(where, value)]
    listed = value["sequence"]
    if len(value) > 1 or not isinstance(listed, list) or not listed:
        raise Mistake(f"{where}: sequence must be the only key, and a list of at least one answer.")
    return [_read_behaviour(f"{where}: sequence[{at}]", element) for at, element in enumerate(listed)]


def _read_behaviour(where: str, value: Any) -> stubs.Behaviour:
    _check_keys(where, value)
    kinds = [key for key in ("answer", "error", "never", "sequence") if key in value]
    if len(kinds) > 1 or "sequence" in kinds:
        raise Mistake(f"{where}: must have exactly one of answer, error and never.")
    for key in ("error", "cause"):
        if not isinstance(value.get(key, ""), str):
            raise Mistake(f"{where}: {key} must be a text.")
    if "cause" in value and "error" not in value:
        raise Mistake(f"{where}: cause is allowed only with error.")
    if value.get("never", True) is not True:
        raise Mistake(f"{where}: never must be true or be left out.")
    delay_s = value.get("delay_s", 0)
    if isinstance(delay_s, bool) or not isinstance(delay_s, int | float) or not 0 <= delay_s * 1000 <= stubs.YEAR_MS:
        raise Mistake(f"{where}: delay_s must be a number of seconds from 0 to {stubs.YEAR_MS // 1000}, a year.")
    return stubs.Behaviour(
        answer=value.get("answer", stubs.ECHO),
        error=value.get("error"),
        cause=value.get("cause"),
        delay_ms=round(delay_s * 1000),
        never="never" in value,
    )


def _check_keys(where: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise Mistake(f"{where}: must be a mapping with one or more of {', '.join(KEYS)}.")
    for key in value:
        if key not in KEYS:
            raise Mistake(f"{where}: {key} is not one of {', '.join(KEYS)}.")
