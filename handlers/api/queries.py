"""Reads the query of a request for a page: where the page begins, how many entries it may have, and from which time.

Invariant: a query is understood whole or not at all; a malformed, unknown or repeated parameter is refused in one
sentence that names it.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from handlers.profile.addresses import MOST_PARTS, TAG_DIGITS
from handlers.values import dataclass

_NUMBER = re.compile(r"[0-9]{1,4}")
# RFC 3339, section 5.6: a date-time. A second 60 is a leap second, and the offset is never left out.
_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,30}))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII
)
INSTANT_IS = "an instant of RFC 3339 with its offset, such as 2026-11-21T06:25:19.403Z"
TIMES = ("from", "to")
# Later than every instant of a calendar with four-digit years.
FOR_EVER = 10**15


class BadQuery(ValueError):
    """The query cannot be answered; the message is one sentence that names the parameter, and `field` is its name."""

    def __init__(self, field: str, sentence: str, fix: str | None = None) -> None:
        super().__init__(sentence)
        self.field = field
        self.fix = fix


def query_of(fields: Mapping[str, Any]) -> object:
    """Returns the query of the proxy's event, which has the last value of each parameter; raises BadQuery."""
    several = fields.get("multiValueQueryStringParameters") or {}
    if repeated := next((name for name, values in several.items() if len(values) > 1), None):
        raise BadQuery(repeated, f"the parameter {repeated[:80]} is given more than once", "Give it once.")
    return fields.get("queryStringParameters")


def parameters_of(query: object, known: Sequence[str]) -> dict[str, str]:
    """Returns the parameters of a query as texts; raises BadQuery for an unknown one. None has no parameters."""
    texts = {str(name): str(value) for name, value in query.items()} if isinstance(query, Mapping) else {}
    # A presigned request has AWS's signature among its parameters, which API Gateway has checked.
    if unknown := next((name for name in texts if name not in known and not name.startswith("X-Amz-")), None):
        names = ", ".join(known[:-1]) + " and " * (len(known) > 1) + "".join(known[-1:])
        words = f"known are {names}" if known else "there is none here"
        raise BadQuery(unknown, f"the parameter {unknown[:80]} is unknown; {words}", "Leave it out.")
    return texts


def is_dry_run(parameters: Mapping[str, str], otherwise: str) -> bool:
    """Returns the value of `dry_run`; `otherwise` is what a request without it does."""
    dry = parameters.get("dry_run", "false")
    if dry not in ("true", "false"):
        raise BadQuery("dry_run", "the parameter dry_run must be true or false", f"Leave it out to {otherwise}.")
    return dry == "true"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested page: at most `limit` entries after the place `after`, "" for the beginning.

    Entries with a time must lie in [from_ms, to_ms). `order` is "" for the usual one.
    """

    after: str
    limit: int
    from_ms: int = 0
    to_ms: int = FOR_EVER
    order: str = ""

    def includes(self, instant_ms: int) -> bool:
        return self.from_ms <= instant_ms < self.to_ms


@dataclass(frozen=True, slots=True)
class Listing:
    """The allowed parameters of one list: the pattern of a place, also in words; the usual and the greatest limit.

    `is_timed` is whether entries have a time by which they can be chosen, `orders` are those besides the usual one.
    """

    place: re.Pattern[str]
    place_is: str
    limit: int
    most: int
    is_timed: bool = False
    orders: tuple[str, ...] = ()

    def read(self, query: object, last_event_id: str = "") -> PageRequest:
        """Returns what the query's parameters say; raises BadQuery. None is a query without parameters.

        `last_event_id` is a place that replaces the query's, because a client that reconnects repeats its query.
        """
        known = ("after", "limit", *(TIMES if self.is_timed else ()), *(("order",) if self.orders else ()))
        parameters = parameters_of(query, known)
        after, limit, order = (
            parameters.get("after", ""),
            parameters.get("limit", str(self.limit)),
            parameters.get("order", ""),
        )
        for field, place in (("after", after), ("Last-Event-ID", last_event_id)):
            if place and not self.place.fullmatch(place):
                name = "the header" if field != "after" else "the parameter"
                raise BadQuery(field, f"{name} {field} must be {self.place_is}", "Copy it from an answer.")
        if not (_NUMBER.fullmatch(limit) and 1 <= int(limit) <= self.most):
            fix = f"Write a whole number from 1 to {self.most}, or leave it out for {self.limit}."
            raise BadQuery("limit", f"the parameter limit must be a whole number from 1 to {self.most}", fix)
        if order and order not in self.orders:
            raise BadQuery("order", f"the parameter order must be {' or '.join(self.orders)}", "Leave it out.")
        from_ms, to_ms = (instant_ms(name, parameters.get(name)) for name in TIMES)
        return PageRequest(
            last_event_id or after,
            int(limit),
            max(0, from_ms or 0),
            FOR_EVER if to_ms is None else max(0, to_ms),
            order,
        )


def instant_ms(name: str, value: object) -> int | None:
    """Returns the milliseconds since 1970 of an instant, rounded down, None for None; raises BadQuery."""
    if value is None:
        return None
    match = _INSTANT.fullmatch(str(value))
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
        sign = -1 if match[8] == "-" else 1
        offset = timezone(sign * timedelta(hours=int(match[9] or 0), minutes=int(match[10] or 0)))
        if second > 60:
            raise ValueError
        # Python's calendar has no year 0.
        date = datetime(max(1, year), month, day, hour, minute, min(second, 59), tzinfo=offset)
    except ValueError:
        fix = "Write + as %2B; an instant that ends in Z is in UTC."
        raise BadQuery(name, f"the parameter {name} must be {INSTANT_IS}", fix) from None
    since = date - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = int((match[7] or "0").ljust(3, "0")[:3])
    return (since.days * 86_400 + since.seconds + (second == 60)) * 1000 + milliseconds


PARTS = "parts~"


def pattern_with_parts(place: str) -> re.Pattern[str]:
    """Returns the pattern of a stream's own place, or of one in its parts."""
    return re.compile(rf"{place}|parts(?:~[0-9a-f]{{{TAG_DIGITS}}}(?:{place})){{1,{MOST_PARTS}}}")


def read_places(text: str) -> dict[str, str]:
    """Returns the place in each part, by its tag; none for "", the beginning."""
    return {one[:TAG_DIGITS]: one[TAG_DIGITS:] for one in text.removeprefix(PARTS).split("~") if one}


def places_text(places: Mapping[str, str], first: str = "") -> str:
    """Returns the text; the part with the tag `first` comes first.

        parts~3f1b9c02001764370000123/000000000001/000000000000~9a77e0c1001764370000456/000000000003/000000000000

    A part is named by its tag (`tag_of` in handlers/profile/addresses.py). Invariant: a part that is not in a place is
    read from its beginning, and one that the profile no longer has is left out.
    """
    tags = sorted(places, key=lambda one: (one != first, one))
    return PARTS + "~".join(f"{one}{places[one]}" for one in tags) if places else ""
