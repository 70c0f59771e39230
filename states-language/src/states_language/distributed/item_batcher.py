"""ItemBatcher: groups items of a distributed Map, so that one execution has several.

A batch ends before the item that would be one too many, or too large. Invariant: no item is lost, split or moved.
"""

from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.history import PAYLOAD_LIMIT_BYTES, utf8_bytes
from states_language.jsonata.dataflow import Template, states_of
from states_language.jsonpath.templates import compile_template
from states_language.states.amounts import Amount
from states_language.values import compact


class Batcher:
    """The field of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.inside(state.get("ItemBatcher"), state.at("ItemBatcher"))
        self._most = Amount(fields, "MaxItemsPerBatch", 1)
        self._bytes = Amount(fields, "MaxInputBytesPerBatch", 1, PAYLOAD_LIMIT_BYTES)
        if not self._most.present and not self._bytes.present:
            raise DefinitionError(fields.pointer, "MaxItemsPerBatch or MaxInputBytesPerBatch is required")
        self._has_input = "BatchInput" in fields
        self._query = self._fill = None
        if self._has_input and fields.queries:
            self._query = Template(fields.get("BatchInput"), fields.at("BatchInput"), "ItemBatcher/BatchInput")
        elif self._has_input:
            self._fill = compile_template(fields.get("BatchInput"), fields.at("BatchInput"))
        fields.close("ItemBatcher")

    def batches(self, items: list[Any], raw: Any, narrowed: Any, branch: Branch) -> list[tuple[Any, int]]:
        """Return each batch's input and its number of items; an item over the bound of a batch is one alone."""
        most = self._most.bounded(raw, narrowed, branch, whole=True) or len(items)
        largest = self._bytes.bounded(raw, narrowed, branch, whole=True) or PAYLOAD_LIMIT_BYTES
        common: dict[str, Any] = {}
        if self._query is not None:
            common["BatchInput"] = self._query.fill(states_of(raw), branch)
        elif self._fill is not None:
            common["BatchInput"] = self._fill(narrowed, branch)
        empty = utf8_bytes(compact({**common, "Items": []}))
        groups: list[list[Any]] = []
        size = 0
        for item in items:
            own = utf8_bytes(compact(item)) + 1
            if not groups or len(groups[-1]) >= most or size + own > largest:
                groups.append([])
                size = empty
            groups[-1].append(item)
            size += own
        return [({**common, "Items": group}, len(group)) for group in groups]
