"""Parsed profiles: defaults, refusals that name the field, and the profiles that ship."""

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.framing.events import parse_path
from handlers.framing.frames import Frame
from handlers.framing.marks import Marks
from handlers.framing.ndjson import NdjsonDecoder
from handlers.framing.sse import SseDecoder
from handlers.profile import addresses
from handlers.profile.behaviour import Profile
from handlers.profile.checked_fields import BadProfile
from handlers.profile.parse import parse
from handlers.profile.resume import LAST_EVENT_ID, Resume
from handlers.profile.upstream_requests import request_of
from tests import shipped
from tests.handlers.profile.profiles import PATH, VARIABLES, profile, refusal
from tests.local.support import PROJECT

PLACES = f"address may contain only these placeholders, and only in its path and query: {addresses.KNOWN}"
UNKNOWN = f"body contains {{name|hex}}, which is unknown; the placeholders are {addresses.KNOWN}"
RESUME = 'resume must be { header = "..." }, { query = "..." } or { body = "/..." }, or "none"'
RESUME_FIELDS = "resume: header, query or body, pattern, add, back_s, reach_s, fallback, confirmed_by, expired, oldest"
MARK = (
    '{ event = "..." }, { data = "..." }, { comment = "..." }, { "$.type" = "..." } or '
    '{ absent = ["$.items"] }, or a list of such'
)
EXPECTED = 'expect_every_s must be a number of seconds from 1 to 604800, or "usual"'
KEY = f'key must be "id", "hash", "each" or {PATH}, or a list of such paths'
POINTER = 'a place in the body such as "/create_request/start_revision"'
VALUES = f'{PATH}, each with a text, a number, true, false or "*" (any value)'
JSON = 'json as a table of paths and values, such as { "$.type" = "ERROR" }'
MARKED = 'must be "sse", because a mark names an event or a comment'
ONE_OF_THEM = "is for cursors that are instants, and add for those that are numbers: leave one of them out"
BARE = "in plain text; put the secret into Secrets Manager and write ${secret:name}"
NEEDS_CURSOR = 'needs cursor = "$...", the place to resume from, unless framing is "sse"'
SHRINKS = "must not shrink: factor must be at least 1, and max_s at least start_s"
UNDER = "write a name such as prices/token, which stands for /streamkeeper/<stage>/prices/token"
NO_FIELDS = "refers to a field of the parameter 'x'; only secrets have fields"
MEANINGS = "success, ended, expired, throttled, dropped, refused, rejected"
DURATION = 'must be a number of seconds from 0 to 86400, or such a time as "90s", "5m" or "1h"'
NO_SECRET = (
    "contains ${...} that is not a reference to a secret; write ${secret:name}, ${secret:name:field} or ${ssm:name}"
)
FRAMING = "framing must be one of sse, ndjson, json-seq, length, raw, websocket"
SSE_ALONE = 'works only with framing = "sse": no other lets an upstream set a reconnection time'
NO_FIELD = "is not a field of a profile; docs/profiles.md lists them all"
UNKNOWN_OF_RESUME = f"is not a field of {RESUME_FIELDS}"
PACE, PACES = "a pace: start_s, step_s, factor, max_s", "backoff: network, http, throttled, refused"
WRONG_TIMES = (-1, 86_401, True, "", "m", "5", "5 m", "-5m", "1.5h", "25h", "٣m", "9" * 400 + "s", float("nan"), [5])
STATUS = f"must be a status from 200 to 599, with one of these values: {MEANINGS}"
FOR_ITEMS = 'works only with store = "items":'
ONE_ORDER = "a log is in one order, under one partition key"
FOR_A_LOG = 'works only with store = "log": items are written at once, and their keys are never forgotten'
NOT_BOTH = 'can be "both" only with store = "items": a log does not read back what it stored'
START = "address may contain ${...} only at its start, as in ${UPSTREAM_DEMO}/events, and secrets only in its query"
ENCODED = "address contains a character that must be percent-encoded, as a space is by %20"
NO_USER = "address must not contain a user or a password: put them into headers"


