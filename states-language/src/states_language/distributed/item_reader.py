"""Reads the items of a distributed Map from S3 (ItemReader), and groups items (ItemBatcher).

Invariants: any problem of the object raises States.ItemReaderFailed, which can be caught; no item is lost, split or
moved to another batch. Calls of S3 add no events to the history.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import DefinitionError, Fields
from states_language.distributed import item_formats
from states_language.distributed.item_formats import ATHENA, INVENTORY, ITEM_READER_FAILED, Format
from states_language.failures import StateError, TaskFailure
from states_language.history import PAYLOAD_LIMIT_BYTES, utf8_bytes
from states_language.states.base import NumberField, compile_filler
from states_language.tasks.calls import TaskCall, Whole
from states_language.timestamps import instant_ms
from states_language.values import compact

GET_OBJECT = "arn:aws:states:::s3:getObject"
LIST_OBJECTS = "arn:aws:states:::s3:listObjectsV2"
TRANSFORMATIONS = ("NONE", "LOAD_AND_FLATTEN")
MANIFESTS = (ATHENA, INVENTORY)


class Reader:
    """The field ItemReader of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.child_fields(state.get("ItemReader"), state.pointer_of("ItemReader"))
        fields.require("Resource")
        self.resource = fields.string("Resource")
        if self.resource not in (GET_OBJECT, LIST_OBJECTS):
            raise fields.error_for("Resource", f"must be {GET_OBJECT} or {LIST_OBJECTS}")
        name = "Arguments" if fields.is_jsonata else "Parameters"
        self._fill = compile_filler(fields, name, f"ItemReader/{name}")
        config = fields.child_fields(fields.get("ReaderConfig", {}), fields.pointer_of("ReaderConfig"))
        self._max_items = NumberField(config, "MaxItems", 0, 2**53)
        self._format = Format(config)
        self._should_load_objects = (config.string("Transformation") or TRANSFORMATIONS[0]) != TRANSFORMATIONS[0]
        self._manifest = config.string("ManifestType")
        self._check(config)
        config.refuse_unread("ReaderConfig")
        fields.refuse_unread("ItemReader")

    def _check(self, config: Fields) -> None:
        kind, lists = self._format.kind, self.resource == LIST_OBJECTS
        if config.get("Transformation", "NONE") not in TRANSFORMATIONS or (self._should_load_objects and not lists):
            raise config.error_for(
                "Transformation", f"must be one of {', '.join(TRANSFORMATIONS)}, and NONE for an object"
            )
        if self._manifest is not None and (self._manifest not in MANIFESTS or lists):
            raise config.error_for("ManifestType", f"must be one of {', '.join(MANIFESTS)}, for an object")
        if kind == "MANIFEST" and self._manifest is None:
            self._manifest = INVENTORY
        if kind == "MANIFEST" and self._manifest == ATHENA:
            raise config.error_for("ManifestType", "must be S3_INVENTORY where InputType is MANIFEST")
        if kind == "MANIFEST" and lists:
            raise config.error_for("InputType", "must say what the objects hold; MANIFEST does not")
        if kind is None and (self._should_load_objects if lists else self._manifest != INVENTORY):
            raise config.error_for("InputType", f"must be one of {', '.join(item_formats.INPUT_TYPES)}")

    def max_items(self, raw: Any, narrowed: Any, branch: Branch) -> int | None:
        """Return MaxItems, None if it is absent; raises EvaluationError for anything but an integer."""
        number = self._max_items.evaluate_number(raw, narrowed, branch, negative=None)
        return None if number is None else int(number)

    async def read(self, raw: Any, narrowed: Any, branch: Branch, most: int | None) -> tuple[list[Any], list[str]]:
        """Return the first `most` items (None or 0: all), and the address that each came from; raises StateError."""
        if most is not None and most < 0:
            raise StateError(ITEM_READER_FAILED, "field MaxItems must be positive")
        parameters = self._fill(raw, narrowed, branch)
        self._format.check()
        items: list[Any] = []
        sources: list[str] = []
        async with aclosing(self._read_objects(branch, parameters, most)) as read:
            async for source, some in read:
                items += some
                sources += [source] * len(some)
                if most and len(items) >= most:
                    break
        return items[: most or None], sources[: most or None]

    async def _read_objects(
        self, branch: Branch, parameters: Any, most: int | None
    ) -> AsyncGenerator[tuple[str, list[Any]], None]:
        """Yield the items of each object in turn, each item with its object's address."""
        listing = self.resource == LIST_OBJECTS
        for name in ("Bucket",) if listing else ("Bucket", "Key"):
            if not isinstance(parameters, dict) or not isinstance(parameters.get(name), str):
                raise StateError(ITEM_READER_FAILED, f"The field '{name}' is required but was missing")
        bucket, key = parameters["Bucket"], parameters.get("Key")
        if listing:
            listed = await _list_objects(branch, parameters, None if self._should_load_objects else most)
            if not self._should_load_objects:
                yield f"s3://{bucket}", listed
                return
            places = [(bucket, each["Key"]) for each in listed]
        else:
            body = await call_s3(branch, "getObject", parameters, ITEM_READER_FAILED)
            if self._manifest == INVENTORY:
                bucket, keys, names = item_formats.parse_inventory(body)
                for key in keys:
                    text = item_formats.body_text(await _get_object(branch, bucket, key))
                    yield f"s3://{bucket}/{key}", item_formats.parse_rows(text, ",", names)
                return
            if self._manifest is None:
                yield f"s3://{bucket}/{key}", self._format.parse_items(body)
                return
            places = item_formats.parse_athena_manifest(body)
        for bucket, key in places:
            yield f"s3://{bucket}/{key}", self._format.parse_items(await _get_object(branch, bucket, key))


