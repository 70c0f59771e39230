"""Says what may stand in a header of a request: HTTP's syntax, without what the client itself must write.

Invariant: a name and a value that pass here cannot begin another header or another request.
"""

import re

# RFC 9110, section 5.6.2 and 5.5: a field's name is a token; its value visible characters, spaces and tabs.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
# These are the client's own to write: a second one, or another length, would begin another request.
_RESERVED = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})


def is_header(name: str) -> bool:
    """Whether this is the name of a header that a profile may set."""
    return _TOKEN.fullmatch(name) is not None and name.lower() not in _RESERVED
