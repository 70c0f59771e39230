"""Signs a request to AWS by Signature Version 4: in a header, for requests without a query, or in the query.

The signature covers the body and all headers passed in. Pure: the caller passes the time. Invariant: the signature
equals botocore's for the same request and time.
"""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from handlers.values import dataclass

# The services that accept JSON in a POST to "/", and the prefix of their operations' names.
TARGETS = {"dynamodb": "DynamoDB_20120810", "sqs": "AmazonSQS"}
CONTENT_TYPE = "application/x-amz-json-1.0"
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials to sign with; `session_token` is "" if there is none."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        """Omits the secret, because a traceback may show this text."""
        return "Credentials(...)"


class Signer:
    """Signs for one service in one region; keeps the key of the day, which all requests of that day use."""

    def __init__(self, credentials: Credentials, region: str, service: str = "dynamodb") -> None:
        self._credentials = credentials
        self._region = region
        self._service = service
        self._target = TARGETS.get(service, "")
        self._day = ""
        self._key = b""

    def headers(self, host: str, operation: str, body: bytes, stamp: str) -> dict[str, str]:
        """Returns all headers of a POST to "/" except its length; `stamp` is the time in UTC as 20260131T235959Z."""
        headers = self.with_date({"content-type": CONTENT_TYPE, "host": host}, stamp)
        headers["x-amz-target"] = f"{self._target}.{operation}"
        headers["authorization"] = self.authorization("POST", "/", headers, hashlib.sha256(body).hexdigest(), stamp)
        return headers

    def with_date(self, headers: dict[str, str], stamp: str) -> dict[str, str]:
        """Returns the headers, with those for the time of the request and the session."""
        headers["x-amz-date"] = stamp
        if self._credentials.session_token:
            headers["x-amz-security-token"] = self._credentials.session_token
        return headers

    def authorization(self, method: str, path: str, headers: dict[str, str], body_sha256: str, stamp: str) -> str:
        """Returns the Authorization header; `headers` are in the order of their names, `path` is percent-encoded."""
        names, scope = ";".join(headers), self._scope(stamp)
        signature = self._signature(f"{method}\n{path}\n", headers, names, body_sha256, stamp, scope)
        credential = f"{self._credentials.access_key_id}/{scope}"
        return f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"

    def presigned_url(
        self, host: str, query: Mapping[str, str], headers: Mapping[str, str], stamp: str, lives_s: int
    ) -> str:
        """The address of a GET of "/" that contains its signature; the sender adds the `headers`, in lower case."""
        signed = dict(sorted({"host": host, **headers}.items()))
        names, scope = ";".join(signed), self._scope(stamp)
        parameters = {
            **query,
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self._credentials.access_key_id}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(lives_s),
            "X-Amz-SignedHeaders": names,
        }
        if self._credentials.session_token:
            parameters["X-Amz-Security-Token"] = self._credentials.session_token
        text = urlencode(sorted(parameters.items()), quote_via=quote, safe="-_.~")
        nothing = hashlib.sha256(b"").hexdigest()
        signature = self._signature(f"GET\n/\n{text}", signed, names, nothing, stamp, scope)
        return f"https://{host}/?{text}&X-Amz-Signature={signature}"

    def _signature(
        self, request: str, headers: dict[str, str], names: str, body_sha256: str, stamp: str, scope: str
    ) -> str:
        # "Create a canonical request": method, path, query, headers in the order of their names, their names, the body.
        lines = "".join([f"{name}:{value}\n" for name, value in headers.items()])
        canonical = f"{request}\n{lines}\n{names}\n{body_sha256}"
        to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        return hmac.digest(self._signing_key(stamp[:8]), to_sign.encode(), "sha256").hex()

    def _scope(self, stamp: str) -> str:
        return f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"

    def _signing_key(self, day: str) -> bytes:
        if day != self._day:
            # "Derive a signing key": a chain from the secret over day, region and service.
            key = f"AWS4{self._credentials.secret_access_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            # In this order a thread that reads the new day also reads its key.
            self._key = key
            self._day = day
            return key
        return self._key
