"""`python -m states_language`: checks, runs or draws a definition."""

import argparse
import sys

from states_language import workbench
from states_language.command import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m states_language",
        description="Checks, runs or draws definitions in the Amazon States Language.",
        epilog="`python -m states_language.server --help` is about the server.",
    )
    workbench.add(parser.add_subparsers(required=True, metavar="COMMAND"), workbench.Host())
    sys.exit(main(parser, lambda arguments: int(arguments.run(arguments))))
