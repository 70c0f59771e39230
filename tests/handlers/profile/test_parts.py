"""A profile with parts: which parts are valid, and which streams they are."""

from typing import Any

import pytest

from handlers.profile.addresses import MOST_PARTS, ProfileError, part_ids
from tests.handlers.profile.profiles import profile, refusal

SOURCE = {"address": "https://feed.example/trades?symbol={name}", "framing": "sse"}
OF_PART = "1 to 64 of the characters A-Z a-z 0-9 . _ ~ / * : , @ + -"
SHAPE = f"parts must be a list of 2 to {MOST_PARTS} texts, each of {OF_PART}"


def test_each_part_is_a_stream_but_the_whole_is_not() -> None:
    """A part is the stream with that {name}; other names are streams beside them; the bare name is no stream."""
    prices = profile(**SOURCE, parts=["btc", "eth"])
    assert part_ids("demo", prices.parts) == ("demo:btc", "demo:eth")
    assert prices.address_for("demo:eth") == "https://feed.example/trades?symbol=eth"
    assert prices.address_for("demo:doge") == "https://feed.example/trades?symbol=doge"
    with pytest.raises(ProfileError, match="read in parts: use demo:btc, demo:eth"):
        prices.address_for("demo")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"parts": "btc"}, SHAPE),
        ({"parts": ["btc"]}, SHAPE),
        ({"parts": [str(number) for number in range(MOST_PARTS + 1)]}, SHAPE),
        ({"parts": ["btc", ""]}, SHAPE),
        ({"parts": ["btc", "it's"]}, SHAPE),
        ({"parts": ["btc", "a{b}"]}, SHAPE),
        ({"parts": ["btc", 2]}, SHAPE),
        ({"parts": ["btc", "eth", "btc"]}, "parts must differ from each other: each is a connection of its own"),
        (
            {"parts": ["a", ".."]},
            "parts must give valid stream ids: the stream id 'demo:..' is malformed: no part between its colons "
            "may be '.' or '..'",
        ),
        (
            {"parts": ["a", "b"], "address": "https://feed.example/trades"},
            "parts needs {name} in address, body or subscribe: otherwise each part would be the whole stream",
        ),
        (
            {"parts": ["a", "b"], "method": "POST"},
            "parts cannot be used with again = false: what must not be requested twice has only one connection",
        ),
        (
            {"parts": ["a", "b"], "order": "none"},
            'parts cannot be used with order = "none": only an order of arrival lets the parts be read as one',
        ),
    ],
)
def test_invalid_parts_are_refused(more: dict[str, Any], problem: str) -> None:
    """Each invalid list of parts is refused with one sentence."""
    assert refusal(**SOURCE | more) == f"the profile 'demo': {problem}"
