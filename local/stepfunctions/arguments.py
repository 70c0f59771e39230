"""What the actions share: ARNs, names and pages.

Decides which ARN names what, and how a list is continued. Invariant: a page goes on after the last element that was
shown, whatever was added or has gone since.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from local.stepfunctions.requests import Refusal, is_name

Parameters = dict[str, Any]
Answer = dict[str, Any]
Action = Callable[[Parameters], Answer | Awaitable[Answer]]
T = TypeVar("T")

PREFIX = "arn:aws:states:us-east-1:000000000000"
_ARN = re.compile(r"arn:aws[a-z-]*:states:[a-z0-9-]*:\d{12}:([A-Za-z]+):(.+)")
_USUAL = 100


def arn(parameters: Parameters, name: str, *kinds: str) -> str:
    """Returns the ARN in this member; raises Refusal InvalidArn unless it names one of these kinds of resource."""
    value = str(parameters.get(name, ""))
    found = _ARN.fullmatch(value)
    if found is None:
        raise Refusal("InvalidArn", f"Invalid Arn: '{value}'")
    if found[1] not in kinds:
        raise Refusal("InvalidArn", f"Invalid Arn: 'Resource type not valid in this context: {found[1]}'")
    return value


def checked_name(name: str) -> str:
    """Returns the name of a machine or an execution; raises Refusal InvalidName."""
    if not is_name(name):
        raise Refusal("InvalidName", f"Invalid Name: '{name}'")
    return name


def page(
    parameters: Parameters, name: str, found: Iterable[T], place: Callable[[T], int | str], *, descending: bool = False
) -> tuple[list[T], Answer]:
    """Returns the elements of one page and what the answer says beside them.

    `place` orders the elements, as they already stand; maxResults is 0 (the usual 100) to 1000.
    """
    elements = list(found)
    if token := parameters.get("nextToken"):
        after = _after(name, token)
        elements = [one for one in elements if (place(one) < after if descending else place(one) > after)]
    most = parameters.get("maxResults") or _USUAL
    shown = elements[:most]
    if len(shown) == len(elements):
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
