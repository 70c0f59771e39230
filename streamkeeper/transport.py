"""Sends requests to the API over a pool of connections, which threads may share; through the environment's proxy.

Invariants: the key is sent only to https:// addresses and to this machine, in no error; no redirect is followed.

Whether a request is sent again, and when, is decided without I/O: who performs the steps sends and waits. Invariants: a
request is not sent again before its Retry-After; the waits of a request add up to at most `patient_s`; an error that
will not pass is raised at once.
"""

import json
import os
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, ProtocolError, ProxySchemeUnknown, SSLError
from urllib3.util import Timeout, Url, make_headers, parse_url

from streamkeeper.exceptions import InvalidRequest, Refused, StreamkeeperError, Unreachable, refusal

T = TypeVar("T")
JSON = {"accept": "application/json"}
# Each answer of the API has one of these.
_OURS = {"stream", "streams", "executionArn", "as_wanted"}

_FOREIGN = "This address is not that of a Streamkeeper API: its answer is none of that API's."

# The first wait between two tries, and the longest, unless the API asks for more.
EVERY_S, LONGEST_S = 1.0, 30.0


@dataclass(frozen=True)
class Reply:
    """An answer of the API; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""
        return 200 <= self.status < 300

    @property
    def refusal(self) -> Refused:
        """The error for this answer, unless it is a success."""
        return refusal(self.status, self.headers, self.body)


@dataclass(frozen=True)
class Send:
    """A request to send; the performer returns the Reply, or an Unreachable if there was none.

    `page_of` names the list of which the answer is a page, if it is one.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    body: bytes = b""
    page_of: str = ""


@dataclass(frozen=True)
class Wait:
    """How long to wait, and a sentence for the log that says why; "" if there is simply nothing new."""

    seconds: float
    why: str = ""


Outcome = Reply | StreamkeeperError | None
Steps = Generator[Send | Wait, Outcome, T]


def perform(steps: Steps[T], send: Callable[[Send], Outcome], wait: Callable[[Wait], None]) -> T:
    """Performs the steps one after the other; returns their result, or raises their error."""
    outcome: Outcome = None
    while True:
        try:
            step = steps.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Wait):
            wait(step)
        outcome = send(step) if isinstance(step, Send) else None


def request_steps(request: Send, patient_s: float, *, is_known: bool = False) -> Steps[dict[str, Any]]:
    """The steps of a request; returns the answer's JSON, or raises the error of the last try.

    If the address `is_known` as an API's, another answer, such as a proxy's page, is an outage.
    """
    left_s, rest_s = patient_s, EVERY_S
    while True:
        outcome = yield request
        if not isinstance(outcome, Reply):
            problem = outcome
        elif outcome.status >= 400:
            problem = outcome.refusal
        elif (read := _json(outcome.body, request.page_of)) is not None:
            return read
        else:
            problem = StreamkeeperError(_FOREIGN)
            problem.may_pass = is_known
        assert problem is not None
        wait_s = max(rest_s, problem.retry_after_s)
        if not problem.may_pass or wait_s > left_s:
            raise problem
        left_s, rest_s = left_s - wait_s, min(rest_s * 2, LONGEST_S)
        yield Wait(wait_s, f"{problem} Trying again in {wait_s:g} s.")


def _json(body: str, page_of: str) -> dict[str, Any] | None:
    """An answer of the API; None for any other."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(read, dict) or _OURS.isdisjoint(read):
        return None
    return None if page_of and not (isinstance(read.get(page_of), list) and "next" in read) else read


_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_KEY = re.compile("[!-~]*")


class Transport:
    """The API at an address; raises InvalidRequest if the address or the key cannot be one."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        self.address = address = _parse_url(self.url)
        self.origin = f"{address.scheme}://{address.netloc}"
        if not _KEY.fullmatch(key or ""):
            raise InvalidRequest("A key has only ASCII letters, digits and signs; this one has other characters.")
        if key and address.scheme != "https" and address.host not in _LOOPBACK:
            raise InvalidRequest(f"A key is sent only to https:// addresses, and {self.url} is not one.")
        self._answered = False
        self._headers = {"accept-encoding": "gzip"} | ({"x-api-key": key} if key else {})
        self._timeout_s, self._process = timeout_s, os.getpid()
        self._pool = _pool(address, timeout_s)

    def send(self, request: Send) -> Outcome:
        """Returns the reply, or an error if none came."""
        # After a fork, both processes would read each other's answers from the same connection.
        if self._process != os.getpid():
            self._process, self._pool = os.getpid(), _pool(self.address, self._timeout_s)
        try:
            response: Any = self._pool.request(
                request.method,
                self.url + request.path,
                body=request.body or None,
                headers={**request.headers, **self._headers},
                redirect=False,
            )
            self._answered = True
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, headers, response.data.decode("utf-8", "replace"))
        except SSLError:
            return Unreachable(f"{self.origin} has no TLS, or a certificate that is not trusted.", may_pass=False)
        except HTTPError as problem:
            fault = "broke off its answer" if isinstance(problem, ProtocolError) else "does not answer"
            proxy = " through the environment's proxy" if self._pool.proxy else ""
            return Unreachable(f"{self.origin} {fault}{proxy}.", may_pass=self._answered)

    def close(self) -> None:
        """Closes the idle connections."""
        self._pool.clear()


def path_of(stream_id: str, below: str = "") -> str:
    """The path of a stream, whose id is one segment of it; raises InvalidRequest if there is no such id."""
    if not stream_id:
        raise InvalidRequest("The stream id is empty: write a profile's name, optionally with a colon and any text.")
    try:
        segment = quote(stream_id, safe="")
    except UnicodeEncodeError:
        raise InvalidRequest("The stream id has half of a surrogate pair, which UTF-8 does not have.") from None
    # A segment of dots alone would lead to another path.
    return f"/connections/{segment if segment.strip('.') else segment.replace('.', '%2E')}{below}"


def with_query(path: str, query: Mapping[str, Any]) -> str:
    """The path with the parts of the query that have a value."""
    chosen = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(chosen)}" if chosen else path


def _pool(address: Url, timeout_s: float) -> urllib3.PoolManager:
    # Each follower may have a request under way; a connection beyond maxsize would be closed after each.
    options: Any = {"maxsize": 1000, "retries": False, "timeout": Timeout(connect=10, read=timeout_s)}
    is_direct = address.host in _LOOPBACK or proxy_bypass(address.host or "")
    proxy = None if is_direct else getproxies().get(address.scheme or "")
    if proxy is None:
        return urllib3.PoolManager(**options)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        auth = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    except (LocationParseError, ProxySchemeUnknown):
        # It may hold a password.
        raise InvalidRequest("The proxy of the environment must be like http://proxy.example.org:3128.") from None


def _parse_url(url: str) -> Url:
    try:
        address = parse_url(url)
    except LocationParseError:
        address = Url()
    is_plain = not (address.auth or address.query or address.fragment)
    if address.scheme not in ("http", "https") or not address.host or not is_plain:
        raise InvalidRequest("The address of the API must be like http://127.0.0.1:3000, without a user or a query.")
    return address
