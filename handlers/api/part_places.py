"""Writes and reads a place in a stream that is read in parts: the place in each part, in one text.

    parts~3f1b9c02001764370000123/000000000001/000000000000~9a77e0c1001764370000456/000000000003/000000000000

A part is named by its tag (`tag_of` in handlers/profile/addresses.py); the part of the event itself comes first.
Invariant: a part that is not in a place is read from its beginning, and one that the profile no longer has is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from handlers.profile.addresses import MOST_PARTS, TAG_DIGITS

PARTS = "parts~"


def pattern_with_parts(place: str) -> re.Pattern[str]:
    """Returns the pattern of a stream's own place, or of one in its parts."""
    return re.compile(rf"{place}|parts(?:~[0-9a-f]{{{TAG_DIGITS}}}(?:{place})){{1,{MOST_PARTS}}}")


def read_places(text: str) -> dict[str, str]:
    """Returns the place in each part, by its tag; none for "", the beginning."""
    return {one[:TAG_DIGITS]: one[TAG_DIGITS:] for one in text.removeprefix(PARTS).split("~") if one}


def places_text(places: Mapping[str, str], first: str = "") -> str:
    """Returns the text; the part with the tag `first` comes first."""
    tags = sorted(places, key=lambda one: (one != first, one))
    return PARTS + "~".join(f"{one}{places[one]}" for one in tags) if places else ""
