"""Back-off and secrets between the connections of one invocation, on real sockets and moto's tables."""

from typing import Any

import boto3
import pytest

from handlers.aws.secret_values import SecretValues
from handlers.connection.backoff import KINDS, Backoff, Pace, backoff_after_failure
from handlers.connection.steps import Report
from handlers.errors import StreamDropped
from handlers.profile.parse import parse
from tests.handlers.aws import SECRETS, Aws, Client, carry_out, fail_with, put_secret
from tests.handlers.lanes import run
from tests.handlers.servers import UNTIL_CLOSE, Peer, Server, refuses, sends, serving

TOKEN = "/streamkeeper/test/token"
ends = sends(UNTIL_CLOSE + b"event: end\ndata: x\n\n")
unauthorized = refuses(401)


class Function:
    """Runs invocations against a server."""

    def __init__(self, aws: Aws) -> None:
        self.store = aws.store()
        self.secrets = SecretValues(boto3.client, SECRETS)

    def run(self, server: Server, *, cycle: tuple[int, int] = (0, 0), **fields: Any) -> Report:
        table = {"address": server.address, "framing": "sse", "allow_private": True, "end": {"event": "end"}}
        profile = parse("demo", {**table, **fields}, {})
        cycles, renew_after = cycle
        return run(
            profile,
            self.store,
            secrets=self.secrets,
            margin_ms=1_000,
            lease_every_ms=20,
            cycles=cycles,
            renew_after=renew_after,
        )


@pytest.fixture
def function(aws: Aws) -> Function:
    """Return a function on empty tables."""
    return Function(aws)


def test_the_back_off_grows_as_the_profile_says() -> None:
    """The back-off grows linearly or exponentially to its limit, and starts again for another kind of failure.

    Retry-After is its minimum.
    """
    linear, doubling = Pace(0.25, step_s=0.25, max_s=16), Pace(5, factor=2, max_s=320)
    assert [linear.backoff_ms(count) for count in (1, 2, 3, 64, 1000)] == [250, 500, 750, 16_000, 16_000]
    assert [doubling.backoff_ms(count) for count in (1, 2, 7, 8, 10_000)] == [5_000, 10_000, 320_000, 320_000, 320_000]
    assert backoff_after_failure(Backoff("http", 2, 0), "http", 0, doubling, None) == Backoff("http", 3, 20_000)
    assert backoff_after_failure(Backoff("http", 2, 0), "network", 0, linear, None) == Backoff("network", 1, 250)
    assert backoff_after_failure(Backoff(), "throttled", 1_000, doubling, 60) == Backoff("throttled", 1, 61_000)
    assert KINDS == ("network", "http", "throttled", "refused")


def test_a_secret_goes_into_the_request_and_nowhere_else(function: Function) -> None:
    """Secrets and parameters are put into the request, and read once more after a refusal, as they may be rotated."""
    put_secret(TOKEN, '{"token": "old-value"}')
    boto3.client("ssm").put_parameter(Name=TOKEN, Value="par&meter", Type="SecureString", Overwrite=True)

    def rotates(peer: Peer) -> None:
        put_secret(TOKEN, '{"token": "new-value"}')
        unauthorized(peer)

    headers = {"Authorization": f"Bearer ${{secret:{TOKEN}:token}}"}
    with serving(rotates, ends) as server:
        report = function.run(server, headers=headers, address=f"{server.address}/?p=${{ssm:{TOKEN}}}")
        sent = [peer.request for peer in server.peers]
    assert report.outcome.status == "ended"
    assert [b"Bearer old-value" in sent[0], b"Bearer new-value" in sent[1]] == [True, True]
    assert sent[0].startswith(b"GET /?p=par%26meter HTTP/1.1")
    with serving(unauthorized) as server:
        assert function.run(server, headers=headers, reject_after=0).outcome.error == "StreamRejected"
        assert len(server.peers) == 1


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (f"${{secret:{TOKEN}-none}}", f"the secret '{TOKEN}-none' cannot be read: ResourceNotFoundException"),
        (f"${{ssm:{TOKEN}-none}}", f"the parameter '{TOKEN}-none' cannot be read: ParameterNotFound"),
        (f"${{secret:{TOKEN}:none}}", f"the secret '{TOKEN}' is not a JSON object with the field 'none'"),
        (f"${{secret:{TOKEN}:list}}", f"the field 'list' of the secret '{TOKEN}' is not a text"),
    ],
)
def test_a_missing_secret_is_refused_by_name(function: Function, reference: str, sentence: str) -> None:
    """A missing secret is refused by name before a connection opens; once the secret exists, the stream is read."""
    put_secret(TOKEN, '{"token": "s3cret", "list": []}')
    with serving(ends) as server:
        report = function.run(server, headers={"X-Key": reference})
        said, _, _request = str(report.outcome.detail).partition(", request ")
        assert (report.outcome.error, report.progress.ended_by, said) == ("StreamDropped", "rejected", sentence)
        assert server.peers == []
        final = function.run(server, headers={"X-Key": reference}, reject_after=0).outcome
        assert (final.error, server.peers) == ("StreamRejected", [])
        assert final.message.endswith(": a retry cannot help")
        assert function.run(server, headers={"X-Key": f"${{secret:{TOKEN}:token}}"}).outcome.status == "ended"


