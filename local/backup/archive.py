"""Keeps a backup as files in a folder or under a prefix of a bucket, and reads it.

    begun.json                               the streams, their stage, and when the backup began
    streams/<stream>/control.jsonl.gz        its control records, the lease first
    streams/<stream>/events-000001.jsonl.gz  its items of the events table, in parts
    streams/<stream>/objects/<name>          its large bodies
    streams/<stream>/stream.json             its counts, and the size and SHA-256 of each file
    manifest.json                            the same of all streams, written last

A line is an item in the format of DynamoDB's exports: `{"Item": {"PK": {"S": …}, …}}`. Invariants: every file is
complete; a stream with a file that differs from the manifest is refused by name before that file is used.
"""

import errno
import gzip
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from handlers.dynamodb.client import decode_binary, encode
from handlers.store.typed_values import Item
from local.backup.stream_source import NotRestored
from local.stage_clients import TRIES, make_client, region_of_environment
from local.terminal import UserError
from streamkeeper.archive_places import Bucket, Folder, Place, names_at
from streamkeeper.exceptions import InvalidRequest

T = TypeVar("T")
BEGUN, MANIFEST, STREAM, CONTROL = "begun.json", "manifest.json", "stream.json", "control.jsonl.gz"
FORMAT = 1
# Most file systems allow 255 bytes in a name.
_NAME_BYTES = 200


@dataclass(frozen=True)
class Files:
    """Named files at a place; a name has slashes, and `address` stands before it in a message.

    `absent` is the place's word for a file that is not there.
    """

    place: Place
    address: str
    absent: str

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files below a folder, which ends with a slash; raises UserError."""
        return self._explain_errors("listed", "", lambda: self.place.names(folder.rstrip("/")))

    def has(self, name: str) -> bool:
        """Returns whether the file exists; raises UserError."""
        return self.find(name) is not None

    def find(self, name: str) -> bytes | None:
        """Returns the file's content, None if there is no such file; raises UserError."""
        return self._explain_errors("read", name, lambda: self.place.read(name))

    def read(self, name: str) -> bytes:
        """Returns the file's content; raises UserError if there is no such file."""
        if (content := self.find(name)) is None:
            raise UserError(f"{self.address}{name} cannot be read: {self.absent}.")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces the file as a whole; raises UserError."""
        self._explain_errors("written", name, lambda: self.place.write(name, content))

    def add(self, name: str, content: bytes) -> None:
        """Writes the file as a whole; raises UserError if another command has written other content meanwhile."""
        if (
            not self._explain_errors("written", name, lambda: self.place.add(name, content))
            and self.read(name) != content
        ):
            raise UserError(f"Another command writes the backup at {self.address}: let it finish, then run this again.")

    def _explain_errors(self, verb: str, name: str, request: Callable[[], T]) -> T:
        try:
            return request()
        except OSError as problem:
            why = problem.strerror
        except (BotoCoreError, ClientError) as problem:
            why = getattr(problem, "response", {}).get("Error", {}).get("Code", type(problem).__name__)
        raise UserError(f"{self.address}{name} cannot be {verb}: {why}.")


def files_at(text: str) -> Files:
    """Returns the folder or the prefix (s3://BUCKET/PREFIX) that `text` names."""
    try:
        found = names_at(text)
    except InvalidRequest:
        raise UserError(f"{text!r} is neither a folder nor s3://BUCKET/PREFIX.") from None
    if found is None:
        # Events may be private.
        return Files(Folder(Path(text), 0o700), f"{Path(text)}/", os.strerror(errno.ENOENT))
    bucket = Bucket(make_client("s3", TRIES, {"region_name": region_of_environment()}), *found)
    return Files(bucket, f"s3://{bucket.bucket}/{bucket.prefix}", "NoSuchKey")


def folder_of(stream_id: str) -> str:
    """Returns a stream's folder in a backup: its percent-encoded id, or "=" and a SHA-256 if the id is too long."""
    name = quote(stream_id, safe=":")
    if len(name) > _NAME_BYTES:
        name = f"={hashlib.sha256(stream_id.encode()).hexdigest()}"
    return f"streams/{name}/"


def file_entry(name: str, content: bytes, items: int = 0) -> dict[str, Any]:
    """Returns a file's entry in a manifest."""
    return {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "items": items}


def pack_items(items: Iterable[Item]) -> bytes:
    """Returns the items as compressed lines; the same items give the same bytes."""
    lines = "".join(f'{{"Item":{encode(item)}}}\n' for item in items)
    return gzip.compress(lines.encode(), compresslevel=6, mtime=0)


def unpack_items(content: bytes) -> list[Item]:
    """Returns the items of `pack_items`."""
    return [json.loads(line, object_hook=decode_binary)["Item"] for line in gzip.decompress(content).splitlines()]


def read_document(files: Files, name: str) -> dict[str, Any]:
    """Returns a JSON file of a backup; raises UserError."""
    try:
        found: dict[str, Any] = json.loads(files.read(name))
    except ValueError:
        raise UserError(f"{name} of the backup is damaged: it is not JSON. Restore from another backup.") from None
    return found


class FinishedBackup:
    """A finished backup as a source of streams."""

    def __init__(self, files: Files) -> None:
        self._files = files
        if not files.has(MANIFEST) and files.has(BEGUN):
            raise UserError(f"{files.address} has an unfinished backup: the command that began it finishes it.")
        self.manifest = read_document(files, MANIFEST)
        if self.manifest.get("format") != FORMAT:
            had = self.manifest.get("format")
            raise UserError(f"The backup has format {had}, which this version cannot read: use a newer one.")
        self._streams: dict[str, dict[str, Any]] = {one["stream"]: one for one in self.manifest["streams"]}

    @property
    def name(self) -> str:
        """The origin that is written into a restored stream."""
        return f"backup of {self.manifest['from']} at {self.manifest['began_at']}"

    def stream_ids(self) -> list[str]:
        """As `Source`."""
        return list(self._streams)

    def has_run(self, stream_id: str) -> bool:
        """As `Source`."""
        return bool(self._streams[stream_id]["ran"])

    def control_records(self, stream_id: str) -> list[Item]:
        """As `Source`."""
        return unpack_items(self._read_checked(stream_id, CONTROL))

    def events(self, stream_id: str, lease: Item, after: Item | None = None) -> Iterator[list[Item]]:
        """As `Source`, always from the beginning."""
        del lease, after
        for file in self._streams[stream_id]["files"]:
            if file["name"].startswith("events-"):
                yield unpack_items(self._read_checked(stream_id, file["name"]))

    def read_body(self, stream_id: str, key: str) -> bytes | None:
        """As `Source`; the last part of a key is the SHA-256 of the body."""
        if object_name(key) in self._streams[stream_id].get("gone", ()):
            return None
        content = self._files.find(f"{folder_of(stream_id)}objects/{object_name(key)}")
        if content is None or hashlib.sha256(content).hexdigest() != key.rpartition("/")[2]:
            raise NotRestored(f"its body {object_name(key)} is damaged in the backup: restore it from another one")
        return content

    def _read_checked(self, stream_id: str, name: str) -> bytes:
        wanted = next(one for one in self._streams[stream_id]["files"] if one["name"] == name)
        content = self._files.find(folder_of(stream_id) + name)
        if content is None or file_entry(name, content, wanted["items"]) != wanted:
            raise NotRestored(f"its file {name} is damaged in the backup: restore it from another one")
        return content


def object_name(key: str) -> str:
    """Returns the file name of a body: the part of the object's key after the stream."""
    return "-".join(key.split("/")[-2:])
