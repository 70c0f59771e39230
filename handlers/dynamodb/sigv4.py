"""Signs a request to AWS: Signature Version 4, for requests without a query.

It is signed over its body and all headers passed in. Pure: the caller passes the time. Invariant: the Authorization
header is the one that botocore makes of the same request and time.
"""

import hashlib
import hmac
from dataclasses import dataclass

# The services that take JSON in a POST to "/", and the prefix of their operations' names.
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
        """Nothing of the secret: a traceback may show this."""
        return "Credentials(...)"


class Signer:
    """Signs for one service in one region; keeps the day's key, which is the same for every request of a day."""

    def __init__(self, credentials: Credentials, region: str, service: str = "dynamodb") -> None:
        self._credentials = credentials
        self._region = region
        self._service = service
        self._target = TARGETS.get(service, "")
        self._day = ""
        self._key = b""

    def headers(self, host: str, operation: str, body: bytes, stamp: str) -> dict[str, str]:
        """All headers of a POST to "/" but its length; `stamp` is the time in UTC as 20260131T235959Z."""
        headers = self.dated({"content-type": CONTENT_TYPE, "host": host}, stamp)
        headers["x-amz-target"] = f"{self._target}.{operation}"
        headers["authorization"] = self.authorization("POST", "/", headers, hashlib.sha256(body).hexdigest(), stamp)
        return headers

    def dated(self, headers: dict[str, str], stamp: str) -> dict[str, str]:
        """The headers, with those for the time of the request and the session."""
        headers["x-amz-date"] = stamp
        if self._credentials.session_token:
            headers["x-amz-security-token"] = self._credentials.session_token
        return headers

    def authorization(self, method: str, path: str, headers: dict[str, str], body_sha256: str, stamp: str) -> str:
        """The header of that name; `headers` are in the order of their names, and `path` is percent-encoded."""
        # "Create a canonical request": method, path, query, headers in the order of their names, their names, the body.
        names = ";".join(headers)
        lines = "".join([f"{name}:{value}\n" for name, value in headers.items()])
        canonical = f"{method}\n{path}\n\n{lines}\n{names}\n{body_sha256}"
        day = stamp[:8]
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key_of(day), to_sign.encode(), "sha256").hex()
        credential = f"{self._credentials.access_key_id}/{scope}"
        return f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"

    def _key_of(self, day: str) -> bytes:
        if day != self._day:
            # "Derive a signing key": a chain from the secret over day, region and service.
            key = f"AWS4{self._credentials.secret_access_key}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            # In this order two threads at once both find a day with its key.
            self._key = key
            self._day = day
            return key
        return self._key
