"""Fills what a stream id says into the texts of a profile: its address and its body.

    {streamId}           the whole id                         etcd:config/*
    {name}               what follows its first colon         config/*
    {name|base64}        that in Base64 (RFC 4648)            Y29uZmlnLyo=
    {name|from|base64}   where the range of keys begins       config/   in Base64
    {name|to|base64}     where it ends, itself not in it      config0   in Base64

A name is a range in one of these ways; a backslash takes the character behind it as it is, as in `a\\*`:

    config/a     the key alone: the end is empty
    config/*     every key that begins with config/
    a..b         from a up to b, b not among them; a.. has no end, which is the byte 0

Invariant: a value is filled in once, and what looks like a placeholder in it stays as it is.
"""

import base64
import re
from collections.abc import Callable

KNOWN = "{streamId} and {name}, plain or with |base64, {name|from|base64} and {name|to|base64}"
_PLACEHOLDER = re.compile(r"\{(?:(streamId|name)(\|base64)?|name\|(from|to)\|base64)\}")
_MISSPELT = re.compile(r"\{(?:streamId|name)\|[^{}]*\}")
# One character of a range: escaped, or as it is.
_CHARACTER = re.compile(r"\\(.)|(.)", re.DOTALL)
_NO_END = b"\0"


def fill(text: str, stream_id: str, spell: Callable[[str], str] = str) -> str:
    """`text` with its placeholders replaced by their values as `spell` spells them."""
    return _PLACEHOLDER.sub(lambda match: spell(_value(match, stream_id)), text)


def without(text: str) -> str:
    """`text` without its placeholders."""
    return _PLACEHOLDER.sub("", text)


def needs_name(text: str) -> bool:
    """Whether `text` has a placeholder that takes the name."""
    return any(match[1] != "streamId" for match in _PLACEHOLDER.finditer(text))


def misspelt(text: str) -> str:
    """The first placeholder in `text` whose filter is not known, "" where there is none."""
    match = _MISSPELT.search(without(text))
    return match[0] if match is not None else ""


def key_range(name: str) -> tuple[bytes, bytes]:
    """The range of keys that `name` spells, as bytes: where it begins, and the end, which is not in it."""
    characters = [(match[1] or match[2], match[1] is None) for match in _CHARACTER.finditer(name)]

    def text(of: list[tuple[str, bool]]) -> bytes:
        return "".join(character for character, _ in of).encode()

    for at in range(len(characters) - 1):
        if characters[at] == characters[at + 1] == (".", True):
            return text(characters[:at]), text(characters[at + 2 :]) or _NO_END
    if characters and characters[-1] == ("*", True):
        prefix = text(characters[:-1])
        # No byte of UTF-8 is 0xff, so the last one can always be raised.
        return prefix, prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else _NO_END
    return text(characters), b""


def _value(match: re.Match[str], stream_id: str) -> str:
    name = stream_id.partition(":")[2]
    if match[3]:
        return base64.b64encode(key_range(name)[match[3] == "to"]).decode()
    plain = stream_id if match[1] == "streamId" else name
    return base64.b64encode(plain.encode()).decode() if match[2] else plain
