"""Turns the TOML table of a profile into a `Profile`, or names everything that is wrong with it.

It reads no file and no environment: the caller passes both. Invariant: a `Profile` that `parse` returns is valid, so
nothing after it checks it again. An unknown field is a problem too, so a typing error never passes.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from handlers.framing.decoders import FRAMINGS
from handlers.framing.marks import Kind, Mark, make_marks
from handlers.profile import addresses, mark_fields, sections
from handlers.profile.addresses import check_address, expand_variable
from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import BadProfile, Fields
from handlers.profile.resume import BY_MESSAGE, LAST_EVENT_ID
from handlers.profile.resume import resume as parse_resume
from handlers.profile.secret_references import mask_references, references

# Fields that only a socket, or a numbered feed, has.
_OF_SOCKETS = ("subscribe", "ping", "leave", "reply", "close_codes")
# The readers of rare fields, if their modules or functions have other names than the field.
_RARE = {
    "deliver": ("deliver_field", "targets"),
    "check_parts": ("parts_field", "check_parts"),
    "time": ("time_field", "own_time"),
    "sequence": ("message_fields", "numbering"),
    "conversation": ("message_fields", "conversation"),
}
_MARKS = {
    "disconnect": Kind.DISCONNECT,
    "end": Kind.END,
    "loss": Kind.LOSS,
    "heartbeat": Kind.HEARTBEAT,
    "snapshot": Kind.SNAPSHOT,
}


def parse(
    name: str,
    table: Mapping[str, Any],
    variables: Mapping[str, str],
    *,
    keep_days: int = 0,
    stage_budget: tuple[int, int] = (0, 0),
) -> Profile:
    """Returns the profile of `table`, a TOML document; raises BadProfile with all of its problems.

    An address may begin with one of `variables` (`${UPSTREAM_DEMO}`); `keep_days` is the stage's, for a profile that
    does not say. `stage_budget` is how many events and bytes all streams may store in a day, 0 for no bound.
    """
    fields = Fields(name, table, [])
    profile = read(fields, name, table, variables, keep_days)
    if fields.problems:
        raise BadProfile(fields.problems)
    if any(stage_budget):
        from handlers.profile import budget_field

        profile = dataclasses.replace(profile, budget=budget_field.with_stage(profile.budget, *stage_budget))
    return profile


def read(fields: Fields, name: str, table: Mapping[str, Any], variables: Mapping[str, str], keep_days: int) -> Profile:
    """Returns the profile that the fields describe, with a default for each absent or wrong one; notes problems."""

    def check(text: str) -> str:
        address = expand_variable(text, variables)
        check_address(mask_references(address), may_be_socket=True)
        references(address.partition("?")[2])
        return address

    def rare(name: str, *given: Any, absent: Any = None, **more: Any) -> Any:
        return _reader(name)(fields, *given, **more) if name in table else absent

    values = {
        one.name: fields.read(one.name, one.metadata["form"], one.metadata["default"])
        for one in dataclasses.fields(Profile)
        if one.metadata
    }
    values |= _defaults(values, table, keep_days)
    has_ids = FRAMINGS[values["framing"]].has_ids
    split = rare("split")
    cursor = sections.rule(fields, "cursor", ("id",), has_ids, split) or ("id" if has_ids else None)
    talk = _reader("conversation")(fields) if any(name in table for name in _OF_SOCKETS) else None
    by_message = talk is not None and talk.carries_cursor
    resume, expired = parse_resume(fields, BY_MESSAGE if by_message else LAST_EVENT_ID if cursor == "id" else None)
    marked = [*expired, *(talk.marks if talk is not None else []), *_marks(fields)]
    time = _time(fields, table)
    address = fields.read_checked("address", check)
    keep = rare("keep", split, absent=(), has_names=has_ids)
    key = sections.rule(fields, "key", ("id", "hash", "each"), has_ids, split) or ("id" if has_ids else "hash")
    profile = Profile(
        name=name,
        address=address,
        headers=sections.headers(fields),
        body=sections.body(fields, values["method"], resume),
        statuses=sections.statuses(fields),
        marks=make_marks(marked),
        backoff=sections.backoff(fields),
        resume=resume,
        split=split,
        key=key,
        cursor=cursor,
        deliver=rare("deliver", absent=()),
        parts=rare("parts", absent=()),
        keep=keep,
        sequence=rare("sequence", split),
        time=time,
        **({} if talk is None else talk.fields),
        token=rare("token", check, allow_private=values["allow_private"]),
        ticket=rare("ticket", check),
        tls=rare("tls"),
        budget=rare("budget"),
        repair=rare("repair", key, split, variables, time, keep),
        **values,
    )
    rare("columns")  # they are the archive's: no function uses them, but their problems are noted
    _check(fields, profile, table, [mark for _, mark in marked], has_ids)
    return profile


def _time(fields: Fields, table: Mapping[str, Any]) -> Any:
    """Returns where the events' own time is; None if the profile does not say."""
    time = _reader("time")(fields) if {"time", "time_unit"} & set(table) else None
    if time is not None and time.path is None and "time" not in table:
        fields.add_problem("time", 'must be a JSON path such as "$.meta.at", because time_unit is given')
    return time


