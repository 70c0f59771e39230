"""The verb `asl`: for whoever writes a state machine, ours or any other.

Decides which of the three aids runs; what each does is its own. `streamkeeper asl --help` lists them.
"""

import importlib
from typing import Any

AIDS = ("check", "run", "graph")


def add(subparsers: Any) -> None:
    """Adds the verb, its aids and their options."""
    parser = subparsers.add_parser(
        "asl",
        description="Checks, runs or draws definitions in the Amazon States Language.",
        epilog="docs/asl.md explains the three; any definition is taken, not only ours.",
    )
    aids = parser.add_subparsers(required=True, metavar="AID")
    for aid in AIDS:
        importlib.import_module(f"local.workbench.{aid}").add(aids)
