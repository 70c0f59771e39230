"""Builds the address of a stream from its profile's address, the stream id and the cursor.

Invariant: no stream id and no cursor changes the scheme, the host, the port or the shape of the path that a profile's
address names; they come in percent-encoded, as one piece of the path or of the query.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

_STREAM_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_VARIABLE = re.compile(r"\$\{(UPSTREAM_[A-Z0-9_]+)\}")
_PLACEHOLDER = re.compile(r"\{(streamId|name)\}")
# RFC 3986, section 2: what an address may hold; anything else must be percent-encoded in the profile.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")


class ProfileError(ValueError):
    """A profile or a stream id is wrong; the message is one sentence that names the field and the fix."""


def check_stream_id(stream_id: str) -> str:
    """The name of the profile that `stream_id` belongs to: the part before its first colon; raises ProfileError."""
    if not _STREAM_ID.fullmatch(stream_id):
        shown = stream_id if len(stream_id) <= 64 else stream_id[:64] + "..."
        raise ProfileError(f"the stream id {shown!r} is malformed: it is 1 to 64 of the characters A-Z a-z 0-9 . _ : -")
    parts = stream_id.split(":")
    # RFC 3986, section 5.2.4: "." and ".." are removed from a path, with the segment before them.
    if not parts[0] or "." in parts or ".." in parts:
        raise ProfileError(
            f"the stream id {stream_id!r} is malformed: its first part names a profile, and no part is '.' or '..'"
        )
    return parts[0]


def expand(address: str, variables: Mapping[str, str]) -> str:
    """`address` with the variable that it begins with replaced; raises ProfileError where it is not set."""
    match = _VARIABLE.match(address)
    if match is not None:
        value = variables.get(match[1])
        if not value:
            raise ProfileError(f"needs the variable {match[1]}, which is not set")
        if "{" in value or "}" in value:
            raise ProfileError(f"needs the variable {match[1]} without braces")
        address = value + address[match.end() :]
    if "${" in address.partition("?")[0]:
        raise ProfileError("may hold a variable only at its start, as in ${UPSTREAM_DEMO}/events")
    return address


def check_address(address: str) -> str:
    """`address` itself; raises ProfileError where it is not an http or https address or holds what it may not.

    The sentence never repeats the address: its query may hold a secret.
    """
    bare = _PLACEHOLDER.sub("", address)
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ProfileError("is not a valid address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ProfileError("must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise ProfileError("must not hold a user or a password")
    if parts.fragment or address.endswith("#"):
        raise ProfileError("must not hold a fragment (#)")
    if _PLACEHOLDER.search(parts.netloc) or "{" in bare or "}" in bare:
        raise ProfileError("may hold {streamId} and {name}, and those only in its path and query")
    if not _CHARACTERS.fullmatch(bare):
        raise ProfileError("holds characters that must be percent-encoded")
    return address


def fill(address: str, stream_id: str) -> str:
    """`address` with its placeholders replaced; raises ProfileError where the path needs a name that the id lacks."""
    profile, _, name = stream_id.partition(":")
    parts = urlsplit(address)
    if not name and "{name}" in parts.path:
        raise ProfileError(f"the stream id {stream_id!r} needs a name after a colon, as in '{profile}:orders'")
    values = {"streamId": quote(stream_id, safe=""), "name": quote(name, safe="")}
    path, query = (_PLACEHOLDER.sub(lambda match: values[match[1]], part) for part in (parts.path, parts.query))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def fill_text(text: str, stream_id: str) -> str:
    """`text` with its placeholders replaced as they are: for a body, whose encoding follows."""
    values = {"streamId": stream_id, "name": stream_id.partition(":")[2]}
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def with_query(address: str, name: str, value: str) -> str:
    """`address` with the query parameter `name` set to `value`, in place of one that it has already."""
    parts = urlsplit(address)
    encoded = quote(name, safe="")
    kept = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] not in (name, encoded)]
    query = "&".join([*kept, f"{encoded}={quote(value, safe='')}"])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
