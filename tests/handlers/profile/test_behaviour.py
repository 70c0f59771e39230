"""The meaning of a profile: its requests with cursor and secrets, its marks, its statuses and its keys."""

from urllib.parse import unquote

import pytest

from handlers.framing.frames import Frame
from handlers.framing.marks import Kind
from handlers.profile.addresses import ProfileError
from handlers.profile.upstream_requests import request_of
from tests.handlers.profile.profiles import profile


def test_the_cursor_goes_where_the_profile_says() -> None:
    """The cursor is sent as a header of UTF-8 bytes, as a query parameter that replaces the profile's own, or not."""
    by_header = profile(resume={"header": "Last-Event-ID"})
    assert request_of(by_header, "demo", "é 1").headers["last-event-id"] == "é 1".encode()
    by_query = profile(address="https://example.org/x?since=now&a=1", resume={"query": "since"})
    assert request_of(by_query, "demo", "1 é&b=2").address == "https://example.org/x?a=1&since=1%20%C3%A9%26b%3D2"
    assert request_of(by_query, "demo", None).address == "https://example.org/x?since=now&a=1"
    assert request_of(profile(), "demo", "7").headers["last-event-id"] == b"7"
    nowhere = request_of(profile(resume="none"), "demo", "7")
    assert (nowhere.address, "last-event-id" in nowhere.headers) == ("https://example.org/demo?q=", False)


@pytest.mark.parametrize("cursor", [None, "", "1\r\nX-Evil: 1", "1\n2", "1\0"])
def test_a_cursor_that_no_header_can_carry_is_left_out(cursor: str | None) -> None:
    """An empty cursor, or a cursor with a line end, is not sent, and the request does not count as resumed."""
    parsed = profile(resume={"header": "Last-Event-ID"})
    assert ("last-event-id" in request_of(parsed, "demo", cursor).headers, parsed.is_resumption(cursor)) == (
        False,
        False,
    )


def test_compression_is_requested_only_by_profiles_that_set_it() -> None:
    """The default is identity; with `compression` a request names only codings that can be decoded."""
    asked = [
        request_of(profile(**more), "demo", None).headers["accept-encoding"] for more in ({}, {"compression": True})
    ]
    assert asked == [b"identity", b"gzip, deflate"]


def test_a_profiles_headers_replace_ours() -> None:
    """A header of the profile replaces the default one, whatever its case, and is sent once."""
    headers = request_of(profile(headers={"ACCEPT": "x/y", "User-Agent": "me"}), "demo", None).headers
    assert headers == {
        "accept": b"x/y",
        "accept-encoding": b"identity",
        "cache-control": b"no-cache",
        "user-agent": b"me",
    }


def test_the_first_mark_that_fits_decides_the_kind_of_a_frame() -> None:
    """Marks compare names and texts whole, comments by their beginning, and JSON by every place that the mark names."""
    parsed = profile(
        end={"data": "[DONE]"},
        heartbeat=[{"event": "ping"}, {"json": {"$.type": "BOOKMARK"}}],
        loss={"comment": "dropped"},
        disconnect={"json": {"$.errors[0].code": 7, "$.errors[-1].fatal": True}},
        resume={"query": "since", "expired": {"event": "error", "json": {"$.code": 410}}},
    )
    frames = [
        (Frame("[DONE]"), Kind.END),
        (Frame("[DONE] "), Kind.EVENT),
        (Frame("x", name="ping"), Kind.HEARTBEAT),
        (Frame('{"type":"BOOKMARK"}'), Kind.HEARTBEAT),
        (Frame('{"type":"bookmark"}'), Kind.EVENT),
        (Frame("dropped 9 messages", is_comment=True), Kind.LOSS),
        (Frame("heartbeat", is_comment=True), Kind.COMMENT),
        (Frame("dropped 9 messages"), Kind.EVENT),
        (Frame('{"errors":[{"code":7,"fatal":true}]}'), Kind.DISCONNECT),
        (Frame('{"errors":[{"code":7},{"fatal":true}]}'), Kind.DISCONNECT),
        (Frame('{"errors":[{"code":7,"fatal":1}]}'), Kind.EVENT),
        (Frame('{"code":410}', name="error"), Kind.EXPIRED),
        (Frame('{"code":410}'), Kind.EVENT),
        (Frame(b"\xff"), Kind.EVENT),
        (Frame("[" * 5000), Kind.EVENT),
    ]
    assert [parsed.marks.kind(frame) for frame, _ in frames] == [kind for _, kind in frames]
    assert profile(heartbeat={"json": {"$.a": "*"}}).marks.kind(Frame('{"a":[]}')) is Kind.HEARTBEAT
    assert profile(heartbeat={"json": {"$.a": "*"}}).marks.kind(Frame('{"a":null}')) is Kind.EVENT
    assert profile(end={"event": "message"}).marks.kind(Frame("x")) is Kind.END


