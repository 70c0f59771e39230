"""The verb `request` signs requests, and the gateway of a stage with `api_auth: iam` checks every signature."""

import contextlib
import copy
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.session import Session
from hypothesis import given
from hypothesis import strategies as st

from local.api_client.console import make_app
from local.api_client.http_client import Api, new_session
from local.cli import main
from local.functions.sandbox import Answer
from local.listener import Listener, bind
from local.service import osls
from local.service.signature_check import SignatureCheck, SignedRequest
from streamkeeper import Client
from streamkeeper.transport import Reply
from tests.local.service.test_gateway import service
from tests.local.support import in_thread

KEY, SECRET = "local", "secret"
STATUS = {"statusCode": 200, "headers": {}, "body": "{}"}
PATHS = st.text("abcXYZ019-._~:@=+%2F/ &?é", max_size=30).map(
    lambda text: (
        "/connections/" + text.replace("%", "%25").replace(" ", "%20").replace("?", "%3F").replace("é", "%C3%A9")
    )
)
QUERIES = st.lists(st.sampled_from(["limit=5", "after=%2Fx%3D", "a=b+c", "limit=", "z"]), max_size=3).map("&".join)
NOT_SIGNED = "Missing Authentication Token"
HINT = "no such route, or the stage requires a signature and none was sent"
MISMATCH = "The request signature we calculated does not match"


def sign_request(
    method: str,
    url: str,
    body: bytes = b"",
    secret: str = SECRET,
    service: str = "execute-api",
    region: str = "us-east-1",
) -> SignedRequest:
    """Returns the request as botocore signs it, in the form in which it arrives."""
    request = AWSRequest(method, url, headers={"Content-Type": "application/json"}, data=body)
    SigV4Auth(Credentials(KEY, secret, "token"), service, region).add_auth(request)
    host, _, target = url.removeprefix("https://").partition("/")
    headers = {name.lower(): value for name, value in request.headers.items()} | {"host": host}
    return SignedRequest(method, f"/{target}", headers, body)


def refusal_of(request: SignedRequest, now: datetime | None = None) -> str:
    """Returns why the request is refused."""
    found = SignatureCheck(KEY, SECRET).problem(request, now or datetime.now(UTC))
    return "" if found is None else found[1]


@given(st.sampled_from(["GET", "POST", "DELETE"]), PATHS, QUERIES, st.binary(max_size=20))
def test_a_signed_request_is_served_unless_it_was_changed(method: str, path: str, query: str, body: bytes) -> None:
    """A signed request is accepted with any path, query and body; a change of one of them, or of a header, is not."""
    url = f"https://localhost:3000{path}" + (f"?{query}" if query else "")
    request = sign_request(method, url, body)
    assert refusal_of(request) == ""
    other = {"GET": "DELETE"}.get(method, "GET")
    for changed in (
        SignedRequest(other, request.target, request.headers, body),
        SignedRequest(method, f"{request.target}x", request.headers, body),
        SignedRequest(method, request.target, request.headers, body + b"x"),
        SignedRequest(method, request.target, {**request.headers, "host": "localhost:3001"}, body),
        SignedRequest(method, request.target, {**request.headers, "x-amz-content-sha256": "0" * 64}, body + b"x"),
        sign_request(method, url, body, secret="another"),
    ):
        assert refusal_of(changed).startswith(MISMATCH)


