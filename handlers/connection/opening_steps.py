"""Defines what is exchanged before a connection is opened: requests, answers, and the tokens that a process holds.

    Call(read the replaced refresh token)  -> Replacement("r7", 6)
    Ask(POST to the token server)          -> Answer(200, {"access_token": …})
    Try(GET with the token)                -> its status

`preparation.py` decides what comes next. Invariant: no representation of these objects shows a secret.

`refresh_token` decides which refresh token to send if the token server replaces it at each use (RFC 6749, section 6).

    Call(read)  -> Replacement("r6", 5)       None: the secret's own was never replaced
    Ask("r6")   -> {"access_token": …, "refresh_token": "r7"}
    Call(write) -> Replacement("r7", 6)

Functions that refresh at the same time read the same token. The first write wins; if the server refuses the other
function, that one reads again and sends the winner's token. Invariant: a refresh token is sent only after the stored
one was read, so no replaced token is sent again: many servers take that for a theft and revoke all tokens that descend
from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from handlers.connection.inputs import Closed
from handlers.framing.numbers import loads
from handlers.profile.secret_references import Secrets
from handlers.profile.upstream_requests import UpstreamRequest
from handlers.values import dataclass

# The most bytes of an answer that are read.
ANSWER_BYTES = 64 * 1024
# A token is renewed this long before it expires, or a tenth of its life before if that is shorter.
EARLY_MS = 60_000
# The most characters of a token or a ticket.
MOST_CHARACTERS = 8192
# How many times in a row storing a new token is tried, each time with the client's own retries.
TRIES = 3


class Answer(NamedTuple):
    """The answer to a request before the opening; header names are lower case, the body is bounded."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is not JSON."""
        try:
            return loads(self.body)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Ask:
    """Make this request and follow no redirect; answered by Answer, or by Closed if no answer came."""

    request: UpstreamRequest
    with_body: bool = True


@dataclass(frozen=True, slots=True)
class Try:
    """Open the upstream; answered by its status. The last Try counts; `places` fill the placeholders of messages.

    `opens` is the address to open in place of the request's own, as if that had redirected there; "" for none.
    """

    request: UpstreamRequest
    places: Secrets = field(default_factory=dict, repr=False)
    opens: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """Make this call, which raises no exception; answered by what it returns."""

    run: Callable[[], Any] = field(repr=False)


# Makes a token for a cluster of EKS in a region: it, and for how many milliseconds it is good, or why there is none.
SignToken = Callable[[str, str], tuple[str, int] | Closed]
Lock = Callable[[], AbstractContextManager[Any]]
Preparation = Generator[Ask | Call | Try, Any, None]


@dataclass(frozen=True, slots=True)
class Replacement:
    """The refresh token that replaced the one in the secret; `version` counts the replacements from 1."""

    token: str = field(repr=False)
    version: int


class Replacements(Protocol):
    """The store in which functions share replaced refresh tokens; `name` is the digest from `replacement_name`."""

    def read(self, name: str) -> Replacement | Closed | None:
        """Returns the newest; None if the secret's own was never replaced, Closed if that is unknown now."""

    def write(self, name: str, newer: Replacement) -> Replacement | Closed:
        """Stores `newer` over the version before it; returns what is stored then, Closed if that is unknown."""


class Unready(Exception):
    """The connection cannot be opened; `closed` says why."""

    def __init__(self, closed: Closed) -> None:
        super().__init__(closed.reason)
        self.closed = closed


@dataclass(slots=True)
class _HeldToken:
    """A token; `was_refused_before` is whether it was requested because the upstream had refused the one before."""

    token: str = field(repr=False)
    due_ms: int
    expires_ms: int
    was_refused_before: bool


