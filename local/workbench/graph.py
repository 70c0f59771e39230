"""`streamkeeper asl graph`: draws a definition, and the way that an execution took through it.

An SVG is laid out by Graphviz compiled to WebAssembly, which the deploy tool's Node.js runs, so `dot` need not be
installed. Invariant: standard output holds the picture alone.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from local.stages import ROOT
from local.user_error import UserError
from local.workbench import files
from states_language.drawing.boxes import draw
from states_language.drawing.dot import dot
from states_language.drawing.mermaid import mermaid
from states_language.drawing.visits import Marks, marks

FORMATS = ("dot", "mermaid", "svg")
TIME_LIMIT_S = 60
_VIZ = Path(__file__).with_name("viz.cjs")


def add(subparsers: Any) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "graph",
        help="draw a definition, and the way of an execution through it",
        description="Draws a definition as Graphviz DOT, Mermaid or SVG; --path marks what an execution visited.",
        epilog="HISTORY is what GetExecutionHistory returns, or what `streamkeeper asl run --json --history` prints.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the definition in YAML or JSON")
    parser.add_argument("--path", type=Path, metavar="HISTORY", help="mark the way of the execution in this JSON file")
    parser.add_argument("--format", choices=FORMATS, default="svg", help="how to draw it (svg)")
    parser.add_argument("--stage", default=files.STAGE, help="whose settings fill ${self:custom...} (local)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the picture and return 0."""
    machine = files.machine(args.file, args.stage)
    taken = None if args.path is None else history(args.path)
    sys.stdout.write(picture(machine.definition, args.format, taken).rstrip("\n") + "\n")
    return 0


def picture(definition: dict[str, Any], form: str, taken: Marks | None = None) -> str:
    """Return the picture in one of FORMATS; raises UserError where an SVG needs software that is not installed."""
    drawing = draw(definition)
    if form == "mermaid":
        return mermaid(drawing, taken)
    text = dot(drawing, taken)
    return text if form == "dot" else svg(text)


def history(path: Path) -> Marks:
    """Return the marks of the history in a file: a list of events, or an object with events or history."""
    events = files.data(path, "The history")
    if isinstance(events, dict):
        events = events.get("events", events.get("history"))
    if not isinstance(events, list) or not all(map(_is_event, events)):
        raise UserError(f"The history {path} is not a list of events, nor an object with events or history.")
    return marks(events)


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("id")) is int and isinstance(value.get("type"), str)


def svg(text: str) -> str:
    """Return DOT as SVG."""
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / "@viz-js").is_dir():
        raise UserError("An SVG needs Node.js and `make setup`; --format dot and --format mermaid do not.")
    drawn = subprocess.run(
        [node, str(_VIZ)], input=text, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False, cwd=ROOT
    )
    if drawn.returncode != 0:
        raise UserError(f"The picture could not be laid out: {' '.join(drawn.stderr.split())[:300]}")
    return drawn.stdout
