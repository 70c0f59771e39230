"""Parses the profile's field `parts`, and names the streams in which one stream is read.

    address = "https://feed.example/trades?symbol={name}"
    parts = ["btc", "eth"]

A stream with the profile's bare name, `prices`, is then never connected itself: `prices:btc` and `prices:eth` are, each
with a lease, a cursor and a ledger of its own, and its readers get both as one. Invariant: no two parts of a profile
have one id or one tag.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from handlers.profile.addresses import MOST_PARTS, ProfileError, check_stream_id, has_id, part_ids, tag_of
from handlers.profile.checked_fields import Fields, Form

if TYPE_CHECKING:
    from handlers.profile.behaviour import Profile

# The characters that need no encoding in a template of Velocity, a position and an address.
_PART = re.compile(r"[A-Za-z0-9._~/*:,@+-]{1,64}")


def parts(fields: Fields) -> tuple[str, ...]:
    return fields.read("parts", _PARTS) or ()


def _parse(value: Any) -> tuple[str, ...] | None:
    is_list = isinstance(value, list) and 2 <= len(value) <= MOST_PARTS
    return tuple(value) if is_list and all(isinstance(one, str) and _PART.fullmatch(one) for one in value) else None


_PARTS = Form(
    {
        "type": "array",
        "items": {"type": "string", "pattern": f"^{_PART.pattern}$"},
        "minItems": 2,
        "maxItems": MOST_PARTS,
        "uniqueItems": True,
    },
    f"must be a list of 2 to {MOST_PARTS} texts, each of 1 to 64 of the characters A-Z a-z 0-9 . _ ~ / * : , @ + -",
    _parse,
)


def check_parts(fields: Fields, profile: Profile) -> None:
    """Notes a problem if the parts cannot be streams of their own, or cannot be read as one."""
    ids = part_ids(profile.name, profile.parts)
    for one in ids:
        try:
            check_stream_id(one)
        except ProfileError as error:
            fields.add_problem("parts", f"must give valid stream ids: {error}")
    if len({tag_of(one) for one in ids}) < len(ids):
        fields.add_problem("parts", "must differ from each other: each is a connection of its own")
    if not any(map(has_id, [*profile.texts, *([] if profile.ticket is None else profile.ticket.texts)])):
        fields.add_problem(
            "parts", "needs {name} in address, body or subscribe: otherwise each part would be the whole stream"
        )
    if not profile.again:
        fields.add_problem(
            "parts", "cannot be used with again = false: what must not be requested twice has only one connection"
        )
    if profile.store == "items" and profile.order == "none":
        fields.add_problem(
            "parts", 'cannot be used with order = "none": only an order of arrival lets the parts be read as one'
        )
