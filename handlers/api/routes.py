"""Answers what is no stream's: `GET /`, the list of routes and profiles, and `GET /console`, the files of the page.

The page's files lie in handlers/console/ and are the same for everybody: what the page shows it requests from the API,
with the key that its user typed in. Invariants: ROUTES has every route of the API, a test compares them with the
deployed ones; a file is found by its name among those that are there, never by a path; a browser that obeys the policy
sends nothing to another host, runs no other script, and puts the page into no frame.
"""

from __future__ import annotations

from collections.abc import Iterable
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


ROUTES = {
    "GET /": "this list",
    "GET /openapi.json": "a description of this API, OpenAPI 3.1",
    "POST /connections/{streamId}": "starts the stream, or says that it runs already",
    "GET /connections": "all streams that were ever started, with their status",
    "GET /connections/{streamId}": "the status of the stream",
    "GET /connections/{streamId}/events": "its stored events, as JSON, NDJSON or an event stream",
    "GET /connections/{streamId}/gaps": "the gaps in what was received, with their causes",
    "GET /connections/{streamId}/timeline": "the connections of its lanes in the last hour, and the gaps",
    "GET /connections/{streamId}/machine": "the graph of its state machine, and the current states",
    "GET /connections/{streamId}/cost": "about what it has cost since it was started",
    "GET /connections/{streamId}/latest": "the position behind which its newest events lie",
    "GET /connections/{streamId}/dead-letters": "its messages in the dead-letter queue, which stay there",
    "GET /console": "a page to see and operate streams, for a browser",
    "GET /console/{file}": "the files of that page",
    "POST /connections/{streamId}/redrive": "puts its messages of the dead-letter queue back, as far as they can be",
    "DELETE /connections/{streamId}": "stops the stream",
}


def index(profiles: Iterable[str]) -> dict[str, Any]:
    """The answer of `GET /`; a stream id is a profile's name, or the name, a colon and any text."""
    return {"service": "streamkeeper", "routes": ROUTES, "profiles": sorted(profiles), "documentation": "docs/api.md"}


def methods(path: str) -> list[str]:
    """The methods that there are of a path."""
    return [method for method, _, of in (name.partition(" ") for name in ROUTES) if of == path]


@cache
def _files() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}


def console_files() -> list[str]:
    """The files that there are."""
    return sorted(_files())


def console_file(name: str) -> dict[str, Any] | None:
    """The file as the Lambda proxy takes it; None where there is none of this name."""
    path = _files().get(name)
    if path is None:
        return None
    return {
        "statusCode": 200,
        "headers": {"Content-Type": TYPES[path.suffix], **HEADERS},
        "body": path.read_text(encoding="utf-8"),
    }