def _defaults(values: Mapping[str, Any], table: Mapping[str, Any], keep_days: int) -> dict[str, Any]:
    """Returns the defaults that depend on the stage or on other fields."""
    again = addresses.is_repeated(values["method"], values["again"])
    return {
        "keep_days": keep_days if values["keep_days"] is None else values["keep_days"],
        "again": again,
        "overlap": values["overlap"] if again or "overlap" in table else "forbids",
    }


def _marks(fields: Fields) -> Iterator[tuple[Kind, Mark]]:
    for name, kind in _MARKS.items():
        yield from mark_fields.read_marks(fields, name, kind)


def _reader(name: str) -> Callable[..., Any]:
    """Returns the reader of a rare field, imported only when needed: each import lengthens the cold start."""
    module, function = _RARE.get(name, (f"{name}_field", name))
    reader: Callable[..., Any] = getattr(import_module(f"handlers.profile.{module}"), function)
    return reader


def _check_places(fields: Fields, profile: Profile) -> None:
    """Notes a placeholder of a token or a ticket that the profile does not have."""
    known = {"token"} if profile.token is not None else set()
    texts = [("address", profile.address), ("body", profile.body or "")]
    texts += [(f"headers.{name}", text) for name, text in profile.headers]
    texts += [("a message on the socket", one.text) for one in profile.exchanges]
    if profile.ticket is not None:
        texts += [("ticket", text) for text in profile.ticket.texts if addresses.places_in(text) - known]
        known |= {name for name, _ in profile.ticket.places}
    for field, text in texts:
        for name in sorted(addresses.places_in(text) - (known if field != "ticket" else known & {"token"})):
            fields.add_problem(field, f"contains {{{name}}}, but the profile has no token or ticket that fills it")
    if (repair := profile.repair) is not None:
        sent = [text for _, text in (profile.headers if repair.headers is None else repair.headers)]
        filled = {"token"} if repair.headers is None else set[str]()
        for name in sorted(addresses.places_in(repair.address) | addresses.places_in(" ".join(sent)) - filled):
            fields.add_problem(
                "repair", f"cannot send {{{name}}}: give it an address, and headers of its own, without that"
            )


def _check_framing(fields: Fields, profile: Profile, table: Mapping[str, Any]) -> None:
    """Notes fields that need another framing: event streams only, sockets only, or anything but a socket."""
    if "retry_max_s" in table and profile.framing != "sse":
        fields.add_problem(
            "retry_max_s", 'works only with framing = "sse": no other lets an upstream set a reconnection time'
        )
    is_of_socket = profile.address.partition(":")[0].lower() in ("ws", "wss")
    if not profile.is_socket:
        for name in (*_OF_SOCKETS, "snapshot"):
            if name in table:
                fields.add_problem(
                    name,
                    'works only with framing = "websocket": over HTTP nothing can be sent while the stream is read',
                )
        if is_of_socket:
            fields.add_problem("framing", 'must be "websocket" if the address begins with ws:// or wss://')
        return
    if profile.method != "GET":
        fields.add_problem("method", 'must be "GET" with framing = "websocket": the handshake is a GET without a body')
    if profile.resume is not None and profile.resume.place == "body":
        fields.add_problem("resume.body", 'must be left out with framing = "websocket": put "{cursor}" into subscribe')


