"""The command `streamkeeper`: which verb runs, and how a mistake of the user's is told.

Each verb is a module with `add(subparsers)` and `run(arguments)`; only the one that is asked for is imported, for a
replay takes less time than importing the service. Invariant: a UserError is one sentence on standard error and exit
status 2, whichever verb raised it.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from local.user_error import UserError

INTERRUPTED = 130
BROKEN_PIPE = 141
VERBS = {
    "run": "local.service.command",
    "profile": "local.profiles.command",
    "replay": "local.replay.command",
    "chaos": "local.chaos.command",
    "asl": "local.workbench.command",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 for a mistake of the user's."""
    parser = argparse.ArgumentParser(
        prog="streamkeeper", description="Keeps HTTP streams connected; here, on this machine."
    )
    subparsers = parser.add_subparsers(required=True, metavar="VERB")
    given = sys.argv[1:] if argv is None else argv
    asked = [module for verb, module in VERBS.items() if given[:1] == [verb]]
    for module in asked or VERBS.values():
        importlib.import_module(module).add(subparsers)
    arguments = parser.parse_args(given)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except UserError as mistake:
        print(f"streamkeeper: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. What is buffered goes nowhere, or Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status


if __name__ == "__main__":
    sys.exit(main())
