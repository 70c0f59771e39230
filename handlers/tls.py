"""Makes the context of all TLS that a process speaks: whom it trusts is the same for AWS and for every upstream.

Decides nothing beyond Python's own defaults: certificates are verified, names are checked, TLS 1.2 is the least.
Invariant: it is made once. To read the certificates of all authorities takes 17 ms of a whole processor, and a function
of 128 MB has a fourteenth of one: a quarter of a second at each new connection.
"""

import ssl
from functools import cache


@cache
def tls() -> ssl.SSLContext:
    """The context; nobody may change it."""
    return ssl.create_default_context()
