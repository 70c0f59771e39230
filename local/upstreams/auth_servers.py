"""Plays a token server (RFC 6749) and a ticket server, on sockets for the demonstration streams and in virtual time.

    POST /oauth/token     client_credentials of the client CLIENT with SECRET     {"access_token": "t1-…", …}     POST
/oauth/token     refresh_token, REFRESH first, which is replaced          {…, "refresh_token": "r2-…"}     POST
/oauth/ticket    with such a token                                       {"ticket": "k1-…"}

It has no socket and no clock of its own. Invariants: a token is valid until it expires or all tokens are revoked. A
ticket is valid once, for the token's bearer, for a short time. A refresh token is valid once, and for `grace_ms` after
its first use.
"""

import base64
import binascii
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus

CLIENT, SECRET, REFRESH = "demo", "demo-secret", "demo-refresh"
# The demonstration profile that uses both servers; its secret has the same name.
PROFILE = "demo-token"
LIVES_S, TICKET_LIVES_MS = 30, 10_000
AuthAnswer = tuple[int, dict[str, Any]]


@dataclass
class PlayedAuth:
    """Both servers; `now_ms` is the clock, `token_lives_s` is how long a token is valid."""

    now_ms: Callable[[], int]
    draws: random.Random = field(default_factory=random.Random)
    token_lives_s: int = LIVES_S
    tokens: dict[str, int] = field(default_factory=dict)  # until when each is valid
    tickets: dict[str, int] = field(default_factory=dict)
    refresh: str = REFRESH
    grace_ms: int = 0
    replaced: dict[str, int] = field(default_factory=dict)  # until when each used refresh token is valid
    issued_count: int = 0

    def answer_token_request(self, headers: Mapping[str, str], body: bytes) -> AuthAnswer:
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        grant = form.get("grant_type")
        if grant not in ("client_credentials", "refresh_token"):
            return 400, {"error": "unsupported_grant_type"}
        named = form.get("client_id", ""), form.get("client_secret", "")
        if (_basic(headers.get("authorization", "")) or named) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client", "error_description": f"{named[1]!r} is not the secret"}
        refreshed = self._refresh(form.get("refresh_token", "")) if grant == "refresh_token" else {}
        if refreshed is None:
            return 400, {"error": "invalid_grant"}
        token = self._new("t")
        self.tokens[token] = self.now_ms() + 1000 * self.token_lives_s
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.token_lives_s} | refreshed

    def answer_ticket_request(self, headers: Mapping[str, str]) -> AuthAnswer:
        if not self.has_valid_token(headers):
            return 401, {"message": "Who are you?"}
        ticket = self._new("k")
        self.tickets[ticket] = self.now_ms() + TICKET_LIVES_MS
        return 200, {"ticket": ticket}

    def has_valid_token(self, headers: Mapping[str, str]) -> bool:
        """Returns whether a request has a valid token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and self.now_ms() < self.tokens.get(token, 0)

    def use_ticket(self, headers: Mapping[str, str], ticket: str) -> bool:
        """Returns whether a request has a valid token and a valid ticket; the ticket is then used up."""
        return self.has_valid_token(headers) and self.now_ms() < self.tickets.pop(ticket, 0)

    def revoke(self) -> None:
        """Makes every token invalid that was issued before."""
        self.tokens = dict.fromkeys(self.tokens, 0)

    def _refresh(self, sent: str) -> dict[str, Any] | None:
        """Returns the refresh token that replaces the one in the request; None if that one is invalid."""
        if sent == self.refresh:
            self.replaced[sent] = self.now_ms() + self.grace_ms
            self.refresh = self._new("r")
        elif self.now_ms() >= self.replaced.get(sent, 0):
            return None
        return {"refresh_token": self.refresh}

    def _new(self, kind: str) -> str:
        self.issued_count += 1
        return f"{kind}{self.issued_count}-{self.draws.getrandbits(64):016x}"


def _basic(authorization: str) -> tuple[str, str] | None:
    """Returns the client and its secret from HTTP Basic, as RFC 6749 encodes them; None if there are none."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        client, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (unquote_plus(client), unquote_plus(secret)) if scheme == "Basic" else None
