"""Decides what is requested before a connection is opened: a token of OAuth 2 (RFC 6749), then a ticket. Requests out,
answers in.

    Ask(POST to the token server)  -> Answer(200, {"access_token": …})
    Call(sign for a cluster)       -> "k8s-aws-v1.…", 900000     in place of that, if the token is of EKS
    Ask(the ticket's request)      -> Answer(200, {"key": "k7"})
    Try(GET with both)             -> 401: the token is requested anew, once, and it is tried again

A socket may also be refused after its handshake: then the next opening requests the token anew, once
(`is_token_refused`).

A token serves all streams of a process until shortly before it expires, or until it expires if no new one comes by
then. The performers of the steps make the requests (`handlers/upstream/reader.py`, `local/simulation/slots.py`).
Invariant: a message quotes nothing that a server sent except an error code of RFC 6749, and nothing of an address
except its host.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from handlers.connection.failures import has_lasted
from handlers.connection.inputs import Closed
from handlers.connection.opening_steps import (
    Answer,
    Ask,
    Call,
    Preparation,
    Tokens,
    Try,
    Unready,
    is_visible,
    refresh_token,
    replacement_name,
)
from handlers.connection.steps import Report
from handlers.framing.events import compact_json, text_at_path
from handlers.profile import addresses
from handlers.profile.addresses import ProfileError, quote_value
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets, fill_references, placeholder_reference, placeholder_values
from handlers.profile.ticket_field import Ticket
from handlers.profile.tls_field import Trust
from handlers.profile.token_field import Token
from handlers.profile.upstream_requests import UpstreamRequest, fill_json, own_headers, request_of

# RFC 6749, section 5.1: the server may leave out how long a token lives. For one that lives for ever, servers say
# nothing, 0, null or centuries.
DEFAULT_LIFE_S, MOST_LIFE_S = 300, 10**9
UNAUTHORIZED = 401
_TEMPORARY = frozenset({408, 425, 429})
# RFC 6749, section 5.2; RFC 8707, section 2. Any other text is not quoted: it may echo a secret.
_CODES = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"}
    | {"invalid_scope", "invalid_target"}
)
USED_UP = "invalid_grant: the refresh token was used before or is void; put a new one in the secret"
_JSON = {"accept": b"application/json", "accept-encoding": b"identity", "user-agent": b"streamkeeper"}


def prepare_opening(
    profile: Profile, stream_id: str, cursor: str | None, secrets: Secrets, tokens: Tokens, now_ms: Callable[[], int]
) -> Preparation:
    """Opens the upstream with all that the request needs; raises Unready."""
    values, key = dict(secrets), _key(profile.token, secrets)
    renewals = 1
    while True:
        token = ""
        if profile.token is not None:
            token = yield from _token(profile, key, values, tokens, now_ms)
            values[placeholder_reference("token")] = token
        asked: Try | None = None
        status = UNAUTHORIZED
        opens = "" if profile.ticket is None else (yield from _ticket(profile, profile.ticket, stream_id, values))
        if opens is not None:
            asked = _open_step(profile, stream_id, cursor, values, opens)
            status = yield asked
        is_refused = status == UNAUTHORIZED
        if profile.token is not None and not is_refused and not profile.is_socket:
            tokens.record_acceptance(key, token)
        if is_refused and profile.token is not None and tokens.record_refusal(key, token) and renewals:
            renewals -= 1
        elif asked is None:
            assert profile.ticket is not None
            raise Unready(Closed("rejected", f"the ticket server {profile.ticket.host} answered {UNAUTHORIZED}"))
        else:
            return


def is_token_refused(profile: Profile, secrets: Secrets, tokens: Tokens, token: str, report: Report) -> bool:
    """Returns whether a socket that has ended was refused and is opened with another token than this one.

    A server may answer the handshake before it reads the token, and refuse it by a message or by closing the socket.
    So the token was accepted only if events came, or if the connection has lasted.
    """
    if not profile.is_socket:
        return False
    key, progress = _key(profile.token, secrets), report.progress
    if progress.stored or progress.duplicates or has_lasted(progress):
        tokens.record_acceptance(key, token)
    return report.refusal is not None and tokens.record_refusal(key, token)


def add_token(
    profile: Profile, secrets: Secrets, tokens: Tokens, now_ms: Callable[[], int]
) -> Generator[Ask | Call, Any, Secrets]:
    """Returns the secrets, the profile's token among them, for requests that open no stream; raises Unready."""
    if profile.token is None:
        return secrets
    token = yield from _token(profile, _key(profile.token, secrets), secrets, tokens, now_ms)
    return {**secrets, placeholder_reference("token"): token}


