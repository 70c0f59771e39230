"""The fields `token`, `ticket` and `tls` in a profile, the places that they fill, and the trust that they give."""

from typing import Any

from handlers.profile.secret_references import Reference, placeholder_reference, references
from handlers.profile.tls_field import Trust
from handlers.profile.upstream_requests import request_of
from tests.handlers.profile.profiles import EKS, TICKET, TOKEN, profile, refusal

REFRESH: dict[str, Any] = {
    "kind": "refresh_token",
    "address": "https://auth.example/token",
    "refresh_token": "${secret:refresh}",
}
PLACE = '{ path = "$.key" } or { header = "Mcp-Session-Id" }'


def test_each_mistake_of_a_token_has_one_sentence() -> None:
    """The sentence names the field and a valid value; a secret in plain text is refused without being repeated."""
    must_refer = "must refer to a secret, as ${secret:name}: a profile never contains it in plain text"
    table: list[tuple[Any, str]] = [
        ("x", "token must be { kind ="),
        (TOKEN | {"kind": "password"}, "token.kind must be one of client_credentials, refresh_token"),
        (TOKEN | {"address": "http://auth.example/token"}, "token.address must begin with https:// (or, with allow_pr"),
        (TOKEN | {"address": "https://auth.example/{name}"}, "token.address must not contain a placeholder"),
        (TOKEN | {"address": "https://a:b@auth.example/"}, "token.address must not contain a user or a password"),
        (TOKEN | {"address": "https://auth.example/?k=${secret:k}"}, "token.address must not contain a secret"),
        (TOKEN | {"secret": "hunter2"}, f"token.secret {must_refer}"),
        ({**REFRESH, "refresh_token": "r"}, f"token.refresh_token {must_refer}"),
        (TOKEN | {"id": 5}, "token.id must be a text"),
        (TOKEN | {"id": ""}, 'token.id is missing: kind = "client_credentials" needs it'),
        ({**TOKEN, "secret": ""}, 'token.secret is missing: kind = "client_credentials" needs it'),
        ({**REFRESH, "refresh_token": ""}, 'token.refresh_token is missing: kind = "refresh_token" needs it'),
        (TOKEN | {"refresh_token": "${secret:r}"},
         'token.refresh_token must be left out unless kind = "refresh_token"'),
        (REFRESH | {"secret": "${secret:k}"}, "token.secret needs id: the name of the client whose secret"),
        (TOKEN | {"header": "Host"}, "token.header must be the name of an HTTP header that a profile may set"),
        (TOKEN | {"pattern": "Bearer"},
         "token.pattern must be a text of visible ASCII characters that contains {token}"),
        (TOKEN | {"scopes": "a"}, "token.scopes is not a field of token: kind, address, id, secret, refresh_token"),
        (TOKEN | {"auth": "none"}, "token.auth must be one of basic, body"),
        (TOKEN | {"cluster": "prod"}, 'token.cluster must be left out with kind = "client_credentials"'),
        (EKS | {"address": "https://auth.example/token"}, 'token.address must be left out with kind = "eks"'),
        (EKS | {"region": "eusc-de-east-1", "scope": "a"}, 'token.scope must be left out with kind = "eks"'),
        (EKS | {"cluster": "a/b"}, 'token.cluster must be the name of the cluster, which kind = "eks" needs'),
        ({"kind": "eks", "cluster": "prod"}, "token.region must be its region, such as eu-central-1, which kind ="),
        (EKS | {"region": "eu-central-1.evil.example/"}, "token.region must be its region, such as eu-central-1"),
    ]  # fmt: skip
    assert [spelled for spelled, sentence in table if sentence not in refusal(token=spelled)] == []
    assert "hunter2" not in refusal(token=TOKEN | {"secret": "hunter2"})


def test_each_mistake_of_a_ticket_has_one_sentence() -> None:
    """Each mistake in `ticket` has one sentence, as does a placeholder that no token or ticket fills."""
    table: list[tuple[dict[str, Any], str]] = [
        ({"ticket": "x"}, 'ticket must be { address = "https://…", path = "$.key" }'),
        ({"ticket": {"path": "$.key"}}, "ticket.address is missing"),
        ({"ticket": TICKET | {"address": "wss://api.example"}}, "ticket.address must begin with http"),
        ({"ticket": {"address": "https://api.example"}}, "ticket must name the part of the answer to take"),
        ({"ticket": TICKET | {"header": "X-Key"}}, "ticket.header and path exclude each other: keep the one"),
        ({"ticket": TICKET | {"path": "key"}}, "ticket.path must be a JSON path"),
        ({"ticket": TICKET | {"places": {"a b": {"path": "$.x"}}}}, "ticket.places.a b must have a name of letters, d"),
        ({"ticket": TICKET | {"places": {"a": {}}}}, f"ticket.places.a must be {PLACE}"),
        ({"ticket": TICKET | {"places": {"a": {"path": "$.x", "of": 1}}}}, "ticket.places.a.of is not a field of a pl"),
        ({"ticket": TICKET | {"opens": "url"}}, "ticket.opens must be a JSON path"),
        (
            {
                "ticket": {"address": "https://api.example", "opens": "$.url"},
                "resume": {"query": "since"},
                "key": "$.n",
                "cursor": "$.n",
            },
            "resume.query cannot be combined with ticket.opens, which gives the address",
        ),
        ({"ticket": TICKET | {"body": "x"}}, "ticket.body must be the text of a JSON object or array"),
        ({"ticket": TICKET | {"body": "{}", "method": "GET"}}, 'ticket.body needs method = "POST"'),
        ({"ticket": TICKET | {"body": '{"api_key":"k"}'}}, "ticket.body contains 'api_key' in plain text"),
        ({"ticket": TICKET | {"headers": {"X-Api-Key": "k"}}}, "ticket.headers.X-Api-Key contains 'X-Api-Key' in"),
        ({"ticket": TICKET | {"body": '{"a":"{ticket}"}'}},
         "ticket contains {ticket}, but the profile has no token or t"),
        ({"address": "https://example.org/{ticket}"}, "address contains {ticket}, but the profile has no token or tic"),
        ({"headers": {"X": "{ticket.id}"}, "ticket": TICKET}, "headers.X contains {ticket.id}, but the profile has no"),
        ({"headers": {"X": "{token}"}}, "headers.X contains {token}, but the profile has no token or ticket that"),
        ({"address": "https://{ticket}/", "ticket": TICKET}, "address may contain only these placeholders"),
    ]  # fmt: skip
    assert [fields for fields, sentence in table if sentence not in refusal(**fields)] == []


