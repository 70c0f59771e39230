"""The command `streamkeeper`: which verb runs, and how a mistake of the user's is told.

Each verb is a module with `add(subparsers)` and `run(arguments)`. Invariant: a UserError is one sentence on standard
error and exit status 2, whichever verb raised it.
"""

import argparse
import sys
from collections.abc import Sequence

from local import replay, run
from local.chaos import command as chaos
from local.errors import UserError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 for a mistake of the user's."""
    parser = argparse.ArgumentParser(
        prog="streamkeeper", description="Keeps HTTP streams connected; here, on this machine."
    )
    subparsers = parser.add_subparsers(required=True, metavar="VERB")
    for verb in (run, replay, chaos):
        verb.add(subparsers)
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except UserError as mistake:
        print(f"streamkeeper: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
