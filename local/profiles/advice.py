"""Explains how a profile resumes, and warns of consequences that the author of a valid profile may not expect.

For example a profile of JSON lines without `resume` is valid, but loses what comes while it is not connected.
Invariant: no warning repeats what may contain a secret; a profile without a warning resumes, and closes its gaps.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from handlers.framing.marks import Kind
from handlers.profile.behaviour import Profile
from handlers.profile.repair_field import unintended_notes
from local.profiles import schema

_PLACES = {"header": "in the header {}", "query": "in the query parameter {}", "body": "at {} of the body"}
# Subprotocols of WebSocket whose messages no profile can say or read, even in parts of a name: mqttv3.1, v12.stomp.
_UNREADABLE_PROTOCOLS = re.compile("mqtt|amqp|stomp", re.IGNORECASE)
_MARKS = frozenset({"heartbeat", "end", "loss", "disconnect", "snapshot"})
_FIELDS = (frozenset(Profile.__dataclass_fields__) - {"name", "marks"}) | _MARKS


def resumption_sentence(profile: Profile) -> str:
    """How the profile requests what came after its cursor, as a sentence without its full stop."""
    resume = profile.resume
    if resume is None:
        lost = "is lost" if profile.repair is None else "is fetched by repair"
        return f"does not resume: what comes while it is not connected {lost}"
    asked = resume.pattern.replace("{cursor}", _cursor_words(profile))
    if resume.place == "message":
        return f"resumes with {asked} in a message (subscribe)"
    default = " (the default of server-sent events)" if resume.is_default else ""
    return f"resumes with {asked} {_PLACES[resume.place].format(resume.name)}{default}"


def storage_sentence(profile: Profile) -> str | None:
    """How the profile stores events, as a sentence without its full stop; None if it does as usual."""
    if profile.store == "items":
        unordered = "stores items without an index: half the write units, and they are read by key, not by arrival"
        return unordered if profile.order == "none" else None
    waits = f"an event waits for others for {profile.flush_s:g} s at most"
    return f"stores in a log: {waits}, and its key is remembered for {profile.dedup_window_s} s"


def single_request_sentence(profile: Profile) -> str:
    """The meaning of `again = false`, as a sentence without its full stop."""
    why = "again = false" if profile.method == "GET" else "a POST is repeated only with again = true"
    return f"is requested once ({why}): no handover; an answer that ends without its end mark is broken, with an alert"


def parts_sentence(profile: Profile) -> str:
    """How many connections a profile with parts opens, as a sentence without its full stop."""
    count = len(profile.parts)
    twice = f", and {2 * count} at handovers" if profile.overlap == "tolerates" else ""
    return f"is read in {count} parts: the upstream must allow {count} connections{twice}"


def selection_sentence(profile: Profile) -> str:
    """The events that a profile with `keep` stores, as a sentence without its full stop."""
    rules = []
    for rule in profile.keep:
        parts = [f"are named {_join_with_or(rule.names)}"] if rule.names else []
        if rule.path is not None:
            values = (value for _, value in rule.values)
            parts.append(f"have {_join_with_or(values) if rule.values else 'anything'} at {rule.path.text}")
        rules.append(" and ".join(parts))
    return f"keeps events that {', or that '.join(rules)}; all others are counted and not stored"


def _join_with_or(values: Iterable[Any]) -> str:
    return " or ".join(sorted(json.dumps(value, ensure_ascii=False) for value in values))


def resumption_as_json(profile: Profile) -> dict[str, Any] | None:
    """The same for programs; None if the profile does not resume."""
    resume = profile.resume
    if resume is None:
        return None
    cursor = profile.cursor if isinstance(profile.cursor, str) else _cursor_words(profile)
    return {"in": resume.place, "name": resume.name, "cursor": cursor, "is_default": resume.is_default}


def warnings(profile: Profile) -> list[str]:
    """What is valid in the profile but may not be intended, as sentences without full stops."""
    warned: list[str] = []
    if profile.repair is not None:
        # A repair closes gaps.
        warned += unintended_notes(profile.repair, profile.key, profile.split, profile.keep)
    elif profile.again and profile.resume is None:
        unsent = (
            ""
            if profile.cursor in (None, "id")
            else f"; {_cursor_words(profile)} is saved as the cursor and never sent"
        )
        warned.append(f"it cannot resume: every interval without a connection is a gap that stays open{unsent}")
    elif profile.again and profile.resume is not None and profile.resume.is_default:
        warned.append(
            "it is unknown whether the upstream keeps what it has sent, so a gap stays open in the ledger; "
            'if it does, write resume = { header = "Last-Event-ID" }'
        )
    if not profile.again and not any(kind is Kind.END for kind, _ in profile.marks.pairs):
        warned.append("it is requested once (again = false) and has no end mark, so every answer ends as broken")
    if profile.ticket is not None and profile.ticket.opens is None and "{ticket" not in "".join(profile.texts):
        warned.append("a ticket is requested before each opening and never sent, because no field holds {ticket}")
    forgets_first = profile.resume is not None and 0 < profile.resume.reach_s <= profile.flush_s
    if (profile.store == "log" or profile.may_go_to_log) and forgets_first:
        warned.append(
            "flush_s is as long as the upstream remembers: a new connection may request what it has forgotten"
        )
    if profile.key == "each" and (profile.resume is not None or profile.overlap == "tolerates"):
        warned.append('with key = "each" an event that two connections deliver is stored twice')
    spoken = next((value for name, value in profile.headers if name.lower() == "sec-websocket-protocol"), "")
    if (other := _UNREADABLE_PROTOCOLS.search(spoken)) is not None:
        warned.append(f"{other[0].upper()} over a WebSocket is not read: docs/not-read.md says what to do")
    if profile.order == "none" and profile.key in ("hash", "each"):
        warned.append('with order = "none" events are read by key, and these keys have no order: no reader can follow')
    return warned


def misplaced_fields(table: Mapping[str, Any]) -> list[str]:
    """Names in a table of a profile's file that may be meant as fields of the profile, a sentence each.

    In TOML, everything behind `[headers]` belongs to that table.
    """
    form = schema.profile_schema()
    own, shared = form["properties"], form["definitions"]
    return [
        f"{outer}.{name} is in the table {outer}; if it is meant as a field of the profile, "
        "move it above the first [table]"
        for outer, inner in table.items()
        for one in (inner if isinstance(inner, list) else [inner])
        if isinstance(one, Mapping)
        for name in one
        if name in _FIELDS - set(_names(own.get(outer), shared))
    ]


def _names(form: Any, shared: Mapping[str, Any]) -> Iterator[str]:
    """The names that a table may contain by its JSON Schema, at any depth; `shared` are the schema's definitions."""
    for name, one in form.items() if isinstance(form, Mapping) else enumerate(form) if isinstance(form, list) else ():
        yield from one if name == "properties" else ()
        yield from _names(shared[one.rpartition("/")[2]] if name == "$ref" else one, shared)


def cursor_warning(profile: Profile, events: int, cursor: str | None) -> str | None:
    """Why the stream that was read cannot be resumed although the profile does; None if it can, or nothing came."""
    if profile.resume is None or not events or cursor is not None:
        return None
    lacked = "an id" if profile.cursor == "id" else f"anything at {_cursor_words(profile)}"
    return f"it cannot resume: none of the events had {lacked}"


def _cursor_words(profile: Profile) -> str:
    cursor = profile.cursor
    if cursor is None:  # only heartbeats have one
        paths = [mark.cursor.text for _, mark in profile.marks.pairs if mark.cursor is not None]
        return paths[0] if paths else "the last event ID"
    return "the last event ID" if cursor == "id" else getattr(cursor, "text", str(cursor))
