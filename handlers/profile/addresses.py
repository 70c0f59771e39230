"""Builds the address of a stream from its profile's address, the stream id and the cursor.

A stream id is what one segment of a path can hold, percent-decoded: `etcd:config/a b` is `etcd:config%2Fa%20b` in the
API's path. Invariant: no stream id and no cursor changes the scheme, the host, the port or the shape of the path that a
profile's address names; they come in percent-encoded, as one piece of the path or of the query.
"""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from handlers.profile import placeholders

# The most characters of a stream id: four bytes each, it is half of what a partition key of DynamoDB takes.
STREAM_ID_LENGTH = 256
_PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Controls, halves of surrogate pairs, what SQS refuses in a message, and U+FFFD, which a decoder writes for bytes that
# are not UTF-8: two paths that differ in such bytes would name one stream. packaging/start-request.yml has the same.
_REFUSED = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff\ufffd-\uffff]")
_VARIABLE = re.compile(r"\$\{(UPSTREAM_[A-Z0-9_]+)\}")
# RFC 3986, section 2: what an address may hold; anything else must be percent-encoded in the profile.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")


class ProfileError(ValueError):
    """A profile or a stream id is wrong; the message is one sentence that names the field and the fix."""


def check_stream_id(stream_id: str) -> str:
    """The name of the profile that `stream_id` belongs to: the part before its first colon; raises ProfileError."""
    problem = _stream_id_problem(stream_id)
    if problem:
        shown = stream_id if len(stream_id) <= 64 else stream_id[:64] + "..."
        raise ProfileError(f"the stream id {shown!r} is malformed: {problem}")
    return stream_id.partition(":")[0]


def _stream_id_problem(stream_id: str) -> str:
    """What is wrong with the id, "" where nothing is."""
    if len(stream_id) > STREAM_ID_LENGTH:
        return f"it has {len(stream_id)} characters, and the most is {STREAM_ID_LENGTH}"
    if _REFUSED.search(stream_id):
        return "it holds a control character or what is not UTF-8 once it is percent-decoded"
    parts = stream_id.split(":")
    # RFC 3986, section 5.2.4: "." and ".." are removed from a path, with the segment before them.
    if not _PROFILE_NAME.fullmatch(parts[0]) or "." in parts or ".." in parts:
        return (
            "what stands before its first colon is the name of a profile, 1 to 64 of the characters A-Z a-z 0-9 . _ -, "
            "and no part between colons is '.' or '..'"
        )
    return ""


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
    bare = placeholders.without(address)
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
    if placeholders.without(parts.netloc) != parts.netloc or "{" in bare or "}" in bare:
        raise ProfileError(f"may hold {placeholders.KNOWN}, and those only in its path and query")
    if not _CHARACTERS.fullmatch(bare):
        raise ProfileError("holds characters that must be percent-encoded")
    return address


def fill(address: str, stream_id: str) -> str:
    """`address` with its placeholders replaced; raises ProfileError where the path needs a name that the id lacks."""
    parts = urlsplit(address)
    need_name(parts.path, stream_id)
    path, query = (placeholders.fill(part, stream_id, _one_piece) for part in (parts.path, parts.query))
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def need_name(text: str, stream_id: str) -> None:
    """Raises ProfileError where `text` has a placeholder for the name of the stream, and the id has no name."""
    profile, _, name = stream_id.partition(":")
    if not name and placeholders.needs_name(text):
        raise ProfileError(f"the stream id {stream_id!r} needs a name after a colon, as in '{profile}:orders'")


def _one_piece(value: str) -> str:
    return quote(value, safe="")


def with_query(address: str, name: str, value: str) -> str:
    """`address` with the query parameter `name` set to `value`, in place of one that it has already."""
    parts = urlsplit(address)
    encoded = quote(name, safe="")
    kept = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] not in (name, encoded)]
    query = "&".join([*kept, f"{encoded}={quote(value, safe='')}"])
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
