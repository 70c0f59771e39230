"""A small DynamoDB client: the calls that the store makes, signed, sent over http.client, retried.

It has the methods, parameters, answers and errors of boto3's client, so that the store can use either; decision 18 says
why there are two. It decides what is retried, and after which delay. Invariants: a request is sent at most `tries`
times; then botocore's own error is raised, which has no credential.
"""

import base64
import contextlib
import http.client
import io
import json
import random
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from handlers.dynamodb.sigv4 import Signer
from handlers.tls import tls
from handlers.values import dataclass

Answer = dict[str, Any]

# The longest first delay, in seconds; each further one is twice as long, up to a limit. A throttled table needs time to
# recover, a broken connection does not. Full jitter: "sleep = random_between(0, min(cap, base * 2 ** attempt))".
TRANSIENT_DELAY_S = 0.05
THROTTLED_DELAY_S = 0.25
DELAY_MOST_S = 5.0
THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",  # SQS's
        "ThrottlingException",
        "TransactionInProgressException",
    }
)
_TRANSIENT_STATUS = frozenset({500, 502, 503, 504})


def _operation(name: str) -> Callable[..., Answer]:
    """Returns the method that calls an operation with the keywords as its parameters."""
    return lambda self, **parameters: self.call(name, parameters)


@dataclass(eq=False, repr=False)
class DynamoDb:
    """One endpoint and region. Several threads may use it: each request takes a connection that no other uses."""

    url: str
    signer: Signer
    _: KW_ONLY
    tries: int
    connect_timeout_s: float
    read_timeout_s: float
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._address = urlsplit(self.url)
        self._idle: list[http.client.HTTPConnection] = []

    def batch_execute_statement(self, *, Statements: Sequence[dict[str, Any] | str]) -> Answer:
        """As boto3's; a statement may be JSON already."""
        texts = [statement if isinstance(statement, str) else encode(statement) for statement in Statements]
        return self.send("BatchExecuteStatement", f'{{"Statements":[{",".join(texts)}]}}'.encode())

    def batch_get_item(self, **parameters: Any) -> Answer:
        """As boto3's; if a busy table left out every key, the caller gets that after a delay, to request them again."""
        answer = self.call("BatchGetItem", parameters)
        if answer.get("UnprocessedKeys") and not any(answer["Responses"].values()):
            self.sleep(random.uniform(0, THROTTLED_DELAY_S))
        return answer

    # Each as boto3's; the last one is SQS's, which speaks the same protocol.
    put_item = _operation("PutItem")
    get_item = _operation("GetItem")
    update_item = _operation("UpdateItem")
    delete_item = _operation("DeleteItem")
    query = _operation("Query")
    scan = _operation("Scan")
    send_message = _operation("SendMessage")

    def call(self, operation: str, parameters: dict[str, Any]) -> Answer:
        """Returns the answer to an operation of DynamoDB's API; raises ClientError or another BotoCoreError."""
        return self.send(operation, encode(parameters).encode())

    def send(self, operation: str, body: bytes) -> Answer:
        """As `call`, for parameters that are JSON already."""
        retries = 0
        while True:
            try:
                return self._exchange(operation, body, retries)
            except _Failed as failed:
                if failed.delay_s == 0 or retries + 1 >= self.tries:
                    raise failed.error from None
                self.sleep(random.uniform(0, min(DELAY_MOST_S, failed.delay_s * 2**retries)))
            retries += 1

    def close(self) -> None:
        """Closes the idle connections."""
        while self._idle:
            self._idle.pop().close()

    # --- one request --------------------------------------------------------------------------------------------------

    def _exchange(self, operation: str, body: bytes, retries: int) -> Answer:
        """Returns the answer; raises _Failed. A connection that failed is never used again."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = self.signer.headers(self._address.netloc, operation, body, stamp)
        connection = self._connection()
        try:
            status, data, is_kept, request_id = post(connection, headers, body)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._transport_error(error) from None
        if is_kept:
            self._idle.append(connection)
        else:
            connection.close()
        try:
            # As text, because json.loads first searches bytes for their encoding.
            answer = json.loads(data.decode(), object_hook=decode_binary if b'"B"' in data else None)
        except ValueError:
            answer = None
        metadata = {"RequestId": request_id, "HTTPStatusCode": status, "RetryAttempts": retries}
        if status != 200 or not isinstance(answer, dict):
            raise _service_error(operation, status, answer, metadata)
        answer["ResponseMetadata"] = metadata
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        """Returns an open connection without a request under way; raises _Failed."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread has taken the last one
                break
            if not _is_readable(connection):
                return connection
            # DynamoDB closed it while it was idle. If that were noticed only when a request is written, it would be a
            # retry, after which the store must check whether the existing item is its own.
            connection.close()
        connection = self._new_connection()
        try:
            connection.connect()
        except TimeoutError:
            connection.close()
            raise _Failed(_botocore().ConnectTimeoutError(endpoint_url=self.url), TRANSIENT_DELAY_S) from None
        except OSError as error:
            connection.close()
            raise self._transport_error(error, _botocore().EndpointConnectionError) from None
        connection.sock.settimeout(self.read_timeout_s)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _new_connection(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=self.connect_timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=self.connect_timeout_s, context=tls())

    def _transport_error(self, error: Exception, default: Any = None) -> "_Failed":
        """Returns botocore's error for an error of the transport; `other` if none is more specific."""
        errors = _botocore()
        if isinstance(error, ssl.SSLCertVerificationError):
            return _Failed(errors.SSLError(endpoint_url=self.url, error="the certificate cannot be trusted"), 0)
        if isinstance(error, TimeoutError):
            return _Failed(errors.ReadTimeoutError(endpoint_url=self.url), TRANSIENT_DELAY_S)
        kind = default or errors.ConnectionClosedError
        return _Failed(kind(endpoint_url=self.url, error=type(error).__name__), TRANSIENT_DELAY_S)


