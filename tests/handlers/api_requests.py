"""Requests of the control API as its function gets them, and a stream that they can read."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from handlers.api import routes
from handlers.api.routes import ROUTES
from handlers.connection.effects import Progress
from handlers.store import control_record
from tests import problems
from tests.handlers.aws import Memory, save_connection
from tests.handlers.context import Context

MINE = "arn:aws:states:us-east-1:000000000000:execution:streamkeeper-test-connections:mine"
FAR_MS = 4 * 10**12
REQUESTED_AT = "2026-01-01T00:00:00.000Z"


def send_request(function: ModuleType, method: str, stream_id: Any = "demo", **more: Any) -> tuple[int, Any]:
    """Return a request's status and JSON, checked against the OpenAPI document, and a problem's own fields."""
    event: dict[str, Any] = {
        "httpMethod": method,
        "pathParameters": {"streamId": stream_id},
        "headers": {},
        "body": None,
    } | more
    answer = function.handler(event, Context())
    assert set(answer) == {"statusCode", "headers", "body"}
    status, body = answer["statusCode"], json.loads(answer["body"])
    resource = event.get("resource", "/connections/{streamId}")
    headers = {"Content-Type": "application/json", "Cache-Control": "no-cache, no-store"}
    if status < 400 and resource.endswith("/events"):
        headers["Vary"] = "Accept"
    if status >= 400:
        headers["Content-Type"] = "application/problem+json"
    if status == 200 and method == "GET":
        again = function.conditional_answer(answer | {"headers": headers}, answer["headers"]["ETag"])
        assert again["statusCode"] == 304
        headers["ETag"] = again["headers"]["ETag"]
    if status in (429, 503):
        headers["Retry-After"] = "5"
    if status == 405:
        headers["Allow"] = ", ".join(routes.methods(resource))
    assert answer["headers"] == headers
    if status < 400:
        problems.conforms(body, ROUTES[f"{method} {resource}"].schema)
        return status, body
    return status, problems.read(status, body)


def write_connected_stream(aws: Memory, stream_id: str = "demo") -> None:
    """Write a stream as the connection manager and the machine leave it while lane B is connected."""
    aws.put_control(stream_id, "lease", execution={"S": MINE}, generation={"N": "1"})
    store = aws.store()
    store.claim(stream_id, execution=MINE, holder="B/request-1")
    store.mark_connected(stream_id, 1, FAR_MS)
    progress = Progress(fence=1, claimed_ms=1_000, opened_ms=2_000, seen_ms=3_000, stored=5, duplicates=2)
    save_connection(store, stream_id, progress, lane="B", execution=MINE, request_id="request-1")
    aws.put_control(stream_id, "lease", **control_record.cursor_attributes("17", 1, 2_500))


def events_of(function: ModuleType, stream_id: str = "demo", **query: str) -> tuple[int, Any]:
    """Return the status and the JSON of a request for events."""
    resource = "/connections/{streamId}/events"
    return send_request(function, "GET", stream_id, resource=resource, queryStringParameters=query or None)


def read_all_pages(page_of: Callable[[dict[str, str]], Any], kind: str) -> list[Any]:
    """Return the entries of all pages; `page_of` returns the page for a query."""
    entries: list[Any] = []
    after: str | None = ""
    while after is not None:
        page = page_of({"after": after} if after else {})
        entries, after = entries + page[kind], page["next"]
    return entries


def streams_of(function: ModuleType, **query: str) -> tuple[int, Any]:
    """Return the status and the JSON of a request for all streams."""
    return send_request(function, "GET", None, resource="/connections", queryStringParameters=query or None)
