"""Makes the one TLS context of a process; it trusts the same authorities for AWS and for every upstream.

The settings are Python's defaults: certificates are verified, names are checked, TLS 1.2 is the oldest version.
Invariant: the context is made once. To read the certificates of all authorities takes 17 ms of a whole processor, and a
function of 128 MB has a fourteenth of one: a quarter of a second at each new connection.
"""

import ssl
from functools import cache


@cache
def tls() -> ssl.SSLContext:
    """The context; nobody may change it."""
    return ssl.create_default_context()