class _Failed(Exception):
    """A failed try: the error to raise after the last one, and the first delay before another; 0 for no further try."""

    def __init__(self, error: Exception, delay_s: float) -> None:
        super().__init__()
        self.error = error
        self.delay_s = delay_s


def _service_error(operation: str, status: int, answer: Any, metadata: Answer) -> _Failed:
    """Returns the error of an answer that is not a success: `__type` ends with a "#" and the error's name."""
    fields = answer if isinstance(answer, dict) else {}
    code = str(fields.get("__type", "")).rpartition("#")[2] or str(status)
    message = str(fields.get("message") or fields.get("Message") or "")
    response = {**fields, "Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}
    delay_s = TRANSIENT_DELAY_S if status in _TRANSIENT_STATUS or status == 200 else 0
    return _Failed(_botocore().ClientError(response, operation), THROTTLED_DELAY_S if code in THROTTLED else delay_s)


def _botocore() -> Any:
    """Returns the module of the errors that the store knows; imported at the first error: a cold start has none."""
    import botocore.exceptions

    return botocore.exceptions


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Returns whether an idle connection can be read: it was closed, or it has bytes that belong to no request."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _base64(value: Any) -> str:
    """Encodes bytes for a request."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"no parameter of DynamoDB is a {type(value).__name__}")


# Encodes parameters as a request's JSON. They hold no cycles; checking for them costs a quarter of the encoding.
encode = json.JSONEncoder(separators=(",", ":"), default=_base64, check_circular=False).encode


def decode_binary(value: Answer) -> Answer:
    """An attribute's value with its bytes decoded. An attribute that is itself named B has an object, not a text."""
    if len(value) == 1 and isinstance(value.get("B"), str):
        return {"B": base64.b64decode(value["B"])}
    return value


# Posts, and reads the responses: as DynamoDB sends one, with its head in one piece and a Content-Length, else by
# http.client, which takes three times as long for the head alone. Both ways return the same body, and agree on whether
# the connection may be used again.
# RFC 9112, sections 4 to 6: the status, one Content-Length, no other coding, and no announced close.
_FIELDS = rb"(?:(?!content-length|transfer-encoding|connection)[!-9;-~]++:[^\r\n]*+\r\n|connection: ?keep-alive\r\n)*+"
_PLAIN = re.compile(
    rb"HTTP/1\.1 (?!204|304)([2-5]\d\d)(?: [^\r\n]*+)?\r\n"
    + _FIELDS
    + rb"content-length: ?(\d{1,9})\r\n"
    + _FIELDS
    + rb"\r\n",
    re.IGNORECASE,
)


# AWS finds a request in its logs by this id; a text of another form is not from AWS.
_REQUEST_ID = re.compile(rb"\r\nx-amzn-requestid:[ \t]*([A-Za-z0-9-]{1,64})[ \t]*\r\n", re.IGNORECASE)
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


class Response(NamedTuple):
    """An answer; `is_kept` is whether another request may follow on its connection.

    `request_id` is AWS's, "" if the answer has none.
    """

    status: int
    body: bytes
    is_kept: bool
    request_id: str


def post(connection: http.client.HTTPConnection, headers: dict[str, str], body: bytes) -> Response:
    """Returns the answer to a POST to "/" on an open connection; raises OSError and HTTPException."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if fields.count("\n") != len(headers):
        raise ValueError("a header holds the end of a line")
    head = f"POST / HTTP/1.1\r\n{fields}accept-encoding: identity\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sock.sendall(head.encode("latin-1") + body)
    with connection.sock.makefile("rb") as file:
        return read_response(file)


def read_response(file: io.BufferedReader) -> Response:
    """Returns the answer in `file`, which is read to its end; raises OSError and HTTPException."""
    head = _PLAIN.match(file.peek())
    if head is None:
        return read_by_http_client(file)
    file.read(head.end())
    length = int(head[2])
    data = file.read(length)
    if len(data) < length:
        raise http.client.IncompleteRead(data, length - len(data))
    found = _REQUEST_ID.search(head[0])
    return Response(int(head[1]), data, True, found[1].decode() if found else "")


def read_by_http_client(file: io.BufferedReader) -> Response:
    """As `read_response`, for any answer."""
    # http.client needs only a socket's file, which there is already.
    socket: Any = SimpleNamespace(makefile=lambda _mode: file)
    with contextlib.closing(http.client.HTTPResponse(socket, method="POST")) as response:
        response.begin()
        data = response.read()
        values = [value.strip(" \t") for value in response.headers.get_all("x-amzn-requestid", [])]
        request_id = next((value for value in values if _ID.fullmatch(value)), "")
        return Response(response.status, data, not response.will_close, request_id)
