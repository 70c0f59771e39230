"""Makes the one TLS context of a process; it trusts the same authorities for AWS and for every upstream.

The settings are the defaults of Python 3.13, which runs in Lambda, on every Python: certificates are verified, names
are checked, TLS 1.2 is the oldest version, and a certificate keeps the rules of RFC 5280. An older Python lets that
last one go, so an upstream that works on a laptop could be refused where it is deployed.
Invariant: the context is made once. To read the certificates of all authorities takes 17 ms of a whole processor, and a
function of 128 MB has a fourteenth of one: a quarter of a second at each new connection.
"""

import ssl
from functools import cache


@cache
def tls() -> ssl.SSLContext:
    """The context; nobody may change it."""
    made = ssl.create_default_context()
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return made
