"""The place of the project's own files: machines, settings, profiles, templates.

In a checkout they are where git has them. In a wheel, local/project/ has a copy of those that verbs read, made by
setup.py. Invariant: below ROOT every file has the same path in both.
"""

from pathlib import Path

from local.user_error import UserError

# The folder with handlers/, local/ and the others.
CODE = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (CODE / "serverless.yml").is_file()
ROOT = CODE if IS_CHECKOUT else CODE / "local" / "project"


def needs_checkout(what: str) -> UserError:
    """The error for what a wheel cannot do."""
    return UserError(
        f"{what} needs the project's own files, and this copy is installed outside a checkout: "
        "in a checkout, `make setup` installs .venv/bin/streamkeeper."
    )
