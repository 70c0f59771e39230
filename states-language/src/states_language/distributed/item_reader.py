"""Reads the items of a distributed Map from S3 (ItemReader), and groups items (ItemBatcher).

Invariants: any problem of the object is States.ItemReaderFailed, which can be caught; no item is lost, split or moved
to another batch. Calls of S3 add no events to the history.
"""

import csv
import io
import json
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.failures import StateError, TaskFailure
from states_language.history import PAYLOAD_LIMIT_BYTES, utf8_bytes
from states_language.states.amounts import Amount, filled
from states_language.tasks.calls import TaskCall, Whole
from states_language.timestamps import instant_ms
from states_language.values import compact, parse_json

FAILED = "States.ItemReaderFailed"
OBJECT = "arn:aws:states:::s3:getObject"
LIST = "arn:aws:states:::s3:listObjectsV2"
INPUT_TYPES = ("JSON", "JSONL", "CSV")
DELIMITERS = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "SPACE": " ", "TAB": "\t"}
HEADERS = ("FIRST_ROW", "GIVEN")


class Reader:
    """The field of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.inside(state.get("ItemReader"), state.at("ItemReader"))
        fields.require("Resource")
        self.resource = fields.string("Resource")
        if self.resource not in (OBJECT, LIST):
            raise fields.fail("Resource", f"must be {OBJECT} or {LIST}")
        name = "Arguments" if fields.queries else "Parameters"
        self._filled = filled(fields, name, f"ItemReader/{name}")
        config = fields.inside(fields.get("ReaderConfig", {}), fields.at("ReaderConfig"))
        self._most = Amount(config, "MaxItems", 0, 2**53)
        self.kind = config.string("InputType")
        if self.resource == OBJECT and self.kind not in INPUT_TYPES:
            raise config.fail("InputType", f"must be one of {', '.join(INPUT_TYPES)}; others are not supported")
        self._csv(config)
        config.close("ReaderConfig")
        fields.close("ItemReader")

    def _csv(self, config: Fields) -> None:
        self.header = config.string("CSVHeaderLocation")
        self.names = config.array("CSVHeaders")
        self.delimiter = DELIMITERS.get(config.string("CSVDelimiter") or "COMMA", "")
        if not self.delimiter:
            raise config.fail("CSVDelimiter", f"must be one of {', '.join(DELIMITERS)}")
        if self.kind == "CSV" and self.header not in HEADERS:
            raise config.fail("CSVHeaderLocation", f"must be one of {', '.join(HEADERS)}")
        if not all(isinstance(name, str) for name in self.names):
            raise config.fail("CSVHeaders", "must be an array of strings")
        if self.header == "GIVEN" and not self.names:
            raise DefinitionError(config.at("CSVHeaders"), "is required where CSVHeaderLocation is GIVEN")

    def most(self, raw: Any, narrowed: Any, branch: Branch) -> int | None:
        """Return MaxItems, None where it is absent; raises EvaluationError for anything but an integer."""
        number = self._most.bounded(raw, narrowed, branch, whole=True, negative=None)
        return None if number is None else int(number)

    async def read(self, raw: Any, narrowed: Any, branch: Branch, most: int | None) -> list[Any]:
        """Return the first `most` items, all for None and 0; raises StateError."""
        if most is not None and most < 0:
            raise StateError(FAILED, "field MaxItems must be positive")
        parameters = self._filled(raw, narrowed, branch)
        _check_headers(self.names)
        if self.resource == LIST:
            items = await _listed(branch, parameters, most)
        else:
            answer = await ask(branch, "getObject", parameters, FAILED)
            items = self.parse(_text(answer))
        return list(items[:most] if most else items)

    def parse(self, text: str) -> list[Any]:
        """Return the items in the object's text; raises StateError."""
        if self.kind == "CSV":
            return self._rows(text)
        try:
            if self.kind == "JSONL":
                return [parse_json(line) for line in text.splitlines() if line.strip()]
            items = parse_json(text)
        except (ValueError, RecursionError):
            raise StateError(FAILED, f"The object is not {self.kind}.") from None
        if not isinstance(items, list):
            raise StateError(FAILED, "Attempting to map over non-iterable node.")
        return items

    def _rows(self, text: str) -> list[Any]:
        """Return the rows as objects. A cell without header is dropped (recorded), a missing one is ""."""
        rows = csv.reader(io.StringIO(text), delimiter=self.delimiter)
        try:
            names = self.names if self.header == "GIVEN" else next(rows, [])
            _check_headers(names)
            blank = [""] * len(names)
            return [dict(zip(names, [*row, *blank], strict=False)) for row in rows if row]
        except csv.Error as problem:
            raise StateError(FAILED, f"The object is not CSV: {problem}") from None


