"""Reads the items of an object: CSV, JSON, JSON Lines, Parquet, and the files of a manifest of S3 Inventory or Athena.

Invariant: any problem of the object raises States.ItemReaderFailed.
"""

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Sequence
from importlib.util import find_spec, module_from_spec
from typing import Any

from states_language.definition.fields import DefinitionError, Fields
from states_language.definition.pointers import keys, value_at
from states_language.failures import StateError
from states_language.values import parse_json

ITEM_READER_FAILED = "States.ItemReaderFailed"
INPUT_TYPES = ("JSON", "JSONL", "CSV", "PARQUET", "MANIFEST")
DELIMITERS = {"COMMA": ",", "PIPE": "|", "SEMICOLON": ";", "SPACE": " ", "TAB": "\t"}
HEADERS = ("FIRST_ROW", "GIVEN")
INVENTORY, ATHENA = "S3_INVENTORY", "ATHENA_DATA"
_ESCAPE = re.compile(r"(\\[^\r\n])|\\")
"""A backslash with the character that it escapes. Before a line break it escapes nothing: the row ends."""
_csv = module_from_spec(_spec := find_spec("_csv"))  # type: ignore[arg-type]
_spec.loader.exec_module(_csv)  # type: ignore[union-attr]
_csv.field_size_limit(sys.maxsize)
"""A copy of csv's module without its limit of 131,072 characters a cell, which all code of the process shares."""
NOT_ITERABLE = "Attempting to map over non-iterable node."


class Format:
    """The fields of a ReaderConfig that describe an object's content. `kind` is its InputType, None if it has none."""

    def __init__(self, config: Fields) -> None:
        self.kind = config.string("InputType")
        if self.kind is not None and self.kind not in INPUT_TYPES:
            raise config.error_for("InputType", f"must be one of {', '.join(INPUT_TYPES)}")
        self._read_csv_fields(config)
        self.pointer = config.string("ItemsPointer")
        if self.pointer is not None and (self.kind != "JSON" or not self.pointer.startswith("/")):
            raise config.error_for(
                "ItemsPointer", "must be a JSON Pointer such as /data/items, where InputType is JSON"
            )

    def _read_csv_fields(self, config: Fields) -> None:
        self.header = config.string("CSVHeaderLocation")
        self.names = config.array("CSVHeaders")
        self.delimiter = DELIMITERS.get(config.string("CSVDelimiter") or "COMMA", "")
        if not self.delimiter:
            raise config.error_for("CSVDelimiter", f"must be one of {', '.join(DELIMITERS)}")
        if self.kind == "CSV" and self.header not in HEADERS:
            raise config.error_for("CSVHeaderLocation", f"must be one of {', '.join(HEADERS)}")
        if not all(isinstance(name, str) for name in self.names):
            raise config.error_for("CSVHeaders", "must be an array of strings")
        if self.header == "GIVEN" and not self.names:
            raise DefinitionError(config.pointer_of("CSVHeaders"), "is required where CSVHeaderLocation is GIVEN")

    def check(self) -> None:
        """Raise StateError for duplicate column names; AWS does so before it requests an object."""
        _check_headers(self.names)

    def parse_items(self, body: Any) -> list[Any]:
        """Return the items of the object in S3's answer."""
        if self.kind == "PARQUET":
            return _parse_parquet(body_bytes(body))
        whole = body_text(body)
        if self.kind == "CSV":
            return parse_rows(whole, self.delimiter, self.names if self.header == "GIVEN" else None)
        try:
            if self.kind == "JSONL":
                return [parse_json(line) for line in whole.split("\n") if line.strip()]
            items = parse_json(whole)
        except (ValueError, RecursionError):
            raise StateError(ITEM_READER_FAILED, f"The object is not {self.kind}.") from None
        if self.pointer is not None:
            items = value_at(items, keys(self.pointer))
        if not isinstance(items, list):
            raise StateError(ITEM_READER_FAILED, NOT_ITERABLE)
        return items


def parse_rows(whole: str, delimiter: str, given: Sequence[str] | None) -> list[Any]:
    """Return the rows as objects. A cell without a header is dropped (recorded), a missing cell is "".

    A backslash escapes a backslash, a double quote or the delimiter, and is removed before anything else (Developer
    Guide, "How Step Functions parses input CSV files").
    """
    lines = _csv.reader(io.StringIO(_ESCAPE.sub(r"\1", whole)), delimiter=delimiter, escapechar="\\")
    try:
        names = next(lines, []) if given is None else list(given)
        _check_headers(names)
        blank = [""] * len(names)
        return [dict(zip(names, [*row, *blank], strict=False)) for row in lines if row]
    except _csv.Error as problem:
        raise StateError(ITEM_READER_FAILED, f"The object is not CSV: {problem}") from None


def parse_inventory(body: Any) -> tuple[str, list[str], list[str]]:
    """Return the bucket, the keys and the names of the columns that a manifest.json of S3 Inventory has."""
    try:
        manifest = parse_json(body_text(body))
        if manifest["fileFormat"] != "CSV":
            raise StateError(
                ITEM_READER_FAILED, f"An inventory of the format {manifest['fileFormat']} cannot be read; CSV can."
            )
        names = [name.strip() for name in manifest["fileSchema"].split(",")]
        return manifest["destinationBucket"].rpartition(":")[2], [file["key"] for file in manifest["files"]], names
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise StateError(ITEM_READER_FAILED, "The object is not a manifest of S3 Inventory.") from None


def parse_athena_manifest(body: Any) -> list[tuple[str, str]]:
    """Return bucket and key of each object that a manifest of Athena's UNLOAD lists, one s3:// address a line."""
    places = []
    for line in filter(None, map(str.strip, body_text(body).split("\n"))):
        bucket, _, key = line.removeprefix("s3://").partition("/")
        if not line.startswith("s3://") or not key:
            raise StateError(ITEM_READER_FAILED, "The object is not a manifest of Athena.")
        places.append((bucket, key))
    return places


def body_bytes(answer: Any) -> bytes:
    """Return the bytes of S3's answer, or of a test's answer in its place: a text, or any other value as JSON."""
    body: Any = answer["Body"] if isinstance(answer, dict) and "Body" in answer else answer
    if hasattr(body, "read"):
        body = body.read()
    if isinstance(body, bytes):
        return body
    return (body if isinstance(body, str) else json.dumps(body)).encode()


def body_text(answer: Any) -> str:
    """Return the text of an object, unpacked if it is gzip."""
    body = body_bytes(answer)
    if body.startswith(b"\x1f\x8b"):  # Athena and S3 Inventory write gzip
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError, zlib.error):
            raise StateError(ITEM_READER_FAILED, "The object begins like gzip, but it cannot be unpacked.") from None
    return body.decode("utf-8", "replace")


def _parse_parquet(body: bytes) -> list[Any]:
    """Return the rows as objects. A value that JSON cannot hold becomes its text; nobody has recorded AWS's form."""
    try:
        from pyarrow import ArrowException, BufferReader, parquet  # a large library that few users need
    except ImportError:
        raise ImportError("an ItemReader of PARQUET needs pyarrow: pip install 'states-language[parquet]'") from None
    try:
        read = parquet.read_table(BufferReader(body)).to_pylist()
    except (ArrowException, OSError):
        raise StateError(ITEM_READER_FAILED, "The object is not PARQUET.") from None
    return [json.loads(json.dumps(row, default=_to_text), parse_constant=str) for row in read]


def _to_text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _check_headers(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise StateError(ITEM_READER_FAILED, "CSV headers cannot contain duplicates.")
