"""Cuts a list into pages, and continues it after the page that a token names.

Invariant: a page continues after the last element that was shown, whatever was added or removed since.
"""

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from local.stepfunctions.parameters import Answer, Parameters, Refusal

T = TypeVar("T")

_DEFAULT_SIZE = 100


def page(
    parameters: Parameters, name: str, elements: Iterable[T], place: Callable[[T], int | str], *,
    descending: bool = False,
) -> tuple[list[T], Answer]:  # fmt: skip
    """Returns the elements of one page and the rest of the answer: `nextToken` unless it is the last page.

    `place` returns what the elements are already sorted by; maxResults is 0 (the usual 100) to 1000.
    """
    left = list(elements)
    if token := parameters.get("nextToken"):
        after = _after(name, token)
        left = [one for one in left if (place(one) < after if descending else place(one) > after)]
    shown = left[: parameters.get("maxResults") or _DEFAULT_SIZE]
    if len(shown) == len(left):
        return shown, {}
    text = json.dumps([name, place(shown[-1])])
    return shown, {"nextToken": base64.b64encode(text.encode()).decode()}


def _after(name: str, token: str) -> Any:
    try:
        of, after = json.loads(base64.b64decode(token, validate=True))
    except (ValueError, TypeError):
        of, after = None, None
    if of != name:
        raise Refusal("InvalidToken", f"Invalid Token: '{token}'")
    return after
