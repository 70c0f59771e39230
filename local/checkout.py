"""Finds the project's own files: machines, settings, profiles, templates.

In a checkout they are where git has them. In a wheel, setup.py has copied those that verbs read to local/project/.
Invariant: below ROOT every file has the same path in both.
"""

from pathlib import Path

from local.terminal import UserError

# The folder with handlers/, local/ and the others.
CODE = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (CODE / "serverless.yml").is_file()
ROOT = CODE if IS_CHECKOUT else CODE / "local" / "project"


def needs_checkout(what: str) -> UserError:
    """Returns the error about something that a wheel cannot do."""
    return UserError(
        f"{what} needs a checkout of the project, and this command is installed outside of one: "
        "clone the project, run `make setup` there, and use its .venv/bin/streamkeeper."
    )
