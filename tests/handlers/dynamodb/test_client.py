"""The small DynamoDB client answers like boto3's on the embedded AWS, and survives every fault of a connection."""

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from hypothesis import given
from hypothesis import strategies as st

from handlers.aws.lambda_environment import PlainAws, dynamodb, plain_aws
from handlers.dynamodb.client import DELAY_MOST_S, THROTTLED_DELAY_S, TRANSIENT_DELAY_S, DynamoDb
from handlers.dynamodb.sigv4 import Credentials, Signer
from tests.handlers.aws import EVENTS, Aws
from tests.handlers.servers import CLIENTS, Peer, Script, Server, answers, certificate, closing, sends, serving

WAIT_S = 60.0
SECRETS = ("secret-key", "secret-token")

__all__ = ["closing"]


class Small:
    """The client on a server of scripts, with the delays that it waited."""

    def __init__(self, server: Server | str, *, tries: int = 4, read_timeout_s: float = WAIT_S) -> None:
        self.delays: list[float] = []
        url = server if isinstance(server, str) else server.address
        signer = Signer(Credentials("id", *SECRETS), "eu-central-1")
        self.client = DynamoDb(
            url, signer, tries=tries, connect_timeout_s=1, read_timeout_s=read_timeout_s, sleep=self.delays.append
        )
        CLIENTS.append(self.client)

    def call(self) -> dict[str, Any]:
        return self.client.call("GetItem", {"TableName": "events"})

    def fails(self) -> Exception:
        with pytest.raises((ClientError, BotoCoreError)) as caught:
            self.call()
        error: Exception = caught.value
        assert not any(secret in repr(error) for secret in SECRETS)
        return error


def answer(body: object, status: int = 200, *more: str) -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\n{''.join(more)}Content-Length: {len(text)}\r\n\r\n".encode() + text


def refusal(code: str, status: int = 400) -> bytes:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "refused"}
    return answer(body, status, "x-amzn-RequestId: AWS-1\r\n")


def metadata(retries: int) -> dict[str, Any]:
    """Return the metadata of an answer without an id."""
    return {"RequestId": "", "HTTPStatusCode": 200, "RetryAttempts": retries}


def code_of(error: Exception) -> str:
    assert isinstance(error, ClientError)
    return str(error.response["Error"]["Code"])


def test_a_request_has_the_form_that_dynamodb_expects() -> None:
    """A request is a signed POST to the root, with the operation in a header and the parameters as JSON."""
    with serving(answers(answer({"Item": {}}))) as server:
        assert Small(server).call() == {"Item": {}, "ResponseMetadata": metadata(0)}
        head, _, body = server.peers[0].request.decode().partition("\r\n\r\n")
    lines = [line.partition(": ") for line in head.split("\r\n")[1:]]
    headers = {name.lower(): value for name, _, value in lines}
    assert len(headers) == len(lines)
    assert (head.partition("\r\n")[0], body) == ("POST / HTTP/1.1", '{"TableName":"events"}')
    expected = {"x-amz-target": "DynamoDB_20120810.GetItem", "content-type": "application/x-amz-json-1.0"}
    expected |= {"host": server.address.removeprefix("http://"), "x-amz-security-token": "secret-token"}
    assert {name: headers[name] for name in expected} == expected


def test_a_connection_is_kept_and_used_again() -> None:
    """Requests share a connection, and if the endpoint closed it while it was idle, the next request needs no retry."""
    with serving(answers(answer({"n": 1}), answer({"n": 2})), answers(answer({"n": 3}))) as server:
        small = Small(server)
        assert [small.call()["n"] for _ in range(2)] == [1, 2]
        assert server.peers[0].gone.wait(WAIT_S)
        assert small.call() == {"n": 3, "ResponseMetadata": metadata(0)}
        assert (len(server.peers), small.delays) == (2, [])


def test_a_connection_close_is_obeyed() -> None:
    """After an answer with `Connection: close` the next request opens another connection."""
    closing = answers(answer({}, 200, "Connection: close\r\n"))
    with serving(closing, closing) as server:
        small = Small(server)
        small.call()
        small.call()
        assert (len(server.peers), small.delays) == (2, [])


