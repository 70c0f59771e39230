"""Answers 304 where the client has the answer already: entity tags and If-None-Match, RFC 9110.

Invariant: a tag is made of the answer's own text, so two answers with one tag are the same to the byte.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

# Section 8.8.3: an opaque tag in quotes, which a weak one has W/ before.
_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
# Section 15.4.5: what a 304 has of the headers that the 200 would have had.
_KEPT = ("Cache-Control", "ETag", "Vary", "Link")


def conditional(answer: Mapping[str, Any], if_none_match: str) -> dict[str, Any]:
    """The answer to a GET with its tag; a 304 without a body where `if_none_match` has that tag."""
    if answer["statusCode"] != 200:
        return dict(answer)
    tag = _tag(answer["body"])
    headers = {**answer["headers"], "ETag": tag}
    # Section 13.1.2: the comparison is weak; * stands for any answer that there is.
    if if_none_match.strip() != "*" and tag not in _TAG.findall(if_none_match):
        return {**answer, "headers": headers}
    return {"statusCode": 304, "headers": {name: headers[name] for name in _KEPT if name in headers}, "body": ""}


def _tag(body: str) -> str:
    digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).digest()[:18]
    return f'"{base64.urlsafe_b64encode(digest).decode()}"'