def test_an_old_a_foreign_and_no_signature_are_refused() -> None:
    """Refused: over five minutes old or ahead, another key, service or region, no signed date, no signature."""
    url = "https://localhost:3000/connections/demo"
    request, now = sign_request("GET", url), datetime.now(UTC)
    assert refusal_of(request, now + timedelta(seconds=290)) == refusal_of(request, now - timedelta(seconds=290)) == ""
    for minutes in (-6, 6):
        assert refusal_of(request, now + timedelta(minutes=minutes)).startswith("Signature expired or not yet current")
    assert refusal_of(sign_request("GET", url, service="s3")).startswith(
        "Credential should be scoped to correct service"
    )
    assert refusal_of(sign_request("GET", url, region="eu-central-1")).startswith(
        "Credential should be scoped to a valid region"
    )
    authorization = request.headers["authorization"]

    def with_authorization(text: str) -> str:
        return refusal_of(SignedRequest("GET", request.target, {**request.headers, "authorization": text}, b""))

    assert with_authorization(authorization.replace("Credential=local", "Credential=other")).startswith("The security ")
    assert with_authorization(authorization.replace(";x-amz-date", "")).startswith("'Host' and 'X-Amz-Date' must be ")
    assert with_authorization(authorization.replace(";host", ";host;x-none")).startswith("'Host' and 'X-Amz-Date' must")
    for text in ("", "Basic x", authorization[:-1], authorization.replace("SHA256", "SHA1")):
        assert with_authorization(text) == NOT_SIGNED


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a gateway whose methods all use AWS_IAM; the SDK has its pair of keys."""
    template = copy.deepcopy(osls.template("test"))
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::ApiGateway::Method":
            resource["Properties"] |= {"AuthorizationType": "AWS_IAM", "ApiKeyRequired": False}

    async def answered(_: str, payload: bytes) -> Answer:
        event = json.loads(payload)
        shown = {"method": event["httpMethod"], "stream": event["path"], "query": event["queryStringParameters"]}
        return Answer(json.dumps({**STATUS, "body": json.dumps(shown)}).encode(), None, "id")

    @contextlib.asynccontextmanager
    async def gateway() -> AsyncIterator[str]:
        async with service(tmp_path, invoke=answered, template=template) as (url, _):
            yield url

    for name, value in (("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with in_thread(gateway) as url:
        yield url


def test_a_signed_request_is_answered(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With --sign a request is answered, however the id is spelled; without it each method is refused with a reason."""
    path = "/connections/etcd:config%2Fa%20b=+@?limit=5&after=%2Fx"
    assert main(["request", "get", path, "--url", address, "--sign"]) == 0
    shown = {"method": "GET", "stream": path.partition("?")[0], "query": {"limit": "5", "after": "/x"}}
    assert json.loads(capsys.readouterr().out) == shown
    assert main(["request", "POST", "/connections/demo", "--url", f"{address}/", "--sign"]) == 0
    assert "executionArn" in capsys.readouterr().out
    for mark in "-._~!$&'()*+,;=:@|^[]":
        assert main(["request", "GET", f"/connections/demo:a{mark}b", "--url", address, "--sign"]) == 0, mark
        assert unquote(json.loads(capsys.readouterr().out)["stream"]) == f"/connections/demo:a{mark}b"
    for method in ("GET", "POST", "DELETE"):
        assert main(["request", method, "/connections/wikimedia", "--url", address]) == 1
        printed = capsys.readouterr()
        assert json.loads(printed.out)["detail"] == NOT_SIGNED
        assert printed.err == f"streamkeeper: 403 Forbidden ({HINT})\n"


def test_the_page_is_served_only_with_the_word_in_its_address(address: str) -> None:
    """`streamkeeper console` signs each request of the page, and refuses other requests and pages of other hosts."""

    @contextlib.asynccontextmanager
    async def console(api: Api) -> AsyncIterator[str]:
        listener = Listener(make_app(api, "word"), bind(0, "a test"))
        await listener.start()
        yield f"http://127.0.0.1:{listener.port}"
        await listener.close()

    def asked(url: str, **headers: str) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.loads(refusal.read() or b"{}")

    path = "/connections/etcd:config%2Fa"
    with in_thread(partial(console, Api(address, sign=True, session=new_session()))) as origin:
        shown = {"method": "GET", "stream": path, "query": {"limit": "5"}}
        assert asked(f"{origin}/word{path}?limit=5") == (200, shown)
        # The Python client signs nothing, and reads such a stage through here (docs/client.md).
        read = {"method": "GET", "stream": "/connections/etcd%3Aconfig%2Fa", "query": None}
        assert dict(Client(f"{origin}/word").status("etcd:config/a")) == read
        for other in ("/console", "/", "/xxxx/console"):
            assert asked(f"{origin}{other}") == (404, {})
        for header in ({"Origin": "http://another.example"}, {"Host": "another.example"}):
            assert asked(f"{origin}/word/console", **header)[0] == 403
    with in_thread(partial(console, Api(address))) as origin:
        code, refusal = asked(f"{origin}/word{path}")
    assert code == 503
    assert refusal["detail"].startswith(f"The API refuses these credentials: 403 Forbidden: {NOT_SIGNED}")


