"""`python -m states_language`: checks, runs or draws a definition."""

import argparse
import sys
from collections.abc import Sequence

from states_language import workbench


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m states_language",
        description="Checks, runs or draws definitions in the Amazon States Language.",
        epilog="`python -m states_language.server --help` is about the server.",
    )
    workbench.add(parser.add_subparsers(required=True, metavar="COMMAND"), workbench.Host())
    return workbench.main(parser, lambda arguments: int(arguments.run(arguments)), argv)


if __name__ == "__main__":
    sys.exit(main())
