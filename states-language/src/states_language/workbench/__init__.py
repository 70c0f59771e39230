"""The commands `check`, `run`, `mocks` and `graph`: what is wrong with a definition, how it runs, how it looks.

`python -m states_language` has them, and a host gives them to a command of its own:

    add(parser.add_subparsers(required=True), Host(name="mine", command="mine asl"))

Each parsed command has `run(arguments)`, which returns the exit status, or raises `Mistake` where the user is at fault.
`data` reads a file of JSON or YAML as the commands read theirs; `drawn` has a program lay out DOT.
"""

from typing import Any

from states_language.workbench import check, files, graph, mocks, run
from states_language.workbench.files import Host, Mistake, data, drawn

__all__ = ["Host", "Mistake", "add", "data", "drawn"]


def add(commands: Any, host: Host) -> None:
    """Add the commands to the subparsers of a host's command."""
    for module in (check, run, mocks, graph):
        parser = module.add(commands, host)
        files.add_options(parser)
        parser.set_defaults(run=module.run, host=host)
        if host.settings is not None:
            parser.add_argument("--stage", default="local", help="whose settings fill ${self:custom...} (local)")
