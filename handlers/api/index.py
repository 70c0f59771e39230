"""Builds the answer of `GET /`: what there is to ask for, and of which profiles streams can be started.

Invariant: it has every route of the API; a test compares them with the deployed ones.
"""

from collections.abc import Iterable
from typing import Any

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


def answer(profiles: Iterable[str]) -> dict[str, Any]:
    """The whole answer; a stream id is a profile's name, or the name, a colon and any text."""
    return {"service": "streamkeeper", "routes": ROUTES, "profiles": sorted(profiles), "documentation": "docs/api.md"}


def methods(path: str) -> list[str]:
    """The methods that there are of a path."""
    return [method for method, _, of in (name.partition(" ") for name in ROUTES) if of == path]
