"""The field `tls` in a profile, and the trust that it gives."""

from typing import Any

from handlers.profile.secret_references import Reference
from handlers.profile.tls_field import Trust
from handlers.profile.upstream_requests import request_of
from tests.handlers.profile.profiles import profile, refusal

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
