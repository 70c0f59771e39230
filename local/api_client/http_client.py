"""Sends requests to the HTTP API of a stage, and shows who asks: by a signature, by a key, or by nothing.

    https://….execute-api.….amazonaws.com/…   signed (SigV4), with the region of the name
    any address, with a key                   with the header x-api-key, unsigned
    another address                           unsigned, but where a signature is asked for: the run on this machine

Credentials and region come from the SDK's own chain (AWS_PROFILE, AWS_ACCESS_KEY_ID, single sign-on …). Invariant: no
message holds a credential, and a key is sent over TLS, or to this machine, alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ConnectionClosedError, ConnectionError, ReadTimeoutError, SSLError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from local.user_error import UserError

if TYPE_CHECKING:
    from botocore.session import Session

SERVICE = "execute-api"
_AWS = re.compile(r"[a-z0-9-]+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
# Where the run on this machine is.
HERE = "127.0.0.1"
_LOOPBACK = ("localhost", HERE, "[::1]")
_METHODS = ("GET", "POST", "PUT", "DELETE")
# botocore alone reads AWS_DEFAULT_REGION and not AWS_REGION, the variable of the other SDKs.
_REGION = {"region": ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], None, None)}
_KEY = re.compile("[!-~]*")


@dataclass(frozen=True)
class Answer:
    """What the API answered; `body` is its text, `headers` are by their names in small letters."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def phrase(self) -> str:
        """The status with its name: 404 Not Found."""
        return f"{self.status} {HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else ''}".rstrip()

    @property
    def sentence(self) -> str:
        """The status, and of a problem what is wrong and what to do."""
        try:
            problem = json.loads(self.body)
            return f"{self.phrase}: {problem['detail']} {problem['fix']}"
        except (ValueError, KeyError, TypeError):
            return f"{self.phrase}."

    @property
    def kind(self) -> str:
        """Which problem it is, by the last word of its type; "" where the answer is none."""
        try:
            return str(json.loads(self.body)["type"]).rpartition(":")[2]
        except (ValueError, KeyError, TypeError):
            return ""


@dataclass(frozen=True)
class Api:
    """The API at an address, which ends in its stage where it is deployed; UserError for an address that is none.

    `key` is "" where there is none. `sign` asks for a signature where the address is not AWS's. Who asks again and
    again gives the `session` that has the credentials, which are renewed in it.
    """

    url: str
    key: str = field(default="", repr=False)
    sign: bool = False
    session: Session | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        host = self._parsed("").host
        if not _KEY.fullmatch(self.key):
            raise UserError("A key has letters of ASCII, digits and signs alone; STREAMKEEPER_API_KEY has others.")
        if self.key and not self.url.startswith("https://") and host not in _LOOPBACK:
            raise UserError(f"A key is sent to https:// addresses alone, and {self.url} is none.")

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        """Returns the answer; `path` begins with a slash, is percent-encoded, and may have a query.

        `headers` are sent besides those that show who asks.
        Raises UserError where the request cannot be made, signed or delivered.
        """
        if method not in _METHODS:
            raise UserError(f"The method must be one of {', '.join(_METHODS)}.")
        if not path.startswith("/"):
            raise UserError("The path must begin with a slash, as in /connections/demo.")
        if "#" in path:
            raise UserError("The path has a #, which is never sent; in a stream id write %23.")
        # botocore leaves what follows a semicolon out when it sends, and signs it.
        url = self._parsed(path.replace(";", "%3B"))
        known = {"x-api-key": self.key} if self.key else {}
        request = AWSRequest(method, str(url), headers={**(headers or {}), **known}, data=body)
        match = _AWS.fullmatch(url.host or "")
        if not self.key and (match or self.sign):
            _sign(request, match[1] if match else None, self.session or new_session())
        return _sent(request)

    def _parsed(self, path: str) -> Url:
        try:
            # As it will be on the wire, for the signature is of that.
            url = parse_url(self.url.rstrip("/") + path)
        except LocationParseError:
            url = Url()
        if (
            url.scheme not in ("http", "https")
            or not url.host
            or url.auth
            or (not path and (url.query or url.fragment))
        ):
            raise UserError("The address of the API must be such as http://127.0.0.1:3000, or as `sls info` prints it.")
        return url


def new_session() -> Session:
    """A session that finds credentials and region as the AWS command line does."""
    # A third of a second, which a command that signs nothing need not wait.
    from botocore.session import Session

    return Session(session_vars=_REGION)


def _sign(request: AWSRequest, region: str | None, session: Session) -> None:
    try:
        credentials = session.get_credentials()
        region = region or session.get_config_variable("region")
        if credentials is None:
            raise UserError(
                "There are no AWS credentials to sign the request with: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY."
            )
        if region is None:
            raise UserError("There is no region to sign the request for: set AWS_REGION or AWS_DEFAULT_REGION.")
        SigV4Auth(credentials.get_frozen_credentials(), SERVICE, region).add_auth(request)
    except BotoCoreError as problem:
        raise UserError(f"The request cannot be signed: {str(problem).rstrip('.')}.") from None


def _sent(request: AWSRequest) -> Answer:
    http = URLLib3Session(proxies=get_environ_proxies(request.url), timeout=35)
    try:
        response: Any = http.send(request.prepare())
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, response.text, headers)
    except BotoCoreError as problem:
        raise UserError(_why_unsent(request.url, problem)) from None
    finally:
        http.close()


def _why_unsent(url: str, problem: BotoCoreError) -> str:
    origin = f"{parse_url(url).scheme}://{parse_url(url).netloc}"
    if isinstance(problem, SSLError):
        return f"{origin} has no TLS, or a certificate that is not trusted."
    if isinstance(problem, ConnectionError | ConnectionClosedError | ReadTimeoutError):
        return f"{origin} does not answer."
    return (
        f"The request to {origin} cannot be sent: a credential or the region has a character that no header may have."
    )