class Tokens:
    """The tokens of one process, by what they were requested with; `lock` makes a lock for each token server.

    Without `replacements` a refresh token is used as the secret has it, and one that replaces it is lost. Without
    `sign` there is no token of EKS.
    """

    def __init__(self, lock: Lock, replacements: Replacements | None = None, sign: SignToken | None = None) -> None:
        self._lock = lock
        self._turns: dict[str, AbstractContextManager[Any]] = {}
        self.replacements = replacements
        self.sign = sign
        self.unsaved: dict[str, Replacement] = {}  # refresh tokens that are still to be stored, by name
        self._held: dict[Any, _HeldToken] = {}
        self._failed: dict[Any, tuple[int, Closed | None]] = {}
        self._refused: set[Any] = set()

    def turn(self, server: str) -> AbstractContextManager[Any]:
        """Returns what lets one stream at a time make a request to the token server of this address.

        Streams that waited for their turn share the result: the token, or the failure.
        """
        return self._turns.setdefault(server, self._lock())

    def find_token(self, key: Any, now_ms: int) -> tuple[str | None, bool]:
        """Returns the token (None without one) and whether another one should be requested."""
        held = self._held.get(key)
        if held is None or now_ms >= held.expires_ms:
            return None, True
        return held.token, now_ms >= held.due_ms

    def last_failure(self, key: Any) -> tuple[int, Closed | None]:
        """Returns how many requests failed, and why the last did; a stream that awaited its turn compares it."""
        return self._failed.get(key, (0, None))

    def hold_token(self, key: Any, token: str, now_ms: int, lives_ms: int) -> None:
        """Holds a new token."""
        due_ms = now_ms + lives_ms - min(EARLY_MS, lives_ms // 10)
        self._held[key] = _HeldToken(token, due_ms, now_ms + lives_ms, key in self._refused)
        self._refused.discard(key)

    def record_failure(self, key: Any, closed: Closed) -> None:
        """Records that a request for a token failed."""
        self._failed[key] = self.last_failure(key)[0] + 1, closed

    def record_refusal(self, key: Any, token: str) -> bool:
        """Records that the upstream refused a token; returns whether to request another: once in a row of refusals."""
        held = self._held.get(key)
        if held is None or held.token != token:
            return True
        if held.was_refused_before:
            return False
        self._held.pop(key, None)  # another stream may have removed it meanwhile
        self._refused.add(key)
        return True

    def forget(self) -> None:
        """Forgets all tokens, so that each is requested anew."""
        self._held.clear()

    def record_acceptance(self, key: Any, token: str) -> None:
        """Records that the upstream accepted a token, so that a later refusal begins a new row."""
        held = self._held.get(key)
        if held is not None and held.token == token:
            held.was_refused_before = False


def is_visible(text: str) -> bool:
    """Whether a header and an address can carry `text`. RFC 6749, appendix A.12: a token is of visible characters."""
    return 0 < len(text) <= MOST_CHARACTERS and text.isascii() and text.isprintable()


def open_directly(request: UpstreamRequest) -> Preparation:
    """Opens a stream that needs no request beforehand."""
    yield Try(request)


def replacement_name(address: str, client: str, first: str) -> str:
    """Returns the name under which replacements of the secret's value `first` are stored: a digest of all three.

    Profiles with the same secret share it; a changed secret makes another name.
    """
    return hashlib.sha256(json.dumps([address, client, first]).encode()).hexdigest()


def refresh_token(
    stored: Replacements, unsaved: dict[str, Replacement], name: str, first: str, ask: Callable[[str], Ask]
) -> Generator[Ask | Call, Any, Answer | Closed]:
    """Returns the token server's answer to a refresh; Closed if it is unknown now which refresh token to send.

    `unsaved` has the tokens that this process could not store yet; they are stored before the next refresh.
    """
    # A token that an earlier refresh could not store is stored first: the stored one is void.
    row: Replacement | Closed | None = (
        yield _save(stored, name, unsaved[name]) if name in unsaved else _read(stored, name)
    )
    if isinstance(row, Closed):
        return row
    unsaved.pop(name, None)
    sent = first if row is None else row.token
    answer: Answer | Closed = yield ask(sent)
    if _field(answer, "error") == "invalid_grant":
        newer: Replacement | Closed | None = yield _read(stored, name)
        if isinstance(newer, Replacement) and newer.token != sent:
            row, sent = newer, newer.token
            answer = yield ask(sent)
    token = _field(answer, "refresh_token")
    if isinstance(token, str) and token != sent and is_visible(token):
        unsaved[name] = Replacement(token, 1 if row is None else row.version + 1)
        for _ in range(TRIES):
            if not isinstance((yield _save(stored, name, unsaved[name])), Closed):
                del unsaved[name]
                break
    return answer


def _read(stored: Replacements, name: str) -> Call:
    return Call(lambda: stored.read(name))


def _save(stored: Replacements, name: str, newer: Replacement) -> Call:
    return Call(lambda: stored.write(name, newer))


def _field(answer: Answer | Closed, name: str) -> Any:
    body = answer.json if isinstance(answer, Answer) else None
    return body.get(name) if isinstance(body, dict) else None
