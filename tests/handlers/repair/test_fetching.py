"""A repair sends its stream's token and obeys rate limits, with played servers on real sockets."""

import time
from typing import Any

import pytest

from handlers.errors import StreamDropped
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.profile.secret_references import Reference
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.repair.gap_ports import MOST_BYTES, OwnTokens, fetch
from handlers.repair.pages import page_request
from local.upstreams.auth_servers import CLIENT, SECRET
from local.upstreams.provider_player import serve_providers
from tests.handlers.servers import refuses, sends, serving

VALUES = {Reference("secret", "key"): SECRET}
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def profile_of(origin: str, **repair: Any) -> Profile:
    """Return a profile with a token, and a repair at another origin."""
    token = {"kind": "client_credentials", "address": f"{origin}/oauth/token", "id": CLIENT}
    repair = {"address": "https://rest.example/events?after={after}", "items": "$", "key": "$.id"} | repair
    said = {"address": f"{origin}/demo", "allow_private": True, "framing": "ndjson", "key": "$.id", "repair": repair}
    return parse("demo", said | {"token": token | {"secret": "${secret:key}"}}, {})


def sent(profile: Profile, tokens: OwnTokens) -> bytes | None:
    """Return the Authorization of a request for a page."""
    assert profile.repair is not None
    secrets = tokens.add_token(profile, VALUES)
    return page_request(profile, profile.repair, "https://rest.example/events", secrets).headers.get("authorization")


def test_a_repair_sends_the_streams_token() -> None:
    """The token is kept for the next request and replaced after a 401; a repair with headers of its own sends none."""
    tokens = OwnTokens(lambda: time.time_ns() // 1_000_000)
    with serve_providers() as (origin, _), serving(sends(REFUSED)) as server:
        profile = profile_of(origin)
        first = sent(profile, tokens)
        assert first is not None
        assert first.startswith(b"Bearer t1-")
        assert sent(profile, tokens) == first
        assert profile.repair is not None
        refused = tokens.fetch(page_request(profile, profile.repair, server.address, {}))
        assert (refused.status, refused.problem) == (401, "answered 401")
        second = sent(profile, tokens)
        assert second is not None
        assert second.startswith(b"Bearer t2-")
        assert sent(profile_of(origin, headers={"X-Api": "none"}), tokens) is None


def test_a_token_server_that_is_down_is_named() -> None:
    """If the token server is down, the error names only its host; the repair is retried as after any refusal."""
    down = refuses(503)
    with serving(down) as server, pytest.raises(StreamDropped, match=r"^the token server 127\.0\.0\.1 answered 503$"):
        sent(profile_of(server.address), OwnTokens(lambda: 0))


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize(
    ("headers", "rest_s"),
    [
        ("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1764407120", 120.0),
        ("X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1764407120500", 120.5),
        ("RateLimit-Remaining: 0\r\nRateLimit-Reset: 30", 30.0),
        ("X-Rate-Limit-Remaining: 0\r\nX-Rate-Limit-Reset: 1764406000\r\nRetry-After: 7", 7.0),
        ("X-RateLimit-Remaining: 1\r\nX-RateLimit-Reset: 1764407120", None),
        ("RateLimit-Remaining: 0\r\nRateLimit-Reset: soon", None),
    ],
)
def test_a_used_up_rate_limit_is_a_back_off(headers: str, rest_s: float | None, status: int) -> None:
    """A used-up rate limit is a back-off, given as a duration or an upstream's instant, unless Retry-After is given."""
    lines = (f"HTTP/1.1 {status} X", "Date: Sat, 29 Nov 2025 09:03:20 GMT", headers, "Content-Length: 0", "", "")
    with serving(sends("\r\n".join(lines).encode())) as server:
        answer = fetch(UpstreamRequest("GET", server.address, {}, None, allow_private=True))
    assert (answer.status, answer.retry_after_s) == (status, rest_s)


def test_a_header_in_several_lines_is_one_list() -> None:
    """A header in several lines, as a Link for each relation, is read as one list."""
    links = '</a?page=2>; rel="next"', '</schema>; rel="describedby"'
    lines = ("HTTP/1.1 200 OK", *(f"Link: {link}" for link in links), "Content-Length: 0", "", "")
    with serving(sends("\r\n".join(lines).encode())) as server:
        answer = fetch(UpstreamRequest("GET", server.address, {}, None, allow_private=True))
    assert (answer.headers or {})["link"] == ", ".join(links)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://169.254.169.254/\r\n\r\n",
         "the upstream's name resolves to a link-local address, which is never allowed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the body ended before its end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: br\r\n\r\n{}",
         "the body is compressed by a coding that was not requested"),
        (b"", "the connection was closed without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST_BYTES + 1) + b" " * (MOST_BYTES + 1),
         f"the answer has more than {MOST_BYTES} bytes"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_read_is_explained(answer: bytes, problem: str) -> None:
    """An unreadable answer has the sentence of a stream's end, without an address; at most MOST_BYTES are held."""
    with serving(sends(answer)) as server:
        fetched = fetch(UpstreamRequest("GET", server.address, {}, None, allow_private=True))
    assert (fetched.problem, fetched.body) == (problem, b"")
