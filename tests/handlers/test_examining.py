"""The function examines profiles: it reads secrets, and connects to hosts without a request."""

import socket
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from botocore.exceptions import ClientError

from handlers.aws.secret_values import SecretValues
from handlers.run.examination import answer_examination
from handlers.run.profile_source import Profiles
from handlers.settings import Settings
from tests.handlers.servers import Server, certificate, sends, serving
from tests.handlers.test_settings import environment

SOUND = """
address = "http://127.0.0.1:%(open)s/{name}?key=${secret:key}"
framing = "sse"
allow_private = %(private)s
headers = { Authorization = "Bearer ${ssm:token}" }
deliver = [
  { sqs = "orders.fifo" },
  { webhook = "https://127.0.0.1:%(tls)s/a/secret/path", allow_private = true, secret = "${secret:hook}" },
]

[token]
kind = "client_credentials"
address = "%(scheme)s://127.0.0.1:%(closed)d/token"
id = "me"
secret = "${secret:key}"
"""


class Secrets:
    """Secrets Manager and the Parameter Store: the one secret exists, the parameter may not be read."""

    def get_secret_value(self, **_: Any) -> Any:
        """Answer as AWS does."""
        return {"SecretString": "a secret value"}

    def get_parameter(self, **_: Any) -> Any:
        """Refuse as AWS does."""
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetParameter")


def own_profiles(folder: Path) -> Profiles:
    settings = Settings.load(environment(folder, SECRETS_PREFIX="/streamkeeper/test/"))
    return Profiles(settings, mock.Mock(), mock.Mock(), mock.Mock())


def port(server: Server) -> str:
    return server.address.rpartition(":")[2]


@pytest.mark.parametrize("private", ["true", "false"])
def test_a_profile_is_examined_without_a_request(private: str, tmp_path: Path) -> None:
    """The function connects to each host of a profile and sends nothing; its answer has no secret and no path."""
    context, _ = certificate(tmp_path)
    own = own_profiles(tmp_path)
    with serving(sends()) as server, serving(sends(), tls=context) as secure:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            ports = {"open": port(server), "tls": port(secure), "closed": closed.getsockname()[1], "private": private,
                     "scheme": "http" if private == "true" else "https"}  # fmt: skip
        (own.places.streams_dir / "prices.toml").write_text(SOUND % ports)
        answer = answer_examination(
            {"examine": ["prices", "none"]}, own, SecretValues(lambda _: Secrets(), "/streamkeeper/test/")
        )
        if private == "true":
            server.wait_for_peers(1)  # the client is connected before the server accepts
    assert answer is not None
    prices, none = answer["examined"]["prices"], answer["examined"]["none"]
    assert none == {"problem": "there is no stream 'none': no profile is named 'none'"}
    assert "problem" not in prices, prices
    assert prices["secrets"]["the secret 'key'"] == ""
    refused = prices["secrets"]["the parameter 'token'"]
    assert refused.startswith("the parameter '/streamkeeper/test/token' cannot be read: AccessDeniedException")
    hosts = {origin.rpartition(":")[2]: why for origin, why in prices["hosts"].items()}
    assert hosts.pop(port(secure)).startswith("the upstream's certificate cannot be trusted")
    away = "the upstream's name resolves to a private address, which the profile does not allow (allow_private = true)"
    expected = ("", "nothing listens at the address") if private == "true" else (away, away)
    assert hosts == dict(zip((port(server), str(ports["closed"])), expected, strict=True))
    assert [peer.request for peer in server.peers] == [b""] * (private == "true")
    assert ("a secret value" in str(answer), "/a/secret/path" in str(answer)) == (False, False)
    assert [(sink["kind"], sink["name"]) for sink in prices["sinks"]] == [
        ("sqs", "orders.fifo"),
        ("webhook", f"127.0.0.1:{port(secure)}"),
    ]


def test_the_profiles_of_the_function_are_listed(tmp_path: Path) -> None:
    """The function's profiles are listed in order of their names; any other event is not answered."""
    own = own_profiles(tmp_path)
    (own.places.streams_dir / "b.toml").touch()
    (own.places.streams_dir / "a.toml").touch()
    secrets = SecretValues(lambda _: Secrets(), "")
    assert answer_examination({"examine": []}, own, secrets) == {"profiles": ["a", "b"]}
    assert [answer_examination(event, own, secrets) for event in ({}, {"examine": "a"}, None)] == [None] * 3
