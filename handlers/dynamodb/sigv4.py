"""Signs a request to DynamoDB: AWS Signature Version 4, for the one kind of request that we send.

That kind is a POST to "/" without a query, signed over its body and all headers passed in. Pure: the caller passes the
time. Invariant: the Authorization header is the one that botocore makes of the same request and time.
"""

import hashlib
import hmac
from dataclasses import dataclass

SERVICE = "dynamodb"
CONTENT_TYPE = "application/x-amz-json-1.0"
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request is signed with; `session_token` is "" where there is none."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        """Nothing of the secret: a traceback may show this."""
        return "Credentials(...)"


class Signer:
    """Signs for one region; keeps the day's key, which is the same for every request of a day."""

    def __init__(self, credentials: Credentials, region: str) -> None:
        self._credentials = credentials
        self._region = region
        self._day = ""
        self._key = b""

    def headers(self, host: str, operation: str, body: bytes, stamp: str) -> dict[str, str]:
        """All headers of the request but its length; `stamp` is the time in UTC as 20260131T235959Z."""
        credentials = self._credentials
        headers = {"content-type": CONTENT_TYPE, "host": host, "x-amz-date": stamp}
        if credentials.session_token:
            headers["x-amz-security-token"] = credentials.session_token
        headers["x-amz-target"] = f"DynamoDB_20120810.{operation}"
        # "Create a canonical request": method, path, query, headers in the order of their names, their names, the body.
        names = ";".join(headers)
        lines = "".join([f"{name}:{value}\n" for name, value in headers.items()])
        canonical = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        day = stamp[:8]
        scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
        to_sign = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._key_of(day), to_sign.encode(), "sha256").hex()
        headers["authorization"] = (
            f"{_ALGORITHM} Credential={credentials.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers

    def _key_of(self, day: str) -> bytes:
        if day != self._day:
            # "Derive a signing key": a chain from the secret over day, region and service.
            key = f"AWS4{self._credentials.secret_access_key}".encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            # In this order: two threads that meet here both find a day whose key is there.
            self._key = key
            self._day = day
            return key
        return self._key
