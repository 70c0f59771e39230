"""Makes tables of events, with pyarrow or pandas; each is imported only when a table of it is made."""

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

from streamkeeper.exceptions import StreamkeeperError
from streamkeeper.instants import instant

_TEXTS = ("key", "id", "name", "data", "conflict_of", "left_out", "dead_letter", "part")
COLUMNS = ("position", "received_at", *_TEXTS, "repaired", "bytes")


def schema() -> Any:
    """The Arrow schema: `data` has a text body, `bytes` a binary one, `received_at` is in UTC to the millisecond.

    `part` is the stream of a part, for a stream that is read in parts; `repaired` says whether a repair fetched it.
    """
    pyarrow = import_package("pyarrow")
    fields = [("position", pyarrow.string()), ("received_at", pyarrow.timestamp("ms", tz="UTC"))]
    fields += [(name, pyarrow.string()) for name in _TEXTS]
    fields += [("repaired", pyarrow.bool_()), ("bytes", pyarrow.binary())]
    return pyarrow.schema(fields)


def row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of the API's JSON as a row."""
    received_at = datetime.fromisoformat(event["received_at"]) if event["received_at"] else None
    data = base64.b64decode(event["data_base64"]) if "data_base64" in event else None
    values = {name: event.get(name) for name in COLUMNS}
    repaired = event.get("repaired", False)
    return values | {"received_at": received_at, "part": event.get("stream"), "repaired": repaired, "bytes": data}


def event_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a row, in the API's JSON."""
    at = row["received_at"]
    event = {name: row[name] for name in COLUMNS[:-3] if row[name] is not None or name in ("id", "name")}
    event |= {"received_at": None if at is None else instant(at)}
    event |= {} if row["part"] is None else {"stream": row["part"]}
    event |= {"repaired": True} if row["repaired"] else {}
    return event if row["bytes"] is None else event | {"data_base64": base64.b64encode(row["bytes"]).decode()}


def batch(page: list[dict[str, Any]]) -> Any:
    """A page as a pyarrow.RecordBatch."""
    return import_package("pyarrow").RecordBatch.from_pylist([row(event) for event in page], schema=schema())


def pandas(pages: Iterable[list[dict[str, Any]]]) -> Any:
    """The pages as a pandas.DataFrame."""
    frames = import_package("pandas")
    # The same types, however many events there are.
    kinds = dict.fromkeys(("position", *_TEXTS), "string") | {"received_at": "datetime64[ms, UTC]", "repaired": "bool"}

    def frame(page: list[dict[str, Any]]) -> Any:
        rows = [tuple(row(event).values()) for event in page]
        return frames.DataFrame.from_records(rows, columns=COLUMNS).astype(kinds)

    # Each page is a frame at once: as Python's objects, its events take four times as much memory.
    return frames.concat([frame(page) for page in pages] or [frame([])], ignore_index=True)


def import_package(name: str) -> Any:
    """Imports a package; raises a StreamkeeperError with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise StreamkeeperError(
            f"This needs the Python package {name}, which is not installed: `pip install {name}`."
        ) from None
