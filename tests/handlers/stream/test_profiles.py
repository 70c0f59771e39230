"""Profiles: defaults, refusals that name the field, and addresses that no stream id can lead astray."""

import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.stream.events import parse_path
from handlers.stream.framing import Frame
from handlers.stream.ndjson import NdjsonDecoder
from handlers.stream.profiles import End, Profile, ProfileError, Resume, check_stream_id, parse
from handlers.stream.sse import SseDecoder

STREAMS = Path(__file__).parents[3] / "env" / "streams"
VARIABLES = {"UPSTREAM_DEMO": "http://127.0.0.1:9000", "UPSTREAM_COUCHDB": "http://127.0.0.1:9001/db/"}
LEAST: dict[str, Any] = {"address": "https://example.org/{streamId}?q={name}", "framing": "sse"}

PLACES = "address may hold {streamId} and {name}, and those only in its path and query"
START = "address may hold a variable only at its start, as in ${UPSTREAM_DEMO}/events"


def profile(**fields: Any) -> Profile:
    return parse("demo", {**LEAST, **fields}, VARIABLES)


def refusal(**fields: Any) -> str:
    table = {name: value for name, value in {**LEAST, **fields}.items() if value is not None}
    with pytest.raises(ProfileError) as caught:
        parse("demo", table, VARIABLES)
    return str(caught.value)


def test_address_and_framing_are_enough() -> None:
    """Everything else has the default that the demo profile states."""
    assert profile() == Profile(
        name="demo",
        address="https://example.org/{streamId}?q={name}",
        method="GET",
        headers=(),
        framing="sse",
        connect_timeout_s=10,
        stall_after_s=60,
        overlap="tolerates",
        overlap_s=2,
        standby="cold",
        reconnect_tries=0,
        max_frame_bytes=1048576,
        compression=False,
        partitions=1,
        keep_days=0,
        resume=None,
        key="id",
        cursor="id",
        end=None,
    )
    lines = profile(framing="ndjson")
    assert (lines.key, lines.cursor) == ("hash", None)
    assert isinstance(profile().decoder(), SseDecoder)
    assert isinstance(lines.decoder(), NdjsonDecoder)


