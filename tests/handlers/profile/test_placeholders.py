"""The placeholders that a stream id fills in a profile's texts: unchanged, in Base64, and as a range of keys."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.profile.addresses import ProfileError, fill_in, key_range
from handlers.profile.upstream_requests import request_of
from tests.handlers.profile.profiles import profile

KEYS = st.text(st.sampled_from("ab/.*\\:é\U0010ffff"), max_size=6)


def escaped(key: str) -> str:
    """Return the name that spells exactly this key."""
    return "".join(f"\\{character}" if character in "\\.*" else character for character in key)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("foo", (b"foo", b"")),
        ("config/*", (b"config/", b"config0")),
        ("*", (b"", b"\0")),
        ("a..b", (b"a", b"b")),
        ("a..", (b"a", b"\0")),
        ("..b", (b"", b"b")),
        ("a...b", (b"a", b".b")),
        ("a*b", (b"a*b", b"")),
        ("a*..b*", (b"a*", b"b*")),
        ("a.b", (b"a.b", b"")),
        (r"a\*", (b"a*", b"")),
        (r"a\..b", (b"a..b", b"")),
        (r"a\\*", (b"a\\", b"a]")),
        ("a\\", (b"a\\", b"")),
        ("é*", (b"\xc3\xa9", b"\xc3\xaa")),
    ],
)
def test_a_name_spells_a_range(name: str, expected: tuple[bytes, bytes]) -> None:
    """A key alone has no end, a prefix ends after its last key, and two dots separate the ends."""
    assert key_range(name) == expected


@given(KEYS, KEYS)
def test_every_key_and_every_range_can_be_spelled(one: str, other: str) -> None:
    """A backslash makes any character literal, so every key and every range can be written."""
    assert key_range(escaped(one)) == (one.encode(), b"")
    assert key_range(f"{escaped(one)}..{escaped(other)}") == (one.encode(), other.encode() or b"\0")


@given(KEYS.filter(bool), st.binary(max_size=4))
def test_a_prefix_takes_the_keys_that_begin_with_it_and_no_other(prefix: str, rest: bytes) -> None:
    """For any bytes, exactly the keys that begin with the prefix are in its range."""
    start, end = key_range(f"{escaped(prefix)}*")
    assert start <= prefix.encode() + rest < end
    assert (start <= rest < end) == rest.startswith(prefix.encode())


def test_placeholders_are_filled_in_once() -> None:
    """A placeholder within a filled-in value stays; each filter gives its own value."""
    text = "{streamId} {name} {name|base64} {streamId|base64} {name|from|base64} {name|to|base64} {other}"
    values = fill_in(text, "demo:{name}*").split(" ")
    in_base64 = [base64.b64decode(value) for value in values[2:6]]
    assert (values[:2], values[6]) == (["demo:{name}*", "{name}*"], "{other}")
    assert in_base64 == [b"{name}*", b"demo:{name}*", b"{name}", b"{name~"]


def body(text: str, stream_id: str) -> Any:
    """Return the body that a profile with this `body` sends."""
    sent = request_of(profile(method="POST", body=text, address="https://example.org/{name|base64}"), stream_id, None)
    assert sent.body is not None
    return sent.address, json.loads(sent.body)


def test_filters_stand_in_address_and_body() -> None:
    """A filter's Base64 is percent-encoded as one piece of an address, and a text in a body."""
    assert body('{"key": "{name|from|base64}", "to": ["{name|to|base64}"]}', "demo:??>/*") == (
        "https://example.org/Pz8%2BLyo%3D",
        {"key": "Pz8+Lw==", "to": ["Pz8+MA=="]},
    )


def test_a_request_that_needs_a_name_is_not_made_without_one() -> None:
    """If address or body needs a name, a stream id without one is refused with the form to use."""
    for fields in (
        {"address": "https://example.org/{name|base64}"},
        {"method": "POST", "body": '{"key": "{name|to|base64}"}'},
    ):
        with pytest.raises(ProfileError, match="needs a name after a colon, as in 'demo:orders'"):
            profile(**fields).address_for("demo")
