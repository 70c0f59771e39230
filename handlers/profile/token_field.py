"""Parses the profile's field `token`: where a token of OAuth 2 (RFC 6749) or EKS comes from, and how it is sent.

    token = { kind = "client_credentials", address = "https://auth.example/token", id = "…", secret = "${secret:key}" }
    token = { kind = "eks", cluster = "prod", region = "eu-central-1" }

Invariant: a `Token` that is returned without a note in `Fields` is valid, and its secrets are references.
"""

import re
from collections.abc import Callable
from typing import Literal, cast, get_args
from urllib.parse import urlsplit

from handlers.profile import sections
from handlers.profile.addresses import ProfileError
from handlers.profile.checked_fields import FIELD_VALUE, TEXT, Fields, choice, is_header
from handlers.profile.secret_references import references
from handlers.values import dataclass

Kind = Literal["client_credentials", "refresh_token", "eks"]
Sent = Literal["basic", "body"]
PLACE = "{token}"
_FIELDS = "token: kind, address, id, secret, refresh_token, scope, audience, auth, header, pattern, cluster, region"
_OF_OAUTH = ("address", "id", "secret", "refresh_token", "scope", "audience", "auth")
# Each of EKS's two fields, as what it must be and how that is said.
_OF_EKS = {
    "cluster": (re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}"), "the name of the cluster"),
    "region": (re.compile(r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]"), "its region, such as eu-central-1"),
}


@dataclass(frozen=True, slots=True)
class Token:
    """How a token is requested and sent; texts have secrets as references.

    `auth` is how the client authenticates: by HTTP Basic, as RFC 6749 prefers, or by fields of the body. `pattern`
    surrounds the token in `header`. One of EKS is signed here for the `cluster` and requested nowhere: it has no
    address.
    """

    kind: Kind
    address: str
    id: str
    secret: str
    refresh_token: str
    scope: str
    audience: str
    auth: Sent
    header: str
    pattern: str
    cluster: str
    region: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that may have references to secrets."""
        return self.id, self.secret, self.refresh_token

    @property
    def host(self) -> str:
        """The server's name in messages."""
        return urlsplit(self.address).hostname or ""


def token(fields: Fields, check: Callable[[str], str], *, allow_private: bool) -> Token | None:
    """Returns the token; None if the profile has none. `check` also checks the profile's own address."""
    inner = fields.table("token", '{ kind = "client_credentials", address = "https://…", id = "…", secret = "…" }')
    if inner is None:
        return None
    kind = cast(Kind, inner.read("kind", choice(get_args(Kind))))
    for name in _OF_OAUTH if kind == "eks" else _OF_EKS:
        if inner.has(name):
            inner.add_problem(name, f'must be left out with kind = "{kind}"')
    has_address = kind != "eks" or inner.has("address")
    parsed = Token(
        kind=kind,
        address=inner.read_checked("address", lambda text: plain_address(text, check, allow_private=allow_private))
        if has_address
        else "",
        id=_text(inner, "id"),
        secret=_secret(inner, "secret"),
        refresh_token=_secret(inner, "refresh_token"),
        scope=inner.read("scope", TEXT, ""),
        audience=inner.read("audience", TEXT, ""),
        auth=inner.read("auth", choice(get_args(Sent)), "basic"),
        header=inner.read("header", TEXT, "Authorization"),
        pattern=inner.read("pattern", TEXT, "Bearer {token}"),
        cluster=inner.read("cluster", TEXT, ""),
        region=inner.read("region", TEXT, ""),
    )
    inner.refuse_unknown(_FIELDS)
    _check(inner, parsed)
    return parsed


def _check(inner: Fields, parsed: Token) -> None:
    if parsed.kind == "client_credentials":
        for name in ("id", "secret"):
            if not getattr(parsed, name):
                inner.add_problem(name, 'is missing: kind = "client_credentials" needs it')
        if parsed.refresh_token:
            inner.add_problem("refresh_token", 'must be left out unless kind = "refresh_token"')
    elif parsed.kind == "eks":
        for name, (form, meaning) in _OF_EKS.items():
            if not form.fullmatch(getattr(parsed, name)):
                inner.add_problem(name, f'must be {meaning}, which kind = "eks" needs')
    else:
        if not parsed.refresh_token:
            inner.add_problem("refresh_token", 'is missing: kind = "refresh_token" needs it, as ${secret:name}')
        if parsed.secret and not parsed.id:
            inner.add_problem("secret", "needs id: the name of the client whose secret it is")
    if not is_header(parsed.header):
        inner.add_problem("header", "must be the name of an HTTP header that a profile may set")
    if PLACE not in parsed.pattern or not FIELD_VALUE.fullmatch(parsed.pattern):
        inner.add_problem("pattern", "must be a text of visible ASCII characters that contains {token}")


def plain_address(text: str, check: Callable[[str], str], *, allow_private: bool) -> str:
    """Returns the address of a request before the opening; it has no placeholders. Raises ProfileError."""
    if "{" in text.replace("${", ""):
        raise ProfileError("must not contain a placeholder")
    address = check(text)
    if references(address):
        raise ProfileError("must not contain a secret")
    allowed = ("http", "https") if allow_private else ("https",)
    if urlsplit(address).scheme not in allowed:
        raise ProfileError("must begin with https:// (or, with allow_private = true, http://)")
    return address


def _text(inner: Fields, field: str) -> str:
    text: str = inner.read(field, TEXT, "")
    sections.check_references(inner, field, text)
    return text


def _secret(inner: Fields, field: str) -> str:
    text = _text(inner, field)
    sections.check_hidden(inner, field, text)
    return text
