"""Builds the address of a stream from its profile's address, the stream id and the cursor.

A stream id is one percent-decoded segment of a path: `etcd:config/a b` is `etcd:config%2Fa%20b` in the API's path.
These placeholders, in a profile's address, body and other texts, stand for parts of the id:

    {streamId}           the whole id                         etcd:config/*
    {name}               what follows its first colon         config/*
    {name|base64}        that in Base64 (RFC 4648)            Y29uZmlnLyo=
    {name|from|base64}   where the range of keys begins       config/   in Base64
    {name|to|base64}     where it ends, itself not in it      config0   in Base64
    {token} {ticket} {ticket.x}    what was requested before the opening (handlers/connection/preparation.py)

A name stands for a range of keys in one of these forms; a backslash escapes the next character, as in `a\\*`:

    config/a     the key alone: the end is empty
    config/*     every key that begins with config/
    a..b         from a up to b, without b; a.. has no end, which is spelled as the byte 0

Invariants: neither a stream id nor a cursor changes the scheme, the host, the port or the shape of the path of a
profile's address: each is filled in percent-encoded, as one piece of the path or of the query. A value is filled in
once; whatever looks like a placeholder in it stays as it is.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote, urlsplit, urlunsplit

KNOWN = "{streamId} and {name}, plain or with |base64, {name|from|base64} and {name|to|base64}"
_PLACE = r"ticket(?:\.[A-Za-z0-9_-]{1,64})?|token"
_PLACEHOLDER = re.compile(rf"\{{(?:(streamId|name)(\|base64)?|name\|(from|to)\|base64|({_PLACE}))\}}")
_PLACES = re.compile(rf"\{{({_PLACE})\}}")
_NO_PLACES: Mapping[str, str] = {}
_MISSPELT = re.compile(r"\{(?:streamId|name)\|[^{}]*\}")
# One character of a range: escaped, or as it is.
_OF_RANGE = re.compile(r"\\(.)|(.)", re.DOTALL)
_NO_END = b"\0"
_PORTS = {"http": 80, "https": 443}


def fill_in(
    text: str, stream_id: str, spell: Callable[[str], str] = str, places: Mapping[str, str] = _NO_PLACES
) -> str:
    """`text` with its placeholders replaced by their values as `spell` spells them.

    `places` are the values of {ticket}, {ticket.name} and {token}; an unknown one is empty.
    """
    return _PLACEHOLDER.sub(
        lambda match: spell(places.get(match[4], "") if match[4] else _value(match, stream_id)), text
    )


def fill_places(text: str, places: Mapping[str, str]) -> str:
    """`text` with only {ticket}, {ticket.name} and {token} replaced by their values."""
    return _PLACES.sub(lambda match: places.get(match[1], ""), text)


def places_in(text: str) -> set[str]:
    """Returns which of {ticket}, {ticket.name} and {token} occur in `text`."""
    return set(_PLACES.findall(text))


def without_placeholders(text: str) -> str:
    return _PLACEHOLDER.sub("", text)


def has_id(text: str) -> bool:
    """Returns whether `text` has a placeholder for a part of the stream id."""
    return any(match[1] or match[3] for match in _PLACEHOLDER.finditer(text))


def misspelt_placeholder(text: str) -> str:
    """Returns the first placeholder in `text` with an unknown filter; "" if there is none."""
    match = _MISSPELT.search(without_placeholders(text))
    return match[0] if match is not None else ""


def key_range(name: str) -> tuple[bytes, bytes]:
    """Returns the range of keys that `name` spells, as bytes: its beginning, and its exclusive end."""
    characters = [(match[1] or match[2], match[1] is None) for match in _OF_RANGE.finditer(name)]

    def text(of: list[tuple[str, bool]]) -> bytes:
        return "".join(character for character, _ in of).encode()

    for at in range(len(characters) - 1):
        if characters[at] == characters[at + 1] == (".", True):
            return text(characters[:at]), text(characters[at + 2 :]) or _NO_END
    if characters and characters[-1] == ("*", True):
        prefix = text(characters[:-1])
        # No byte of UTF-8 is 0xff, so the last one can always be incremented.
        return prefix, prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else _NO_END
    return text(characters), b""


def _value(match: re.Match[str], stream_id: str) -> str:
    name = stream_id.partition(":")[2]
    if match[3]:
        return base64.b64encode(key_range(name)[match[3] == "to"]).decode()
    plain = stream_id if match[1] == "streamId" else name
    return base64.b64encode(plain.encode()).decode() if match[2] else plain


# The most characters of a stream id. At four bytes each they fill half of what DynamoDB allows for a partition key.
STREAM_ID_LENGTH = 256
# The most parts in which a stream is read: an event's position holds its place in each.
MOST_PARTS, TAG_DIGITS = 16, 8
_PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Control characters, halves of surrogate pairs, what SQS refuses in a message, and U+FFFD. A decoder writes that last
# one for bytes that are not UTF-8, so two paths that differ in such bytes would name one stream.
# packaging/start-request.yml has the same list.
_REFUSED = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff\ufffd-\uffff]")
_VARIABLE = re.compile(r"\$\{(UPSTREAM_[A-Z0-9_]+)\}")
# RFC 3986, section 2: what an address may hold; anything else must be percent-encoded in the profile.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")


class ProfileError(ValueError):
    """A profile or a stream id is wrong; the message is one sentence that names the field and the fix."""


def check_stream_id(stream_id: str) -> str:
    """Returns the name of the stream's profile: the part before the first colon; raises ProfileError."""
    if problem := stream_id_problem(stream_id):
        raise ProfileError(f"the stream id {shown_id(stream_id)} is malformed: {problem}")
    return stream_id.partition(":")[0]


