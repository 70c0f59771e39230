"""Implements JSONata's $replace, $substring, $split, Base64 and the functions that code URLs.

Source: the JSONata documentation, "String functions".
"""

import base64
import math
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from states_language.jsonata.engine import current_bounds
from states_language.jsonata.library import Functions, JException
from states_language.values import join_surrogates, to_utf16_units

_RESERVED = ";/?:@&=+$,#"
_UNRESERVED = "-_.!~*'()"
_CODED = re.compile(r"(?:%[0-9a-fA-F]{2})+")


def replace(text: Any, pattern: Any, new: Any, limit: Any = None) -> Any:
    """Return the text with each match replaced, at most `limit`; raises JException D3010, D3011 or D3012."""
    if pattern == "":
        raise JException("D3010", -1)
    if limit is not None and limit < 0:
        raise JException("D3011", -1, limit)
    most = -1 if limit is None else int(limit)
    if isinstance(pattern, str):
        if not isinstance(new, str):
            if pattern not in text or most == 0:
                return text
            raise JException("D3012", -1, new)
        current_bounds().check_bytes(text.count(pattern) * len(new))
        return text.replace(pattern, new, most)
    text = to_utf16_units(text)
    pieces, at, size = [], 0, len(text)
    for match in _limit_matches(pattern.finditer(text), most):
        piece = _replacement(match, new)
        size += len(piece)
        current_bounds().check_bytes(size)
        pieces += [text[at : match.start()], piece]
        at = match.end()
    return join_surrogates("".join([*pieces, text[at:]]))


def substring(text: Any, start: Any = None, length: Any = None) -> Any:
    """Return a part of the text; as in JavaScript, a fraction is cut off where it begins and where it ends."""
    if start is None:
        return text if length is None else ""
    start = start if len(text) + start >= 0 else 0
    if length is None:
        return text[int(start) :]
    end = (start if start >= 0 else len(text) + start) + length
    return text[int(start) : int(end)] if length > 0 else ""


def split(text: Any, separator: Any, limit: Any = None) -> Any:
    """Return the parts of the text; an empty separator gives JavaScript's parts, halves of surrogate pairs too."""
    if separator == "" and isinstance(text, str):
        text = to_utf16_units(text)
    # JavaScript's own split rounds the limit down; the loop over matches goes on until it is reached.
    most = limit if limit is None or isinstance(separator, str) or not math.isfinite(limit) else math.ceil(limit)
    return Functions.split(text, separator, most)


def _limit_matches(matches: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield at most so many matches; -1 means all of them."""
    for count, match in enumerate(matches):
        if count == most:
            return
        yield match


def _replacement(match: Any, new: Any) -> str:
    if isinstance(new, str):
        return _expand_replacement(new, match)
    argument = {"match": match.group(), "start": match.start(), "end": match.end(), "groups": list(match.groups())}
    value = Functions.func_apply(new, [argument])
    if not isinstance(value, str):
        raise JException("D3012", -1, value)
    return value


def _expand_replacement(new: str, match: Any) -> str:
    """Return the replacement with $0, $1 … filled in; $$ is a dollar, and so is a $ before any other character.

    A reference has at most as many digits as the number of groups. If there is no such group, its last digit is text:
    with ten groups $12 is group 1 and a 2.
    """
    groups = match.groups()
    most = max(1, len(str(len(groups))))
    place = re.compile(rf"\$(\$|[0-9]{{1,{most}}})?")

    def fill(mark: re.Match[str]) -> str:
        written = mark[1]
        if written is None or written == "$":
            return "$"
        if written[0] == "0":
            return str(match.group()) + written[1:]
        rest = ""
        if len(written) > 1 and int(written) > len(groups):
            written, rest = written[:-1], written[-1]
        return (groups[int(written) - 1] or "" if int(written) <= len(groups) else "") + rest

    return place.sub(fill, new)


def base64_encode(text: Any) -> Any:
    """Return the Base64 of the text; each UTF-16 unit gives its lower byte: JSONata's `binary`."""
    return base64.b64encode(bytes(ord(unit) & 0xFF for unit in to_utf16_units(text))).decode()


def base64_decode(text: Any) -> Any:
    """Return the text whose characters are the bytes of Base64, with or without its padding; raises ValueError."""
    padded = text + "=" * (-len(text) % 4) if "=" not in text else text
    return base64.b64decode(padded, validate=True).decode("latin-1")


def url_coder(name: str) -> Callable[[Any], Any]:
    """Return $encodeUrl, $encodeUrlComponent, $decodeUrl or $decodeUrlComponent; they raise JException D3140."""
    kept = "" if name.endswith("Component") else _RESERVED

    def coder(text: Any) -> Any:
        try:
            return _unquote(text, kept) if name.startswith("decode") else urllib.parse.quote(text, _UNRESERVED + kept)
        except UnicodeError:
            raise JException("D3140", -1, name, text) from None

    return coder


def _unquote(text: str, kept: str) -> str:
    if "%" in _CODED.sub("", text):
        raise UnicodeError
    return _CODED.sub(lambda run: _unquote_run(run[0], kept), text)


def _unquote_run(run: str, kept: str) -> str:
    text = bytes.fromhex(run.replace("%", "")).decode("utf-8")
    return "".join(urllib.parse.quote(sign, "") if sign in kept else sign for sign in text)
