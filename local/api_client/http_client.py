"""Sends requests to the HTTP API of a stage, and proves who the caller is: by a signature, by a key, or not at all.

    https://….execute-api.….amazonaws.com/…   signed (SigV4), with the region in the host's name
    any address, with a key                   with the header x-api-key, unsigned
    another address                           unsigned unless `sign` is set, such as this machine's run

Credentials and region come from the SDK's own chain (AWS_PROFILE, AWS_ACCESS_KEY_ID, single sign-on …). Invariant: no
message contains a credential.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from urllib3.util import parse_url

from handlers.aws.lambda_environment import dns_suffix
from local.terminal import UserError
from streamkeeper.exceptions import Refused, StreamkeeperError, Unreachable
from streamkeeper.transport import Outcome, Reply, Send, Transport

if TYPE_CHECKING:
    from botocore.session import Session

SERVICE = "execute-api"
_AWS = re.compile(r"[a-z0-9-]+\.execute-api\.([a-z0-9-]+)\.(.+)")
# The host of the run on this machine.
LOCAL_HOST = "127.0.0.1"
_CHECK = "Is the address right (--url, STREAMKEEPER_URL or PORT), and does the service run there?"
_METHODS = ("GET", "POST", "PUT", "DELETE")
# botocore by itself reads AWS_DEFAULT_REGION but not AWS_REGION, the variable of the other SDKs.
_REGION = {"region": ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], None, None)}
_HEADER = re.compile("[ -~]*")
TIMEOUT_S = 35.0
REFUSED, MISTAKE, NO_STREAM = 1, 2, 4
# Where the address, the id, a position, the document or the profile is wrong.
_MISTAKES = (400, 404, 405, 413, 415, 422)


def exit_status(refusal: Refused) -> int:
    """Returns the exit status of a command that the API has refused."""
    if refusal.kind in ("unknown-stream", "never-started"):
        return NO_STREAM
    return MISTAKE if refusal.status in _MISTAKES else REFUSED


@contextlib.contextmanager
def explain_client_errors() -> Iterator[None]:
    """Raises the client's errors as UserErrors, but not a refusal of the API."""
    try:
        yield
    except Refused:
        raise
    except Unreachable as problem:
        hint = "" if problem.may_pass else f" {_CHECK}"
        raise UserError(f"{problem}{hint}") from None
    except StreamkeeperError as problem:
        raise UserError(str(problem)) from None


class Api:
    """The API at an address, which ends with the stage if it is deployed; UserError if the address is not one.

    `key` is "" if there is none. `sign` signs although the address is not one of AWS. A long-lived Api
    should be given a `session`, which renews its credentials.
    """

    def __init__(self, url: str, key: str = "", *, sign: bool = False, session: Session | None = None) -> None:
        with explain_client_errors():
            self._transport = Transport(url, key, TIMEOUT_S)
        self.url, self.session = self._transport.url, session
        match = _AWS.fullmatch(self._transport.address.host or "")
        self._region = match[1] if match and match[2] == dns_suffix(match[1]) else None
        self._is_signed = not key and (sign or self._region is not None)

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        """Returns the answer; `path` begins with a slash, is percent-encoded, and may have a query.

        Raises UserError if the request cannot be made, signed or delivered.
        """
        outcome = self.send(Send(method, path, headers or {}, body))
        with explain_client_errors():
            if isinstance(outcome, StreamkeeperError):
                raise outcome
        assert outcome is not None, "a request has an outcome"
        return outcome

    def send(self, request: Send) -> Outcome:
        """Returns the answer, or the error if none came; raises UserError if the request cannot be made or signed."""
        if request.method not in _METHODS:
            raise UserError(f"The method must be one of {', '.join(_METHODS)}, not {request.method!r}.")
        if not request.path.startswith("/"):
            raise UserError("The path must begin with a slash, as in /connections/demo.")
        if "#" in request.path:
            raise UserError("The path has a #, which is never sent; in a stream id write %23.")
        if self._is_signed:
            request = replace(request, headers=self._signed_headers(request))
        if not all(_HEADER.fullmatch(value) for value in request.headers.values()):
            raise UserError(
                f"The request to {self._transport.origin} cannot be sent: a credential or the region has a character "
                "that a header cannot have."
            )
        return self._transport.send(request)

    def _signed_headers(self, request: Send) -> dict[str, str]:
        """The headers with those of the signature, which is made of the address as it will be sent."""
        signed = AWSRequest(request.method, str(parse_url(self.url + request.path)), request.headers, request.body)
        session = self.session or new_session()
        try:
            credentials = session.get_credentials()
            region = self._region or session.get_config_variable("region")
            if credentials is None:
                raise UserError(
                    "There are no AWS credentials to sign the request with: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY."
                )
            if region is None:
                raise UserError("There is no region to sign the request for: set AWS_REGION or AWS_DEFAULT_REGION.")
            SigV4Auth(credentials.get_frozen_credentials(), SERVICE, region).add_auth(signed)
        except BotoCoreError as problem:
            raise UserError(f"The request cannot be signed: {str(problem).rstrip('.')}.") from None
        return dict(signed.headers.items())


def new_session() -> Session:
    """A session that finds credentials and region as the AWS command line does."""
    # The import takes a third of a second, which a command that signs nothing need not wait.
    from botocore.session import Session

    return Session(session_vars=_REGION)