def shown_id(stream_id: str) -> str:
    """Returns a stream id as a message quotes it, the beginning of a long one."""
    return repr(stream_id if len(stream_id) <= 64 else stream_id[:64] + "...")


def stream_id_problem(stream_id: str) -> str:
    """Returns in a phrase what is malformed in a stream id; "" if nothing is."""
    if len(stream_id) > STREAM_ID_LENGTH:
        return f"it has {len(stream_id)} characters; at most {STREAM_ID_LENGTH} are allowed"
    if _REFUSED.search(stream_id):
        return "once percent-decoded, it contains a control character or bytes that are not UTF-8"
    parts = stream_id.split(":")
    # RFC 3986, section 5.2.4: "." and ".." are removed from a path, with the segment before them.
    if "." in parts or ".." in parts:
        return "no part between its colons may be '.' or '..'"
    if not _PROFILE_NAME.fullmatch(parts[0]):
        return "it must begin with a profile's name, 1 to 64 of the characters A-Z a-z 0-9 . _ -"
    return ""


def part_ids(name: str, parts: Iterable[str]) -> tuple[str, ...]:
    """Returns the ids of the streams in which the stream `name` is read (packaging/parts.cjs has the same)."""
    return tuple(f"{name}:{part}" for part in parts)


def is_repeated(method: object, again: object) -> bool:
    """Returns whether a profile's request may be made again; `again` is None if the profile does not say."""
    # RFC 9110, section 9.2.2: of GET and POST, GET is idempotent.
    return method == "GET" if again is None else again is not False


def tag_of(part_id: str) -> str:
    """Returns the tag of a part in a position, which does not depend on its place in the profile's list."""
    return hashlib.sha256(part_id.encode()).hexdigest()[:TAG_DIGITS]


def expand_variable(address: str, variables: Mapping[str, str]) -> str:
    """`address` with the variable at its beginning replaced; raises ProfileError if that is not set."""
    match = _VARIABLE.match(address)
    if match is not None:
        value = variables.get(match[1])
        if not value:
            raise ProfileError(f"needs the variable {match[1]}, which is not set: add it to the stage's upstreams")
        if "{" in value or "}" in value:
            raise ProfileError(
                f"has the variable {match[1]}, whose value contains braces: placeholders belong into the profile"
            )
        address = value + address[match.end() :]
    if "${" in address.partition("?")[0]:
        raise ProfileError(
            "may contain ${...} only at its start, as in ${UPSTREAM_DEMO}/events, and secrets only in its query"
        )
    return address


def check_address(address: str, *, may_be_socket: bool = False) -> str:
    """Returns `address`; raises ProfileError if its scheme is not supported or it has a part that is not allowed.

    A WebSocket's address passes if it `may_be_socket`.

    The message never repeats the address, because its query may hold a secret.
    """
    bare = without_placeholders(address)
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ProfileError("must be a valid address such as https://example.org/events") from None
    if parts.scheme not in ("http", "https", *(("ws", "wss") if may_be_socket else ())) or not host:
        schemes = "http://, https://, ws:// or wss://" if may_be_socket else "http:// or https://"
        raise ProfileError(f"must begin with {schemes} and a host")
    if "@" in parts.netloc:
        raise ProfileError("must not contain a user or a password: put them into headers")
    if parts.fragment or address.endswith("#"):
        raise ProfileError("must not contain a fragment (#...): it is never sent")
    if without_placeholders(parts.netloc) != parts.netloc or "{" in bare or "}" in bare:
        raise ProfileError(f"may contain only these placeholders, and only in its path and query: {KNOWN}")
    if not _CHARACTERS.fullmatch(bare):
        raise ProfileError("contains a character that must be percent-encoded, as a space is by %20")
    return address


def fill_address(address: str, stream_id: str, places: Mapping[str, str] = _NO_PLACES) -> str:
    """`address` with its placeholders replaced; raises ProfileError if it needs a name that the id lacks."""
    parts = urlsplit(address)
    need_name(parts.path, stream_id)
    path, query = (fill_in(part, stream_id, quote_value, places) for part in (parts.path, parts.query))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def need_name(text: str, stream_id: str) -> None:
    """Raises ProfileError if `text` has a placeholder for the name of the stream, but the id has no name."""
    profile, _, name = stream_id.partition(":")
    if not name and any(match[1] == "name" or match[3] for match in _PLACEHOLDER.finditer(text)):
        raise ProfileError(f"the stream id {stream_id!r} needs a name after a colon, as in '{profile}:orders'")


def origin_of(address: str) -> str:
    """Returns scheme, host and port (for a WebSocket those of its handshake); raises ValueError if there is a user."""
    parts = urlsplit(address)
    scheme, host = parts.scheme.replace("ws", "http"), parts.hostname or ""
    if "@" in parts.netloc:
        raise ValueError("an address with a user")
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS.get(scheme, 0)}"


def quote_value(value: str) -> str:
    """`value` as one piece of the path or of the query of an address."""
    return quote(value, safe="")


def with_query(address: str, name: str, value: str) -> str:
    """`address` with the query parameter `name` set to `value`; a former value is replaced."""
    parts = urlsplit(address)
    encoded = quote_value(name)
    kept = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] not in (name, encoded)]
    query = "&".join([*kept, f"{encoded}={quote_value(value)}"])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