def test_address_and_framing_are_enough() -> None:
    """Every other field has the default in the table of docs/profiles.md."""
    given, page = profile(), (PROJECT / "docs" / "profiles.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(?!address|framing|keep`)(\w+)` \| [^|]* \| ?([\w-]*) \|", page)
    assert len(rows) > 30
    for name, default in rows:
        value = getattr(given, name, None)
        assert (name, str(value).lower() if default else value or None) == (name, default.lower() or None)
    assert (given.key, given.cursor, given.resume, given.marks) == ("id", "id", LAST_EVENT_ID, Marks())
    assert (given.again, given.keep_days) == (True, 0)
    lines = profile(framing="ndjson")
    assert (lines.key, lines.cursor, lines.resume) == ("hash", None, None)
    assert isinstance(profile().decoder(), SseDecoder)
    assert isinstance(lines.decoder(), NdjsonDecoder)


def test_a_key_of_the_bodys_own_has_no_conflict() -> None:
    """An id or a path may come with two bodies; a hash belongs to one body, and with "each" no key recurs."""
    rules: dict[str, Any] = {"id": "both", "$.a": "both", "hash": None, "each": None}
    assert {key: profile(key=key, on_conflict="both").key_conflict for key in rules} == rules
    assert profile(key=["$.a", "$.b"]).key_conflict == "first"


def test_the_profiles_that_ship_are_sound() -> None:
    """Each shipped profile is valid, and its address and request follow from its file."""
    tables = {file.stem: tomllib.loads(file.read_text()) for file in shipped.files()}
    variables = {
        f"UPSTREAM_{name}": "https://example.org" for name in ("KUBERNETES", "ETCD", "MERCURE", "MASTODON", "MCP")
    }
    profiles = {name: parse(name, table, VARIABLES | variables) for name, table in tables.items()}
    assert profiles["demo"].address_for("demo:a") == "http://127.0.0.1:9000/demo%3Aa"
    assert request_of(profiles["wikimedia"], "wikimedia:recentchange", "[1]").headers["last-event-id"] == b"[1]"


