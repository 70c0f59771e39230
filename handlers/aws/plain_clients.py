"""Puts objects into S3, gets them, and invokes functions, if the environment has all that such a request needs.

The clients have only the calls that this project makes, and raise botocore's errors. Importing boto3 takes seconds in
the smallest function; its S3 client takes 24 MB of 128, and holds each text twice. Invariants: an object is put whole
or not at all, because its size and its SHA-256 are signed, and it is sent piece by piece; an invocation is sent once,
because the caller cannot know whether the function ran.
"""

import hashlib
import io
import random
import re
import time
from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from handlers.dynamodb.sigv4 import Signer
from handlers.framing.frames import utf8_pieces
from handlers.tls import tls
from handlers.values import dataclass

DELAY_S, DELAY_MOST_S = 0.1, 2.0
# Statuses after which another try may succeed.
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,100})</Code>")


@dataclass(eq=False, repr=False)
class _PlainClient:
    """A service at one endpoint, over one connection."""

    url: str
    signer: Signer
    _: KW_ONLY
    connect_timeout_s: float
    read_timeout_s: float
    tries: int = 1
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")
        timeout = urllib3.Timeout(connect=self.connect_timeout_s, read=self.read_timeout_s)
        self._http = urllib3.PoolManager(num_pools=1, maxsize=1, ssl_context=tls(), timeout=timeout, retries=False)

    def close(self) -> None:
        """Closes the idle connection."""
        self._http.clear()

    def _signed_headers(
        self, method: str, host: str, path: str, body_sha256: str, headers: dict[str, str] | None = None
    ) -> dict[str, str]:
        """Returns the headers of a request to that path, spelled as in the signature."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = dict(sorted(self.signer.with_date({"host": host, **(headers or {})}, stamp).items()))
        signed["authorization"] = self.signer.authorization(method, path, signed, body_sha256, stamp)
        del signed["host"]  # http.client always sends this header
        return signed


class PlainS3(_PlainClient):
    """S3 in one region. `url` is an endpoint whose paths begin with the bucket, or, with {bucket}, whose host does.

    A request is sent at most `tries` times.
    """

    takes_text = True  # as a body, which is encoded piece by piece

    def put_object(self, *, Bucket: str, Key: str, Body: str | bytes) -> None:
        """As boto3's; a text is put in UTF-8."""
        self._send("PutObject", "PUT", Bucket, Key, Body)

    def get_object(self, *, Bucket: str, Key: str, IfNoneMatch: str = "") -> dict[str, Any]:
        """As boto3's, with content and ETag only; if the ETag is `IfNoneMatch`, the ClientError's code is "304"."""
        answer = self._send("GetObject", "GET", Bucket, Key, b"", IfNoneMatch)
        return {"Body": io.BytesIO(answer.data), "ETag": answer.headers.get("etag", "")}

    def _send(
        self, operation: str, method: str, bucket: str, key: str, body: str | bytes, unless: str = ""
    ) -> urllib3.BaseHTTPResponse:
        """Returns the answer; raises ClientError or another BotoCoreError."""
        digest, size_bytes = hashlib.sha256(), 0
        for piece in utf8_pieces(body):
            digest.update(piece)
            size_bytes += len(piece)
        for retry in range(self.tries):
            if retry:
                self.sleep(random.uniform(0, min(DELAY_MOST_S, DELAY_S * 2**retry)))
            try:
                answer = self._exchange(method, bucket, key, body, digest.hexdigest(), size_bytes, unless)
            except urllib3.exceptions.HTTPError as error:
                failure = transport_error(self.url, error)
                continue
            if answer.status == 200:
                return answer
            code = _CODE.search(answer.data)
            name = code[1].decode() if code else str(answer.status)
            failure = _refusal(operation, answer, name, "x-amz-request-id", {"RetryAttempts": retry})
            if answer.status not in _TRANSIENT:
                break
        raise failure

    def _exchange(
        self, method: str, bucket: str, key: str, body: str | bytes, sha256: str, size_bytes: int, unless: str
    ) -> urllib3.BaseHTTPResponse:
        is_by_host = "{bucket}" in self.url
        # "Create a canonical request": for S3 alone the path is encoded once.
        path = quote(f"/{key}" if is_by_host else f"/{bucket}/{key}", safe="/~")
        url = self.url.replace("{bucket}", bucket)
        headers = self._signed_headers(method, urlsplit(url).netloc, path, sha256, {"x-amz-content-sha256": sha256})
        pieces = None
        if unless:
            headers["if-none-match"] = unless
        if method == "PUT":
            headers["content-length"] = str(size_bytes)
            pieces = utf8_pieces(body)
        return self._http.request(method, url + path, headers=headers, body=pieces, redirect=False)


class PlainLambda(_PlainClient):
    def invoke(self, *, FunctionName: str, Payload: bytes, InvocationType: str = "") -> dict[str, Any]:
        """As boto3's: the name may be an ARN; raises ClientError or another BotoCoreError."""
        path = f"/2015-03-31/functions/{quote(FunctionName, safe='')}/invocations"
        # "Create a canonical request": "each path segment must be URI-encoded twice (except for Amazon S3 …)".
        twice = quote(path, safe="/~")
        kind = {"x-amz-invocation-type": InvocationType} if InvocationType else {}
        headers = self._signed_headers(
            "POST", urlsplit(self.url).netloc, twice, hashlib.sha256(Payload).hexdigest(), kind
        )
        try:
            answer = self._http.request("POST", self.url + path, headers=headers, body=Payload)
        except urllib3.exceptions.HTTPError as error:
            raise transport_error(self.url, error) from None
        # 202: the event is queued, and no result is awaited.
        if answer.status not in (200, 202):
            code = answer.headers.get("x-amzn-errortype", str(answer.status)).partition(":")[0]
            raise _refusal("Invoke", answer, code, "x-amzn-requestid")
        response = {"Payload": io.BytesIO(answer.data)}
        failed = answer.headers.get("x-amz-function-error")
        return response if failed is None else response | {"FunctionError": failed}


def _refusal(
    operation: str, answer: urllib3.BaseHTTPResponse, code: str, id_header: str, more: dict[str, int] | None = None
) -> Any:
    """Returns botocore's error for an answer that is not a success."""
    from botocore.exceptions import ClientError

    metadata = {"RequestId": answer.headers.get(id_header, ""), "HTTPStatusCode": answer.status, **(more or {})}
    return ClientError({"Error": {"Code": code, "Message": ""}, "ResponseMetadata": metadata}, operation)


def transport_error(url: str, error: urllib3.exceptions.HTTPError) -> Any:
    """Returns botocore's error for a transport error; imported at the first one: most functions never have one."""
    from botocore import exceptions

    match error:
        # The first is a kind of the second.
        case urllib3.exceptions.NewConnectionError():
            kind = exceptions.EndpointConnectionError
        case urllib3.exceptions.ConnectTimeoutError():
            kind = exceptions.ConnectTimeoutError
        case urllib3.exceptions.ReadTimeoutError():
            kind = exceptions.ReadTimeoutError
        case _:
            kind = exceptions.ConnectionClosedError
    return kind(endpoint_url=url)