def _check_store(fields: Fields, profile: Profile, table: Mapping[str, Any]) -> None:
    """Notes fields that are for the other way to store events."""
    if profile.may_go_to_log and (profile.store == "log" or profile.order == "none" or profile.on_conflict != "first"):
        fields.add_problem(
            "budget.then", 'can be "log" only with store = "items", order = "index" and on_conflict = "first"'
        )
    if profile.store == "items" and profile.may_go_to_log:
        return
    if profile.store == "items":
        for name in ("flush_s", "dedup_window_s"):
            if name in table:
                fields.add_problem(
                    name, 'works only with store = "log": items are written at once, and their keys are never forgotten'
                )
        return
    if "order" in table:
        fields.add_problem("order", 'works only with store = "items": a log is always in order, and has no index')
    if profile.partitions != 1:
        fields.add_problem(
            "partitions", 'works only with store = "items": a log is in one order, under one partition key'
        )
    if profile.on_conflict == "both":
        fields.add_problem(
            "on_conflict", 'can be "both" only with store = "items": a log does not read back what it stored'
        )


def _check(fields: Fields, profile: Profile, table: Mapping[str, Any], marked: Sequence[Mark], has_ids: bool) -> None:
    """Notes problems that a single field does not show by itself, and fields that no profile has."""
    sections.query(fields, profile.address)
    _check_places(fields, profile)
    _check_store(fields, profile, table)
    fields.refuse_unknown("a profile; docs/profiles.md lists them all")
    _check_together(fields, profile, marked, has_ids)
    _check_framing(fields, profile, table)
    if profile.parts:
        _reader("check_parts")(fields, profile)


def _check_together(fields: Fields, profile: Profile, marked: Sequence[Mark], has_ids: bool) -> None:
    """Notes fields that are valid by themselves but not together."""
    if not profile.again and profile.overlap != "forbids":
        why = "follows from again = false: leave it out, or write again = true if a POST may be repeated"
        fields.add_problem("overlap", f'must be "forbids", which {why}')
    if profile.standby == "hot" and profile.overlap != "tolerates":
        fields.add_problem("standby", 'can be "hot" only with overlap = "tolerates"')
    if profile.ticket is not None and profile.ticket.opens and profile.resume and profile.resume.place == "query":
        fields.add_problem("resume.query", "cannot be combined with ticket.opens, which gives the address")
    has_cursor = profile.cursor is not None or any(mark.cursor is not None for mark in marked)
    if profile.resume is not None and not has_cursor:
        fields.add_problem("resume", 'needs cursor = "$...", the place to resume from, unless framing is "sse"')
    if profile.split is not None:
        marked = [*marked, *profile.split.unfinished]
        if profile.split.keep and profile.on_conflict != "first":
            why = "only without split.keep: the kept parts differ between deliveries"
            fields.add_problem("on_conflict", f'can be "{profile.on_conflict}" {why}')
        if profile.split.is_shared_key(profile.key):
            example = f"{profile.split.path.text}[*].id"
            fields.add_problem(
                "key", f'must have a path into the element, such as "{example}", or all elements would have one key'
            )
    if profile.repair is not None and profile.order == "none":
        fields.add_problem("repair", 'needs order = "index", which finds the events at the edges of a gap')
    if profile.repair is not None and profile.on_conflict != "first":
        fields.add_problem("repair", f'works only with on_conflict = "first": "{profile.on_conflict}" compares bodies')
    if not has_ids and any(mark.event is not None or mark.comment is not None for mark in marked):
        fields.add_problem("framing", 'must be "sse", because a mark names an event or a comment')