def _open_step(profile: Profile, stream_id: str, cursor: str | None, values: Secrets, opens: str) -> Try:
    try:
        request = request_of(profile, stream_id, cursor, values)
    except ProfileError as error:
        raise Unready(Closed("rejected", str(error))) from None
    return Try(
        request, {placeholder_reference(name): value for name, value in placeholder_values(values).items()}, opens
    )


# --- the token --------------------------------------------------------------------------------------------------------


def _key(token: Token | None, secrets: Secrets) -> Any:
    """The key of a token: what it is requested with, so a changed secret makes another key."""
    return None if token is None else (token, *(fill_references(text, secrets) for text in token.texts))


def _token(
    profile: Profile, key: Any, secrets: Secrets, tokens: Tokens, now_ms: Callable[[], int]
) -> Generator[Ask | Call, Any, str]:
    token = profile.token
    assert token is not None
    held, is_due = tokens.find_token(key, now_ms())
    if held is not None and not is_due:
        return held
    before, _ = tokens.last_failure(key)
    with tokens.turn(token.address):
        held, is_due = tokens.find_token(key, now_ms())
        if held is not None and not is_due:
            return held
        count, failure = tokens.last_failure(key)
        if failure is None or count == before:
            said = yield from _new_token(profile, token, secrets, tokens)
            if not isinstance(said, Closed):
                tokens.hold_token(key, said[0], now_ms(), said[1])
                return said[0]
            tokens.record_failure(key, said)
            failure = said
    if held is not None:
        return held  # too early to renew
    raise Unready(failure)


def _new_token(
    profile: Profile, token: Token, secrets: Secrets, tokens: Tokens
) -> Generator[Ask | Call, Any, tuple[str, int] | Closed]:
    """Returns a new token and its life in milliseconds, or why there is none."""
    if token.kind != "eks":
        return _parse_token(token, (yield from _token_answer(profile, token, secrets, tokens)))
    sign = tokens.sign
    if sign is None:
        return Closed("no_token", "there are no AWS credentials here to sign a token for EKS")
    signed: tuple[str, int] | Closed = yield Call(lambda: sign(token.cluster, token.region))
    return signed


def _token_answer(
    profile: Profile, token: Token, secrets: Secrets, tokens: Tokens
) -> Generator[Ask | Call, Any, Answer | Closed]:
    client, _, first = (fill_references(text, secrets) for text in token.texts)

    def ask(refresh: str) -> Ask:
        asked = _token_request(token, secrets, refresh, profile.allow_private)
        return Ask(replace(asked, trust=_trust(profile, token.host, secrets)))

    if not first or tokens.replacements is None:
        answer: Answer | Closed = yield ask(first)
        return answer
    name = replacement_name(token.address, client, first)
    return (yield from refresh_token(tokens.replacements, tokens.unsaved, name, first, ask))


def _token_request(token: Token, secrets: Secrets, refresh: str, allow_private: bool) -> UpstreamRequest:
    client, secret, _ = (fill_references(text, secrets) for text in token.texts)
    fields = {"grant_type": token.kind, "refresh_token": refresh, "scope": token.scope, "audience": token.audience}
    headers = {**_JSON, "content-type": b"application/x-www-form-urlencoded"}
    if token.auth == "basic" and secret:
        # RFC 6749, section 2.3.1: both are form-encoded first.
        pair = f"{quote_plus(client)}:{quote_plus(secret)}"
        headers["authorization"] = b"Basic " + base64.b64encode(pair.encode())
    else:
        fields |= {"client_id": client, "client_secret": secret}
    body = urlencode({name: value for name, value in fields.items() if value}).encode()
    held = tuple(value for value in (client, secret, refresh) if value)
    return UpstreamRequest("POST", token.address, headers, body, allow_private, held)


