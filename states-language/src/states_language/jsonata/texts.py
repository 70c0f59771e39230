"""Texts in JSONata: replaced by patterns, and coded for Base64 and URLs.

Decides what a match is, what $1 stands for in a replacement and which texts are refused. Source: the JSONata
documentation, "String functions".
"""

import base64
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from jsonata.functions import Functions
from jsonata.jexception import JException

from states_language.jsonata.evaluation import LARGEST_BYTES, TOO_LARGE, Exceeded

_RESERVED = ";/?:@&=+$,#"
_UNRESERVED = "-_.!~*'()"
_CODED = re.compile(r"(?:%[0-9a-fA-F]{2})+")


def replaced(text: Any, pattern: Any, new: Any, limit: Any = None) -> Any:
    """Return the text with each match replaced, at most `limit`; raises JException D3010, D3011 or D3012."""
    if text is None:
        return None
    if pattern == "":
        raise JException("D3010", -1)
    if limit is not None and limit < 0:
        raise JException("D3011", -1, limit)
    most = -1 if limit is None else int(limit)
    if isinstance(pattern, str):
        if not isinstance(new, str):
            raise JException("D3012", -1, new)
        if text.count(pattern) * len(new) > LARGEST_BYTES:
            raise Exceeded(TOO_LARGE)
        return text.replace(pattern, new, most)
    pieces, at, size = [], 0, len(text)
    for found in _first(pattern.finditer(text), most):
        piece = _replacement(found, new)
        size += len(piece)
        if size > LARGEST_BYTES:
            raise Exceeded(TOO_LARGE)
        pieces += [text[at : found.start()], piece]
        at = found.end()
    return "".join([*pieces, text[at:]])


def _first(found: Iterator[Any], most: int) -> Iterator[Any]:
    for count, each in enumerate(found):
        if count == most:
            return
        yield each


def _replacement(found: Any, new: Any) -> str:
    if isinstance(new, str):
        return _filled(new, found)
    match = {"match": found.group(), "start": found.start(), "end": found.end(), "groups": list(found.groups())}
    value = Functions.func_apply(new, [match])
    if not isinstance(value, str):
        raise JException("D3012", -1, value)
    return value


def _filled(new: str, found: Any) -> str:
    """Return the replacement with $0, $1 … filled in; $$ is a dollar, and so is one before anything else.

    As many digits count as the number of groups has; a longer number than there are groups counts without its last one.
    """
    groups = found.groups()
    most = max(1, len(str(len(groups))))
    place = re.compile(rf"\$(\$|[0-9]{{1,{most}}})?")

    def fill(mark: re.Match[str]) -> str:
        written = mark[1]
        if written is None or written == "$":
            return "$"
        if written[0] == "0":
            return str(found.group()) + written[1:]
        rest = ""
        if len(written) > 1 and int(written) > len(groups):
            written, rest = written[:-1], written[-1]
        return (groups[int(written) - 1] or "" if int(written) <= len(groups) else "") + rest

    return place.sub(fill, new)


def decoded(text: Any) -> Any:
    """Return the text that Base64 holds, with or without its padding; raises ValueError for what is no Base64."""
    if text is None:
        return None
    padded = text + "=" * (-len(text) % 4) if "=" not in text else text
    return base64.b64decode(padded, validate=True).decode("utf-8", "replace")


def url_coder(name: str) -> Callable[[Any], Any]:
    """Return $encodeUrl, $encodeUrlComponent, $decodeUrl or $decodeUrlComponent; they raise JException D3140."""
    kept = "" if name.endswith("Component") else _RESERVED

    def coder(text: Any) -> Any:
        if text is None:
            return None
        try:
            return _unquoted(text, kept) if name.startswith("decode") else urllib.parse.quote(text, _UNRESERVED + kept)
        except UnicodeError:
            raise JException("D3140", -1, name, text) from None

    return coder


def _unquoted(text: str, kept: str) -> str:
    if "%" in _CODED.sub("", text):
        raise UnicodeError
    return _CODED.sub(lambda run: _unquoted_run(run[0], kept), text)


def _unquoted_run(run: str, kept: str) -> str:
    found = bytes.fromhex(run.replace("%", "")).decode("utf-8")
    return "".join(urllib.parse.quote(sign, "") if sign in kept else sign for sign in found)
