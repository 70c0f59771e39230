"""Builds what is sent to an upstream: the request that opens a stream, and the messages on its socket.

`request_of(profile, "prices:EUR", cursor, secrets)` is the request that resumes the stream after `cursor`. Invariant:
each value is filled in once, so nothing in a cursor, an id, a secret or a ticket is taken for a placeholder.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from handlers.framing.decoders import FRAMINGS
from handlers.framing.events import compact_json
from handlers.profile import addresses
from handlers.profile.addresses import ProfileError, fill_places, places_in, quote_value, with_query
from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import FIELD_VALUE
from handlers.profile.secret_references import (
    Secrets,
    fill_references,
    fill_references_and_rest,
    placeholder_values,
    references,
)
from handlers.values import dataclass

if TYPE_CHECKING:
    from handlers.profile.tls_field import Trust


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One opening of a stream, ready to be sent; header values are bytes, because a cursor may be any text.

    `secrets` are the values that must not leave the profile's own origin, `portable_headers` may leave it.
    `trust` is for that origin only; None if public authorities are trusted and no certificate is shown. `is_upgrade` is
    whether it is the handshake of a WebSocket, without its key; `message_secrets` are those that its messages hold.
    `ticket_secrets` are those of its secrets that the ticket's server gave.
    """

    method: str
    address: str = field(repr=False)
    headers: Mapping[str, bytes] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    allow_private: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)
    portable_headers: frozenset[str] = frozenset()
    is_upgrade: bool = False
    message_secrets: frozenset[str] = field(default=frozenset(), repr=False)
    ticket_secrets: frozenset[str] = field(default=frozenset(), repr=False)
    trust: "Trust | None" = field(default=None, repr=False)


def request_of(profile: Profile, stream_id: str, cursor: str | None, secrets: Secrets | None = None) -> UpstreamRequest:
    """Returns the request that opens the stream after `cursor`; None and "" name no particular place.

    Raises ProfileError if a secret has characters that no header can carry.
    """
    secrets = secrets or {}
    place = profile.resume.sent_text(cursor) if profile.resume is not None and cursor else None
    # References are filled in first, so nothing in the cursor or the id is taken for one.
    address = fill_references(profile.address_for(stream_id, secrets), secrets, quote_value)
    if profile.is_socket:  # RFC 6455, section 3: ws and wss are requested as http and https are
        address = re.sub(r"^ws", "http", address)
    headers = _headers(profile, secrets)
    portable = frozenset[str]()
    if place is not None and profile.resume is not None and profile.resume.place == "query":
        address = with_query(address, profile.resume.name, place)
    elif place is not None and profile.resume is not None and profile.resume.place == "header" and place:
        # WHATWG: the value is the last event ID "encoded as UTF-8".
        headers[profile.resume.name.lower()] = place.encode()
        portable = frozenset({profile.resume.name.lower()})
    body = None if profile.body is None else _body(profile, profile.body, stream_id, place, secrets)
    values = placeholder_values(secrets)
    texts = [one.text for one in profile.exchanges]
    held = tuple(secrets[reference] for reference in profile.secrets) + tuple(values.values())
    return UpstreamRequest(
        profile.method,
        address,
        headers,
        body,
        profile.allow_private,
        held,
        portable,
        is_upgrade=profile.is_socket,
        message_secrets=frozenset(secrets[one] for text in texts for one in references(text))
        | {values.get(name, "") for text in texts for name in places_in(text)},
        ticket_secrets=frozenset(value for name, value in values.items() if name != "token"),
        trust=profile.trust(secrets),
    )


def own_headers(profile: Profile, profile_headers: Iterable[tuple[str, str]], secrets: Secrets) -> dict[str, str]:
    """Returns the headers that the profile names, and the one with its token if there is one yet."""
    headers, known = {}, placeholder_values(secrets)
    for name, text in profile_headers:
        value = fill_references_and_rest(text, secrets, lambda rest: fill_places(rest, known))
        if not FIELD_VALUE.fullmatch(value):
            raise ProfileError(f"the secret in headers.{name} contains characters that a header cannot carry")
        headers[name.lower()] = value
    if profile.token is not None and "token" in known:
        headers[profile.token.header.lower()] = fill_places(profile.token.pattern, known)
    return headers


def message_of(
    profile: Profile, send: Any, stream_id: str, cursor: str | None, secrets: Secrets, received: Any = None
) -> bytes:
    """Returns the message to send on the socket for `send` after `cursor`; None and "" name no particular place.

    `received` is the body of the message that it answers.
    """
    from handlers.profile import messages

    by_message = profile.resume is not None and profile.resume.place == "message"
    place = profile.resume.sent_text(cursor) if by_message and profile.resume is not None and cursor else cursor
    return messages.message_bytes(send, place, lambda text: fill_text(text, stream_id, secrets), received)


def _headers(profile: Profile, secrets: Secrets) -> dict[str, bytes]:
    # No compression unless the profile requests it: it makes many upstreams hold events back until a block is full.
    encoding = "gzip, deflate" if profile.compression else "identity"
    headers = {"accept": FRAMINGS[profile.framing].accept, "accept-encoding": encoding}
    # Browsers send this for an EventSource: no cache on the way may answer from what it stores (RFC 9111, 5.2.1.4).
    headers["cache-control"] = "no-cache"
    headers["user-agent"] = "streamkeeper"
    if profile.is_socket:
        # RFC 6455, section 4.1; the key belongs to one connection, and the reader adds it.
        headers = {"user-agent": "streamkeeper", "upgrade": "websocket", "connection": "Upgrade"}
        headers["sec-websocket-version"] = "13"
        if profile.compression:
            headers["sec-websocket-extensions"] = "permessage-deflate"
    if profile.body is not None:
        headers["content-type"] = "application/json"
    return {name: value.encode() for name, value in (headers | own_headers(profile, profile.headers, secrets)).items()}


def _body(profile: Profile, text: str, stream_id: str, place: str | None, secrets: Secrets) -> bytes:
    whole = fill_json(json.loads(text), stream_id, secrets)
    if place is not None and profile.resume is not None and profile.resume.place == "body":
        *outer, last = profile.resume.name.split("/")[1:]
        inner = whole
        for name in outer:
            inner = inner.setdefault(name, {})
        # A number stays a number; anything else is a text, which protobuf's JSON also accepts for its large numbers.
        is_number = isinstance(inner.get(last), int) and place.isascii() and place.isdigit()
        inner[last] = int(place) if is_number else place
    return compact_json(whole).encode()


def fill_json(value: Any, stream_id: str, secrets: Secrets) -> Any:
    if isinstance(value, dict):
        return {name: fill_json(inner, stream_id, secrets) for name, inner in value.items()}
    if isinstance(value, list):
        return [fill_json(inner, stream_id, secrets) for inner in value]
    return fill_text(value, stream_id, secrets) if isinstance(value, str) else value


def fill_text(text: str, stream_id: str, secrets: Secrets) -> str:
    """`text` with its references and placeholders filled in.

    Nothing in the id is taken for a reference, and nothing in a secret or a ticket for a placeholder.
    """
    known = placeholder_values(secrets)
    return fill_references_and_rest(text, secrets, lambda rest: addresses.fill_in(rest, stream_id, places=known))
