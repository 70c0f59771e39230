"""What the two commands, `python -m states_language` and `python -m states_language.server`, do alike.

Invariant: a mistake of the user's, and a package that is not installed, is one sentence on standard error and exit
status 2; Ctrl-C is 130 without a trace.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence

from states_language.workbench import Mistake

INTERRUPTED, BROKEN_PIPE = 130, 141


def main(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int], argv: Sequence[str] | None = None
) -> int:
    """Return the exit status of what was typed; `run` gets the parsed arguments."""
    # Whatever text comes, and whatever the terminal can show, a line is printed.
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
        # The reader (`| head`) has seen enough. What is buffered goes nowhere, or Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status
