"""Plays a token server (RFC 6749) and a ticket server, on sockets for the demonstration streams and in virtual time.

    POST /oauth/token     client_credentials of the client CLIENT with SECRET     {"access_token": "t1-…", …}
    POST /oauth/token     refresh_token, REFRESH first, which is replaced          {…, "refresh_token": "r2-…"}
    POST /oauth/ticket    with such a token                                       {"ticket": "k1-…"}

It holds no socket and no clock. Invariants: a token is good until it expires or all are revoked; a ticket is good once,
for the token's bearer, shortly after it was given; a refresh token is good once, and `grace_ms` longer.
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
Said = tuple[int, dict[str, Any]]


@dataclass
class PlayedAuth:
    """Both servers; `now_ms` is the clock. `lives_s` is how long a token lives."""

    now_ms: Callable[[], int]
    draws: random.Random = field(default_factory=random.Random)
    lives_s: int = LIVES_S
    tokens: dict[str, int] = field(default_factory=dict)  # until when each is good
    tickets: dict[str, int] = field(default_factory=dict)
    refresh: str = REFRESH
    grace_ms: int = 0
    replaced: dict[str, int] = field(default_factory=dict)  # until when each refresh token that was used is good
    given: int = 0

    def token(self, headers: Mapping[str, str], body: bytes) -> Said:
        """The answer to a request for a token."""
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        grant = form.get("grant_type")
        if grant not in ("client_credentials", "refresh_token"):
            return 400, {"error": "unsupported_grant_type"}
        named = form.get("client_id", ""), form.get("client_secret", "")
        if (_basic(headers.get("authorization", "")) or named) != (CLIENT, SECRET):
            return 401, {"error": "invalid_client", "error_description": f"{named[1]!r} is not the secret"}
        refreshed = self._refreshed(form.get("refresh_token", "")) if grant == "refresh_token" else {}
        if refreshed is None:
            return 400, {"error": "invalid_grant"}
        token = self._new("t")
        self.tokens[token] = self.now_ms() + 1000 * self.lives_s
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lives_s} | refreshed

    def ticket(self, headers: Mapping[str, str]) -> Said:
        """The answer to a request for a ticket."""
        if not self.knows(headers):
            return 401, {"message": "Who are you?"}
        ticket = self._new("k")
        self.tickets[ticket] = self.now_ms() + TICKET_LIVES_MS
        return 200, {"ticket": ticket}

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has a token that is good."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and self.now_ms() < self.tokens.get(token, 0)

    def admits(self, headers: Mapping[str, str], ticket: str) -> bool:
        """Whether a request is answered: with a token that is good, and a ticket that nobody has used."""
        return self.knows(headers) and self.now_ms() < self.tickets.pop(ticket, 0)

    def revoke(self) -> None:
        """From now on no token is good that was given before."""
        self.tokens = dict.fromkeys(self.tokens, 0)

    def _refreshed(self, sent: str) -> dict[str, Any] | None:
        """The refresh token that replaces the one that was sent; None where that is void."""
        if sent == self.refresh:
            self.replaced[sent] = self.now_ms() + self.grace_ms
            self.refresh = self._new("r")
        elif self.now_ms() >= self.replaced.get(sent, 0):
            return None
        return {"refresh_token": self.refresh}

    def _new(self, kind: str) -> str:
        self.given += 1
        return f"{kind}{self.given}-{self.draws.getrandbits(64):016x}"


def _basic(authorization: str) -> tuple[str, str] | None:
    """The client and its secret, by HTTP Basic as RFC 6749 spells them; None where there are none."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        client, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (unquote_plus(client), unquote_plus(secret)) if scheme == "Basic" else None
