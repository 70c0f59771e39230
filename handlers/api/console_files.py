"""Answers `GET /console` and the files of the page: handlers/console/, as they lie there.

They are the same for everybody and hold nothing of a stream: what the page shows it asks the API for, with the key that
its user typed in. Invariants: a file is found by its name among those that are there, never by a path; a browser that
obeys the policy sends nothing to another host, runs no other script, and puts the page into no frame.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "console"
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A page from before an update would ask for what is not there any more.
    "Cache-Control": "no-cache",
}


@cache
def _files() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}


def names() -> list[str]:
    """The files that there are."""
    return sorted(_files())


def answer(name: str) -> dict[str, Any] | None:
    """The file as the Lambda proxy takes it; None where there is none of this name."""
    path = _files().get(name)
    if path is None:
        return None
    return {
        "statusCode": 200,
        "headers": {"Content-Type": TYPES[path.suffix], **HEADERS},
        "body": path.read_text(encoding="utf-8"),
    }