def test_the_profiles_that_ship_are_sound() -> None:
    """Every file in env/streams parses, and the demo profile shows every field there is."""
    found = {file.stem: tomllib.loads(file.read_text()) for file in STREAMS.glob("*.toml")}
    profiles = {name: parse(name, table, VARIABLES) for name, table in found.items()}
    assert set(profiles) == {"demo", "demo-exclusive", "demo-ndjson", "demo-standby", "couchdb", "wikimedia"}
    assert set(found["demo"]) == set(Profile.__dataclass_fields__) - {"name"}
    assert profiles["demo"].address_for("demo:a") == "http://127.0.0.1:9000/demo%3Aa"
    assert profiles["wikimedia"].request("wikimedia:recentchange", "[1]").headers["last-event-id"] == b"[1]"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"address": None}, "address is missing"),
        ({"address": 7}, "address must be a text"),
        ({"address": "ftp://example.org/"}, "address must begin with http:// or https:// and a host"),
        ({"address": "https:///x"}, "address must begin with http:// or https:// and a host"),
        ({"address": "https://example.org:port/"}, "address is no valid address"),
        ({"address": "https://[::1/"}, "address is no valid address"),
        ({"address": "https://user:secret@example.org/"}, "address must not hold a user or a password"),
        ({"address": "https://example.org/#x"}, "address must not hold a fragment (#)"),
        ({"address": "https://{name}.example.org/"}, PLACES),
        ({"address": "https://example.org/{id}"}, PLACES),
        ({"address": "https://example.org/a b"}, "address holds characters that must be percent-encoded"),
        ({"address": "https://example.org/ü"}, "address holds characters that must be percent-encoded"),
        ({"address": "${UPSTREAM_NONE}/x"}, "address needs the variable UPSTREAM_NONE, which is not set"),
        ({"address": "https://example.org/${UPSTREAM_DEMO}"}, START),
        ({"address": "${HOME}/x"}, START),
        ({"framing": None}, "framing is missing"),
        ({"framing": "SSE"}, "framing must be one of sse, ndjson, json-seq, length, raw"),
        ({"framing": ["sse"]}, "framing must be one of sse, ndjson, json-seq, length, raw"),
        ({"method": "PUT"}, "method must be one of GET, POST"),
        ({"connect_timeout_s": 0}, "connect_timeout_s must be a number of seconds above 0 and at most 60"),
        ({"connect_timeout_s": True}, "connect_timeout_s must be a number of seconds above 0 and at most 60"),
        ({"stall_after_s": "60"}, "stall_after_s must be a number of seconds above 0 and at most 900"),
        ({"stall_after_s": float("nan")}, "stall_after_s must be a number of seconds above 0 and at most 900"),
        ({"overlap": "maybe"}, "overlap must be one of evicts, tolerates, forbids"),
        ({"overlap_s": -0.5}, "overlap_s must be a number of seconds at least 0 and at most 300"),
        ({"standby": "hot", "overlap": "evicts"}, 'standby can be "hot" only where overlap is "tolerates"'),
        ({"reconnect_tries": -1}, "reconnect_tries must be a whole number from 0 to 20"),
        ({"max_frame_bytes": 1.5}, "max_frame_bytes must be a whole number from 1 to 16777216"),
        ({"max_frame_bytes": 0}, "max_frame_bytes must be a whole number from 1 to 16777216"),
        ({"resume": "Last-Event-ID"}, 'resume must be { header = "..." } or { query = "..." }'),
        ({"resume": {"header": "a", "query": "b"}}, 'resume must be { header = "..." } or { query = "..." }'),
        ({"resume": {"header": "a b"}}, "resume.header is no name of an HTTP header"),
        ({"end": {}}, 'end must be { event = "..." } or { data = "..." }'),
        ({"end": {"status": "204"}}, 'end must be { event = "..." } or { data = "..." }'),
        ({"key": "$.a[*]"}, 'key must be "id", "hash" or a JSON path such as "$.meta.id" or "$.items[0]"'),
        ({"key": ["id"]}, 'key must be "id", "hash" or a JSON path such as "$.meta.id" or "$.items[0]"'),
        ({"cursor": "hash"}, 'cursor must be "id" or a JSON path such as "$.meta.id" or "$.items[0]"'),
        ({"key": "id", "framing": "ndjson"}, 'key can be "id" only where framing is "sse"'),
        ({"cursor": "id", "framing": "ndjson"}, 'cursor can be "id" only where framing is "sse"'),
        ({"headers": "a: b"}, "headers must be a table of texts"),
        ({"headers": {"a b": "c"}}, "headers.a b is no name of an HTTP header"),
        ({"headers": {"a": "b\r\nc: d"}}, "headers.a must be a text of visible ASCII characters"),
        ({"headers": {"a": 1}}, "headers.a must be a text of visible ASCII characters"),
        ({"headers": {"a": "${UPSTREAM_DEMO}"}}, "headers.a holds a variable; only the start of the address may"),
        ({"stall_s": 5}, "stall_s is not a field of a profile; see env/streams/demo.toml for those there are"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], sentence: str) -> None:
    """The sentence names the profile, the field and the fix, and never repeats an address."""
    assert refusal(**fields) == f"the profile 'demo': {sentence}"


@pytest.mark.parametrize(
    "stream_id",
    [
        "",
        "a" * 65,
        "a/b",
        "a b",
        "ä",
        "a\n",
        "a%2e",
        "a?b",
        "..",
        ".",
        "demo:..",
        "demo:.",
        "demo:a:..",
        "..:a",
        ":a",
        "demo\0",
    ],
)
def test_a_malformed_stream_id_is_refused(stream_id: str) -> None:
    """One clear sentence for each."""
    with pytest.raises(ProfileError, match=r"^the stream id .* is malformed: .*$"):
        check_stream_id(stream_id)


def test_a_stream_id_names_its_profile_before_the_first_colon() -> None:
    """`demo`, `demo:a` and `demo:a:b` are streams of the profile demo, and of no other."""
    assert [check_stream_id(text) for text in ("demo", "demo:a", "demo:a:b", "a.b-c_d")] == ["demo"] * 3 + ["a.b-c_d"]
    with pytest.raises(ProfileError, match="belongs to the profile 'other', not to 'demo'"):
        profile().address_for("other")


