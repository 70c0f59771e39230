"""The JSON Schemas of what the API answers.

Invariant: an object has every member that its schema names and no other, but for those that are named as optional; the
tests hold every answer that they get against this.
"""

import json
from pathlib import Path
from typing import Any

from handlers.api import answers
from handlers.api.event_pages import BY_KEY
from handlers.api.status_words import CLAIMED
from handlers.api.stream_pages import ORDER_BY_TIME
from handlers.connection.gap_record import DELIVERED, FAILED, LOST, OPEN, PARTLY, REPAIRED

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
INSTANT: Schema = {"type": "string", "format": "date-time", "examples": ["2026-11-21T06:25:19.403Z"]}
_KINDS: dict[str, Schema] = {
    "": TEXT,
    "count": COUNT,
    "flag": {"type": "boolean"},
    "instant": INSTANT,
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "usd": {"type": "number", "minimum": 0},
    "state": {"type": "string", "enum": [DELIVERED, OPEN, LOST, REPAIRED, PARTLY, FAILED]},
    "status": {"type": "string", "enum": [*CLAIMED, "stopped", "ended", "rejected", "broken"]},
}


def ref(name: str) -> Schema:
    """Returns a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _map(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def _members(text: str) -> dict[str, Schema]:
    """Returns members by their names, each from `name:kind`, or `name` for a text; with ? if it may be null.

    A kind that begins with a capital letter is a schema of the document; `kind[]` is a list, `kind{}` a map of it.
    """
    members = {}
    for word in text.split():
        name, _, spelled = word.rstrip("?").partition(":")
        kind = spelled.rstrip("[]{}")
        schema = ref(kind) if kind[:1].isupper() else _KINDS[kind]
        schema = {"[]": _list, "{}": _map}.get(spelled[len(kind) :], dict)(schema)
        members[name] = _or_null(schema) if word.endswith("?") else schema
    return members


def _object(members: dict[str, Schema] | str, optional: dict[str, Schema] | str = "", **more: Any) -> Schema:
    required, others = (_members(each) if isinstance(each, str) else each for each in (members, optional))
    return {
        "type": "object",
        "properties": required | others,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


_GAP = _members("from_at:instant? to_at:instant? length_ms:integer cause state:state events:count?")
_REPAIR = _object(
    "stored:count tries:count first_at:instant? last_at:instant? open_from_at:instant? open_to_at:instant? "
    "next_at:instant? reason?"
)
_OF_GAP = {"repair": _REPAIR}
_SHOWN_GAP = _object(_GAP, _OF_GAP)
# The part to which an entry belongs, for a stream that is read in parts.
_OF_PART = _members("stream")
# What a stream in the list has; its own answer has more.
_BRIEF = _members(
    "stream status:status verdict since_at:instant? since_before_at:instant? reason? execution? generation:count "
    "fence:count started_at:instant? stop_requested_at:instant? ended_at:instant? holder:Holder? "
    "last_event_at:instant? events_per_s:number? open_gaps:count open_gaps_at_least:flag ids_restarted_at:instant? "
    "last_error:LastError?"
)
# For a stream that shares a function with others.
_IN_GROUP = _members("group")
# For a stream that is read in parts.
_IN_PARTS = {"parts": _list(_object("stream status:status verdict reason?"))}
_LANE = _object("phase", "fence:count opened_at:instant? seen_at:instant? closed_at:instant? ended_by?")
_COVERAGE = _object(
    _members("since:instant? to_at:instant? reaches_start:flag connected_since_at:instant?")
    | _members(
        "connections:count connected_percent:number complete_percent:number overlap_ms:count waiting_since_at:instant?"
    )
    | {"missing": _object("intervals:count seconds:number events:count?"), "gaps": _list(_SHOWN_GAP)}
)
_COUNTS = _object(
    "connections:count stored:count duplicates:count conflicts:count dead_lettered:count left_out:count "
    "at_least:flag ends:count{}"
)
_DELIVERY = _object(
    "sink delivered:count failed:count dead_lettered:count skipped:count waiting:count lag_ms:count paused:flag "
    "replaying:flag waits? seen_at:instant? newest_received_at:instant?",
    _OF_PART,
)
_EVENT = _object(
    _members("position received_at:instant? id? name? key"),
    _members("happened_at:instant?")
    | _OF_PART
    | {
        "conflict_of": TEXT,
        "data": TEXT | {"description": "The body, where it is text."},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
        "left_out": TEXT
        | {"description": "Where the body is, if it is too large for an answer: table, or an object's key."},
        "repaired": {"type": "boolean", "description": "True if the repair of a gap stored the event."},
        "dead_letter": TEXT | {"description": "Why the event went to the dead-letter queue."},
    },
    description="Exactly one of data, data_base64, left_out and dead_letter is there.",
)
_OUTCOME = {"outcome": {"type": "string", "enum": ["stored", "known", "started", "runs already", "left"]}}
_REDRIVEN = _object(_members("stream key? reason messages:[]") | _OUTCOME | _members("detail"))
_CONNECTION = _object(
    "lane fence:count claimed_at:instant? opened_at:instant? until_at:instant? is_open:flag ended_by? stored:count "
    "duplicates:count dead_lettered:count",
    description="A lane's connection, until its end, its last sign of life, or now while it is open.",
)
_STATE = _object(_members("type comment?") | {"next": _list(_object("to caught:flag"))}, "branches:Graph[]")
_COST = _object(
    {
        **_members("stream from_at:instant? to_at:instant? about_usd:usd forecast_month_usd:usd"),
        "parts": _object("connected_usd:usd events_usd:usd"),
        **_members("hours:usd events:count"),
        "stored_as": {"type": "string", "enum": ["items", "items without an order", "log"]},
        "rates": _object("stage region prices_as_of stream_hour_usd:usd shared_hour_usd:usd million_events_usd:usd{}"),
    },
    description="An estimate, by the rates of the cost model.",
)
_PROBLEM = _object(
    {
        "type": {"type": "string", "format": "uri", "enum": [answers.TYPE + kind for kind in answers.kinds()]},
        "title": TEXT,
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": TEXT | {"description": "What is wrong, in one sentence or two."},
        "field": _or_null(TEXT) | {"description": "The part of the request that is at fault, or null."},
        "fix": TEXT | {"description": "What to do."},
        "request_id": _or_null(TEXT),
    },
    description="RFC 9457",
)


_BUDGET = _object(
    "day_at:instant? events:count bytes:count left_out:count events_per_day:count? bytes_per_day:count? "
    "used_percent:count of then paused_until_at:instant?"
)
_FLEET = _object(
    _members("state dry_run:flag message started:count stopped:count as_wanted:count left:count")
    | {"wanted": _object("connected:count stopped:count patterns:count")}
    | _members("refused_and_tried_again:count round:count position? a_second:count execution?")
    | {"not_yet": _list(_object("stream wanted status why"))}
    | _members("begun_at:instant? ended_at:instant? seconds:count?")
)


def schemas() -> dict[str, Schema]:
    """Returns each schema of the document, by its name, with what its members mean."""
    said = json.loads(Path(__file__).with_name("meanings.json").read_text(encoding="utf-8"))
    said["BriefStream"] = said["Stream"]
    return {name: _explained(schema, said.get(name, {})) for name, schema in _schemas().items()}


def _explained(schema: Schema, said: dict[str, str]) -> Schema:
    members = schema.get("properties", {}).items()
    shown = {name: one | {"description": said[name]} if name in said else one for name, one in members}
    return schema | {"properties": shown} if shown else schema


# The counts of streams are the local run's alone.
_STARTED = _object(
    "executionArn startDate:number already_running:flag",
    {
        "streams": _object("running:count most:count"),
        "parts": _list(_object("stream executionArn startDate:number already_running:flag")),
    },
)


def _schemas() -> dict[str, Schema]:
    stopped = ("stream", "status", "reason", "execution", "stop_requested_at", "ended_at", "holder")
    parts = {
        "cursor": _object("value saved_at:instant?"),
        "coverage": _COVERAGE,
        "pace": _object("silent_ms:count? usual_every_ms:count? longest_pause_ms:count? quiet_after_ms:count?"),
        "stuck_at_cursor": _object("value? same_ends:count ended_by?"),
        "budget": _BUDGET,
        "bill": _object("since_at:instant? so_far_usd:number forecast_month_usd:number"),
    }
    known = {name: {"anyOf": [schema, {"type": "null"}]} for name, schema in parts.items()}
    stream = _BRIEF | {"lanes": _map(_LANE)} | known | {"counts": _COUNTS}
    return {
        "Index": _object({"service": {"const": "streamkeeper"}} | _members("routes:{} profiles:[] documentation")),
        "StreamPage": _object("streams:BriefStream[] next?"),
        "BriefStream": _object(_BRIEF | _members("lag_ms:count?"), _IN_GROUP | _IN_PARTS),
        "Stream": _object(stream, _IN_GROUP | _IN_PARTS | _members("profile_problem") | {"delivery": _list(_DELIVERY)}),
        "Holder": _object("lane fence:count request_id", description="The open connection that holds the lease."),
        "LastError": _object(
            "message cause http_status:count? detail? at:instant? since:instant? failures:count lane? fence:count? "
            "tried_again_at:instant? tried_again_by:instant? final_at:instant? over_at:instant?"
        ),
        "SinkPage": _object(_members("stream") | {"sinks": _list(_DELIVERY)}),
        "Event": _EVENT,
        "EventPage": _object("stream events:Event[] next?", {"order": {"enum": [BY_KEY, ORDER_BY_TIME]}}),
        "Gap": _object(
            _GAP | _members("position?"), _OF_GAP | _OF_PART, description="A gap without a position has not ended yet."
        ),
        "Repairs": _object(
            _members("stream is_dry_run:flag")
            | {"gaps": _list(_object("from_at:instant to_at:instant state:state", _OF_GAP))}
        ),
        "GapPage": _object("stream gaps:Gap[] next?"),
        "Started": _STARTED,
        "Stopped": _object({name: _BRIEF[name] for name in stopped} | _members("message")),
        "Timeline": _object(
            _members("stream from_at:instant to_at:instant is_repairable:flag connections:Connection[]")
            | {"gaps": _list(_SHOWN_GAP)}
        ),
        "Connection": _CONNECTION,
        "Machine": _object("stream execution? execution_status? graph:Graph? current:[]"),
        "Graph": _object(_members("start") | {"states": _map(_STATE)}),
        "Cost": _COST,
        "Latest": _object("stream after?"),
        "Fleet": _FLEET,
        "FleetDocument": _object({}, {"connected": _list(TEXT), "stopped": _list(TEXT)}),
        "Redriven": _object(
            _members("stream") | {"dead_letters": _list(_REDRIVEN)} | _members("counts:count{} is_all:flag")
        ),
        "DeadLetterPage": _object(
            _members("stream")
            | {"dead_letters": _list(_object("id sent_at:instant? is_event:flag key? part? reason", _OF_PART))}
            | _members("is_all:flag")
        ),
        "Problem": _PROBLEM,
    }