def test_secrets_stand_where_the_profile_refers_to_them_and_nowhere_else() -> None:
    """Header, query and body are filled with secrets; references in a cursor or an id are not; no repr shows one."""
    parsed = profile(
        address="https://example.org/{name}?token=${secret:a:t}",
        method="POST",
        body='{"key": "${ssm:b}", "topic": "{name}", "from": 0}',
        headers={"Authorization": "Bearer ${secret:a}"},
        resume={"body": "/from", "add": 1},
    )
    whole, part, parameter = parsed.secrets
    assert (whole.name, part.key, parameter.kept_in) == ("a", "t", "ssm")
    values = {whole: "one", part: "t&o", parameter: 'th"ree'}
    request = request_of(parsed, "demo:x", "41", values)
    assert request.address == "https://example.org/x?token=t%26o"
    assert request.headers["authorization"] == b"Bearer one"
    assert request.body == b'{"key":"th\\"ree","topic":"x","from":42}'
    assert set(request.secrets) == set(values.values())
    assert not any(value in repr(request) for value in values.values())
    sneaky = request_of(profile(resume={"header": "Last-Event-ID"}), "demo", "${secret:a}")
    assert sneaky.headers["last-event-id"] == b"${secret:a}"
    with pytest.raises(ProfileError, match=r"the secret in headers\.Authorization contains characters that a header"):
        request_of(parsed, "demo:x", None, values | {whole: "one\n"})


def test_a_cursor_is_moved_and_spelled_as_the_profile_says() -> None:
    """`add` moves only numbers, `pattern` surrounds or replaces, the fallback goes unchanged and needs no cursor."""
    moved = profile(resume={"query": "from", "add": 1, "pattern": "rev-{cursor}", "fallback": "first"})
    assert request_of(moved, "demo", "41").address.endswith("from=rev-42")
    assert request_of(moved, "demo", "4a").address.endswith("from=rev-4a")
    assert request_of(moved, "demo", "first").address.endswith("from=first")
    assert [moved.is_resumption(cursor) for cursor in ("41", "first", "", None)] == [True, False, False, False]
    minutes = profile(resume={"query": "backfill_minutes", "pattern": "5"})
    assert request_of(minutes, "demo", "123").address.endswith("backfill_minutes=5")


@pytest.mark.parametrize(
    ("cursor", "asked"),
    [
        ("2026-01-01T00:01:00.123456789Z", "2025-12-31T23:59:00.123456Z"),
        ("2026-01-01T00:01:00+05:30", "2025-12-31T23:59:00+05:30"),
        ("2026-01-01T00:01:00", "2025-12-31T23:59:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("17", "17"),
        ("1795120112340", "1795120112340"),
    ],
)
def test_an_instant_is_requested_some_time_earlier(cursor: str, asked: str) -> None:
    """`back_s` moves an instant back in its own offset; a cursor without such a past is unchanged."""
    parsed = profile(address="https://example.org/", resume={"query": "since", "back_s": 120})
    assert unquote(request_of(parsed, "demo", cursor).address) == f"https://example.org/?since={asked}"


def test_a_profile_may_change_the_meaning_of_a_status() -> None:
    """The profile's meaning of a status goes before the default one."""
    parsed = profile(statuses={"416": "expired", "403": "dropped", "200": "success"})
    assert [parsed.meaning_of_status(status) for status in (200, 204, 403, 416, 429, 420, 404, 503, 408)] == [
        "success", "ended", "dropped", "expired", "throttled", "throttled", "refused", "dropped", "dropped"
    ]  # fmt: skip


def test_several_places_name_one_event() -> None:
    """A key of several places is unambiguous; an event that lacks one of them is identified by its hash."""
    parsed = profile(key=["$.a", "$.b[-1]"], framing="ndjson")
    assert parsed.to_event(Frame('{"a":"x","b":[1,2]}'), 0).key == '["x","2"]'
    assert len(parsed.to_event(Frame('{"a":"x"}'), 0).key) == 64
