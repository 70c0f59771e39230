"""Describes how a stream resumes from a cursor, and parses the profile's field `resume`.

Invariant: a `Resume` that is returned without a note in `Fields` is valid.
"""

import re
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from handlers.framing.events import JsonPath
from handlers.framing.marks import Kind, Mark
from handlers.profile.checked_fields import A_PATH, TEXT, Fields, did_you_mean, integer, is_header
from handlers.profile.mark_fields import read_marks
from handlers.values import dataclass

# Python refuses to read longer numbers; a cursor with more digits is a text.
_NUMBER = re.compile(r"-?[0-9]{1,1000}")
_LINE_ENDS = frozenset("\r\n\0")
_POINTER = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")


@dataclass(frozen=True, slots=True)
class Resume:
    """How to request what came after the cursor: in the header, query parameter or body's place `name`, or a message.

    `pattern` has {cursor}, or is a constant text; `add` is added to a cursor that is a number; `back_s` is subtracted
    from one that is an instant; `fallback` is requested when the upstream no longer knows the cursor. `reach_s` is how
    far back the upstream goes without saying where it stops, 0 if it says so or forgets nothing. `confirmed_by` is a
    header of the answer that repeats the cursor: another value means that events were lost. `oldest` is the path, in a
    frame that reports an expired cursor, of the oldest place that can be requested. `is_default` is True if the profile
    says nothing: then it is unknown whether this upstream keeps what it has sent.
    """

    place: Literal["header", "query", "body", "message"]
    name: str
    pattern: str = "{cursor}"
    add: int = 0
    back_s: int = 0
    reach_s: int = 0
    fallback: str = ""
    confirmed_by: str = ""
    oldest: JsonPath | None = None
    is_default: bool = False

    def sent_text(self, cursor: str) -> str:
        """Returns what is sent for `cursor`; "" if a header cannot carry it: a line end would begin another header."""
        # The fallback is a constant of the upstream, not the place of an event that was seen.
        is_place = cursor != self.fallback
        text = self.pattern.replace("{cursor}", self._shift(cursor, 1)) if is_place else cursor
        return "" if self.place == "header" and _LINE_ENDS.intersection(text) else text

    def after_expiry(self, cursor: str, oldest: str | None) -> tuple[str, bool]:
        """Returns where to go on once the upstream has forgotten what came after `cursor`, and whether any may be lost.

        `oldest` is the first place that the upstream says it still has, None if it names none; it is requested as it
        is. Nothing is lost if it is no later than the place that `cursor` requests.
        """
        if oldest is None:
            return self.fallback, True
        wanted, first = _comparable(self._shift(cursor, 1)), _comparable(oldest)
        if type(wanted) is type(first) and not _is_later(first, wanted):
            return cursor, False
        return self._shift(oldest, -1), True

    def _shift(self, cursor: str, sign: int) -> str:
        """Returns the place to request for `cursor`; with -1, the cursor for which `cursor` is the place to request."""
        # Python takes some numbers for instants: the milliseconds 1795120112340 for 23:40 on a day of 1795.
        if _NUMBER.fullmatch(cursor):
            return str(int(cursor) + sign * self.add) if self.add else cursor
        return _subtract_seconds(cursor, sign * self.back_s) if self.back_s else cursor


# WHATWG, "processing model", reconnection: "If the EventSource object's last event ID string is not the empty string",
# the request has the header `Last-Event-ID` with it. So an event stream resumes unless its profile forbids it.
LAST_EVENT_ID = Resume("header", "Last-Event-ID", is_default=True)
_SHAPE = '{ header = "..." }, { query = "..." } or { body = "/..." }'


def _subtract_seconds(cursor: str, back_s: int) -> str:
    """Returns the instant `back_s` seconds before the cursor, in its own offset; the cursor if it is no instant."""
    try:
        return (datetime.fromisoformat(cursor) - timedelta(seconds=back_s)).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return cursor


def _comparable(place: str) -> int | datetime | str:
    """Returns the place as a number or an instant if it is one, else as it is."""
    if _NUMBER.fullmatch(place):
        return int(place)
    try:
        return datetime.fromisoformat(place)
    except ValueError:
        return place


def _is_later(place: Any, than: Any) -> bool:
    """Returns whether `place` is later. Texts have no order: one counts as later unless both are the same."""
    if isinstance(place, str):
        return place != str(than)
    try:
        return bool(place > than)
    except TypeError:  # only one of two instants has an offset
        return True


# For a socket whose messages have {cursor}.
BY_MESSAGE = Resume("message", "")


def resume(fields: Fields, default: Resume | None) -> tuple[Resume | None, list[tuple[Kind, Mark]]]:
    """Returns how to resume from a cursor, and the marks of an answer that reports an expired cursor.

    `default` applies if the profile does not say; None, as for "none", means that the stream cannot resume. With
    BY_MESSAGE the table needs no place.
    """
    value = fields.take("resume")
    if value is None or value == "none":
        return (default if value is None else None), []
    if not isinstance(value, dict):
        fields.add_problem("resume", f'must be {_SHAPE}, or "none"{did_you_mean(value, ("none",))}')
        return default, []
    inner = fields.fields_of("resume", value)
    places = {place: value for place in ("header", "query", "body") if (value := inner.take(place)) is not None}
    if default is BY_MESSAGE:
        if places:
            inner.add_problem(
                next(iter(places)), 'must be left out: a message contains "{cursor}", which resumes already'
            )
        places = {"message": ""}
    elif len(places) != 1 or not all(isinstance(value, str) and value for value in places.values()):
        inner.add_problem("", f'must be {_SHAPE}, or "none"')
        places = {"query": "x"}
    ((place, name),) = places.items()
    if place == "header" and not is_header(name):
        inner.add_problem("header", "must be the name of an HTTP header that a profile may set")
    if place == "body" and not _POINTER.fullmatch(name):
        inner.add_problem("body", 'must be a place in the body such as "/create_request/start_revision"')
    parsed = Resume(
        cast(Literal["header", "query", "body", "message"], place),
        name,
        pattern=inner.read("pattern", TEXT, "{cursor}"),
        add=inner.read("add", integer(1_000_000, least=0), 0),
        back_s=inner.read("back_s", integer(86_400, least=0), 0),
        reach_s=inner.read("reach_s", integer(31_536_000, least=0), 0),
        fallback=inner.read("fallback", TEXT, ""),
        confirmed_by=inner.read("confirmed_by", TEXT, "").lower(),
        oldest=inner.read("oldest", A_PATH),
    )
    expired = read_marks(inner, "expired", Kind.EXPIRED)
    if parsed.oldest is not None and not expired:
        inner.add_problem("oldest", "needs expired: the marks of the frame that contains it")
    inner.refuse_unknown(
        "resume: header, query or body, pattern, add, back_s, reach_s, fallback, confirmed_by, expired, oldest"
    )
    if parsed.add and parsed.back_s:
        inner.add_problem(
            "back_s", "is for cursors that are instants, and add for those that are numbers: leave one of them out"
        )
    return parsed, expired
