"""Redirects and addresses on real sockets: where a request goes, what goes with it, and where it never goes."""

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url

from handlers.connection.inputs import Arrival, Chunk, Closed, Opened
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.upstream.address_policy import address_refusal
from handlers.upstream.opening import RedirectRefused, follow_redirect
from tests.handlers.servers import UNTIL_CLOSE, Peer, Script, certificate, reading, sends, serving

WAIT_S = 60.0
arrives = sends(UNTIL_CLOSE + b"data: x\n\n")
LAST_ID = frozenset({"last-event-id"})
# Parts of addresses, and characters that parsers of addresses treat differently.
PIECES = [
    "http://", "https://", "//", "good.test", "evil.test", "@", ":", ":80", "\\", "/", "?", "#", "%40", "%2f", "[",
    "]", ".", "..", "::1", "GOOD.TEST",
]  # fmt: skip
PIECES += ["\t", "\n", "\0", " ", "\u00fc", "\u3002", "\uff0e", "\u2044"]
SECRETS = {
    "authorization": b"Bearer s3cret",
    "x-key": b"s3cret",
    "last-event-id": b"41",
    "accept": b"text/event-stream",
    "user-agent": b"me",
}


def moves(status: int, to: Callable[[], str]) -> Script:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 %d X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (status, to().encode()))

    return script


def ask(address: str, **fields: Any) -> list[Arrival]:
    """Return everything that arrived from a request with credentials to `address`."""
    request = UpstreamRequest(
        "GET", address, SECRETS, allow_private=True, secrets=("s3cret",), portable_headers=frozenset({"last-event-id"})
    )
    arrivals: list[Arrival] = []
    with reading(replace(request, **fields), connect_timeout_s=1) as upstream:
        while not arrivals or not isinstance(arrivals[-1], Closed):
            arrival = upstream.get(WAIT_S)
            assert arrival is not None
            arrivals.append(arrival)
    return arrivals


def header_names(peer: Peer) -> set[str]:
    return {line.split(b":")[0].decode().lower() for line in peer.request.split(b"\r\n")[1:] if line}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_same_origin_carries_everything(status: int) -> None:
    """A relative address leads to the same host, which knows the credentials already."""
    with serving(moves(status, lambda: "/there?x=1"), arrives) as server:
        arrivals = ask(f"{server.address}/here")
        assert [type(arrival) for arrival in arrivals] == [Opened, Chunk, Closed]
        assert server.peers[1].request.startswith(b"GET /there?x=1 HTTP/1.1\r\n")
        assert set(SECRETS) <= header_names(server.peers[1])


def test_a_redirect_to_another_host_carries_no_credentials() -> None:
    """Another port is another origin: only harmless headers, and the cursor's, go there."""
    with serving(arrives) as other, serving(moves(307, lambda: f"{other.address}/there")) as server:
        assert isinstance(ask(f"{server.address}/here?token=s3cret")[0], Opened)
        assert header_names(other.peers[0]) == {"host", "accept", "user-agent", "last-event-id", "accept-encoding"}
        assert b"s3cret" not in other.peers[0].request


def test_no_secret_in_the_upstreams_own_words_reaches_another_host() -> None:
    """A redirect to another host is refused if its address, in any encoding, or the body holds a secret."""
    with serving(arrives) as other:
        for secret, spelled in (("s3cret", "s3cret"), ("s3 cret/", "s3%20cret%2F"), ("s3 cret/", "s3+cret%2F")):
            closed = ask_moved(f"{other.address}/?t={spelled}", secrets=(secret,))
            assert closed == Closed("rejected", "the upstream redirected to another host with a secret in the address")
        moved = ask_moved(other.address, method="POST", body=b'{"token": "s3cret"}', status=308)
        assert moved == Closed("rejected", "the upstream redirected to another host, and the body holds a secret")
        assert other.peers == []


