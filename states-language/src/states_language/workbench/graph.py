"""`graph`: draws a definition, and an execution's path through it.

The host's Graphviz lays out an SVG. Invariant: standard output holds only the picture.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from states_language.drawing.boxes import draw
from states_language.drawing.dot import dot
from states_language.drawing.histories import Marks, marks
from states_language.drawing.mermaid import mermaid
from states_language.workbench import files
from states_language.workbench.files import Host, Mistake

FORMATS = ("dot", "mermaid", "svg")


def add(subparsers: Any, host: Host) -> argparse.ArgumentParser:
    """Add the command and its options."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "graph",
        help="draw a definition, and an execution's path through it",
        description="Draws a definition as Graphviz DOT, Mermaid or SVG; --path marks what an execution visited.",
        epilog=f"HISTORY is what GetExecutionHistory returns, or what `{host.command} run --json --history` prints.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the definition in YAML or JSON")
    parser.add_argument("--path", type=Path, metavar="HISTORY", help="mark the path of the execution in this JSON file")
    parser.add_argument("--format", choices=FORMATS, default="svg", help="how to draw it (svg)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the picture and return 0."""
    machine = files.load_machine(args.file, args)
    taken = None if args.path is None else read_marks(args.path)
    sys.stdout.write(picture(machine.definition, args.format, taken, args.host.svg).rstrip("\n") + "\n")
    return 0


def picture(
    definition: dict[str, Any], form: str, taken: Marks | None = None, svg: Callable[[str], str] = files.drawn
) -> str:
    """Return the picture in one of FORMATS; raises Mistake if an SVG needs software that is not installed."""
    drawing = draw(definition)
    if form == "mermaid":
        return mermaid(drawing, taken)
    text = dot(drawing, taken)
    return text if form == "dot" else svg(text)


def read_marks(path: Path) -> Marks:
    """Return the marks of the history in a file: a list of events, or an object with events or history."""
    events = files.data(path, "The history")
    if isinstance(events, dict):
        events = events.get("events", events.get("history"))
    if not isinstance(events, list) or not all(map(_is_event, events)):
        raise Mistake(f"The history {path} must be a list of events, or an object with a list `events` or `history`.")
    return marks(events)


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("id")) is int and isinstance(value.get("type"), str)