def test_the_command_serves_the_page_until_ctrl_c(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's address has a new word each time; if the API refuses the credentials, no page is served."""
    command = ["console", "--sign", "--url", address]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-m", "local.cli", *command], text=True, **pipes) as console:
        page = console.stdout.readline() if console.stdout is not None else ""
        console.send_signal(signal.SIGINT)
        _, said = console.communicate(timeout=60)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[A-Za-z0-9_-]{22}/console\n", page)
    assert (console.returncode, said) == (130, f"The page reads {address} with your credentials; Ctrl-C ends it.\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_SECRET_ACCESS_KEY", "another")
        assert main(command) == 1
    out, err = capsys.readouterr()
    assert (out, err.startswith(f"streamkeeper: {address} refuses: 403 Forbidden: The request signature")) == ("", True)


def test_a_request_that_cannot_be_sent_is_refused_with_one_sentence(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused: no credentials or region, a bad path or address, a key over plain HTTP, an address that is silent."""

    def sentence(*arguments: str) -> str:
        assert main(["request", *arguments]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)
        return printed.err.removeprefix("streamkeeper: ").strip()

    assert sentence("PATCH", "/", "--url", address) == "The method must be one of GET, POST, PUT, DELETE, not 'PATCH'."
    assert sentence("GET", "connections", "--url", address).startswith("The path must begin with a slash")
    assert sentence("DELETE", "/connections/demo:#a", "--url", address).startswith("The path has a #, which is never ")
    untrusted = sentence("GET", "/", "--url", address.replace("http:", "https:"))
    assert " has no TLS, or a certificate that is not trusted. Is the address right " in untrusted
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a\nb")
    assert sentence("GET", "/", "--url", address, "--sign").endswith("has a character that a header cannot have.")
    monkeypatch.setenv("STREAMKEEPER_API_KEY", "k\ny")
    assert sentence("GET", "/", "--url", address).startswith("A key has only ASCII letters, digits and signs;")
    monkeypatch.delenv("STREAMKEEPER_API_KEY")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    for url in ("127.0.0.1:3000", "ftp://x", "http://user@x", "https://x?y", "http://", "http://[x"):
        assert sentence("GET", "/", "--url", url).startswith("The address of the API must be like "), url
    assert sentence("GET", "/", "--url", "http://127.0.0.1:1").startswith("http://127.0.0.1:1 does not answer. Is ")
    monkeypatch.setenv("STREAMKEEPER_API_KEY", "k3y")
    assert sentence("GET", "/", "--url", "http://example.org") == (
        "A key is sent only to https:// addresses, and http://example.org is not one."
    )
    monkeypatch.delenv("STREAMKEEPER_API_KEY")
    monkeypatch.delenv("AWS_REGION")
    assert sentence("GET", "/", "--url", address, "--sign").startswith("There is no region to sign the request for")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert sentence("GET", "/", "--url", address, "--sign").startswith("The request cannot be signed: ")
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert sentence("GET", "/", "--url", address, "--sign").startswith("There are no AWS credentials to sign ")


def test_an_address_of_aws_is_signed_for_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's name gives the region, in every partition; with a key nothing is signed."""
    sent: list[Any] = []

    def send(transport: Any, request: Any) -> Any:
        sent.append((transport.url + request.path, request.headers))
        return Reply(200, {}, "")

    monkeypatch.setattr("streamkeeper.transport.Transport.send", send)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    known = Session().get_data("partitions")["partitions"]
    regions = {region: one["outputs"]["dnsSuffix"] for one in known for region in one["regions"]}
    for region, suffix in ((name, regions[name]) for name in regions if not name.endswith("global")):
        url = f"https://abc123.execute-api.{region}.{suffix}/prod"
        for key in ("", "k3y"):
            Api(url, key).request("GET", "/connections")
            headers = {name.lower(): value for name, value in sent[-1][1].items()}
            credential = f"Credential={KEY}/{headers['x-amz-date'][:8]}/{region}/execute-api/" if not key else ""
            assert (credential in headers["authorization"]) if credential else ("authorization" not in headers)
            assert sent[-1][0] == f"{url}/connections"
