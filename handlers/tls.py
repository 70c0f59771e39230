"""Makes the one TLS context of a process; it trusts the same authorities for AWS and for every upstream.

The settings are the defaults of Python 3.13, which runs in Lambda, on every Python: an older one checks less, so an
upstream that works on a laptop could be refused where it is deployed. The context is made once: to read the
certificates of all authorities takes a function of 128 MB a quarter of a second.
"""

import ssl
from functools import cache


@cache
def tls() -> ssl.SSLContext:
    """The context; nobody may change it."""
    made = ssl.create_default_context()
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return made
