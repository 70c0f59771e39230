"""Says which group a POST of a stream would join: what the machine that answers it would find in the control table.

It changes nothing. Invariant: of groups with a free place it names the one that the machine fills next, the oldest.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.errors import StoreUnavailable
from handlers.group import GROUP, is_group
from handlers.store.control_table import ControlTable
from handlers.store.group_store import OPEN, group_lease
from handlers.store.typed_values import text


def most_places(definitions: Iterable[str]) -> int:
    """Returns how many streams a group may have, as the definition of the machine says that takes a place; else 1."""
    for definition in definitions:
        take = json.loads(definition).get("States", {}).get("Take place", {})
        most = take.get("Arguments", {}).get("ExpressionAttributeValues", {}).get(":most", {}).get("N", "")
        if number := re.search(r"\d+", most):
            return int(number[0])
    return 1


class GroupPlaces:
    """Those of a control table; a group has `most` at most."""

    def __init__(self, dynamodb: Callable[[], Any], control_table: str, most: Callable[[], int]) -> None:
        self._dynamodb = dynamodb
        self._control_table = control_table
        self._most = most

    def joins(self, stream_id: str) -> str:
        """Returns the group that the stream is in, or would join; "" where that is a new one, none, or not known."""
        most = self._most()
        if most == 1 or is_group(stream_id):
            return ""
        try:
            table = ControlTable(self._dynamodb(), self._control_table)
            own = text(table.get(stream_id, "lease") or {}, "group")
            if own is not None:
                return own
            names = [name.removeprefix(OPEN) for name in table.get(GROUP, "groups") or {} if name.startswith(OPEN)]
            groups = sorted((name for name in names if name[1:].isdecimal()), key=lambda name: int(name[1:]))
            return next((one for one in groups if group_lease(table.get(one, "lease")).size < most), "")
        except (BotoCoreError, ClientError, StoreUnavailable):
            return ""
