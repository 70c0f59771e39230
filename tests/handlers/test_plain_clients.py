"""The small clients of S3, SQS and Lambda behave like boto3's on the embedded AWS, also when requests fail."""

import datetime
import json
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from botocore.exceptions import BotoCoreError, ClientError
from hypothesis import given
from hypothesis import strategies as st

from handlers.aws.lambda_environment import PlainAws, boto3_client, bucket, dynamodb, functions, plain_aws, queue
from handlers.aws.plain_clients import PlainLambda, PlainS3
from handlers.dynamodb.client import DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from handlers.errors import StoreUnavailable
from handlers.store.overflow import Objects
from tests.handlers.aws import BUCKET, Aws
from tests.handlers.servers import CLIENTS, Peer, Server, closing, serving

KEYS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)

__all__ = ["closing"]


def plain_at(url: str, token: str = "") -> PlainAws | None:
    """Return the settings of a function in an environment whose services are all at `url`."""
    credentials = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": token}
    return plain_aws({"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "eu-central-1", **credentials})


def plain(aws: Aws) -> PlainS3:
    """Return the client of a function in the environment of the embedded AWS."""
    client = bucket(plain_at(aws.s3.meta.endpoint_url), tries=1)
    assert isinstance(client, PlainS3)
    CLIENTS.append(client)
    return client


def scripted(server: Server, delays: list[float], tries: int = 4) -> PlainS3:
    signer = Signer(Credentials("id", "secret-key", "secret-token"), "eu-central-1", "s3")
    client = PlainS3(server.address, signer, tries=tries, connect_timeout_s=5, read_timeout_s=60, sleep=delays.append)
    CLIENTS.append(client)
    return client


def answers(status: int, body: bytes = b"", more: bytes = b"x-amz-request-id: ABC\r\n") -> Callable[[Peer], None]:
    head = b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n"

    def script(peer: Peer) -> None:
        peer.read_body()
        peer.send(head % (status, more, len(body)) + body)

    return script


def check_signature(
    client: PlainS3 | PlainLambda, act: Callable[[], object], auth: Any, service: str, token: str, body: bytes
) -> str:
    """Check that `act` sends one request, signed as botocore signs it for "id" and "secret"; return its address."""
    sent: list[tuple[str, str, dict[str, str]]] = []

    def request(method: str, url: str, **more: Any) -> Any:
        sent.append((method, url, more["headers"]))
        return mock.Mock(status=200, data=b"", headers={})

    with mock.patch.object(client._http, "request", request):
        act()
    ((method, address, headers),) = sent
    at = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    signed = {name: value for name, value in headers.items() if name == "x-amz-content-sha256"}
    theirs = AWSRequest(method, address, headers=signed, data=body)
    theirs.context["payload_signing_enabled"] = True
    with mock.patch("botocore.auth.get_current_datetime", return_value=at):
        auth(BotocoreCredentials("id", "secret", token or None), service, "eu-central-1").add_auth(theirs)
    assert headers["authorization"] == theirs.headers["Authorization"]
    return address


@pytest.mark.parametrize("body", [b"", b"\x00\xff", "", "é" * 300_000])
def test_an_object_that_was_put_can_be_got(aws: Aws, body: str | bytes) -> None:
    """This client and boto3's can get an object that this client put, with any key; a text is sent as UTF-8."""
    client, content = plain(aws), body.encode() if isinstance(body, str) else body
    for key in ("demo/1/2", "a b:%23/é~'()*+,;=&@$!", "%25/.x/_-"):
        client.put_object(Bucket=BUCKET, Key=key, Body=body)
        assert aws.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content
        assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == content


def test_an_object_that_has_not_changed_is_not_sent_again(aws: Aws) -> None:
    """A request with the object's ETag raises an error with the code 304, as boto3's does."""
    client = plain(aws)
    client.put_object(Bucket=BUCKET, Key="same", Body="a")
    etag = client.get_object(Bucket=BUCKET, Key="same")["ETag"]
    assert etag == aws.s3.get_object(Bucket=BUCKET, Key="same")["ETag"]
    for each in (client, aws.s3):
        with pytest.raises(ClientError) as caught:
            each.get_object(Bucket=BUCKET, Key="same", IfNoneMatch=etag)
        assert caught.value.response["Error"]["Code"] == "304"
    client.put_object(Bucket=BUCKET, Key="same", Body="b")
    assert client.get_object(Bucket=BUCKET, Key="same", IfNoneMatch=etag)["Body"].read() == b"b"


def test_a_missing_object_raises_boto3s_error(aws: Aws) -> None:
    """A missing object raises NoSuchKey, as boto3's client does, and the store finds nothing."""
    client = plain(aws)
    assert Objects(lambda: client, BUCKET).find("none") is None
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket=BUCKET, Key="none")
    assert caught.value.response["Error"]["Code"] == "NoSuchKey"


@given(KEYS, st.booleans(), st.binary(max_size=100), st.sampled_from(["", "token"]))
def test_a_request_is_signed_as_botocore_signs_it(key: str, is_by_host: bool, body: bytes, token: str) -> None:
    """A request is signed as botocore signs it, with the bucket in the host or in the path, and with any key."""
    signer = Signer(Credentials("id", "secret", token), "eu-central-1", "s3")
    url = "https://{bucket}.s3.eu-central-1.amazonaws.com" if is_by_host else "http://127.0.0.1:9000"
    client = PlainS3(url, signer, tries=1, connect_timeout_s=1, read_timeout_s=1)
    put = partial(client.put_object, Bucket="bodies", Key=key, Body=body)
    assert ("bodies." in check_signature(client, put, S3SigV4Auth, "s3", token, body)) is is_by_host


def test_a_request_that_fails_for_a_moment_is_sent_again_whole() -> None:
    """After a 503 or a reset the whole request is sent again, with a text encoded anew; each delay is at most 2 s."""
    delays: list[float] = []
    text = "é" * 200_000
    with serving(answers(503), lambda peer: peer.reset(), answers(200)) as server:
        scripted(server, delays).put_object(Bucket="b", Key="k", Body=text)
        assert server.peers[2].request.partition(b"\r\n\r\n")[2] == text.encode()
        assert len(server.peers) == 3
    assert len(delays) == 2
    assert max(delays) <= 2


@pytest.mark.parametrize(
    ("status", "body", "tries", "words"),
    [
        (403, b"<Error><Code>AccessDenied</Code><Message>secret-token</Message></Error>", 1, "AccessDenied"),
        (503, b"", 4, "503"),
        (307, b"", 1, "307"),
    ],
)
def test_a_refusal_names_the_code_and_the_request(status: int, body: bytes, tries: int, words: str) -> None:
    """A refusal raises StoreUnavailable with code and request id, without S3's message; only a 503 is retried."""
    with serving(answers(status, body)) as server:
        with pytest.raises(StoreUnavailable) as caught:
            Objects(lambda: scripted(server, []), "b").put("k", b"x")
        assert len(server.peers) == tries
    assert str(caught.value) == f"AWS refused PutObject after its retries: {words}, request ABC"


def test_an_endpoint_that_does_not_answer_raises_botocores_error() -> None:
    """A connection that ends without an answer, and an address where nothing listens, raise botocore's errors."""
    with serving(lambda peer: peer.reset()) as server:
        with pytest.raises(BotoCoreError) as caught:
            scripted(server, [], tries=2).put_object(Bucket="b", Key="k", Body=b"x")
        assert type(caught.value).__name__ == "ConnectionClosedError"
    with pytest.raises(BotoCoreError) as caught:
        scripted(server, [], tries=1).put_object(Bucket="b", Key="k", Body=b"x")
    assert type(caught.value).__name__ == "EndpointConnectionError"


def test_a_message_arrives_unchanged(aws: Aws) -> None:
    """The small client sends a message to SQS unchanged; a missing queue raises an error with its code."""
    client = queue(plain_at(aws.sqs.meta.endpoint_url), tries=1)
    assert isinstance(client, DynamoDb)
    CLIENTS.append(client)
    body = json.dumps({"text": "é\n\"'"})
    client.send_message(QueueUrl=aws.queue_url, MessageBody=body)
    assert aws.dead_letters() == [json.loads(body)]
    with pytest.raises(ClientError) as caught:
        client.send_message(QueueUrl=f"{aws.queue_url}-none", MessageBody=body)
    # boto3's code is AWS.SimpleQueueService.NonExistentQueue, from a header that AWS sends for it.
    assert caught.value.response["Error"]["Code"] == "QueueDoesNotExist"


def test_boto3_makes_the_clients_if_settings_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without plain credentials or endpoints, as with an AWS profile or in some regions, boto3's clients are used."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    boto3_client.cache_clear()
    made = [make(None, tries=1) for make in (dynamodb, queue, bucket)] + [functions(None, read_timeout_s=10)]
    assert [type(each).__name__ for each in made] == ["DynamoDB", "SQS", "S3", "Lambda"]
    boto3_client.cache_clear()


NAMES = st.sampled_from(["manager", "manager:stable", "arn:aws:lambda:eu-central-1:111111111111:function:manager:7"])


def lambda_client(url: str, token: str = "") -> PlainLambda:
    """Return the client of Lambda in an environment whose services are all at `url`."""
    client = functions(plain_at(url, token), read_timeout_s=60)
    assert isinstance(client, PlainLambda)
    CLIENTS.append(client)
    return client


@given(NAMES, st.binary(max_size=100), st.sampled_from(["", "token"]))
def test_an_invocation_is_signed_as_botocore_signs_it(name: str, payload: bytes, token: str) -> None:
    """An invocation is signed as botocore signs it, with any function name: its path is encoded twice."""
    client = lambda_client("https://lambda.eu-central-1.amazonaws.com", token)
    invoke = partial(client.invoke, FunctionName=name, Payload=payload)
    assert check_signature(client, invoke, SigV4Auth, "lambda", token, payload).endswith("/invocations")


@pytest.mark.parametrize(
    ("more", "expected"), [(b"", {}), (b"X-Amz-Function-Error: Unhandled\r\n", {"FunctionError": "Unhandled"})]
)
def test_the_answer_of_a_function_is_returned(more: bytes, expected: dict[str, str]) -> None:
    """The payload of an invoked function is returned, also if the function itself failed."""
    with serving(answers(200, b'{"n": 1}', more)) as server:
        answer = lambda_client(server.address).invoke(FunctionName="manager:stable", Payload=b"{}")
    assert answer.pop("Payload").read() == b'{"n": 1}'
    assert answer == expected
    assert server.peers[0].request.startswith(b"POST /2015-03-31/functions/manager%3Astable/invocations HTTP/1.1")


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_a_refused_invocation_is_sent_once(status: int) -> None:
    """A refused invocation is not repeated, because the function may have run; the error has AWS's code."""
    with serving(answers(status, more=b"x-amzn-ErrorType: SomeException:http://x\r\n")) as server:
        with pytest.raises(ClientError) as caught:
            lambda_client(server.address).invoke(FunctionName="manager", Payload=b"{}")
        assert len(server.peers) == 1
    assert caught.value.response["Error"]["Code"] == "SomeException"
    with pytest.raises(BotoCoreError):  # the server is gone
        lambda_client(server.address).invoke(FunctionName="manager", Payload=b"{}")
