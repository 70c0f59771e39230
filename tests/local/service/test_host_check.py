"""No page in the user's browser reaches the service, neither through a rebound name nor from another origin."""

import contextlib
import os
import re
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local import listener
from local.service import embedded_aws
from local.terminal import UserError
from tests import harness
from tests.local.support import PROJECT, client, until
from tests.local_run import LocalRun

PORT = 3000
OWN = ["localhost", "127.0.0.1", "[::1]", "LOCALHOST", "LocalHost.", "127.0.0.1.", "[0:0::1]"]
FOREIGN = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "10.0.0.1", "0.0.0.0"]
FOREIGN += ["127.0.0.2", "[::]", "[::ffff:127.0.0.1]", "localhost..", "user@localhost", "localhost,evil.example", ""]


def refused(
    hosts: list[str], origins: list[str], names: tuple[str, ...] = (), port: int = PORT, site: str | None = None
) -> str:
    """Returns the header for which a request is refused, "" if it is accepted, or another sentence."""
    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    headers += [(b"origin", origin.encode("latin-1")) for origin in origins]
    headers += [(b"sec-fetch-site", site.encode())] if site is not None else []
    sentence = listener.host_refusal(headers, port, names)
    match = re.fullmatch(r"This address only serves [a-z0-9:.,\[\] ]+, and the request has another (\w+); .+", sentence)
    return match[1] if match else sentence


def test_an_image_of_another_page_is_refused() -> None:
    """A request that Sec-Fetch-Site marks as another page's is refused, because a browser sends no Origin with an
    image. A page with an allowed Origin may have another port or name.
    """
    for site in ("cross-site", "same-site", "", "None", "none,none"):
        assert "another site" in refused(["localhost:3000"], [], site=site)
    for site in ("none", "same-origin"):
        assert refused(["localhost:3000"], [], site=site) == ""
    assert refused(["localhost:3000"], ["https://devbox.example"], ("devbox.example",), site="cross-site") == ""


def test_the_services_own_names_are_served_in_any_spelling() -> None:
    """The service answers to its names and addresses with its port; at port 80 clients leave the port out."""
    for name in OWN:
        assert refused([f"{name}:3000"], []) == refused([f"{name}:3000"], [f"http://{name}:3000"]) == ""
        assert refused([name], [f"http://{name}"], port=80) == ""
        assert refused([name], []) == refused([f"{name}:"], []) == refused([f"{name}:3001"], []) == "Host"


def test_other_names_and_origins_are_refused() -> None:
    """Refused are other names, ports and schemes, no Host, two Hosts, and the origin of a sandboxed page."""
    for name in FOREIGN:
        assert refused([f"{name}:3000"], []) == "Host"
        assert refused(["localhost:3000"], [f"http://{name}:3000"]) == "Origin"
    assert refused([], []) == refused(["localhost:3000"] * 2, []) == "Host"
    for origin in ("null", "", "http://localhost", "https://localhost:3000", "http://localhost:8080", "localhost:3000"):
        assert refused(["localhost:3000"], [origin]) == "Origin"
    assert refused(["localhost:3000"], ["http://localhost:3000"] * 2) == "Origin"


def test_more_names_are_served_by_setting() -> None:
    """A plain name allows any port and scheme, a name with a port only that port, and a leading dot all subdomains."""
    names = listener.allowed_hosts({listener.HOSTS_VARIABLE: " Devbox.example, proxy:8080 ,.test "})
    for host in ("devbox.example", "devbox.example:1", "proxy:8080", "a.b.test:9", "localhost:3000"):
        assert refused([host], [], names) == ""
    for host in ("proxy", "proxy:8081", "a.devbox.example", "test", "atest"):
        assert refused([host], [], names) == "Host"
    assert refused(["proxy:8080"], ["https://devbox.example"], names) == ""
    at_proxies = [(b"host", b"a.localhost:8080"), (b"origin", b"http://a.localhost:8080")]
    assert listener.host_refusal(at_proxies[:1], PORT, (), listener.LOOPBACK) == ""
    assert "another Origin" in listener.host_refusal(at_proxies, PORT, (), listener.LOOPBACK)
    for text in ("http://devbox", "a b", "*", "devbox:port", " ,", "a,,b", "devbox:0", "devbox:65536"):
        with pytest.raises(UserError, match=r"^STREAMKEEPER_HOSTS must be names "):
            listener.allowed_hosts({listener.HOSTS_VARIABLE: text})


@given(st.text(st.characters(max_codepoint=255), max_size=30), st.sampled_from([":3000", ""]))
def test_any_host_but_the_loopbacks_is_refused(text: str, port: str) -> None:
    """Any text in Host is served only if it is a spelling of the loopback with the port."""
    is_own = re.fullmatch(r"(localhost|127\.0\.0\.1|\[[0:]*:0*1\])\.?:3000", (text + port).lower()) is not None
    assert (refused([text + port], []) == "") <= is_own


@pytest.fixture(scope="module")
def service(local_run: LocalRun) -> LocalRun:
    """A service that runs as a person starts it."""
    return local_run


def exchange(address: tuple[str, int], head: str, body: str = "") -> tuple[int, str]:
    """Returns status and body of the answer to a raw request."""
    with socket.create_connection(address, 60) as peer:
        peer.sendall(f"{head}\nConnection: close\nContent-Length: {len(body)}\n\n{body}".replace("\n", "\r\n").encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b"")).decode()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


