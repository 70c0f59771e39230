"""Invokes a function, where the environment says all that such a request needs; as boto3's client, but without it.

To import boto3 takes seconds of the smallest function, in which it keeps streams connected. Invariant: a request is
sent once, for whoever invokes a function does not know whether it ran.
"""

import io
import time
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from handlers.aws.urllib3_errors import not_answered
from handlers.dynamodb.sigv4 import Signer
from handlers.tls import tls


class PlainLambda:
    """Lambda at one endpoint."""

    def __init__(self, url: str, signer: Signer, *, connect_timeout_s: float, read_timeout_s: float) -> None:
        self._url = url.rstrip("/")
        self._signer = signer
        timeout = urllib3.Timeout(connect=connect_timeout_s, read=read_timeout_s)
        self._http = urllib3.PoolManager(num_pools=1, maxsize=1, ssl_context=tls(), timeout=timeout, retries=False)

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        """As boto3's: the name may be an ARN; raises ClientError or another BotoCoreError."""
        path = f"/2015-03-31/functions/{quote(FunctionName, safe='')}/invocations"
        try:
            answer = self._http.request("POST", self._url + path, headers=self._headers(path, Payload), body=Payload)
        except urllib3.exceptions.HTTPError as error:
            raise not_answered(self._url, error) from None
        if answer.status != 200:
            raise _refused(answer)
        said = {"Payload": io.BytesIO(answer.data)}
        failed = answer.headers.get("x-amz-function-error")
        return said if failed is None else said | {"FunctionError": failed}

    def close(self) -> None:
        """Closes the connection."""
        self._http.clear()

    def _headers(self, path: str, body: bytes) -> dict[str, str]:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = self._signer.dated({"host": urlsplit(self._url).netloc}, stamp)
        # "Create a canonical request": "each path segment must be URI-encoded twice (except for Amazon S3 …)".
        twice = quote(path, safe="/~")
        headers["authorization"] = self._signer.authorization("POST", twice, headers, sha256(body).hexdigest(), stamp)
        del headers["host"]  # it is sent in any case
        return headers


def _refused(answer: urllib3.BaseHTTPResponse) -> Any:
    """botocore's error for an answer that is not a success."""
    from botocore.exceptions import ClientError

    code = answer.headers.get("x-amzn-errortype", str(answer.status)).partition(":")[0]
    metadata = {"RequestId": answer.headers.get("x-amzn-requestid", ""), "HTTPStatusCode": answer.status}
    return ClientError({"Error": {"Code": code, "Message": ""}, "ResponseMetadata": metadata}, "Invoke")
