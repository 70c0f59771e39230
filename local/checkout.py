"""Where the project's own files are: machines, settings, profiles, templates.

In a checkout they lie where git has them. A wheel has a copy of those that verbs read in local/project/, which setup.py
puts there. Invariant: below ROOT every file has the same path in both.
"""

from pathlib import Path

from local.user_error import UserError

# Where handlers/, local/ and the other rooms lie.
CODE = Path(__file__).resolve().parent.parent
IS_CHECKOUT = (CODE / "serverless.yml").is_file()
ROOT = CODE if IS_CHECKOUT else CODE / "local" / "project"


def needs_checkout(what: str) -> UserError:
    """The error for what no wheel can do."""
    return UserError(
        f"{what} needs the project's own files, and this copy is installed outside a checkout: "
        "in a checkout, `make setup` makes .venv/bin/streamkeeper."
    )