def _parse_token(token: Token, answer: Answer | Closed) -> tuple[str, int] | Closed:
    """Returns the token and its life in milliseconds, or why there is none."""
    who = f"the token server {token.host}"
    failed = _problem_of(who, "no_token", answer)
    body = None if isinstance(answer, Closed) else answer.json
    fields = body if isinstance(body, dict) else {}
    if failed is not None:
        code = fields.get("error")
        if code == "invalid_grant" and token.kind == "refresh_token":
            return Closed(failed.reason, f"{failed.detail}: {USED_UP}")
        return Closed(failed.reason, f"{failed.detail}: {code}") if isinstance(code, str) and code in _CODES else failed
    value = fields.get("access_token")
    if not isinstance(value, str) or not is_visible(value):
        return Closed("no_token", f"{who} answered without a token that can be sent")
    # RFC 6749, section 7.1: "The client MUST NOT use an access token if it does not understand the token type."
    kind = fields.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        return Closed("rejected", f"{who} answered with a token whose type is missing or not Bearer")
    lives_s: Any = fields.get("expires_in")
    if isinstance(lives_s, str) and lives_s.isascii() and lives_s.isdigit():
        lives_s = int(lives_s[:12])
    is_said = isinstance(lives_s, int | float) and not isinstance(lives_s, bool) and lives_s > 0
    return value, round(1000 * min(lives_s, MOST_LIFE_S)) if is_said else 1000 * DEFAULT_LIFE_S


# --- the ticket -------------------------------------------------------------------------------------------------------


def _ticket(
    profile: Profile, ticket: Ticket, stream_id: str, values: dict[Any, str]
) -> Generator[Ask, Any, str | None]:
    """Puts the ticket into `values`, and returns the address that it opens, "" for none.

    None if its server answered that the request is unauthorized.
    """
    answer: Answer | Closed = yield Ask(
        _ticket_request(profile, ticket, stream_id, values),
        with_body=ticket.opens is not None or any(not isinstance(where, str) for _, where in ticket.places),
    )
    who = f"the ticket server {ticket.host}"
    if isinstance(answer, Answer) and answer.status == UNAUTHORIZED:
        return None
    failed = _problem_of(who, "no_ticket", answer)
    if failed is not None:
        raise Unready(failed)
    assert isinstance(answer, Answer)
    body = answer.json
    for name, where in ticket.places:
        value = answer.headers.get(where) if isinstance(where, str) else text_at_path(body, where)
        if not value or not is_visible(value):
            at = f"in the header {where}" if isinstance(where, str) else f"at {where.text}"
            raise Unready(Closed("no_ticket", f"{who} answered with nothing {at} that can be sent"))
        values[placeholder_reference(name)] = value
    opens = "" if ticket.opens is None else text_at_path(body, ticket.opens) or ""
    if ticket.opens is not None and not is_visible(opens):
        raise Unready(Closed("no_ticket", f"{who} answered with no address at {ticket.opens.text}"))
    return opens


def _ticket_request(profile: Profile, ticket: Ticket, stream_id: str, values: Secrets) -> UpstreamRequest:
    known = placeholder_values(values)
    try:
        # The id is encoded here, so that no part of it is taken for a reference.
        address = fill_references(addresses.fill_address(ticket.address, stream_id, known), values, quote_value)
        own = own_headers(profile, ticket.headers, values)
    except ProfileError as error:
        raise Unready(Closed("rejected", str(error))) from None
    headers = _JSON | {name: text.encode() for name, text in own.items()}
    body = None
    if ticket.body is not None:
        body = compact_json(fill_json(json.loads(ticket.body), stream_id, values)).encode()
        headers.setdefault("content-type", b"application/json")
    held = tuple(values.values())
    trust = _trust(profile, ticket.host, values)
    return UpstreamRequest(ticket.method, address, headers, body, profile.allow_private, held, trust=trust)


def _trust(profile: Profile, host: str, secrets: Secrets) -> Trust | None:
    """Returns the upstream's trust if `host` is the upstream's; no other host is shown the certificate."""
    trust = profile.trust(secrets)
    return trust if trust is None or host == urlsplit(profile.address).hostname else trust.for_other_host()


def _problem_of(who: str, reason: str, answer: Answer | Closed) -> Closed | None:
    """Returns why the answer is unusable; None if it is usable."""
    if isinstance(answer, Closed):
        return Closed(answer.reason, f"{who}: {answer.detail}" if answer.detail else who)
    if 200 <= answer.status < 300:
        return None
    # An answer that blames the request is a refusal, which may pass; any other is the server's failure.
    is_refusal = 300 <= answer.status < 500 and answer.status not in _TEMPORARY
    return Closed("rejected" if is_refusal else reason, f"{who} answered {answer.status}")