async def _listed(branch: Branch, parameters: Any, most: int | None) -> list[Any]:
    """Return the objects of a bucket, page after page (measured by others)."""
    items: list[Any] = []
    request = parameters
    while True:
        answer = await ask(branch, "listObjectsV2", request, FAILED)
        page = answer if isinstance(answer, dict) else {}
        items += [_listing(each) for each in page.get("Contents") or []]
        token = page.get("NextContinuationToken")
        if token is None or (most and len(items) >= most):
            return items
        request = {**parameters, "ContinuationToken": token}


def _listing(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an item as AWS passes it: the tag is called Etag, the time is in seconds since 1970."""
    at_ms = instant_ms(entry.get("LastModified"))
    item = {**entry, "Etag": entry.get("Etag", entry.get("ETag"))}
    if at_ms is not None:
        item["LastModified"] = at_ms // 1000 if at_ms % 1000 == 0 else at_ms / 1000
    return {name: item[name] for name in _LISTED if item.get(name) is not None}


_LISTED = ("Etag", "Key", "LastModified", "Size", "StorageClass")


def _text(answer: Any) -> str:
    body: Any = answer.get("Body") if isinstance(answer, dict) else answer
    if hasattr(body, "read"):
        body = body.read()
    if isinstance(body, bytes):
        return body.decode("utf-8", "replace")
    return body if isinstance(body, str) else json.dumps(body)


def _check_headers(names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise StateError(FAILED, "CSV headers cannot contain duplicates.")


async def ask(branch: Branch, action: str, parameters: Any, error: str) -> Any:
    """Return S3's answer; raises StateError with this Error Name when the call fails."""
    call = TaskCall(
        resource=f"arn:aws:states:::aws-sdk:s3:{action}",
        service="s3",
        action=action,
        sdk=True,
        function=None,
        parameters=parameters,
        payload=None,
        execution_arn=branch.execution.identity.arn,
        state=branch.state.name if branch.state else "",
        entered_ms=branch.entered_ms,
        timeout_ms=None,
    )
    answer = await branch.execution.ask(branch, call)
    if isinstance(answer, TaskFailure):
        raise StateError(error, answer.cause or answer.error)
    return answer.value if isinstance(answer, Whole) else answer


class Batcher:
    """The field of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.inside(state.get("ItemBatcher"), state.at("ItemBatcher"))
        self._most = Amount(fields, "MaxItemsPerBatch", 1)
        self._bytes = Amount(fields, "MaxInputBytesPerBatch", 1, PAYLOAD_LIMIT_BYTES)
        if not self._most.present and not self._bytes.present:
            raise DefinitionError(fields.pointer, "MaxItemsPerBatch or MaxInputBytesPerBatch is required")
        has_input = "BatchInput" in fields
        self._input = filled(fields, "BatchInput", "ItemBatcher/BatchInput") if has_input else None
        fields.close("ItemBatcher")

    def batches(self, items: list[Any], raw: Any, narrowed: Any, branch: Branch) -> list[tuple[Any, int]]:
        """Return each batch's input and its number of items; an item over the bound of a batch is one alone."""
        most = self._most.bounded(raw, narrowed, branch, whole=True) or len(items)
        largest = self._bytes.bounded(raw, narrowed, branch, whole=True) or PAYLOAD_LIMIT_BYTES
        common = {} if self._input is None else {"BatchInput": self._input(raw, narrowed, branch)}
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
