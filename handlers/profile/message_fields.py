"""Parses the fields about a socket (`subscribe`, `ping`, `reply` …) and about numbers (`sequence`).

Invariant: whatever is returned without a note in `Fields` is valid.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from handlers.framing.events import parse_path
from handlers.framing.marks import Kind, Mark
from handlers.profile import addresses, sections
from handlers.profile.checked_fields import A_PATH, PATH, Fields, Form, element_hint, number
from handlers.profile.mark_fields import read_list, read_mark
from handlers.profile.messages import CLOSE_MEANINGS, Exchange, Numbering, carries_cursor, paths_in

if TYPE_CHECKING:
    from handlers.framing.splitting import Split

# RFC 6455, section 7.4: 1005 stands for a close without a code, and no close frame has the others below 3000.
CODE = (
    re.compile(r"100[0-357-9]|101[0-4]|[34][0-9]{3}"),
    "a close code: 1000 to 1003, 1005, 1007 to 1014 or 3000 to 4999",
)
_SHAPES = {
    "subscribe": '[{ send = { op = "subscribe" }, expect = { "$.op" = "subscribed" } }]',
    "ping": '{ send = { op = "ping" }, every_s = 20 }',
    "leave": '{ send = { op = "unsubscribe" } }',
    "reply": '{ to = { "$.op" = "ping" }, send = { op = "pong" } }',
}
_MOST_MESSAGES = 100


class Conversation(NamedTuple):
    """The fields about a socket as `Profile` has them, and the marks of messages that are answers or refusals.

    `carries_cursor` is whether one of the first messages carries the cursor.
    """

    fields: dict[str, Any]
    marks: list[tuple[Kind, Mark]]
    carries_cursor: bool


def conversation(fields: Fields) -> Conversation:
    """Returns the messages on the socket and their answers."""
    subscribe, ping = _several(fields, "subscribe", _first), _ping(fields)
    codes = sections.meanings(fields, "close_codes", '{ 4001 = "rejected" }', CODE, CLOSE_MEANINGS)
    more = {"leave": _leave(fields), "reply": _several(fields, "reply", _reply), "close_codes": codes}
    answered = [*subscribe, *([] if ping is None else [ping])]
    marks = [
        *((Kind.REFUSAL, mark) for one in answered for mark in one.refuse),
        *((Kind.ANSWER, mark) for one in answered for mark in one.expect),
    ]
    return Conversation({"subscribe": subscribe, "ping": ping, **more}, marks, carries_cursor(subscribe))


def numbering(fields: Fields, split: "Split | None") -> Numbering | None:
    """Returns where events are numbered: a path, or { path = "$.seq", by = "$.product" }; `[*]` is an element."""
    value, by = fields.take("sequence"), None
    read = parse_path if split is None else split.path_of
    more = element_hint(value)
    form = Form(A_PATH.schema, f"must be {PATH}{more}", lambda one: read(one) if isinstance(one, str) else None)
    if isinstance(value, dict):
        inner = fields.fields_of("sequence", value)
        path, by = inner.read_required("path", form), inner.read("by", form)
        inner.refuse_unknown("sequence: path, by")
        if path is not None and path == by:
            inner.add_problem("by", "must be another path than path, or no row would have two numbers")
    elif (path := form.read(value)) is None:
        fields.add_problem("sequence", f'must be {PATH}, or {{ path = "$.seq", by = "$.product" }}{more}')
    return None if path is None else Numbering(path, by)


def _several(fields: Fields, field: str, read: Callable[[Fields], Exchange]) -> tuple[Exchange, ...]:
    """Returns the messages of a field that has one or a list of them."""
    value = fields.take(field)
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if len(listed) > _MOST_MESSAGES or (value is not None and not listed):
        fields.add_problem(field, f"must have from 1 to {_MOST_MESSAGES} messages")
    exchanges = []
    for at, one in enumerate(listed[:_MOST_MESSAGES]):
        where = f"{field}[{at}]" if isinstance(value, list) else field
        if isinstance(one, dict):
            exchanges.append(read(fields.fields_of(where, one)))
        else:
            fields.add_problem(where, f"must be {_SHAPES[field]}")
    return tuple(exchanges)


def _first(inner: Fields) -> Exchange:
    # Without a message, the connection waits for what the upstream sends by itself.
    exchange = _exchange(inner, "expect", needs_message=not inner.has("expect"))
    inner.refuse_unknown("subscribe: send, expect, refuse, reason, within_s")
    return exchange


def _reply(inner: Fields) -> Exchange:
    to = _answers(inner, "to")
    if not to:
        inner.add_problem(
            "to", 'must be the mark of the message to answer: { "$.op" = "ping" }, a text, or a list of such'
        )
    send = _message(inner, is_needed=True, has_paths=True)
    inner.refuse_unknown("reply: to, send")
    return Exchange(send, to)


def _ping(fields: Fields) -> Exchange | None:
    inner = fields.table("ping", _SHAPES["ping"])
    if inner is None:
        return None
    every_s = inner.read_required("every_s", number(above=0, most=3600))
    exchange = _exchange(inner, "answer", needs_message=False)
    if exchange.send is None and exchange.expect:
        inner.add_problem("answer", "needs send: without it the protocol's own ping is sent, which a pong answers")
    inner.refuse_unknown("ping: send, every_s, answer, within_s")
    return dataclasses.replace(exchange, every_ms=round((every_s or 20) * 1000))


def _leave(fields: Fields) -> Exchange | None:
    inner = fields.table("leave", _SHAPES["leave"])
    if inner is None:
        return None
    send = _message(inner, is_needed=True)
    inner.refuse_unknown("leave: send")
    return Exchange(send)


def _exchange(inner: Fields, answer: str, *, needs_message: bool) -> Exchange:
    send = _message(inner, is_needed=needs_message)
    is_awaited, expect = inner.has(answer), _answers(inner, answer)
    within_s = inner.read("within_s", number(above=0, most=60), 10)
    if answer != "expect":
        return Exchange(send, expect, within_ms=round(within_s * 1000))
    refuse, reason = _answers(inner, "refuse"), inner.read("reason", A_PATH)
    if refuse and not is_awaited:
        inner.add_problem("refuse", "needs expect: without it no answer is awaited")
    if reason is not None and not refuse:
        inner.add_problem("reason", "needs refuse: the marks of the message that contains it")
    return Exchange(send, expect, refuse, reason, round(within_s * 1000))


def _message(inner: Fields, *, is_needed: bool, has_paths: bool = False) -> Any:
    """Returns the message to send, its references and placeholders not filled in yet."""
    value = inner.take("send")
    if value is None:
        if is_needed:
            inner.add_problem("send", "is missing: it must be a text, or a table or list that is sent as JSON")
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        text = ""
    if not text or not isinstance(value, str | dict | list):
        inner.add_problem(
            "send", "must be a text, or a table or list that JSON can express: no dates, no infinite numbers"
        )
        return None
    if misspelt := addresses.misspelt_placeholder(text):
        inner.add_problem(
            "send", f"contains {misspelt}, which is unknown; the placeholders are {addresses.KNOWN}, and {{cursor}}"
        )
    for place in paths_in(text):
        if not has_paths:
            inner.add_problem(
                "send", f"contains {{{place}}}: only a reply may hold a part of the message that it answers"
            )
        elif parse_path(place) is None:
            inner.add_problem("send", f"contains {{{place}}}, which is not a JSON path such as {{$.id}}")
    sections.check_message(inner, "send", value)
    return value


def _answers(inner: Fields, field: str) -> tuple[Mark, ...]:
    return tuple(read_list(inner, field, lambda one: read_mark({"data": one} if isinstance(one, str) else one)))
