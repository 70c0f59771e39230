"""Makes the requests of a walk over an address's pages, and reads the answers. Pure.

Invariants: an item's key and text are those that a frame with this item alone would have; the next page is at the
origin of the first, where the credentials may go; no problem quotes what the address answered.
"""

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, get_args
from urllib.parse import unquote, urljoin

from handlers.connection.gap_record import Repair as Walk
from handlers.framing.events import (
    JsonPath,
    StreamEvent,
    has_too_many_values,
    key_text,
    parse_json,
    text_at_path,
    value_at_path,
)
from handlers.framing.frames import Frame
from handlers.framing.splitting import MOST_ELEMENTS, Batch
from handlers.profile.addresses import origin_of, with_query
from handlers.profile.behaviour import Profile
from handlers.profile.repair_field import Repair
from handlers.profile.secret_references import Secrets
from handlers.profile.time_field import OwnTime, TimeUnit
from handlers.profile.upstream_requests import UpstreamRequest, own_headers
from handlers.repair.proof import are_numbers
from handlers.values import dataclass

# RFC 8288, section 3: a link's target, and its parameters up to the next link.
_LINK = re.compile(r"<([^>]*)>((?:\s*;\s*[^;,=\s]+(?:\s*=\s*(?:\"[^\"]*\"|[^;,\s]*))?)*)")
# RFC 9110, section 14.4, in any unit: the first item, the last one, and how many there are.
_RANGE = re.compile(r"(\d+)-(\d+)/(\d+)\s*$")
# How answers name the next page, or say that there is one, and how many items there are: the letters of the names.
_MORE = re.compile(r"(x|odata)?next(page|cursor|token|link|url|uri|key|offset)*|has(more|next).*|(is)?truncated|more")
_TOTAL = re.compile(r"x?total(count|items|results|records|elements|hits)?")
# A part of a path, or a value of a query.
_VALUE = re.compile(r"(?<=[/=])[^/&;?#]+")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)?|[0-9]+(?:\.[0-9]+)?")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^;,\s]*))", re.IGNORECASE)
PARTIAL, NOT_FOUND = 206, 404
# How a page was requested; an instant may be in a unit as coarse as minutes.
COUNT, INSTANT, SAME, COARSE_MS = "count", "instant", "same", 60_000
# An address that is longer would fit into no record, and most servers refuse it.
MOST_CHARACTERS = 8192


class BadPage(ValueError):
    """The answer is not a page; the message is a phrase."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer; `problem` is why there is none, "" if there is one. The names of headers are in lower case.

    `retry_after_s` is for how long the address accepts no further request, None if it does not say so.
    """

    status: int = 0
    headers: Mapping[str, str] | None = None
    body: bytes = b""
    problem: str = ""
    retry_after_s: float | None = None


class Page(NamedTuple):
    """The events of an answer in its order, when each happened if the profile names that, and the next page.

    `next` is the address of the next page, this page's own if the answer names that, "" if this is the last.
    """

    events: list[StreamEvent]
    times: list[int | None]
    next: str


def page_request(profile: Profile, repair: Repair, address: str, secrets: Secrets) -> UpstreamRequest:
    """Returns the request for a page, with the stream's own headers and its token unless the profile names others.

    Raises ProfileError if a secret has characters that no header can carry.
    """
    own = profile.headers if repair.headers is None else repair.headers
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "streamkeeper"}
    headers |= own_headers(profile, own, secrets)  # With the stream's token, if it is among the secrets.
    sent = {name: value.encode() for name, value in headers.items()}
    # A profile's own authority and certificate are used at the stream's own origin alone.
    is_own = repair.headers is None and origin_of(address) == origin_of(profile.address)
    trust = profile.trust(secrets) if is_own else None
    return UpstreamRequest("GET", address, sent, None, profile.allow_private, tuple(secrets.values()), trust=trust)


def is_end(repair: Repair, pages: int, answer: Fetched) -> bool:
    """Returns whether numbered pages end here: after the last one, many addresses answer 404, others an empty page."""
    return answer.status == NOT_FOUND and pages > 0 and repair.next is not None and bool(repair.next.number)


def has_more_items(repair: Repair, answer: Fetched) -> bool:
    """Returns whether the last answer of a walk says itself that there are more items."""
    headers = answer.headers or {}
    if said := _RANGE.search(headers.get("content-range", "")):
        first, last, total = map(int, said.groups())
        return last - first + 1 < total
    is_one = repair.next is None
    if answer.status == PARTIAL or (is_one and link_target(headers.get("link", ""), "next") != ""):
        return True
    body, steps = parse_json(answer.body.decode("utf-8-sig")), repair.split.path.steps
    # The objects around the list, and those beside it, such as "paging".
    around = [value_at_path(body, JsonPath("", steps[:length]))[1] for length in range(len(steps))]
    beside = [value for one in around for value in one.values() if isinstance(value, dict)]
    says: list[tuple[str, Any]] = [(name, int(text)) for name, text in headers.items() if text.isdecimal()]
    says += [member for one in (*around, *beside) for member in one.items()]
    count = len(value_at_path(body, repair.split.path)[1] or ())
    for name, value in says:
        letters = "".join(filter(str.isalpha, name.lower()))
        if value and _MORE.fullmatch(letters):
            return True
        if is_one and type(value) is int and value > count and _TOTAL.fullmatch(letters):
            return True
    return False