def ask_moved(location: str, status: int = 307, **fields: Any) -> Arrival:
    with serving(moves(status, lambda: location)) as server:
        return ask(f"{server.address}/here", **fields)[-1]


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://example.org/", "the upstream redirected from https to http"),
        ("ftp://example.org/", "the upstream redirected to an address that is not a valid one for a stream"),
        ("https://me:pw@example.org/", "the upstream redirected to an address that is not a valid one for a stream"),
        ("https://[::1/", "the upstream redirected to something that is not a valid address"),
    ],
)
def test_some_redirects_are_refused(location: str, why: str) -> None:
    """A redirect is refused out of TLS, out of HTTP, to no address, or with credentials of the upstream's choice."""
    with pytest.raises(RedirectRefused) as caught:
        follow_redirect(UpstreamRequest("GET", "https://example.org/a", {}), 302, location)
    assert str(caught.value) == why


def test_a_redirected_post_becomes_a_get_after_301_302_and_303() -> None:
    """303 turns every request into a GET, 301 and 302 turn a POST into one; 307 and 308 keep method and body."""
    request = UpstreamRequest("POST", "https://example.org/a", {}, b"{}")
    requests = [follow_redirect(request, status, "/b") for status in (301, 302, 303, 307, 308)]
    assert [(one.method, one.body) for one in requests] == [("GET", None)] * 3 + [("POST", b"{}")] * 2
    assert requests[0].address == "https://example.org/b"


def test_tls_is_verified_after_a_redirect_as_before(tmp_path: Path) -> None:
    """If the other host's certificate is not trusted, the connection ends before a request is sent."""
    tls, _ = certificate(tmp_path)
    with serving(arrives, tls=tls) as other, serving(moves(302, lambda: other.address)) as server:
        lacks = "the upstream's certificate cannot be trusted: unable to get local issuer certificate"
        assert ask(server.address)[-1] == Closed("tls", lacks)
        assert other.peers[0].request == b""


PUBLIC = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"]
PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1", "::1", "fd12:3456::1", "::ffff:10.0.0.1",
    "64:ff9b::7f00:1", "fec0::1", "2001:0:5db8:d822::f5ff:fffe", "2002:7f00:1::", "3fff::1", "3fff:fff::1",
    "192.0.0.8", "192.0.0.192", "::ffff:192.0.0.192",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254",
    "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::", "2001:0:5db8:d822::5601:5601", "::a9fe:a9fe", "fe80::1",
    "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255",
]  # fmt: skip