def addresses_of(pids: list[int]) -> set[tuple[str, int]]:
    """Returns the IPv4 and IPv6 addresses at which processes listen, from /proc."""
    inodes = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if (link := os.readlink(path)).startswith("socket:"):
                    inodes.add(link[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, port = fields[1].split(":")
                found.add((socket.inet_ntoa(bytes.fromhex(host)[::-1]) if len(host) == 8 else host, int(port, 16)))
    return found


def test_no_port_of_a_run_serves_another_host_or_origin(service: harness.Service) -> None:
    """Each port of each process listens on the loopback. All but the database's, whose address is random, answer 403 to
    a rebound name and to a page of another origin.

    The ports belong to the API, the AWS endpoint, the demonstration streams, the embedded AWS, the database if npm
    installed one, and the Runtime API of each sandbox. The first sandbox starts after the answer to the POST.
    """
    process = service.process
    assert process is not None
    service.post("demo")
    fewest = 5 + (embedded_aws.find_dynoxide(PROJECT) is not None)
    assert until(lambda: len(addresses_of([process.pid, *service.descendants()])) >= fewest)
    addresses = addresses_of([process.pid, *service.descendants()])
    assert [host for host, _ in addresses if not host.startswith("127.")] == []
    checked = 0
    for host, port in addresses:
        if host != "127.0.0.1":
            assert embedded_aws.find_dynoxide(PROJECT) is not None
            continue
        for head in (
            f"GET / HTTP/1.1\nHost: rebound.example:{port}",
            f"GET / HTTP/1.1\nHost: localhost:{port}\nOrigin: http://evil.example",
            f"GET / HTTP/1.1\nHost: localhost:{port}\nOrigin: null",
            # A page that another program of this machine serves.
            f"GET / HTTP/1.1\nHost: localhost:{port}\nOrigin: http://localhost:{port - 1}",
            f"GET / HTTP/1.1\nHost: localhost:{port}\nOrigin: http://page.localhost:{port}",
            f"GET http://rebound.example:{port}/ HTTP/1.1\nHost: localhost:{port}",
            "GET / HTTP/1.0\nAccept: */*",
        ):
            code, body = exchange((host, port), head)
            assert (code, "This address only serves localhost:" in body) == (403, True), (port, head, body)
            checked += 1
        assert exchange((host, port), f"GET http://[::1]:{port}/ HTTP/1.1\nHost: rebound.example")[0] != 403
    assert checked >= 5 * 7
    assert len([host for host, _ in addresses if host != "127.0.0.1"]) <= 1


def test_a_foreign_page_can_start_stop_and_write_nothing(service: harness.Service) -> None:
    """A POST that a browser sends without a preflight is refused before anything happens, whatever it contains."""
    api, aws = ("127.0.0.1", service.port), ("127.0.0.1", service.port + 1)
    form = "Content-Type: text/plain\nOrigin: http://evil.example"
    before = client("dynamodb", f"http://127.0.0.1:{aws[1]}").list_tables()["TableNames"]
    table = '{"TableName": "evil", "AttributeDefinitions": [], "KeySchema": [], "BillingMode": "PAY_PER_REQUEST"}'
    for address, path, body in (
        (api, "/connections/demo:page", ""),
        (aws, "/?X-Amz-Target=DynamoDB_20120810.CreateTable", table),
        (aws, f"/2015-03-31/functions/streamkeeper-{harness.STAGE}-connection-control/invocations", "{}"),
    ):
        head = f"POST {path} HTTP/1.1\nHost: localhost:{address[1]}\n{form}"
        assert exchange(address, head, body)[0] == 403
        rebound = (
            f"POST {path} HTTP/1.1\nHost: rebound.example:{address[1]}\nX-Amz-Target: DynamoDB_20120810.CreateTable"
        )
        assert exchange(address, rebound, body)[0] == 403
    queues = client("sqs", f"http://127.0.0.1:{aws[1]}").list_queues()["QueueUrls"]
    deletion = f"GET /?Action=DeleteQueue&QueueUrl={queues[0]}&Version=2012-11-05 HTTP/1.1\nHost: localhost:{aws[1]}"
    for site in ("cross-site", "same-site", "none"):
        assert exchange(aws, f"{deletion}\nSec-Fetch-Site: {site}")[0] == 403
    assert client("sqs", f"http://127.0.0.1:{aws[1]}").list_queues()["QueueUrls"] == queues
    assert service.ask("GET", "demo:page")[0] == 404
    assert client("dynamodb", f"http://localhost:{aws[1]}").list_tables()["TableNames"] == before
    assert exchange(api, f"GET / HTTP/1.1\nHost: [::1]:{api[1]}\nOrigin: http://localhost:{api[1]}")[0] == 200


def test_a_name_in_the_setting_is_served_by_every_service(service: harness.Service) -> None:
    """A name in the setting is served with any port, and requests that the AWS endpoint forwards are answered. A page
    of that name is served too.
    """
    aws = ("127.0.0.1", service.port + 1)
    query = "/?Action=ListQueues&Version=2012-11-05"
    signed = "Authorization: AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/sqs/aws4_request"
    own = ["devbox.example", f"localhost:{aws[1]}"]
    pages = [(host, f"\nOrigin: http://{host}") for host in own]
    for host, origin in [*pages, *((host, "") for host in [*own, f"bucket.localhost:{aws[1]}"])]:
        code, body = exchange(aws, f"GET {query} HTTP/1.1\nHost: {host}\n{signed}{origin}")
        assert code != 403, (host, origin, body)
