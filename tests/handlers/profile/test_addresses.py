"""Addresses of streams: which stream ids are valid, and that none leaves the profile's host or path."""

from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.profile.addresses import ProfileError, check_stream_id
from tests.handlers.profile.profiles import profile


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
