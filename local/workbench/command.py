"""The verb `asl`: the interpreter's commands for anybody who writes a state machine, ours or any other.

A definition of ours has variables such as `${self:custom.settings.wait_s}`, filled from the settings of a stage as a
replay fills them. Invariant: a definition without such a variable is read as it is, so those of other projects, with
variables of their own, can be read too.
"""

import argparse
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local import stages
from local.terminal import UserError
from states_language import workbench

_VARIABLE = "${self:custom."
# Graphviz compiled to WebAssembly, which the deploy tool's Node.js runs, so `dot` need not be installed.
_VIZ = Path(__file__).with_name("viz.cjs")


def add(subparsers: Any) -> None:
    """Add the verb, its commands and their options."""
    parser = subparsers.add_parser(
        "asl",
        description="Checks, runs or draws definitions in the Amazon States Language.",
        epilog="docs/asl.md explains them. Any definition works, not only ours.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    workbench.add(
        commands, workbench.Host("streamkeeper", "streamkeeper asl", resolve_variables, draw_svg, "docs/asl.md")
    )
    for command in commands.choices.values():
        command.set_defaults(run=functools.partial(_run, command.get_default("run")))


def _run(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    try:
        return run(args)
    except workbench.Mistake as mistake:
        raise UserError(str(mistake)) from None


def resolve_variables(definition: dict[str, Any], stage: str) -> dict[str, Any]:
    """Return a definition with its variables filled from env/<stage>.yml; raises Mistake for an unknown one."""
    if _VARIABLE not in json.dumps(definition):
        return definition
    try:
        filled: dict[str, Any] = stages.resolve(definition, stages.load(stage), stages.names(stage))
    except UserError as problem:
        raise workbench.Mistake(str(problem)) from None
    return filled


def draw_svg(text: str) -> str:
    """Return DOT as SVG."""
    if not (stages.ROOT / "node_modules" / "@viz-js").is_dir():
        raise workbench.Mistake("An SVG needs Node.js and `make setup`; --format dot and --format mermaid do not.")
    return workbench.drawn(text, ("node", str(_VIZ)), stages.ROOT)
