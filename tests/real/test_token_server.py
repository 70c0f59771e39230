"""Tokens of an independent server: npm's oidc-provider, which replaces a refresh token at each use."""

import contextlib
import functools
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Service, free_port, running
from tests.local.support import PROJECT, until
from tests.projects import copied, with_settings

# It repeats in a real run what tests/handlers/connection shows of a played server.
pytestmark = pytest.mark.long
STREAMS = ("machine:a", "machine:b", "person:c", "person:d")
SECRET, LIVES_S = "a secret: +%", 8
PROFILE = """
address = "${UPSTREAM_OIDC}/events/{name}"
allow_private = true
framing = "sse"
stall_after_s = 5
resume = { header = "Last-Event-ID" }
[token]
address = "${UPSTREAM_OIDC}/token"
id = "demo"
secret = "${secret:oidc:secret}"
"""


class TokenServer:
    """The process, which serves the streams too."""

    def __init__(self, address: str) -> None:
        self.address = address

    def do(self, what: str) -> str:
        with urllib.request.urlopen(f"{self.address}/do/{what}", timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    @property
    def state(self) -> dict[str, Any]:
        """Returns how many tokens it gave, its errors, and how many openings of each stream it answered and refused."""
        found: dict[str, Any] = json.loads(self.do("state"))
        return found

    def drops(self, count: int) -> None:
        """Drops all streams until each was opened `count` more times."""
        for _ in range(count):
            before = self.state["opened"]
            self.do("drop")
            assert until(functools.partial(self._has_opened_since, before), 60)

    def _has_opened_since(self, before: dict[str, int]) -> bool:
        opened = self.state["opened"]
        return all(opened[name] > count for name, count in before.items())


@contextlib.contextmanager
def token_server() -> Iterator[TokenServer]:
    """The server, whose tokens live for seconds."""
    port = free_port()
    command = ["node", "tests/real/oidc-server.mjs", str(port), str(LIVES_S)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=PROJECT, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline() == "ready\n"
            yield TokenServer(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def more_come(service: Service) -> bool:
    """Returns whether new events of each stream are stored."""
    before = {stream: len(service.numbers(stream, "")) for stream in STREAMS}
    return until(lambda: all(len(service.numbers(one, "")) > before[one] + 3 for one in STREAMS), 120)


def test_four_streams_share_tokens_that_expire_are_revoked_or_are_missing(tmp_path: Path) -> None:
    """Two streams use client credentials, two share a refresh token: few tokens are requested, none twice, and an
    outage is named. A refresh token that is used twice would revoke all tokens that came from it.
    """
    project = with_settings(copied(tmp_path / "project"), streams_per_function=4)
    profiles = {
        "machine": 'kind = "client_credentials"\n',
        "person": 'kind = "refresh_token"\nrefresh_token = "${secret:oidc:refresh}"\n',
    }
    for name, more in profiles.items():
        (project / "env" / "streams" / f"{name}.toml").write_text(PROFILE + more)
    with token_server() as server, running(tmp_path, project, UPSTREAM_OIDC=server.address) as service:
        refresh = server.do("refresh")
        secret = json.dumps({"secret": SECRET, "refresh": refresh})
        service.aws("secretsmanager").create_secret(Name="/streamkeeper/test/oidc", SecretString=secret)
        for stream in STREAMS:
            service.post(stream)
        assert more_come(service), service.log
        server.drops(4)

        def is_refused() -> bool:
            """Revokes the tokens; returns whether one was refused in the midst of its life, not over before."""
            server.do("revoke")
            server.drops(1)
            return bool(sum(server.state["refused"].values()))

        assert until(is_refused, 120)
        server.drops(1)
        state = server.state
        assert state["errors"] == []
        assert state["granted"] < sum(state["opened"].values()) / 2
        server.do("down")
        server.do("revoke")
        server.do("drop")
        assert until(lambda: all("the token server 127.0.0.1: " in last_error(service, one) for one in STREAMS), 60)
        server.do("up")
        assert more_come(service), service.log
        assert server.state["errors"] == []
        for stream in STREAMS:
            numbers = service.numbers(stream, "")
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
        written = service.log + json.dumps(service.items("control", STREAMS[2]))
        assert not any(text in written for text in (SECRET, refresh, "Bearer"))
        service.check_permissions()


def last_error(service: Service, stream: str) -> str:
    """Returns the words of the newest failure in the status."""
    return str((service.ask("GET", stream)[1]["last_error"] or {}).get("message", ""))