def test_placeholders_come_in_as_one_piece() -> None:
    """The whole id and the part after the colon are percent-encoded into path and query."""
    assert profile().address_for("demo:a:b") == "https://example.org/demo%3Aa%3Ab?q=a%3Ab"
    assert profile().address_for("demo") == "https://example.org/demo?q="
    with pytest.raises(ProfileError, match="needs a name after a colon, as in 'demo:orders'"):
        profile(address="https://example.org/{name}/_changes").address_for("demo")


IDS = st.text(st.sampled_from("ab.:_-"), max_size=12).map(lambda rest: "demo:" + rest)


@given(IDS)
def test_no_stream_id_leaves_the_profiles_host_or_path(stream_id: str) -> None:
    """Whatever the id is, the address has the profile's host, and the path its two segments, neither of them dots."""
    found = profile(address="https://example.org:8443/streams/{name}")
    try:
        address = urlsplit(found.address_for(stream_id))
    except ProfileError:
        return
    assert (address.scheme, address.netloc, address.query, address.fragment) == ("https", "example.org:8443", "", "")
    _, first, last = address.path.split("/")
    assert (first, unquote(last)) == ("streams", stream_id.removeprefix("demo:"))
    assert last not in ("", ".", "..")


def test_the_cursor_goes_where_the_profile_says() -> None:
    """A header of UTF-8 bytes, a query parameter in place of the profile's own, or nowhere."""
    by_header = profile(resume={"header": "Last-Event-ID"})
    assert by_header.request("demo", "é 1").headers["last-event-id"] == "é 1".encode()
    by_query = profile(address="https://example.org/x?since=now&a=1", resume={"query": "since"})
    assert by_query.request("demo", "1 é&b=2").address == "https://example.org/x?a=1&since=1%20%C3%A9%26b%3D2"
    assert by_query.request("demo", None).address == "https://example.org/x?since=now&a=1"
    nowhere = profile().request("demo", "7")
    assert (nowhere.address, "last-event-id" in nowhere.headers) == ("https://example.org/demo?q=", False)


@pytest.mark.parametrize("cursor", [None, "", "1\r\nX-Evil: 1", "1\n2", "1\0"])
def test_a_cursor_that_no_header_can_carry_is_left_out(cursor: str | None) -> None:
    """An empty cursor asks for no place, and a line end would begin another header."""
    request = profile(resume={"header": "Last-Event-ID"}).request("demo", cursor)
    assert "last-event-id" not in request.headers


def test_compression_is_asked_for_only_where_the_profile_wants_it() -> None:
    """The default is identity; what is asked for is what can be decoded."""
    asked = [profile(**more).request("demo", None).headers["accept-encoding"] for more in ({}, {"compression": True})]
    assert asked == [b"identity", b"gzip, deflate"]
    assert refusal(compression="gzip") == "the profile 'demo': compression must be true or false"


def test_a_profiles_headers_replace_ours() -> None:
    """Names are compared without regard to case; a header is sent once."""
    headers = profile(headers={"ACCEPT": "x/y", "User-Agent": "me"}).request("demo", None).headers
    assert headers == {
        "accept": b"x/y",
        "accept-encoding": b"identity",
        "cache-control": b"no-store",
        "user-agent": b"me",
    }


def test_the_end_is_an_event_of_a_name_or_of_a_text() -> None:
    """`end` compares the event's name or its whole data, and nothing else ends a stream."""
    named, marked = profile(end={"event": "end"}), profile(end={"data": "[DONE]"})
    assert (named.end, marked.end) == (End("event", "end"), End("data", "[DONE]"))
    frames = [Frame("x", name="end"), Frame("[DONE]"), Frame("end"), Frame("[DONE] ")]
    assert [named.is_end(named.event(frame, 0)) for frame in frames] == [True, False, False, False]
    assert [marked.is_end(marked.event(frame, 0)) for frame in frames] == [False, True, False, False]
    assert not profile().is_end(profile().event(frames[0], 0))


def test_rules_and_times_are_what_the_table_says() -> None:
    """Paths are parsed, seconds become whole milliseconds."""
    found = profile(key="$.meta.id", cursor="$.seq", resume={"query": "since"}, overlap_s=1.5, connect_timeout_s=0.25)
    assert (found.key, found.cursor) == (parse_path("$.meta.id"), parse_path("$.seq"))
    assert (found.resume, found.overlap_ms, found.connect_timeout_ms) == (Resume("query", "since"), 1500, 250)