def test_an_event_stream_resumes_unless_its_profile_says_otherwise() -> None:
    """By WHATWG the last event ID is sent as Last-Event-ID; no standard covers any other cursor."""
    assert Resume("header", "Last-Event-ID", is_default=True) == LAST_EVENT_ID
    assert profile(key="$.a", method="POST").resume == LAST_EVENT_ID
    assert [profile(**fields).resume for fields in ({"resume": "none"}, {"cursor": "$.at"})] == [None, None]
    said = profile(resume={"header": "Last-Event-ID"})
    assert (said.resume, said.reach_ms, profile().reach_ms) == (Resume("header", "Last-Event-ID"), None, 0)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"address": None}, "address is missing"),
    ({"address": 7}, "address must be a text"),
    ({"address": "ftp://example.org/"}, "address must begin with http://, https://, ws:// or wss:// and a host"),
    ({"address": "https:///x"}, "address must begin with http://, https://, ws:// or wss:// and a host"),
    ({"address": "https://example.org:port/"}, "address must be a valid address such as https://example.org/events"),
    ({"address": "https://[::1/"}, "address must be a valid address such as https://example.org/events"),
    ({"address": "https://user:secret@example.org/"}, NO_USER),
    ({"address": "https://example.org/#x"}, "address must not contain a fragment (#...): it is never sent"),
    ({"address": "https://{name}.example.org/"}, PLACES),
    ({"address": "https://example.org/{id}"}, PLACES),
    ({"address": "https://example.org/{name|hex}"}, PLACES),
    ({"body": '{"a": "{name|hex}"}', "method": "POST"}, UNKNOWN),
    ({"address": "https://example.org/a b"}, ENCODED),
    ({"address": "https://example.org/ü"}, ENCODED),
    (
        {"address": "${UPSTREAM_NONE}/x"},
        "address needs the variable UPSTREAM_NONE, which is not set: add it to the stage's upstreams",
    ),
    ({"address": "https://example.org/${UPSTREAM_DEMO}"}, START),
    ({"address": "${HOME}/x"}, START),
    ({"framing": None}, "framing is missing"),
    ({"framing": "SSE"}, f"{FRAMING}; did you mean sse?"),
    ({"framing": "jsonl"}, f"{FRAMING}; did you mean ndjson?"),
    ({"overlap": "tolerate"}, "overlap must be one of evicts, tolerates, forbids; did you mean tolerates?"),
    ({"connect_timeout_s": 0}, "connect_timeout_s must be a number of seconds above 0 and at most 60"),
    ({"connect_timeout_s": True}, "connect_timeout_s must be a number of seconds above 0 and at most 60"),
    ({"expect_every_s": 0.5}, EXPECTED),
    ({"expect_every_s": 604_801}, EXPECTED),
    ({"expect_every_s": "often"}, EXPECTED),
    ({"stall_after_s": float("nan")}, "stall_after_s must be a number of seconds above 0 and at most 900"),
    ({"overlap_s": -0.5}, "overlap_s must be a number of seconds from 0 to 300"),
    ({"standby": "hot", "overlap": "evicts"}, 'standby can be "hot" only with overlap = "tolerates"'),
    ({"retry_max_s": 5, "framing": "raw"}, f"retry_max_s {SSE_ALONE}"),
    ({"max_frame_bytes": 1.5}, "max_frame_bytes must be a whole number from 1 to 16777216"),
    ({"resume": "Last-Event-ID"}, RESUME),
    ({"resume": {"header": "a", "query": "b"}}, RESUME),
    ({"resume": {"header": "a b"}}, "resume.header must be the name of an HTTP header that a profile may set"),
    ({"resume": {"body": "start"}, "body": "{}", "method": "POST"}, f"resume.body must be {POINTER}"),
    ({"resume": {"query": "a", "more": 1}}, f"resume.more is not a field of {RESUME_FIELDS}"),
    ({"resume": {"query": "a", "add": -1}}, "resume.add must be a whole number from 0 to 1000000"),
    ({"resume": {"query": "a", "add": 1, "back_s": 1}}, f"resume.back_s {ONE_OF_THEM}"),
    ({"end": {}}, f"end must be {MARK}"),
    ({"end": {"evnt": "bye"}}, f"end must be {MARK}; did you mean event?"),
    ({"heartbeat": {"event": "a", "frist_cursor": "$.a"}}, f"heartbeat must be {MARK}; did you mean first_cursor?"),
    ({"loss": {"comment": "a", "data": "b"}}, f"loss must be {MARK}; a mark with comment must contain nothing else"),
    ({"heartbeat": {"json": {"type": 1}}}, f"heartbeat may contain in json only {VALUES}"),
    ({"disconnect": {"json": {}}}, f"disconnect must contain {JSON}"),
    ({"framing": "ndjson", "end": {"event": "end"}}, f"framing {MARKED}"),
    ({"statuses": {"99": "ended"}}, f"statuses.99 {STATUS}"),
    ({"statuses": {"416": "old"}}, f"statuses.416 {STATUS}"),
    ({"backoff": {"tls": {}}}, "backoff.tls is not a field of backoff: network, http, throttled, refused"),
    ({"backoff": {"http": {"factor": 0.5}}}, f"backoff.http {SHRINKS}"),
    *(({"reject_after": wrong}, f"reject_after {DURATION}") for wrong in WRONG_TIMES),
    ({"reject_after_s": 5}, f"reject_after_s {NO_FIELD}; did you mean reject_after?"),
    ({"body": "{}"}, 'body needs method = "POST"'),
    ({"body": "[]", "method": "POST"}, "body must be the text of a JSON object, such as '{\"stream\": true}'"),
    ({"allow_private": "yes"}, "allow_private must be true or false"),
    ({"end": {"status": "204"}}, f"end must be {MARK}"),
    ({"key": ["id"]}, KEY),
    ({"cursor": "hash"}, 'cursor must be "id" or a JSON path such as "$.meta.id" or "$.items[0]"'),
    ({"key": "id", "framing": "ndjson"}, 'key can be "id" only with framing = "sse"'),
    ({"cursor": "id", "framing": "ndjson"}, 'cursor can be "id" only with framing = "sse"'),
    ({"headers": "a: b"}, "headers must be a table of texts"),
    ({"headers": {"Host": "b"}}, "headers.Host is not the name of an HTTP header that may be set"),
    ({"headers": {"a": "${secret:/other/x}"}}, f"headers.a refers to '/other/x'; {UNDER}"),
    ({"headers": {"a": "${ssm:x:k}"}}, f"headers.a {NO_FIELDS}"),
    ({"address": "https://example.org/?t=${ssm:/streamkeeper/x}"}, f"address refers to '/streamkeeper/x'; {UNDER}"),
    ({"headers": {"a": "${secret:x/}"}}, f"headers.a refers to 'x/'; {UNDER}"),
    ({"headers": {"X-Api-Key": "k3y"}}, f"headers.X-Api-Key contains 'X-Api-Key' {BARE}"),
    ({"headers": {"authorization": "Bearer k3y"}}, f"headers.authorization contains 'authorization' {BARE}"),
    ({"address": "https://example.org/?x=1&access_token=k3y"}, f"address contains 'access_token' {BARE}"),
    ({"body": '{"a": [{"password": "k3y"}]}', "method": "POST"}, f"body contains 'password' {BARE}"),
    ({"resume": {"query": "since"}, "framing": "ndjson"}, f"resume {NEEDS_CURSOR}"),
    ({"headers": {"a b": "c"}}, "headers.a b is not the name of an HTTP header that may be set"),
    ({"headers": {"a": "b\r\nc: d"}}, "headers.a must be a text of visible ASCII characters"),
    ({"headers": {"a": 1}}, "headers.a must be a text of visible ASCII characters"),
    ({"headers": {"a": "${UPSTREAM_DEMO}"}}, f"headers.a {NO_SECRET}"),
    ({"stall_s": 5}, f"stall_s {NO_FIELD}; did you mean stall_after_s?"),
    ({"Stall-After-S": 5}, f"Stall-After-S {NO_FIELD}; did you mean stall_after_s?"),
    ({"timeout": 5}, f"timeout {NO_FIELD}; did you mean connect_timeout_s?"),
    ({"heartbeats": {}}, f"heartbeats {NO_FIELD}; did you mean heartbeat?"),
    ({"resume": "None"}, f"{RESUME}; did you mean none?"),
    ({"resume": {"query": "a", "reach": 1}}, f"resume.reach {UNKNOWN_OF_RESUME}; did you mean reach_s?"),
    ({"backoff": {"htttp": {}}}, f"backoff.htttp is not a field of {PACES}; did you mean http?"),
    ({"backoff": {"http": {"max": 1}}}, f"backoff.http.max is not a field of {PACE}; did you mean max_s?"),
    ({"statuses": {"410": "expire"}}, f"statuses.410 {STATUS}; did you mean expired?"),
    ({"key": "hsh"}, f"{KEY}; did you mean hash?"),
    ({"store": "log", "order": "none"}, f"order {FOR_ITEMS} a log is always in order, and has no index"),
    ({"flush_s": 1}, f"flush_s {FOR_A_LOG}"),
    ({"dedup_window_s": 900}, f"dedup_window_s {FOR_A_LOG}"),
    ({"store": "log", "partitions": 2}, f"partitions {FOR_ITEMS} {ONE_ORDER}"),
    ({"store": "log", "on_conflict": "both"}, f"on_conflict {NOT_BOTH}"),
]


