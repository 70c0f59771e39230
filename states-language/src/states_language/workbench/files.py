"""Reads the files that the user names: definitions, and other JSON or YAML.

Invariant: a file that cannot be used is a Mistake whose sentence names the file.
"""

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from states_language.definition.fields import DefinitionError
from states_language.definition.load import load
from states_language.definition.source import read_data, read_definition
from states_language.machine import Machine

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

    Raises Mistake if the file does not exist or names an unknown variable, DefinitionError if it is not a
    definition.
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
