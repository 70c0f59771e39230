"""Where the project's own files are: machines, settings, profiles. They are no part of an installed package."""

from pathlib import Path

from local.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent


def require_checkout(what: str) -> None:
    """Returns nothing where this copy of the program lies in a checkout of the project; raises UserError elsewhere."""
    if not (ROOT / "serverless.yml").is_file():
        raise UserError(
            f"{what} needs the project's own files, and this copy is installed outside a checkout: "
            "in a checkout, `make setup` makes .venv/bin/streamkeeper."
        )
