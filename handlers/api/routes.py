"""Answers `GET /`, the list of routes and profiles, and `GET /console`, the page's files; reads what API Gateway sends.

The page's files are in handlers/console/ and are the same for everybody: the page requests what it shows from the API,
with the key that its user typed in. Invariants: ROUTES has every route of the API, and a test compares them with the
deployed ones; a file is found by its name among the existing ones, never by a path; a browser that obeys the policy
sends nothing to another host, runs no other script, and puts the page into no frame.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from handlers.api.answers import Problem

INDEX, OPENAPI, CONSOLE = "/", "/openapi.json", "/console"
FOLDER = Path(__file__).parent.parent / "console"
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    # A link to docs/runbook.md: the page shows its sections.
    ".md": "text/markdown; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Without this, a page from before an update would request files that no longer exist.
    "Cache-Control": "no-cache",
}


class Route(NamedTuple):
    """A route's name in a client, its group, what it does, and its answer's status.

    `schema` is the answer's, "" for one that is not described further.
    """

    name: str
    tag: str
    summary: str
    schema: str = ""
    status: int = 200


_STREAM = "/connections/{streamId}"
ROUTES = {
    "GET /": Route("getIndex", "service", "this list; browsers are redirected to the page", "Index"),
    "GET /openapi.json": Route("getOpenApi", "service", "a description of this API, OpenAPI 3.1"),
    f"POST {_STREAM}": Route("startStream", "streams", "starts the stream, or reports that it runs already", "Started"),
    "GET /connections": Route(
        "listStreams", "streams", "all streams that were ever started, with their status", "StreamPage"
    ),
    f"GET {_STREAM}": Route("getStream", "streams", "the status of the stream", "Stream"),
    f"GET {_STREAM}/events": Route(
        "listEvents", "events", "its stored events, as JSON, NDJSON or an event stream", "EventPage"
    ),
    f"GET {_STREAM}/gaps": Route("listGaps", "gaps", "the gaps in what was received, with their causes", "GapPage"),
    f"GET {_STREAM}/timeline": Route(
        "getTimeline", "gaps", "the connections of its lanes in the last hour, and the gaps", "Timeline"
    ),
    f"GET {_STREAM}/machine": Route(
        "getMachine", "streams", "the graph of its state machine, and the current states", "Machine"
    ),
    f"GET {_STREAM}/cost": Route("getCost", "streams", "an estimate of its cost since it was started", "Cost"),
    f"GET {_STREAM}/latest": Route(
        "getLatestPosition", "events", "the position from which to read its newest events", "Latest"
    ),
    f"GET {_STREAM}/dead-letters": Route(
        "listDeadLetters", "dead letters", "its messages in the dead-letter queue", "DeadLetterPage"
    ),
    "PUT /fleet": Route("setFleet", "fleet", "starts and stops streams as a document specifies", "Fleet"),
    "GET /fleet": Route("getFleet", "fleet", "how far the last document is applied, and what is left", "Fleet"),
    "GET /console": Route("getPage", "service", "a page to see and operate streams, for a browser"),
    "GET /console/{file}": Route("getPageFile", "service", "the files of that page"),
    f"GET {_STREAM}/sinks": Route("listSinks", "sinks", "how far each sink of its events has come", "SinkPage"),
    f"POST {_STREAM}/sinks": Route(
        "setSink", "sinks", "pauses or resumes a sink, replays from an instant, or skips what waits", "SinkPage"
    ),
    f"POST {_STREAM}/redrive": Route(
        "redriveDeadLetters",
        "dead letters",
        "puts its messages of the dead-letter queue back, as far as they can be",
        "Redriven",
    ),
    f"POST {_STREAM}/repair": Route(
        "repairGaps", "gaps", "fetches what its gaps missed, or shows what that would bring", "Repairs"
    ),
    f"DELETE {_STREAM}": Route("stopStream", "streams", "stops the stream", "Stopped", 202),
}


def index(profiles: Iterable[str]) -> dict[str, Any]:
    """Returns the answer of `GET /`; a stream id is a profile's name, or the name, a colon and any text."""
    summaries, names = {name: route.summary for name, route in ROUTES.items()}, sorted(profiles)
    return {"service": "streamkeeper", "routes": summaries, "profiles": names, "documentation": "docs/api.md"}


def methods(path: str) -> list[str]:
    return [method for method, _, of in (name.partition(" ") for name in ROUTES) if of == path]


@cache
def console_files() -> dict[str, Path]:
    """Returns the files of the page, by their names."""
    return {path.name: path for path in sorted(FOLDER.iterdir()) if path.suffix in TYPES}


def bad_method(method: str, resource: str) -> Problem:
    """Returns the 405 for a method that the path does not have."""
    # RFC 9110, section 15.5.6: a 405 names the allowed methods in Allow.
    allowed = ", ".join(methods(resource))
    words = f"the path {resource} does not have the method {method}"
    return Problem("bad-method", words, fix=f"Use one of {allowed}.", headers={"Allow": allowed})


def console(name: str) -> dict[str, Any]:
    """200 with a file of the page, for the Lambda proxy."""
    path = console_files().get(name)
    if path is None:
        raise Problem("no-such-file", "the page has no such file", "file")
    headers = {"Content-Type": TYPES[path.suffix], **HEADERS}
    return {"statusCode": 200, "headers": headers, "body": path.read_text(encoding="utf-8")}


def base_path(fields: Mapping[str, Any], resource: str = OPENAPI) -> str:
    """Returns the prefix of each path of the API in a request for `resource`: the stage, if deployed."""
    context = fields.get("requestContext")
    path = str(context.get("path", "")) if isinstance(context, Mapping) else ""
    return path.removesuffix(resource)


def redirect_to_page(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """303 to the page, for a `GET /` of a browser: one whose Accept names HTML. None for any other."""
    kinds = [one.partition(";")[0].strip() for one in read_header(fields, "accept").lower().split(",")]
    if "text/html" not in kinds:
        return None
    headers = {"Location": f"{base_path(fields, INDEX)}{CONSOLE}", "Vary": "Accept", "Cache-Control": "no-store"}
    return {"statusCode": 303, "headers": headers, "body": ""}


def read_header(event: Mapping[str, Any], name: str) -> str:
    """Returns the request's header with this name (in lower case); "" if it has none."""
    headers = event.get("headers")
    pairs = headers.items() if isinstance(headers, Mapping) else ()
    return next((str(value) for key, value in pairs if str(key).lower() == name), "")


def read_request_id(event: Mapping[str, Any]) -> str:
    """Returns API Gateway's id of the request, "" if another service called.

    `requestId` is not it: "clients can override this request ID", says the reference of its variables.
    """
    context = event.get("requestContext")
    return str(context.get("extendedRequestId", "")) if isinstance(context, Mapping) else ""


def read_event(event: object) -> tuple[str, str]:
    """Returns the method and the stream id of a Lambda proxy's event, "" for a missing one."""
    fields = event if isinstance(event, Mapping) else {}
    parameters = fields.get("pathParameters")
    stream_id = parameters.get("streamId") if isinstance(parameters, Mapping) else None
    # A REST API passes path parameters as the client wrote them, but query parameters decoded.
    return str(fields.get("httpMethod", "")), unquote(stream_id) if isinstance(stream_id, str) else ""
