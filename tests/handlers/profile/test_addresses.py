"""Addresses of streams and their parts: which ids are valid, and that none leaves the profile's host or path."""

from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.profile.addresses import MOST_PARTS, ProfileError, check_stream_id, part_ids
from tests.handlers.profile.profiles import profile, refusal


@pytest.mark.parametrize(
    "stream_id",
    [
        "", "a" * 65, "demo:" + "a" * 252,
        "a/b", "a b", "ä", "a%2e", "a?b", "demo\0",
        "demo:\n", "demo:\x7f", "demo:\x85", "demo:" + chr(0xD800), "demo:\ufffd", "demo:\uffff",
        "..", ".", "demo:..", "demo:.", "demo:a:..", "..:a", ":a",
    ],
)  # fmt: skip
def test_a_malformed_stream_id_is_refused(stream_id: str) -> None:
    """A malformed stream id is refused with one sentence."""
    with pytest.raises(ProfileError, match=r"^the stream id .* is malformed: .*$"):
        check_stream_id(stream_id)


def test_a_stream_id_names_its_profile_before_the_first_colon() -> None:
    """`demo`, `demo:a` and `demo:a:b` are streams of the profile demo, and of no other."""
    assert [check_stream_id(text) for text in ("demo", "demo:a", "demo:a:b", "a.b-c_d")] == ["demo"] * 3 + ["a.b-c_d"]
    with pytest.raises(ProfileError, match="belongs to the profile 'other', not to 'demo'"):
        profile().address_for("other")


@pytest.mark.parametrize("name", ["Zm9vL2Jhcg==", "a/b", "a b+c", "100%", "%2F", "ä😀", "a?b#c", "'\"\\$", "x" * 251])
def test_a_name_may_be_any_segment_of_a_path(name: str) -> None:
    """A name is any text that a path's segment can hold; percent-encoded it becomes one piece of path and query."""
    assert check_stream_id(f"demo:{name}") == "demo"
    address = urlsplit(profile().address_for(f"demo:{name}"))
    assert [unquote(part) for part in address.path.split("/")] == ["", f"demo:{name}"]
    assert parse_qs(address.query) == {"q": [name]}


IDS = st.text(st.sampled_from("ab.:_-/%?#+= \\é"), max_size=12).map(lambda rest: "demo:" + rest)


@given(IDS)
def test_no_stream_id_leaves_the_profiles_host_or_path(stream_id: str) -> None:
    """For any id, the address has the profile's host and its two path segments, neither of them dots."""
    parsed = profile(address="https://example.org:8443/streams/{name}")
    try:
        address = urlsplit(parsed.address_for(stream_id))
    except ProfileError:
        return
    assert (address.scheme, address.netloc, address.query, address.fragment) == ("https", "example.org:8443", "", "")
    _, first, last = address.path.split("/")
    assert (first, unquote(last)) == ("streams", stream_id.removeprefix("demo:"))
    assert last not in ("", ".", "..")


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
