"""The verb `asl`: three commands for anybody who writes a state machine, ours or any other.

Each command is a module of this package with functions `add` and `run`.
"""

import importlib
from typing import Any

COMMANDS = ("check", "run", "graph")


def add(subparsers: Any) -> None:
    """Add the verb, its commands and their options."""
    parser = subparsers.add_parser(
        "asl",
        description="Checks, runs or draws definitions in the Amazon States Language.",
        epilog="docs/asl.md explains the three; any definition is taken, not only ours.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        importlib.import_module(f"local.workbench.{command}").add(commands)