def test_a_secret_that_cannot_be_read_for_a_moment_is_read_again(function: Function) -> None:
    """If reading a secret is forbidden only for a moment, the same function connects; it sends nothing before."""
    ways = [fail_with("AccessDeniedException")]
    put_secret(TOKEN, "s3cret")
    function.secrets = SecretValues(
        lambda service: Client(
            boto3.client(service),
            "get_secret_value",
            lambda *of, **more: (ways.pop() if ways else carry_out)(*of, **more),
        ),
        SECRETS,
    )
    with serving(ends) as server:
        pace = {"refused": {"start_s": 0.01}}
        report = function.run(server, headers={"X-Key": f"${{secret:{TOKEN}}}"}, reconnect_tries=3, backoff=pace)
    assert (report.outcome.status, len(server.peers)) == ("ended", 1)
    assert b"s3cret" in server.peers[0].request


def test_only_secrets_of_the_same_stage_are_read(function: Function) -> None:
    """A secret's short name and full name mean the secret of this stage; a secret of another stage is not read."""
    put_secret(TOKEN, "s3cret")
    put_secret("/streamkeeper/prod/token", "another")
    for reference in ("${secret:token}", f"${{secret:{TOKEN}}}"):
        with serving(ends) as server:
            function.run(server, headers={"X-Key": reference})
        assert b"X-Key: s3cret" in server.peers[0].request or b"x-key: s3cret" in server.peers[0].request
    with serving(ends) as server:
        report = function.run(server, headers={"X-Key": "${secret:/streamkeeper/prod/token}"})
    sentence = "the secret '/streamkeeper/prod/token' is not under /streamkeeper/test/, where this stage's secrets are"
    assert (report.outcome.detail, server.peers) == (sentence, [])


def test_an_outage_of_secrets_manager_is_a_drop_without_any_value(function: Function) -> None:
    """If Secrets Manager fails, the error names the secret and AWS's code; the client's message would quote more."""
    function.secrets = SecretValues(
        lambda service: Client(boto3.client(service), "get_secret_value", fail_with("InternalServiceError")),
        "/streamkeeper/test/",
    )
    with serving(ends) as server, pytest.raises(StreamDropped) as caught:
        function.run(server, headers={"X-Key": f"${{secret:{TOKEN}}}"})
    assert str(caught.value) == f"the secret '{TOKEN}' cannot be read now: InternalServiceError"


@pytest.mark.parametrize(("cycle", "error"), [((3, 5), "StreamTakenOver"), ((4, 5), "RenewalDue")])
def test_a_renewal_is_due_in_the_last_cycle_of_the_machine(
    function: Function, cycle: tuple[int, int], error: str
) -> None:
    """A renewal is due in the last cycle that the machine allows, not earlier."""

    def evicts(peer: Peer) -> None:
        newer = function.store.claim("demo", execution="", holder="B/r2").record.lease
        function.store.mark_connected("demo", newer.fence, 10**15)
        peer.send(UNTIL_CLOSE)

    with serving(evicts) as server:
        assert function.run(server, cycle=cycle).outcome.error == error
