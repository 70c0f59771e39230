"""An EKS cluster for watches: it admits requests with a role's token, and checks the token as EKS does.

Source: the checks of aws-iam-authenticator, which EKS runs: a presigned GetCallerIdentity of STS, no older than a
quarter of an hour, which signs the cluster's name. STS itself is botocore's signer and the embedded AWS.
"""

import base64
import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import urllib3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.handlers.servers import Peer, Server, certificate, serving

CLUSTER, REGION = "prod", "eu-central-1"
TOKEN = {"kind": "eks", "cluster": CLUSTER, "region": REGION}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
POD = b'{"type": "ADDED", "object": {"metadata": {"uid": "u%d", "resourceVersion": "%d"}}}\n'
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
KNOWN = frozenset({"Action", "Version"} | {f"X-Amz-{name}" for name in (
    "Algorithm", "Credential", "Date", "Expires", "Security-Token", "Signature", "SignedHeaders")})  # fmt: skip


def admitted(token: str, keys: Credentials, sts: str) -> str:
    """Return the ARN that the STS at `sts` has for the token; raises AssertionError if EKS would refuse it."""
    text = token.removeprefix("k8s-aws-v1.")
    assert text != token
    assert "=" not in text
    address = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    parts, pairs = urlsplit(address), parse_qsl(urlsplit(address).query, strict_parsing=True)
    said = dict(pairs)
    assert (parts.scheme, parts.netloc, parts.path) == ("https", f"sts.{REGION}.amazonaws.com", "/")
    assert (len(pairs), set(said) <= KNOWN) == (len(said), True)
    assert (said["Action"], said["X-Amz-Expires"]) == ("GetCallerIdentity", "60")
    assert "x-k8s-aws-id" in said["X-Amz-SignedHeaders"].split(";")
    at = datetime.datetime.strptime(said["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    assert datetime.timedelta(0) <= datetime.datetime.now(datetime.UTC) - at < datetime.timedelta(minutes=15)
    again = AWSRequest("GET", f"https://{parts.netloc}/", params={name: said[name] for name in ("Action", "Version")})
    again.headers["x-k8s-aws-id"] = CLUSTER
    with mock.patch("botocore.auth.get_current_datetime", return_value=at):
        SigV4QueryAuth(keys, "sts", REGION, expires=60).add_auth(again)
    assert sorted(parse_qsl(urlsplit(again.url).query)) == sorted(pairs)
    answer = urllib3.request("GET", f"{sts}/?{parts.query}", headers={"x-k8s-aws-id": CLUSTER})
    assert answer.status == 200
    return answer.data.decode().partition("<Arn>")[2].partition("</Arn>")[0]


@contextmanager
def cluster(folder: Path, keys: Credentials, sts: str, refuses: int = 0) -> Iterator[tuple[Server, str, list[str]]]:
    """Yield a cluster with its own authority: the server, the authority in PEM, and the roles with good tokens.

    The cluster refuses the first `refuses` requests, and sends two pods for every later one.
    """
    roles: list[str] = []

    def watches(peer: Peer) -> None:
        name, _, token = peer.request.partition(b"\r\nauthorization: ")[2].partition(b"\r\n")[0].partition(b" ")
        assert name == b"Bearer"
        roles.append(admitted(token.decode(), keys, sts))
        if len(roles) <= refuses:
            peer.send(REFUSED)
            return
        peer.send(HEAD + POD % (1, 1) + POD % (2, 2))

    context, authority = certificate(folder, names_authority=False)
    with serving(watches, tls=context) as server:
        yield server, authority.read_text(), roles
