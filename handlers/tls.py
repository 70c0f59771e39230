"""Makes the TLS contexts of a process: one for the public authorities, and one for each profile with its own trust.

The settings are the defaults of Python 3.13, which runs in Lambda, on every Python: an older one checks less, so an
upstream that works on a laptop could be refused where it is deployed. A context is made once, because reading the
certificates of all authorities takes a function of 128 MB a quarter of a second.

A profile's own authority need not follow RFC 5280 strictly (VERIFY_X509_STRICT): the authorities of Kubernetes clusters
lack key identifiers, and the profile trusts them by name.
"""

import ssl
import tempfile
from functools import cache, lru_cache

from handlers.profile.addresses import ProfileError
from handlers.profile.tls_field import Trust

# The number of profiles whose contexts a process keeps.
_CONTEXTS = 16


@cache
def tls() -> ssl.SSLContext:
    """Returns the context; no caller may change it."""
    made = ssl.create_default_context()
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return made


@lru_cache(_CONTEXTS)
def own_tls(trust: Trust) -> ssl.SSLContext:
    """Returns the context of a profile; no caller may change it. Raises ProfileError for a text that is not PEM."""
    try:
        made = ssl.create_default_context(cadata=None if trust.beside_public else trust.ca or None)
        if trust.beside_public:
            made.load_verify_locations(cadata=trust.ca)
    except (ssl.SSLError, ValueError, TypeError):
        raise ProfileError("tls.ca must hold readable certificates in PEM") from None
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trust.ca:
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    else:
        made.verify_flags |= ssl.VERIFY_X509_STRICT
    if trust.certificate:
        _load_certificate(made, trust)
    return made


def check_trust(trust: Trust | None) -> None:
    """Raises ProfileError if a certificate or the key cannot be read."""
    if trust is not None:
        own_tls(trust)


def _load_certificate(context: ssl.SSLContext, trust: Trust) -> None:
    # OpenSSL reads a certificate and its key only from a file. Only this user may read the file, which is then deleted.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
        file.write(f"{trust.certificate.rstrip()}\n{trust.key.rstrip()}\n")
        file.flush()
        try:
            # Without this password OpenSSL would prompt for the password of an encrypted key.
            context.load_cert_chain(file.name, password="")
        except (ssl.SSLError, ValueError, OSError):
            raise ProfileError(
                "tls.certificate and tls.key must be a pair in PEM, and the key without a password"
            ) from None
