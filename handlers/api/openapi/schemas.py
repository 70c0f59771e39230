"""The JSON Schemas of what the API answers.

Invariant: an object has every member that its schema names and no other, but for those that are named as optional; the
tests hold every answer that they get against this.
"""

from typing import Any

from handlers.api import problems
from handlers.api.event_pages import BY_KEY
from handlers.api.status_words import CLAIMED

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
INSTANT: Schema = {"type": "string", "format": "date-time", "examples": ["2026-11-21T06:25:19.403Z"]}
STATUSES = (*CLAIMED, "stopped", "ended", "rejected", "broken")


def ref(name: str) -> Schema:
    """A reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _object(members: dict[str, Schema], optional: dict[str, Schema] | None = None, **more: Any) -> Schema:
    properties = members | (optional or {})
    return {
        "type": "object",
        "properties": properties,
        "required": list(members),
        "additionalProperties": False,
        **more,
    }


_ERROR = {
    "message": TEXT,
    "cause": TEXT,
    "http_status": _or_null(COUNT),
    "detail": _or_null(TEXT),
    "at": _or_null(INSTANT),
    "since": _or_null(INSTANT),
    "failures": COUNT,
    "lane": _or_null(TEXT),
    "fence": _or_null(COUNT),
    "tried_again_at": _or_null(INSTANT),
    "tried_again_by": _or_null(INSTANT),
    "final_at": _or_null(INSTANT),
    "over_at": _or_null(INSTANT),
}
_HOLDER = {"lane": TEXT, "fence": COUNT, "request_id": TEXT}
_GAP = {
    "from_at": _or_null(INSTANT),
    "to_at": _or_null(INSTANT),
    "length_ms": {"type": "integer"},
    "cause": TEXT,
    "closed_by_cursor": FLAG,
}
# What a stream in the list has; its own answer has more.
_BRIEF = {
    "stream": TEXT,
    "status": {"type": "string", "enum": list(STATUSES)},
    "reason": _or_null(TEXT),
    "execution": _or_null(TEXT),
    "generation": COUNT,
    "fence": COUNT,
    "started_at": _or_null(INSTANT),
    "stop_requested_at": _or_null(INSTANT),
    "ended_at": _or_null(INSTANT),
    "holder": _or_null(ref("Holder")),
    "last_error": _or_null(ref("LastError")),
}
# Of a stream that shares a function with others.
_IN_GROUP = {"group": TEXT}
_LANE = _object(
    {"phase": TEXT},
    {
        "fence": COUNT,
        "opened_at": _or_null(INSTANT),
        "seen_at": _or_null(INSTANT),
        "closed_at": _or_null(INSTANT),
        "ended_by": _or_null(TEXT),
    },
)
_COVERAGE = _object(
    {
        "from_at": _or_null(INSTANT),
        "to_at": _or_null(INSTANT),
        "reaches_start": FLAG,
        "connected_since_at": _or_null(INSTANT),
        "connections": COUNT,
        "percent": {"type": "number"},
        "overlap_ms": COUNT,
        "gap_ms": COUNT,
        "gaps": _list(_object(_GAP)),
    }
)
_COUNTS = _object(
    {
        **dict.fromkeys(("connections", "stored", "duplicates", "conflicts", "dead_lettered"), COUNT),
        "at_least": FLAG,
        "ends": {"type": "object", "additionalProperties": COUNT},
    }
)
_DELIVERY = _object(
    {
        "sink": TEXT,
        **dict.fromkeys(("delivered", "failed", "dead_lettered", "lag_ms"), COUNT),
        "waits": _or_null(TEXT),
        **dict.fromkeys(("seen_at", "newest_received_at"), _or_null(INSTANT)),
    }
)
_STUCK = _object({"value": _or_null(TEXT), "same_ends": COUNT, "ended_by": _or_null(TEXT)})
_EVENT = _object(
    {"position": TEXT, "received_at": _or_null(INSTANT), "id": _or_null(TEXT), "name": _or_null(TEXT), "key": TEXT},
    {
        "conflict_of": TEXT,
        "data": TEXT | {"description": "The body, where it is text."},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
        "left_out": TEXT | {"description": "Where the body is that no answer holds: table, or an object's key."},
        "dead_letter": TEXT | {"description": "Why the event went to the dead-letter queue."},
    },
    oneOf=[{"required": [name]} for name in ("data", "data_base64", "left_out", "dead_letter")],
)
_DEAD_LETTER = _object(
    {
        "id": TEXT,
        "sent_at": _or_null(INSTANT),
        "is_event": FLAG,
        "key": _or_null(TEXT),
        "part": _or_null(TEXT),
        "reason": TEXT,
    }
)
_REDRIVEN = _object(
    {
        "stream": TEXT,
        "key": _or_null(TEXT),
        "reason": TEXT,
        "messages": _list(TEXT),
        "outcome": {"type": "string", "enum": ["stored", "known", "started", "runs already", "left"]},
        "detail": TEXT,
    }
)
_CONNECTION = _object(
    {
        "lane": TEXT,
        "fence": COUNT,
        "claimed_at": _or_null(INSTANT),
        "opened_at": _or_null(INSTANT),
        "until_at": _or_null(INSTANT),
        "is_open": FLAG,
        "ended_by": _or_null(TEXT),
        **dict.fromkeys(("stored", "duplicates", "dead_lettered"), COUNT),
    },
    description="What a lane had: until its end, or until it was last heard of, or now while it is open.",
)
_STATE = _object(
    {"type": TEXT, "comment": _or_null(TEXT), "next": _list(_object({"to": TEXT, "caught": FLAG}))},
    {"branches": _list(ref("Graph"))},
)
_GRAPH = _object({"start": TEXT, "states": {"type": "object", "additionalProperties": _STATE}})
_USD: Schema = {"type": "number", "minimum": 0}
_COST = _object(
    {
        "stream": TEXT,
        "from_at": _or_null(INSTANT),
        "to_at": _or_null(INSTANT),
        "about_usd": _USD,
        "parts": _object({"connected_usd": _USD, "events_usd": _USD}),
        "hours": {"type": "number", "minimum": 0},
        "events": COUNT,
        "stored_as": {"type": "string", "enum": ["items", "items without an order", "log"]},
        "rates": _object(
            {
                **dict.fromkeys(("stage", "region", "prices_as_of"), TEXT),
                "stream_hour_usd": _USD,
                "million_events_usd": {"type": "object", "additionalProperties": _USD},
            }
        ),
    },
    description="An estimate, by the rates of the cost model.",
)
_PROBLEM = _object(
    {
        "type": {"type": "string", "format": "uri", "enum": [problems.TYPE + kind for kind in problems.kinds()]},
        "title": TEXT,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": TEXT | {"description": "What is wrong, in one sentence or two."},
        "field": _or_null(TEXT) | {"description": "What of the request is at fault; null where nothing is."},
        "fix": TEXT | {"description": "What to do."},
        "request_id": _or_null(TEXT),
    },
    description="RFC 9457",
)


def schemas() -> dict[str, Schema]:
    """Each schema of the document, by its name."""
    cursor = _object({"value": TEXT, "saved_at": _or_null(INSTANT)})
    stopped = ("stream", "status", "reason", "execution", "stop_requested_at", "ended_at", "holder")
    return {
        "Index": _object(
            {
                "service": {"const": "streamkeeper"},
                "routes": {"type": "object", "additionalProperties": TEXT},
                "profiles": _list(TEXT),
                "documentation": TEXT,
            }
        ),
        "Streams": _object({"streams": _list(ref("BriefStream")), "next": _or_null(TEXT)}),
        "BriefStream": _object(_BRIEF, _IN_GROUP),
        "Stream": _object(
            _BRIEF
            | {
                "lanes": {"type": "object", "additionalProperties": _LANE},
                "cursor": {"anyOf": [cursor, {"type": "null"}]},
                "coverage": {"anyOf": [_COVERAGE, {"type": "null"}]},
                "stuck_at_cursor": {"anyOf": [_STUCK, {"type": "null"}]},
                "counts": _COUNTS,
            },
            _IN_GROUP | {"delivery": _list(_DELIVERY)},
        ),
        "Holder": _object(_HOLDER, description="The open connection that holds the lease."),
        "LastError": _object(_ERROR),
        "Event": _EVENT,
        "Events": _object(
            {"stream": TEXT, "events": _list(ref("Event")), "next": _or_null(TEXT)}, {"order": {"const": BY_KEY}}
        ),
        "Gap": _object(_GAP | {"position": _or_null(TEXT)}, description="Without a position: nobody has ended it yet."),
        "Gaps": _object({"stream": TEXT, "gaps": _list(ref("Gap")), "next": _or_null(TEXT)}),
        "Started": _object(
            {"executionArn": TEXT, "startDate": {"type": "number"}, "already_running": FLAG},
            # The local run's alone.
            {"streams": _object({"running": COUNT, "most": COUNT})},
        ),
        "Stopped": _object({name: _BRIEF[name] for name in stopped} | {"message": TEXT}),
        "Timeline": _object(
            {
                "stream": TEXT,
                "from_at": INSTANT,
                "to_at": INSTANT,
                "connections": _list(ref("Connection")),
                "gaps": _list(_object(_GAP)),
            }
        ),
        "Connection": _CONNECTION,
        "Machine": _object(
            {
                "stream": TEXT,
                "execution": _or_null(TEXT),
                "execution_status": _or_null(TEXT),
                "graph": _or_null(ref("Graph")),
                "current": _list(TEXT),
            }
        ),
        "Graph": _GRAPH,
        "Cost": _COST,
        "Latest": _object({"stream": TEXT, "after": _or_null(TEXT)}),
        "Redriven": _object(
            {
                "stream": TEXT,
                "dead_letters": _list(_REDRIVEN),
                "counts": {"type": "object", "additionalProperties": COUNT},
                "is_all": FLAG,
            }
        ),
        "DeadLetters": _object({"stream": TEXT, "dead_letters": _list(_DEAD_LETTER), "is_all": FLAG}),
        "Problem": _PROBLEM,
    }