def read(repair: Repair, address: str, pages: int, answer: Fetched, now_ms: int) -> Page:
    """Returns the page in an answer to `address`, after this many pages; raises BadPage if there is none."""
    try:
        text = answer.body.decode("utf-8-sig")  # Some servers begin with a byte order mark.
    except UnicodeDecodeError:
        raise BadPage("the answer is not UTF-8") from None
    frame = Frame(text)
    batch = repair.split.elements_of(frame)
    if batch is None:
        body = parse_json(text)
        found = value_at_path(body, repair.split.path)[1]
        # Go's encoding/json spells an empty list so.
        batch = Batch(body, [], {}) if _is_null(body, repair.split.path) else None
    if batch is None:
        if has_too_many_values(text) or (isinstance(found, list) and len(found) > MOST_ELEMENTS):
            raise BadPage("the page has more values than a function can hold")
        raise BadPage(f"the answer is not JSON with a list at {repair.split.path.text}")
    bodies = repair.split.single_element_bodies(batch.body)
    if batch.texts and not isinstance(repair.key, str) and all(key_text(one, repair.key) is None for one in bodies):
        # Each would be stored again, under its hash.
        raise BadPage("no item has the key that the profile names")
    events = repair.split.events(frame, batch, now_ms, key=repair.key, cursor=None)
    times = [repair.time.parsed_event_ms(value) for value in value_at_path(batch.body, repair.split.path)[1] or ()]
    return Page(events, times, _next(repair, address, pages, answer, batch.body, len(events)))


def _is_null(body: object, path: JsonPath) -> bool:
    """Returns whether there is null at the path, rather than nothing."""
    owner = value_at_path(body, JsonPath("", path.steps[:-1]))[1]
    return isinstance(owner, dict) and path.steps != () and owner.get(path.steps[-1], "") is None


def numbered(repair: Repair, address: str, pages: int) -> str:
    """Returns the address with the number of the page after this many. The first page gets a number too: the profile's
    first number may differ from the one in the address, and a page between them would be left out."""
    named = repair.next
    if named is None or not named.number:
        return address
    # Steps of items overlap by one, which shows that no item was deleted meanwhile.
    step = max(1, named.step - 1)
    return with_query(address, named.number, str(named.first + step * pages))


def request_kind(
    repair: Repair, begin: str, address: str, walk: Walk, edges: Mapping[str, str], known: Collection[str]
) -> str:
    """Returns how a page was requested: by COUNT of the pages or items before it, by an INSTANT, or "", after an item.

    The address, which the page before may have named, shows that by a value that `begin`, the first address, lacks. A
    value between the `edges` is an instant, which items may share, unless it names an item `known` from the page
    before. A number at the key of the last item of the `walk`, or beside it, is a key as well. If a count is an item's
    key after all, there is no hole before the page.
    """
    if not walk.pages or repair.next is None or repair.next.number:
        return COUNT if walk.pages else ""
    added = Counter(_VALUE.findall(address)) - Counter(_VALUE.findall(begin))
    counts = {first + walk.pages * step for first in (0, 1) for step in (1, walk.items)}
    if any(value.isdecimal() and len(value) < 10 and int(value) in counts for value in added):
        return COUNT
    if are_numbers([walk.first]):
        known = {str(end + beside) for end in (walk.low, walk.high) if end is not None for beside in (-1, 0, 1)}
    texts = [] if repair.is_keyed_by_time else [text for value in added for text in _texts(unquote(value))]
    named = re.compile(rf"(?<![0-9A-Za-z])(?:{'|'.join(map(re.escape, known))})(?![0-9A-Za-z])")
    values = [one for text in texts if not (known and named.search(text)) for one in _INSTANT.findall(text)]
    instants = {OwnTime(unit=unit).instant_ms(value) for value in values for unit in get_args(TimeUnit)} - {None}
    from_ms, to_ms = (repair.time.instant_ms(edges[one]) or 0 for one in ("from", "to"))
    return INSTANT if any(at_ms in range(from_ms - COARSE_MS, to_ms + COARSE_MS) for at_ms in instants) else ""


def _texts(text: str) -> Iterator[str]:
    """Yields a value, and what it encodes in either Base64 of RFC 4648."""
    yield text
    with suppress(ValueError):
        yield b64decode(text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4), validate=True).decode()


def _next(repair: Repair, address: str, pages: int, answer: Fetched, body: object, items: int) -> str:
    """Returns the next page's address, which may be this one again; "" if there is none."""
    named = repair.next
    if named is None:
        return ""
    if named.number:
        # After a page with fewer items than the step, the next step would skip items.
        is_last = not items or items < named.step
        return "" if is_last else numbered(repair, address, pages + 1)
    if named.cursor is not None:
        place = (
            text_at_path(body, named.cursor) or "" if value_at_path(body, named.cursor)[1] else ""
        )  # 0 and false are none.
    else:
        place = link_target((answer.headers or {}).get("link", ""), named.link)
    if not place:
        return ""
    if named.query:
        following = with_query(address, named.query, place)
    else:
        try:
            following = urljoin(address, place)
            is_same = origin_of(following) == origin_of(address)
        except ValueError:
            raise BadPage("the next page has no valid address") from None
        if not is_same:
            raise BadPage("the next page is at another host")
    if len(following) > MOST_CHARACTERS:
        raise BadPage("the next page has a longer address than a record can hold")
    return following


def link_target(header: str, rel: str) -> str:
    """Returns the target of the first link with this relation in a Link header; "" if there is none."""
    for target, parameters in _LINK.findall(header):
        for quoted, bare in _REL.findall(parameters):
            if rel.lower() in (quoted or bare).lower().split():
                return str(target)
    return ""
