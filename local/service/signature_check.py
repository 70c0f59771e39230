"""Checks the signature of a request, as API Gateway does for a method with AuthorizationType AWS_IAM.

botocore computes the canonical request and its signature from what arrived. Invariant: a request that was changed on
its way, signed with another secret, or signed more than five minutes ago or ahead, is refused, in API Gateway's words.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.template import REGION

SKEW_S = 300
_SERVICE = "execute-api"
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/([0-9]{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})"
)
_STAMP = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class SignedRequest:
    """A request as it arrived: `target` is path and query, header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class SignatureCheck:
    """The only pair of keys that may sign."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

    def problem(self, request: SignedRequest, now: datetime) -> tuple[str, str] | None:
        """Returns the type of the gateway response and the sentence of a refusal; None for a valid request."""
        match = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
        if match is None:
            return "MISSING_AUTHENTICATION_TOKEN", "Missing Authentication Token"
        sentence = self._mistake(request, match, now)
        return ("INVALID_SIGNATURE", sentence) if sentence else None

    def _mistake(self, request: SignedRequest, match: re.Match[str], now: datetime) -> str:
        stamp = request.headers.get("x-amz-date", "")
        key, day, region, service, names, signature = match.groups()
        signed = names.split(";")
        if key != self.access_key_id:
            return "The security token included in the request is invalid."
        if service != _SERVICE:
            return f"Credential should be scoped to correct service: '{_SERVICE}'."
        if region != REGION:
            return f"Credential should be scoped to a valid region, such as {REGION} here."
        if not {"host", "x-amz-date"} <= set(signed) <= set(request.headers):
            return "'Host' and 'X-Amz-Date' must be signed headers, and every signed header must be there."
        if not _is_near(stamp, now) or not stamp.startswith(day):
            return f"Signature expired or not yet current: {now.strftime(_STAMP)} is the time here."
        auth = SigV4Auth(Credentials(key, self.secret_access_key), service, region)
        headers = {name: request.headers[name] for name in signed}
        again = AWSRequest(
            request.method, f"http://{headers['host']}{request.target}", headers=headers, data=request.body
        )
        again.context["timestamp"] = stamp
        expected: str = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
        digest = hashlib.sha256(request.body).hexdigest()
        if not hmac.compare_digest(expected, signature) or headers.get("x-amz-content-sha256", digest) != digest:
            return (
                "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
                "Access Key and signing method. Consult the service documentation for details."
            )
        return ""


def _is_near(stamp: str, now: datetime) -> bool:
    try:
        at = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs((now - at).total_seconds()) <= SKEW_S
