"""The verb `completion`: prints the completion of the command for a shell.

Invariant: it is made from the parsers that read the arguments, so it offers exactly what exists.
"""

import argparse
from typing import Any

from local.terminal import WrappedHelp

SHELLS = ("bash", "zsh", "fish")


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "completion",
        description="Prints the completion of this command for a shell.",
        epilog="examples:\n"
        "  streamkeeper completion bash > ~/.local/share/bash-completion/completions/streamkeeper\n"
        "  streamkeeper completion zsh > ~/.zfunc/_streamkeeper\n"
        "  streamkeeper completion fish > ~/.config/fish/completions/streamkeeper.fish",
        formatter_class=WrappedHelp,
    )
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import shtab

    from local import cli

    print(shtab.complete(cli.build_parser(list(cli.VERBS)), shell=arguments.shell))
    return 0
