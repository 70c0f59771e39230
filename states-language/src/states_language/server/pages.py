"""Cuts a list into pages, and continues it after the page that a token names.

Invariant: a page continues after the last element that was shown, whatever was added or removed since.
"""

import base64
import bisect
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from states_language.server.parameters import Answer, Parameters, Refusal

T = TypeVar("T")

_DEFAULT_SIZE = 100


def page(
    parameters: Parameters, name: str, elements: Sequence[T], place: Callable[[T], int | str], *,
    descending: bool = False,
) -> tuple[list[T], Answer]:  # fmt: skip
    """Returns the elements of one page and the rest of the answer: `nextToken` unless it is the last page.

    `name` says what is listed, and by which filter: a token of another list is refused.

    `place` returns what the elements are sorted by, upwards; `descending` shows the last first. Only the page's
    elements are looked at, and a few to find them. maxResults is 0 (the usual 100) to 1000.
    """
    size = parameters.get("maxResults") or _DEFAULT_SIZE
    token = parameters.get("nextToken")
    after = _after(name, token, elements, place) if token else None
    if descending:
        end = len(elements) if after is None else bisect.bisect_left(elements, after, key=place)
        begin = max(0, end - size)
        is_last = begin == 0
    else:
        begin = 0 if after is None else bisect.bisect_right(elements, after, key=place)
        end = begin + size
        is_last = end >= len(elements)
    shown = list(elements[begin:end])
    if descending:
        shown.reverse()
    if is_last:
        return shown, {}
    text = json.dumps([name, place(shown[-1])])
    return shown, {"nextToken": base64.b64encode(text.encode()).decode()}


def _after(name: str, token: str, elements: Sequence[T], place: Callable[[T], int | str]) -> Any:
    try:
        of, after = json.loads(base64.b64decode(token, validate=True))
    except (ValueError, TypeError):
        of, after = None, None
    if not isinstance(of, str) or (elements and type(after) is not type(place(elements[0]))):
        raise Refusal("InvalidToken", f"Invalid Token: '{token}'")
    if of != name:
        raise Refusal("InvalidToken", "Invalid Token: 'Input inconsistent with page token'")
    return after
