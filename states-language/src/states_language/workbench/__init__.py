"""The commands `check`, `run`, `mocks` and `graph` for a definition: its problems, its execution, its picture.

`python -m states_language` has them, and a host gives them to a command of its own:

    add(parser.add_subparsers(required=True), Host(name="mine", command="mine asl"))

Each parsed command has `run(arguments)`, which returns the exit status, or raises `Mistake` if the user is at fault.
`data` reads a file of JSON or YAML as the commands do; `drawn` lets a program lay out DOT.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from states_language.workbench import check, files, graph, mocks, run
from states_language.workbench.files import Host, Mistake, data, drawn

__all__ = ["Host", "Mistake", "add", "data", "drawn"]

INTERRUPTED, BROKEN_PIPE = 130, 141


def add(commands: Any, host: Host) -> None:
    """Add the commands to the subparsers of a host's command."""
    for module in (check, run, mocks, graph):
        parser = module.add(commands, host)
        files.add_options(parser)
        parser.set_defaults(run=module.run, host=host)
        if host.settings is not None:
            parser.add_argument("--stage", default="local", help="whose settings fill ${self:custom...} (local)")


def main(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int], argv: Sequence[str] | None = None
) -> int:
    """Return the exit status of a command line; `run` gets the parsed arguments.

    A mistake of the user gives one sentence on standard error and status 2; Ctrl-C gives 130 without a traceback.
    """
    # Every line is printed, even if the terminal cannot show each of its characters.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run(parser.parse_args(argv))
        sys.stdout.flush()
    except Mistake as mistake:
        print(f"states-language: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. The buffered rest goes nowhere, or Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status