BROKEN: list[tuple[Script, str]] = [
    (Peer.reset, "ConnectionClosedError"),
    (answers(b""), "ConnectionClosedError"),
    (answers(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{}"), "ConnectionClosedError"),
    (answers(b"no HTTP\r\n\r\n"), "ConnectionClosedError"),
    (answers(b"HTTP/1.1 200 X\r\n" + b"a: b\r\n" * 200), "ConnectionClosedError"),
    (Peer.wait_until_gone, "ReadTimeoutError"),
]


@pytest.mark.parametrize(("script", "name"), BROKEN)
def test_a_request_on_a_broken_connection_is_tried_again_and_then_raises(script: Script, name: str) -> None:
    """A lost answer, a reset or a cut is tried again and counted; the last try raises botocore's error."""
    with serving(script, answers(answer({}))) as server:
        small = Small(server, read_timeout_s=0.2)
        assert small.call()["ResponseMetadata"]["RetryAttempts"] == 1
        assert len(server.peers) == 2
    with serving(script) as server:
        small = Small(server, tries=2, read_timeout_s=0.2)
        assert type(small.fails()).__name__ == name
        assert (len(server.peers), len(small.delays)) == (2, 1)


@pytest.mark.parametrize(
    "bad",
    [
        *(refusal("InternalServerError", status) for status in (500, 503)),
        *(answer(b"<html>", status) for status in (200, 502, 503, 504)),
        *(refusal(code) for code in ("ThrottlingException", "ProvisionedThroughputExceededException")),
        *(refusal(code) for code in ("RequestLimitExceeded", "TransactionInProgressException", "RequestThrottled")),
    ],
)
def test_a_transient_error_is_tried_again(bad: bytes) -> None:
    """Throttles, server errors and answers that are not DynamoDB's are retried; a later success counts the retries."""
    with serving(answers(bad, bad, answer({"n": 1}))) as server:
        small = Small(server)
        assert small.call() == {"n": 1, "ResponseMetadata": metadata(2)}
        base_s = THROTTLED_DELAY_S if b"Exc" in bad or b"Throttled" in bad else TRANSIENT_DELAY_S
        assert all(0 <= delay_s <= base_s * 2**n for n, delay_s in enumerate(small.delays))
        assert len(small.delays) == 2


def test_a_busy_table_that_returns_no_item_gets_time() -> None:
    """If a batch read returns no item, the client waits before it returns the keys that DynamoDB left out."""
    left_out = {"Responses": {"events": []}, "UnprocessedKeys": {"events": {"Keys": [{}]}}}
    some = left_out | {"Responses": {"events": [{}]}}
    with serving(answers(answer(left_out), answer(some), answer({"Responses": {}}))) as server:
        small = Small(server)
        said = [small.client.batch_get_item(RequestItems={}) for _ in range(3)]
    assert [len(one.get("UnprocessedKeys", {})) for one in said] == [1, 1, 0]
    assert [0 <= delay_s <= THROTTLED_DELAY_S for delay_s in small.delays] == [True]


@pytest.mark.parametrize(
    "code",
    ["ConditionalCheckFailedException", "ValidationException", "ResourceNotFoundException", "AccessDeniedException"],
)
def test_a_lasting_error_is_raised_at_once(code: str) -> None:
    """An error that no retry helps has DynamoDB's code and message, and the number of retries before it."""
    with serving(answers(refusal(code))) as server:
        small = Small(server)
        assert (code_of(small.fails()), small.delays) == (code, [])
    with serving(Peer.reset, answers(refusal(code))) as server:
        error = Small(server).fails()
        assert isinstance(error, ClientError)
        assert error.response["Error"] == {"Code": code, "Message": "refused"}
        assert error.response["ResponseMetadata"] == {"RequestId": "AWS-1", "HTTPStatusCode": 400, "RetryAttempts": 1}


def test_the_number_of_tries_is_bounded() -> None:
    """After the last try the error is raised unchanged; the delays grow, each random below its bound."""
    throttle = refusal("ThrottlingException")
    with serving(answers(*[throttle] * 12)) as server:
        small = Small(server, tries=12)
        assert (code_of(small.fails()), len(small.delays)) == ("ThrottlingException", 11)
        assert max(small.delays) <= DELAY_MOST_S
        assert len(set(small.delays)) == 11


def test_an_endpoint_that_does_not_exist_is_named() -> None:
    """A closed port or an unknown host raises EndpointConnectionError after the tries."""
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        for url in (f"http://127.0.0.1:{nobody_listens.getsockname()[1]}", "http://nobody.invalid"):
            small = Small(url, tries=2)
            assert (type(small.fails()).__name__, len(small.delays)) == ("EndpointConnectionError", 1)


def test_an_untrusted_certificate_ends_the_request_at_once(tmp_path: Path, trusting: Callable[[Path], None]) -> None:
    """TLS is verified: an untrusted certificate raises SSLError without a retry, and a trusted one succeeds."""
    tls, trusted = certificate(tmp_path)
    with serving(answers(answer({"n": 1})), tls=tls) as server:
        small = Small(server)
        assert (type(small.fails()).__name__, small.delays) == ("SSLError", [])
        trusting(trusted)
        assert Small(server).call()["n"] == 1


def test_threads_never_share_a_connection() -> None:
    """A request that hangs keeps its own connection, so another thread's request is not delayed."""
    go_on = threading.Event()
    with serving(sends(go_on, then=answers(answer({"n": 1}))), answers(answer({"n": 2}))) as server:
        small = Small(server)
        late: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: late.append(small.call()))
        thread.start()
        server.wait_for_peers(1)
        assert small.call()["n"] == 2
        go_on.set()
        thread.join(WAIT_S)
        assert [each["n"] for each in late] == [1]


def test_the_client_answers_as_boto3_does(aws: Aws, tables: str) -> None:
    """On an emulator each call returns the same answer as boto3's client, bytes as bytes, and the same errors."""
    small = Small(tables).client
    item = {"PK": {"S": "s"}, "SK": {"S": "k"}, "data": {"B": b"\xff\0"}, "B": {"S": "b"}, "n": {"N": "1"}}
    once = {"TableName": EVENTS, "Item": item, "ConditionExpression": "attribute_not_exists(PK)"}
    small.put_item(**once)
    with pytest.raises(ClientError) as caught:
        small.put_item(**once)
    assert code_of(caught.value) == "ConditionalCheckFailedException"
    statement = f"INSERT INTO \"{EVENTS}\" VALUE {{'PK': ?, 'SK': ?, 'data': ?}}"
    for name in ("k", "l"):
        values = [{"S": "s"}, {"S": name}, {"B": b"\xc3\xa9"}]
        small.batch_execute_statement(Statements=[{"Statement": statement, "Parameters": values}])
    key = {name: item[name] for name in ("PK", "SK")}
    changed = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": {"N": "2"}}}
    reads: list[tuple[str, dict[str, Any]]] = [
        ("get_item", {"TableName": EVENTS, "Key": key, "ConsistentRead": True}),
        ("get_item", {"TableName": EVENTS, "Key": {**key, "SK": {"S": "none"}}}),
        ("batch_get_item", {"RequestItems": {EVENTS: {"Keys": [key]}}}),
        ("update_item", {"TableName": EVENTS, "Key": key, **changed, "ReturnValues": "ALL_NEW"}),
        (
            "query",
            {"TableName": EVENTS, "KeyConditionExpression": "PK = :s", "ExpressionAttributeValues": {":s": {"S": "s"}}},
        ),
    ]
    for name, parameters in reads:
        expected = getattr(aws.dynamodb, name)(**parameters)
        answer = getattr(small, name)(**parameters)
        for each in (expected, answer):
            del each["ResponseMetadata"]
        assert answer == expected


@given(st.binary(max_size=60))
def test_bytes_are_written_in_base64_and_read_back(data: bytes) -> None:
    """Any bytes are written in base64 and read back from it."""
    text = base64.b64encode(data).decode()
    with serving(answers(answer({"Item": {"data": {"B": text}}}))) as server:
        client = Small(server).client
        assert client.call("PutItem", {"Item": {"data": {"B": data}}})["Item"] == {"data": {"B": data}}
        client.close()
        assert server.peers[0].request.endswith(b'{"Item":{"data":{"B":"%s"}}}' % text.encode())
    with pytest.raises(TypeError, match="no parameter of DynamoDB is a set"):
        client.call("PutItem", {"Item": {1, 2}})


PLAIN = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret-key"}


def test_a_functions_environment_is_enough_for_plain_requests() -> None:
    """Region, endpoints and credentials come from the SDK's own variables; no repr shows a secret."""
    token = {"AWS_SESSION_TOKEN": "secret-token"}
    hosts = [f"https://{host}.eu-central-1.amazonaws.com" for host in ("dynamodb", "{bucket}.s3", "sqs", "lambda")]
    credentials = Credentials("id", "secret-key", "secret-token")
    assert plain_aws({**PLAIN, **token}) == PlainAws("eu-central-1", hosts[0], credentials, *hosts[1:])
    named = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:2"}
    plain = plain_aws({**PLAIN, **named})
    assert plain is not None
    assert (plain.dynamodb_url, plain.credentials.session_token) == ("http://127.0.0.1:2", "")
    assert not any(secret in repr(plain_aws({**PLAIN, **token})) for secret in SECRETS)
    assert isinstance(dynamodb(plain, tries=1), DynamoDb)


@pytest.mark.parametrize(
    "change",
    [
        {"AWS_ACCESS_KEY_ID": ""},
        {"AWS_DEFAULT_REGION": ""},
        {"AWS_DEFAULT_REGION": "cn-north-1"},
        {"AWS_DEFAULT_REGION": "us-iso-east-1"},
        {"AWS_PROFILE": "mine"},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"HTTPS_PROXY": "http://proxy:1"},
        {"AWS_CA_BUNDLE": "/bundle.pem"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1/path"},
        {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1/path"},
    ],
)
def test_an_environment_that_is_not_plain_is_left_to_boto3(change: dict[str, str]) -> None:
    """Without credentials or a region, or with another partition, a profile, a proxy and the like, boto3 is used."""
    assert plain_aws({**PLAIN, **change}) is None


def test_tls_is_the_systems_own() -> None:
    """Certificates are required and host names are checked."""
    connection = Small("https://localhost").client._new_connection()
    context: ssl.SSLContext = connection._context  # type: ignore[attr-defined]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