def test_an_address_is_judged_by_the_network_to_which_it_leads() -> None:
    """A private address needs the profile's permission; link-local and non-host addresses are always refused."""
    every = [*PUBLIC, *PRIVATE, *NEVER]
    assert [one for one in every if address_refusal(one, allow_private=False)] == [*PRIVATE, *NEVER]
    assert [one for one in every if address_refusal(one, allow_private=True)] == NEVER


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Resolve names to these addresses from now on; all others as before."""
    real, known = socket.getaddrinfo, dict[str, list[str]]()

    def resolved(host: Any, *more: Any, **options: Any) -> Any:
        addresses = known.get(str(host).lower().rstrip("."), [host])
        return [entry for one in addresses for entry in real(one, *more, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return known


def test_a_private_address_is_refused_before_anything_is_connected() -> None:
    """A private address, given as a number or behind a name, is refused; the message does not repeat it."""
    with serving(arrives) as server:
        private = "a private address, which the profile does not allow (allow_private = true)"
        why = f"the upstream's name resolves to {private}"
        for address in (server.address, server.address.replace("127.0.0.1", "localhost")):
            assert ask(address, allow_private=False) == [Closed("rejected", why)]
        assert server.peers == []


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518"),
        *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[fe80::1]", "[fd00:ec2::254]"),
        *("metadata.test", "METADATA.test.", "mixed.test"),
    ],
)
def test_the_metadata_address_is_refused_however_it_is_spelled(host: str, names: dict[str, list[str]]) -> None:
    """The metadata address is refused as any number, in IPv6, and behind names and redirects, whatever is allowed."""
    names |= {"metadata.test": ["169.254.169.254"], "mixed.test": ["127.0.0.1", "169.254.169.254"]}
    refused = Closed("rejected", "the upstream's name resolves to a link-local address, which is never allowed")
    assert ask(f"http://{host}/latest/meta-data/") == [refused]
    assert ask_moved(f"http://{host}/latest/meta-data/") == refused


@pytest.mark.parametrize(
    ("location", "is_same"),
    [
        *((location, True) for location in ("/b", "?x", "//good.test/b", "http://GOOD.test:80/b", "http://good.test")),
        *((location, False) for location in ("https://good.test/b", "http://good.test:8080/", "http://good.test./")),
        *((location, False) for location in ("//evil.test/b", "http://sub.good.test/", "http://good.test.evil.test/")),
        *((location, False) for location in ("http://evil.test\\.good.test/", "http://evil.test?good.test")),
    ],
)
def test_credentials_go_only_to_the_same_scheme_host_and_port(location: str, is_same: bool) -> None:
    """A host with a similar name gets no credentials; the cursor's header goes to every host."""
    request = UpstreamRequest("GET", "http://good.test/a", SECRETS, secrets=("s3cret",), portable_headers=LAST_ID)
    after = follow_redirect(request, 307, location)
    assert ("authorization" in after.headers, "last-event-id" in after.headers) == (is_same, True)


@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
def test_no_location_takes_credentials_elsewhere(location: str) -> None:
    """However a Location is written, a request with credentials goes only to the profile's own host."""
    request = UpstreamRequest("GET", "http://good.test/a", SECRETS, secrets=("s3cret",), portable_headers=LAST_ID)
    try:
        after = follow_redirect(request, 307, location)
    except RedirectRefused:
        return
    url = parse_url(after.address)
    assert "authorization" not in after.headers or (url.scheme, url.host, url.port or 80) == ("http", "good.test", 80)


def test_the_socket_connects_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved once, so it cannot lead to a private address after it was checked."""
    real, asked = socket.getaddrinfo, []

    def rebinding(host: Any, *more: Any, **named: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if host == "rebinding.test" else host, *more, **named)

    with serving(arrives) as server:
        monkeypatch.setattr(socket, "getaddrinfo", rebinding)
        assert isinstance(ask(server.address.replace("127.0.0.1", "rebinding.test"))[0], Opened)
        assert b"Host: rebinding.test:" in server.peers[0].request
    assert asked.count("rebinding.test") == 1


def test_the_next_address_of_a_name_is_tried_if_one_does_not_answer(names: dict[str, list[str]]) -> None:
    """The addresses of a name are tried in order until one accepts."""
    names["two.test"] = ["127.0.0.2", "127.0.0.1"]
    with serving(arrives) as server:
        assert isinstance(ask(server.address.replace("127.0.0.1", "two.test"))[0], Opened)


def test_many_addresses_that_do_not_answer_share_one_time_out(names: dict[str, list[str]]) -> None:
    """A name with any number of dead addresses costs one time-out, not one each."""
    tried = names["many.test"] = [f"127.0.0.{number}" for number in range(2, 40)]
    with socket.create_server(("0.0.0.0", 0), backlog=0) as listener, contextlib.ExitStack() as held:
        port = listener.getsockname()[1]
        # Connections that are never accepted fill the queue, so the next one is not answered.
        for address in tried[:4] * 2:
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        since = time.monotonic()
        request = UpstreamRequest("GET", f"http://many.test:{port}/", {}, allow_private=True)
        with reading(request, connect_timeout_s=1, stall_after_s=WAIT_S) as upstream:
            arrival = upstream.get(WAIT_S)
        assert arrival == Closed("unreachable", "the connection was not accepted in time")
        assert time.monotonic() - since < 18