def test_a_profile_needs_the_secrets_of_its_token_and_its_ticket() -> None:
    """The secrets of a token and a ticket are read with the profile's others, before any request."""
    parsed = profile(token=TOKEN, ticket=TICKET | {"headers": {"X-Api-Key": "${ssm:api}"}})
    assert parsed.secrets == sorted(references("${secret:id}${secret:key}${ssm:api}"))


def test_places_are_filled_once_in_address_header_and_body() -> None:
    """A token or ticket is encoded in an address and unchanged in a header; placeholders in its value stay."""
    parsed = profile(
        address="https://example.org/{ticket.id}?k={ticket}&n={name}",
        method="POST",
        body='{"t":"{token}","k":"{ticket}","n":"{name}"}',
        headers={"X-Session": "s-{ticket.id}"},
        token=TOKEN | {"header": "X-Token", "pattern": "t={token}"},
        ticket=TICKET | {"places": {"id": {"header": "X-Id"}}},
    )
    secrets: dict[Reference, str] = dict.fromkeys(parsed.secrets, "s")
    secrets |= {
        placeholder_reference("token"): "T/{ticket}",
        placeholder_reference("ticket"): "a b{name}",
        placeholder_reference("ticket.id"): "../7",
    }
    request = request_of(parsed, "demo:x", None, secrets)
    assert request.address == "https://example.org/..%2F7?k=a%20b%7Bname%7D&n=x"
    assert (request.headers["x-session"], request.headers["x-token"]) == (b"s-../7", b"t=T/{ticket}")
    assert request.body == b'{"t":"T/{ticket}","k":"a b{name}","n":"x"}'
    assert {"T/{ticket}", "a b{name}", "../7"} <= set(request.secrets)
    # Without a token or ticket the places are empty, so that a profile can be tried out before its first opening.
    assert request_of(parsed, "demo:x", None, dict.fromkeys(parsed.secrets, "s")).address.endswith("/?k=&n=x")


CA, CRT, KEY = "${secret:ca}", "${secret:crt}", "${secret:key}"
PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def test_each_mistake_has_one_sentence() -> None:
    """Each mistake has one sentence; a key in plain text is refused without being repeated."""
    in_pem = "must be a text in PEM (-----BEGIN …), or refer to a secret, ${secret:name}"
    table: list[tuple[Any, str]] = [
        ("ca", "tls must be { ca ="),
        ({}, "tls must have ca, or certificate and key"),
        ({"ca": 1}, "tls.ca must be a text"),
        ({"ca": "ca.pem"}, f"tls.ca {in_pem}"),
        ({"ca": "${secret:a:b:c}"}, "tls.ca contains ${...} that is not a reference to a secret"),
        ({"certificate": CRT}, "tls.key is missing: certificate and key are needed together"),
        ({"key": KEY}, "tls.certificate is missing: certificate and key are needed together"),
        ({"certificate": PEM, "key": "-----BEGIN KEY-----"}, "tls.key must refer to a secret, as ${secret:name}"),
        ({"ca": CA, "cert": CRT}, "tls.cert is not a field of tls: ca, certificate, key"),
    ]
    assert [spelled for spelled, sentence in table if sentence not in refusal(tls=spelled)] == []


def test_the_secrets_of_tls_are_read_and_never_shown() -> None:
    """The request has the secrets of `tls`, but no text of the request or the profile shows them."""
    parsed = profile(tls={"ca": CA, "certificate": CRT, "key": KEY})
    values = {Reference("secret", name): f"PEM of {name}" for name in ("ca", "crt", "key")}
    assert parsed.secrets == sorted(values)
    request = request_of(parsed, "demo:x", None, values)
    assert request.trust == Trust("PEM of ca", "PEM of crt", "PEM of key")
    assert "PEM" not in repr(request) + repr(request.trust)
    assert request.trust is not None
    assert request.trust.for_other_host() == Trust("PEM of ca", beside_public=True)