def test_a_wrong_field_is_refused_by_name() -> None:
    """The sentence names the profile, the field and the fix, and never repeats an address."""
    wrong = [fields for fields, sentence in WRONG if refusal(**fields) != f"the profile 'demo': {sentence}"]
    assert wrong == []


def test_a_field_that_only_sounds_like_a_secret_is_accepted() -> None:
    """Similar names, numbers, references and parts of the stream id do not count as secrets in plain text."""
    address = "https://example.org/?token={name}&tokens=5&key=a&secret=${secret:/streamkeeper/prod/x}"
    body = '{"max_tokens": "5", "token": 7, "password": "", "access_token": "${ssm:x}"}'
    assert profile(address=address, method="POST", body=body).body == body


def test_paths_and_times_are_parsed() -> None:
    """Paths are parsed, and seconds become whole milliseconds."""
    parsed = profile(key="$.meta.id", cursor="$.seq", resume={"query": "since"}, overlap_s=1.5, connect_timeout_s=0.25)
    assert (parsed.key, parsed.cursor) == (parse_path("$.meta.id"), parse_path("$.seq"))
    assert (parsed.resume, parsed.overlap_ms, parsed.connect_timeout_ms) == (Resume("query", "since"), 1500, 250)


FIELDS = sorted(
    set(Profile.__dataclass_fields__) - {"name", "marks"} | {"heartbeat", "end", "loss", "disconnect", "more"}
)
WITHIN = [
    "header", "query", "body", "pattern", "add", "back_s", "expired", "event", "data", "comment", "json", "start_s",
    "factor", "max_s", "network", "http", "throttled", "$.a", "416", "X-A", "Authorization",
]  # fmt: skip
WORDS = [
    "", "raw", "POST", "http://[::1", "${UPSTREAM_DEMO}/a", "https://example.org/?a=${secret:x}", "$.a", "$.a[-1]",
    "id", "each", "{cursor}", '{"a": {"b": 1}}', "/a/b", "hot", "*", "\0", "\u00fc", "${", "\ud800", "x" * 3000,
]  # fmt: skip
LEAVES = (
    st.sampled_from(WORDS) | st.integers(-(10**30), 10**30) | st.floats() | st.booleans() | st.datetimes() | st.times()
)
VALUES_OF_TOML = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WITHIN), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["sse", "ndjson"]), st.dictionaries(st.sampled_from(FIELDS), VALUES_OF_TOML, max_size=3))
def test_any_table_is_a_profile_or_is_refused_in_sentences(framing: str, table: dict[str, Any]) -> None:
    """Any TOML raises nothing but BadProfile; a valid profile makes requests and judges any frame."""
    problems: tuple[str, ...] = ()
    try:
        parsed = parse("demo", {"address": "https://example.org/", "framing": framing} | table, VARIABLES)
    except BadProfile as bad:
        problems = bad.problems
    assert all(problem.startswith("the profile 'demo': ") for problem in problems)
    if problems:
        return
    values = dict.fromkeys(parsed.secrets, "s3cret")
    for cursor in (None, "", "3", "2026-01-01T00:00:00Z", "\r\n"):
        assert "s3cret" not in repr(request_of(parsed, "demo:one", cursor, values))
    for frame in (Frame("x"), Frame('{"a": [1, "2"]}', "7", "x", "7"), Frame(b"\xff")):
        assert parsed.to_event(frame, 0).key or parsed.marks.kind(frame)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(0, 0), (0.5, 0.5), (90, 90), ("90s", 90), ("5m", 300), ("24h", 86_400), ("0s", 0), (86_400, 86_400)],
)
def test_a_time_is_a_number_of_seconds_or_has_its_unit(written: Any, seconds: float) -> None:
    """`reject_after`, the time for which a refusal may pass, is a number of seconds or a text with its unit."""
    assert profile(reject_after=written).reject_after == seconds


def test_a_log_has_fields_of_its_own() -> None:
    """Only a log waits before it writes, has one order, and pauses between reads; it does not compare bodies."""
    log = profile(store="log", flush_s=0.25, dedup_window_s=60)
    assert (log.flush_ms, log.dedup_window_ms, log.read_wait_s) == (250, 60_000, 0.025)
    rests = [profile(**fields).read_wait_s for fields in ({}, {"store": "log"}, {"store": "log", "framing": "raw"})]
    assert rests == [0, 0.05, 0]