async def _get_object(branch: Branch, bucket: Any, key: str) -> Any:
    return await call_s3(branch, "getObject", {"Bucket": bucket, "Key": key}, ITEM_READER_FAILED)


async def _list_objects(branch: Branch, parameters: Any, most: int | None) -> list[Any]:
    """Return the objects of a bucket, page after page (measured by others)."""
    items: list[Any] = []
    request = parameters
    while True:
        answer = await call_s3(branch, "listObjectsV2", request, ITEM_READER_FAILED)
        page = answer if isinstance(answer, dict) else {}
        found = page.get("Contents") or []
        if not isinstance(found, list) or not all(isinstance(each, dict) and "Key" in each for each in found):
            raise StateError(
                ITEM_READER_FAILED, "The answer of listObjectsV2 must have Contents, an array of objects with a Key."
            )
        items += map(_describe_object, found)
        token = page.get("NextContinuationToken")
        if token is None or (most and len(items) >= most):
            return items
        if token == request.get("ContinuationToken"):
            raise StateError(
                ITEM_READER_FAILED, "listObjectsV2 answered with the NextContinuationToken that it was asked with."
            )
        request = {**parameters, "ContinuationToken": token}


def _describe_object(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a listed object as AWS passes it: its tag is called Etag, its time is in seconds since 1970."""
    at_ms = instant_ms(entry.get("LastModified"))
    item = {**entry, "Etag": entry.get("Etag", entry.get("ETag"))}
    if at_ms is not None:
        item["LastModified"] = at_ms // 1000 if at_ms % 1000 == 0 else at_ms / 1000
    return {name: item[name] for name in _LISTED_FIELDS if item.get(name) is not None}


_LISTED_FIELDS = ("Etag", "Key", "LastModified", "Size", "StorageClass")


async def call_s3(branch: Branch, action: str, parameters: Any, error: str) -> Any:
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
        reads=action != "putObject",
    )
    answer = await branch.execution.start_call(branch, call)
    if isinstance(answer, TaskFailure):
        raise StateError(error, answer.cause or answer.error)
    return answer.value if isinstance(answer, Whole) else answer


class Batcher:
    """The field ItemBatcher of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.child_fields(state.get("ItemBatcher"), state.pointer_of("ItemBatcher"))
        self._max_items = NumberField(fields, "MaxItemsPerBatch", 1)
        self._max_bytes = NumberField(fields, "MaxInputBytesPerBatch", 1, PAYLOAD_LIMIT_BYTES)
        if not self._max_items.is_present and not self._max_bytes.is_present:
            raise DefinitionError(fields.pointer, "MaxItemsPerBatch or MaxInputBytesPerBatch is required")
        has_input = "BatchInput" in fields
        self._fill_input = compile_filler(fields, "BatchInput", "ItemBatcher/BatchInput") if has_input else None
        fields.refuse_unread("ItemBatcher")

    def make_batches(self, items: list[Any], raw: Any, narrowed: Any, branch: Branch) -> list[tuple[Any, int]]:
        """Return each batch's input and its number of items; an item larger than a batch's bound is a batch alone."""
        most = self._max_items.evaluate_number(raw, narrowed, branch) or len(items)
        largest = self._max_bytes.evaluate_number(raw, narrowed, branch) or PAYLOAD_LIMIT_BYTES
        common = {} if self._fill_input is None else {"BatchInput": self._fill_input(raw, narrowed, branch)}
        empty = utf8_bytes(compact({**common, "Items": []}))
        groups: list[list[Any]] = []
        size = 0
        for item in items:
            own = utf8_bytes(compact(item)) + 1
            if not groups or len(groups[-1]) >= most or size + own > largest:
                groups.append([])
                size = empty - 1  # no comma before the first
            groups[-1].append(item)
            size += own
        return [({**common, "Items": group}, len(group)) for group in groups]
