"""Builds the OpenAPI document of the HTTP API, which `GET /openapi.json` answers with.

Routes come from `routes.ROUTES`, what parameters may be from the listings that check them, problems from their table.
Invariant: it describes what is deployed and what runs on a laptop alike.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from handlers.api import answers, event_pages, gaps, routes, sinks, status
from handlers.api.answers import JSON, Problem
from handlers.api.openapi.schemas import INSTANT, Schema, ref, schemas
from handlers.api.queries import Listing
from handlers.api.stream_pages import MOST_SORTED
from handlers.deliver.sink_commands import COMMANDS
from handlers.fleet.fleet_document import LINES, TOML
from handlers.profile.addresses import STREAM_ID_LENGTH

VERSION = "3.1.0"
_INFO = {
    "title": "Streamkeeper",
    "version": "1",
    "summary": "Keeps HTTP streams connected, and shows what it stored.",
    "license": {"name": "MIT", "identifier": "MIT"},
}
# What handlers/profile/addresses.py takes: no part between colons is one dot or two.
_NO_DOTS = r"(?!\.{1,2}(:|$))"
STREAM_ID = rf"^{_NO_DOTS}[A-Za-z0-9._-]{{1,64}}(:{_NO_DOTS}[^\x00-\x1f\x7f-\x9f\ufffd-\uffff:]*)*$"
# What every route may be refused with, and a stream's besides.
_ALWAYS, _OF_STREAM = (403, 405, 429, 500, 502, 503), (400, 404)
# The headers of the answer to each GET.
_TAGGED = {"ETag": {"description": "It changes when the answer does.", "required": True, "schema": {"type": "string"}}}


def document(base: str = "") -> dict[str, Any]:
    """Returns the document; `base` comes before each path, such as /prod."""
    paths: dict[str, dict[str, Any]] = {}
    for name, route in routes.ROUTES.items():
        method, _, path = name.partition(" ")
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, route)
    return {
        "openapi": VERSION,
        "info": _INFO,
        "tags": [{"name": name} for name in dict.fromkeys(route.tag for route in routes.ROUTES.values())],
        "servers": [{"url": base or "/"}],
        # A stage requires a key or a signature; the local run usually neither.
        "security": [{}, {"key": []}, {"signature": []}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "signature": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "AWS Signature Version 4, for the service execute-api",
                    "x-amazon-apigateway-authtype": "awsSigv4",
                },
            },
        },
    }


def _operation(method: str, path: str, route: routes.Route) -> dict[str, Any]:
    summary = route.summary[:1].upper() + route.summary[1:]
    has_stream = "{streamId}" in path
    own, refusals = _own().get(f"{method} {path}", ([], ()))
    tag = _parameter("If-None-Match", "header", {"type": "string"}, "The ETag of the answer that the client has.")
    answer: dict[str, Any] = {"description": summary, "content": _content(path, route.schema)}
    responses: dict[str, Any] = {str(route.status): answer}
    if method == "GET":
        answer["headers"] = _TAGGED
        responses["304"] = {"description": "The client has this answer already.", "headers": _TAGGED}
    if path == routes.INDEX:
        place = {"description": "The page's address.", "required": True, "schema": {"type": "string"}}
        words = "The page, for an Accept that names text/html."
        responses["303"] = {"description": words, "headers": {"Location": place}}
    refused = sorted({*_ALWAYS, *(_OF_STREAM if has_stream else ()), *refusals})
    return {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": summary,
        "parameters": [*([_stream_id()] if has_stream else ()), *own, *([tag] if method == "GET" else ())],
        **(_fleet_body() if method == "PUT" else {}),
        "responses": responses | {str(one): _refusal(one) for one in refused},
    }


@cache
def _own() -> dict[str, tuple[list[Schema], tuple[int, ...]]]:
    """Returns by route which parameters and refusals it has besides those of several."""
    stream = "/connections/{streamId}"
    fleet = [_dry_run("Change nothing, and return what would be started and stopped.")]
    names = {"type": "string", "enum": list(routes.console_files())}
    given: dict[str, Schema] = {"do": {"enum": list(COMMANDS)}, "from": {"anyOf": [{"const": "start"}, INSTANT]}}
    given |= {"sink": {"type": "string"}, "all": {"enum": ["true", "false"], "default": "false"}}
    place = {"type": "string", "pattern": _or_empty(event_pages.LISTING.place.pattern)}
    last = _parameter("Last-Event-ID", "header", place, "The same as after; an EventSource sends it.")
    command = [_parameter(one, "query", given[one], words, required=one == "do") for one, words in sinks.FIELDS.items()]
    return {
        "GET /connections": (_query(status.LISTING), (400,)),
        f"POST {stream}": ([], (415, 422)),
        f"GET {stream}/events": ([*_query(event_pages.LISTING), last], (409,)),
        f"GET {stream}/gaps": (_query(gaps.LISTING), ()),
        f"GET {stream}/timeline": ([], (409,)),
        f"GET {stream}/machine": ([], (409,)),
        f"POST {stream}/sinks": (command, (409,)),
        f"POST {stream}/repair": ([*_times(), _dry_run("Store nothing, and return what would come.")], (409,)),
        "GET /fleet": (fleet, (400,)),
        "PUT /fleet": (fleet, (400, 404, 413, 415)),
        "GET /console/{file}": ([_parameter("file", "path", names, "A file of the page.", required=True)], (404,)),
    }


def _content(path: str, schema: str) -> dict[str, Any]:
    """Returns what the answer may be, by its media type."""
    if path.startswith(routes.CONSOLE):
        kinds = routes.TYPES.values() if "{file}" in path else [routes.TYPES[".html"]]
        return {kind.partition(";")[0]: _text(f"A file of the type {kind}") for kind in kinds}
    if not schema:
        shown = {"openapi": VERSION, "info": _INFO, "paths": {}}
        return {JSON: {"schema": {"type": "object"}, "example": shown}}
    content = {JSON: {"schema": ref(schema), "example": example(schema)}}
    if schema == "EventPage":
        event = json.dumps(example("Event"))
        content[event_pages.NDJSON] = _text(f"{event}\n")
        content[event_pages.EVENT_STREAM] = _text(f"id: 001795242319403/000000000001/000000000000\ndata: {event}\n\n")
    return content


def _dry_run(words: str) -> dict[str, Any]:
    return _parameter("dry_run", "query", {"type": "string", "enum": ["true", "false"]}, words)


def _fleet_body() -> dict[str, Any]:
    wanted = example("FleetDocument")
    texts = {
        TOML: _text("".join(f"{name} = {json.dumps(ids)}\n" for name, ids in wanted.items())),
        JSON: {"schema": ref("FleetDocument"), "example": wanted},
        LINES: _text("".join(f"{one}\n" for one in wanted["connected"])),
    }
    return {"requestBody": {"required": True, "content": texts}}


def _refusal(status: int) -> dict[str, Any]:
    kinds = {name: kind for name, kind in answers.kinds().items() if kind["status"] == status}
    shown = {name: {"value": Problem(name, kind["title"]).body("JKJaXmPLvHcESHA=")} for name, kind in kinds.items()}
    described = "; ".join(kind["title"] for kind in kinds.values())
    content = {answers.CONTENT_TYPE: {"schema": ref("Problem"), "examples": shown}}
    answer = {"description": described, "content": content}
    if status not in (429, 503):
        return answer
    schema = {"type": "integer", "minimum": 1}
    return answer | {"headers": {"Retry-After": {"description": "In seconds, where it is known.", "schema": schema}}}


# An example has every required member of its schema, with the value that examples.json has for its name. There a name
# that begins with a capital letter is a schema's, with members that replace these. A member that is not named there has
# the least value of its type, a text null if it may be.
_LEAST: dict[str, Any] = {"integer": 0, "number": 0.0, "boolean": False, "string": ""}


@cache
def _known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
    return found


def example(name: str) -> Any:
    return _value(schemas()[name], "") | _known().get(name, {})


def _value(schema: Schema, name: str) -> Any:
    if name in _known():
        return _known()[name]
    if "$ref" in schema:
        return example(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], "")
    if "const" in schema:
        return schema["const"]
    match schema["type"]:
        case "object":
            return {one: _value(schema["properties"][one], one) for one in schema.get("required", ())}
        case "array":
            return [_value(schema["items"], "")]
        case ["string", "null"]:
            return None
        case [kind, "null"]:
            return _LEAST[kind]
    return schema["enum"][0] if "enum" in schema else _LEAST[schema["type"]]


def _text(example: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "example": example}


def _stream_id() -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, "maxLength": STREAM_ID_LENGTH, "pattern": STREAM_ID}
    words = "A profile's name, optionally with a colon and any text in UTF-8, percent-encoded once as one segment."
    examples = {"demo": {"value": "demo"}}
    return _parameter("streamId", "path", schema, words, required=True, examples=examples)


def _query(listing: Listing) -> list[dict[str, Any]]:
    place = {"type": "string", "pattern": _or_empty(listing.place.pattern)}
    limit = {"type": "integer", "minimum": 1, "maximum": listing.most, "default": listing.limit}
    parameters = [
        _parameter("after", "query", place, f"The page begins after this place: {listing.place_is}."),
        _parameter("limit", "query", limit, "How many entries the page has at most."),
    ]
    orders = {"type": "string", "enum": list(listing.orders)}
    words = (
        "Sorts all events from `from` to `to` by their own times, which the profile must name (else 409); more than "
        f"{MOST_SORTED:,} are a 400. Each event has `happened_at`, and a position of this order."
    )
    ordered = [_parameter("order", "query", orders, words)] if listing.orders else []
    return parameters + (_times() if listing.is_timed else []) + ordered


def _times() -> list[dict[str, Any]]:
    times = {"from": "From this instant on.", "to": "Before this instant."}
    return [_parameter(name, "query", INSTANT, words) for name, words in times.items()]


def _parameter(name: str, place: str, schema: Schema, words: str, *, required: bool = False, **more: Any) -> Schema:
    return {"name": name, "in": place, "required": required, "schema": schema, "description": words, **more}


def _or_empty(pattern: str) -> str:
    # ECMA-262, by which JSON Schema has its patterns, spells the character so too.
    return f"^(?:{pattern})?$".replace(r"\0", r"\x00")
