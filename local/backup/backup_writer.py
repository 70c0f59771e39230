"""Takes a backup of streams, file by file, and continues where an earlier try stopped.

Invariants: a stream is done once its `stream.json` exists, which is written last; a large body is written before the
part that refers to it; the manifest is written once all streams are done. Only bodies and the manifest are ever
replaced, so two commands at once cannot mix their files.
"""

import json
import shlex
import time
from collections.abc import Callable, Container, Iterator
from typing import Any

from handlers.store.event_items import PROMISED
from handlers.store.segment_reader import ANCHOR
from handlers.store.typed_values import Item, has_expired, read_int, read_text
from local.backup import archive
from local.backup.archive import (
    BEGUN,
    CONTROL,
    FORMAT,
    MANIFEST,
    STREAM,
    Files,
    file_entry,
    folder_of,
    pack_items,
    unpack_items,
)
from local.backup.stream_source import Tables, should_be_connected
from local.terminal import UserError

# A part is in memory both as items and compressed.
PART_ITEMS, PART_BYTES = 5_000, 8 * 1024 * 1024
COUNTS = ("events", "gaps", "connections", "objects", "bytes")
# The files of a stream are its items'; `gone` names the bodies that were no longer at the place.
Summary = dict[str, Any]


class BackupWriter:
    """The backup of a place's streams into `files`; `check` raises after Ctrl-C."""

    def __init__(self, tables: Tables, files: Files, check: Callable[[], None]) -> None:
        self._tables, self._files, self._check = tables, files, check

    def begin_or_continue(self, place: str, match: list[str], wanted: list[str], now: str) -> dict[str, Any]:
        """Returns the streams and the beginning of the backup, of an earlier try or of this one; raises UserError.

        `wanted` are the streams of this try that match one of the patterns `match`.
        """
        if self._files.has(MANIFEST):
            raise UserError("--to names a finished backup: name another folder for a new one.")
        if self._files.has(BEGUN):
            begun = archive.read_document(self._files, BEGUN)
            if (begun["from"], begun["match"]) != (place, match):
                of = " ".join([begun["from"], *(f"--match {shlex.quote(one)}" for one in begun["match"])])
                raise UserError(f"--to names an unfinished backup of {of}: finish that one, or name another folder.")
            return begun
        begun = {"format": FORMAT, "from": place, "match": match, "began_at": now, "streams": wanted}
        self._files.add(BEGUN, _json_bytes(begun))
        return begun

    def back_up_stream(self, stream_id: str) -> Summary | None:
        """Returns the summary of the stream; None if it is gone. Raises StoreUnavailable and UserError."""
        folder = folder_of(stream_id)
        names = sorted(name.removeprefix(folder) for name in self._files.names(folder))
        if STREAM in names:
            return archive.read_document(self._files, folder + STREAM)
        if CONTROL in names:
            content = self._files.read(folder + CONTROL)
            control = unpack_items(content)
        elif control := self._tables.control_records(stream_id):
            content = pack_items(control)
            self._files.add(folder + CONTROL, content)
        else:
            return None
        files = [file_entry(CONTROL, content, len(control))]
        lease, kinds = control[0], [item["SK"]["S"].partition("#")[0] for item in control]
        counted: Summary = dict.fromkeys(COUNTS, 0)
        counted |= {"gaps": kinds.count("gap"), "connections": kinds.count("connection"), "gone": []}
        last, saved = None, set(names)
        parts = [name for name in names if name.startswith("events-")]
        for name in parts:
            content = self._files.read(folder + name)
            items = unpack_items(content)
            last = items[-1]
            files.append(self._count_part(counted, name, content, items, saved))
        for number, items in enumerate(self._read_parts(stream_id, lease, last), len(parts) + 1):
            for key in _body_keys(items):
                # A body that is gone at the place takes nothing else with it.
                if (body := self._tables.read_body(stream_id, key)) is not None:
                    saved.add(object_file := f"objects/{archive.object_name(key)}")
                    self._files.write(folder + object_file, body)
            name, content = f"events-{number:06d}.jsonl.gz", pack_items(items)
            self._files.add(folder + name, content)
            files.append(self._count_part(counted, name, content, items, saved))
        counted["bytes"] += files[0]["bytes"]
        summary: Summary = {"stream": stream_id, "ran": should_be_connected(lease), **counted, "files": files}
        self._files.add(folder + STREAM, _json_bytes(summary))
        return summary

    def finish(self, begun: dict[str, Any], now: str, summaries: list[Summary]) -> dict[str, Any]:
        """Writes the manifest and returns it."""
        total = {name: sum(one[name] for one in summaries) for name in COUNTS}
        total["gone"] = sum(len(one.get("gone", ())) for one in summaries)
        known = sorted(summaries, key=lambda one: one["stream"])
        manifest = begun | {"ended_at": now, "total": total, "streams": known}
        self._files.write(MANIFEST, _json_bytes(manifest))
        return manifest

    def _read_parts(self, stream_id: str, lease: Item, last: Item | None) -> Iterator[list[Item]]:
        """Yields the items after `last` that have not expired, in parts: the bodies of expired ones may be gone."""
        items: list[Item] = []
        size = 0
        for page in self._tables.events(stream_id, lease, last):
            self._check()
            page = [item for item in page if not has_expired(item, time.time_ns() // 1_000_000)]
            items += page
            # DynamoDB ends a page at a megabyte, which is usually more than the JSON of the items.
            size += sum(len(item.get("data", {}).get("B", item.get("data", {}).get("S", ""))) + 200 for item in page)
            if len(items) >= PART_ITEMS or size >= PART_BYTES:
                yield items
                items, size = [], 0
        if items:
            yield items

    @staticmethod
    def _count_part(
        counted: Summary, name: str, content: bytes, items: list[Item], saved: Container[str]
    ) -> dict[str, Any]:
        counted["events"] += count_events(items)
        found = [archive.object_name(key) for key in _body_keys(items)]
        gone = [one for one in found if f"objects/{one}" not in saved]
        counted["objects"] += len(found) - len(gone)
        counted["gone"] += gone
        counted["bytes"] += len(content)
        return file_entry(name, content, len(items))


def _body_keys(items: list[Item]) -> list[str]:
    """Returns the keys of the items' large bodies."""
    return [key for item in items if (key := read_text(item, "object"))]


def _json_bytes(what: dict[str, Any]) -> bytes:
    return (json.dumps(what, indent=1, ensure_ascii=False) + "\n").encode()


def count_events(items: list[Item]) -> int:
    """Returns how many events the items contain; a segment contains several."""
    return sum(read_int(item, "events") or 1 for item in items if item["SK"]["S"] != ANCHOR and PROMISED not in item)
