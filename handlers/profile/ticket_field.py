"""Parses the profile's field `ticket`: one request before each opening, whose answer fills placeholders.

    ticket = { address = "https://api.example/listen-key", path = "$.listenKey" }           {ticket}
    ticket = { address = "…", places = { id = { header = "Mcp-Session-Id" } } }             {ticket.id}
    ticket = { address = "…", opens = "$.url" }              a whole address, opened in place of the profile's

Invariant: a `Ticket` that is returned without a note in `Fields` is valid.
"""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from handlers.framing.events import JsonPath
from handlers.profile import sections
from handlers.profile.addresses import ProfileError
from handlers.profile.checked_fields import A_PATH, Fields, Form, choice, is_header
from handlers.values import dataclass

PLACE = "ticket"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER = Form(
    {"type": "string"},
    "must be the name of a header of the answer",
    lambda value: value.lower() if isinstance(value, str) and is_header(value) else None,
)
MOST_PLACES = 20
_SHAPE = '{ path = "$.key" } or { header = "Mcp-Session-Id" }'


@dataclass(frozen=True, slots=True)
class Ticket:
    """The request, its secrets as references, and the placeholders that its answer fills.

    Each is a name ("ticket", "ticket.id"), and the path of its value in the answer's JSON or the name of a header in
    lower case.
    """

    address: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: str | None
    places: tuple[tuple[str, JsonPath | str], ...]
    opens: JsonPath | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that may have references to secrets, and placeholders."""
        return self.address.partition("?")[2], *(value for _, value in self.headers), self.body or ""

    @property
    def host(self) -> str:
        """The server's name in messages."""
        return urlsplit(self.address).hostname or ""


def ticket(fields: Fields, check: Callable[[str], str]) -> Ticket | None:
    """Returns the ticket; None if the profile has none. `check` also checks the profile's own address."""
    inner = fields.table("ticket", '{ address = "https://…", path = "$.key" }')
    if inner is None:
        return None
    method = inner.read("method", choice(("POST", "GET")), "POST")
    names_a_part = inner.has("opens")
    opens: JsonPath | None = inner.read("opens", A_PATH)
    parsed = Ticket(
        address=inner.read_checked("address", lambda text: _check_address(text, check)),
        method=method,
        headers=sections.headers(inner),
        body=sections.json_text(inner, method, "a JSON object or array", dict | list),
        places=_places(inner, least=int(not names_a_part)),
        opens=opens,
    )
    sections.query(inner, parsed.address)
    inner.refuse_unknown("ticket: address, method, headers, body, path, header, places, opens")
    return parsed


def _check_address(text: str, check: Callable[[str], str]) -> str:
    address = check(text)
    if urlsplit(address).scheme not in ("http", "https"):
        raise ProfileError("must begin with https:// or http://")
    return address


def _places(inner: Fields, least: int) -> tuple[tuple[str, JsonPath | str], ...]:
    noted = len(inner.problems)
    found = [(PLACE, one) for one in [_place(inner)] if one is not None]
    table = inner.table("places", f"a table of names, each {_SHAPE}")
    for name, value in (table.take_rest() if table is not None else {}).items():
        if not _NAME.fullmatch(name) or not isinstance(value, dict):
            inner.add_problem(f"places.{name}", f"must have a name of letters, digits, _ and -, and be {_SHAPE}")
            continue
        within = inner.fields_of(f"places.{name}", value)
        one = _place(within)
        within.refuse_unknown("a place: path or header")
        if one is None:
            within.add_problem("", f"must be {_SHAPE}")
        else:
            found.append((f"{PLACE}.{name}", one))
    if not least <= len(found) <= MOST_PLACES and len(inner.problems) == noted:
        inner.add_problem(
            "", f"must name the part of the answer to take: path, header, opens or 1 to {MOST_PLACES} places"
        )
    return tuple(found)


def _place(inner: Fields) -> JsonPath | str | None:
    path: JsonPath | None = inner.read("path", A_PATH)
    header: str | None = inner.read("header", _HEADER)
    if header is not None and path is not None:
        inner.add_problem("header", "and path exclude each other: keep the one that has the value")
    return path if header is None else header
