"""Keeps a backup as files in a folder or under a prefix of a bucket, and reads it.

    begun.json                               the streams, their stage, and when the backup began
    streams/<stream>/control.jsonl.gz        its control records, the lease first
    streams/<stream>/events-000001.jsonl.gz  its items of the events table, in parts
    streams/<stream>/objects/<name>          its large bodies
    streams/<stream>/stream.json             its counts, and the size and SHA-256 of each file
    manifest.json                            the same of all streams, written last

A line is an item in the format of DynamoDB's exports: `{"Item": {"PK": {"S": …}, …}}`. Invariants: every file is
complete; a file that differs from the manifest is refused by name before any of it is used.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from handlers.dynamodb.client import binary, encode
from handlers.store.typed_values import Item
from local.reached_stage import TRIES, client, region_of_environment
from local.user_error import UserError
from streamkeeper.archive_places import names_at
from streamkeeper.exceptions import InvalidRequest

BEGUN, MANIFEST, STREAM, CONTROL = "begun.json", "manifest.json", "stream.json", "control.jsonl.gz"
FORMAT = 1
# Most file systems allow 255 bytes in a name.
_NAME_BYTES = 200


class Files(Protocol):
    """Named files; a name has slashes."""

    def names(self, folder: str) -> Iterator[str]:
        """The names of the files below a folder, in any order; `folder` ends with a slash."""

    def has(self, name: str) -> bool:
        """Whether there is such a file; raises UserError."""

    def read(self, name: str) -> bytes:
        """Its content; raises UserError if there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces it as a whole; raises UserError."""


@dataclass(frozen=True)
class Folder:
    """Files below a folder."""

    path: Path

    def names(self, folder: str) -> Iterator[str]:
        """As `Files`."""
        for below, _, files in os.walk(self.path / folder):
            found = ((Path(below) / file).relative_to(self.path).as_posix() for file in files)
            yield from (name for name in found if not name.endswith(".part"))

    def has(self, name: str) -> bool:
        """As `Files`."""
        return (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        """As `Files`."""
        try:
            return (self.path / name).read_bytes()
        except OSError as problem:
            raise UserError(f"{self.path / name} cannot be read: {problem.strerror}.") from None

    def write(self, name: str, content: bytes) -> None:
        """As `Files`."""
        path = self.path / name
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            # Events may be private.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(path)
        except OSError as problem:
            raise UserError(f"{path} cannot be written: {problem.strerror}.") from None


@dataclass(frozen=True)
class Bucket:
    """Files below a prefix of a bucket; `s3` is boto3's client."""

    s3: Any
    bucket: str
    prefix: str

    def has(self, name: str) -> bool:
        """As `Files`."""
        return name in self.names(name)

    def names(self, folder: str) -> Iterator[str]:
        """As `Files`."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix + folder)
        try:
            for page in pages:
                yield from (one["Key"].removeprefix(self.prefix) for one in page.get("Contents", []))
        except (BotoCoreError, ClientError) as problem:
            raise self._refused("listed", "", problem) from None

    def read(self, name: str) -> bytes:
        """As `Files`."""
        try:
            content: bytes = self.s3.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        except (BotoCoreError, ClientError) as problem:
            raise self._refused("read", name, problem) from None
        return content

    def write(self, name: str, content: bytes) -> None:
        """As `Files`."""
        try:
            self.s3.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)
        except (BotoCoreError, ClientError) as problem:
            raise self._refused("written", name, problem) from None

    def _refused(self, verb: str, name: str, problem: Exception) -> UserError:
        code = getattr(problem, "response", {}).get("Error", {}).get("Code", type(problem).__name__)
        return UserError(f"s3://{self.bucket}/{self.prefix}{name} cannot be {verb}: {code}.")


def files_at(text: str) -> Files:
    """The folder or the prefix (s3://BUCKET/PREFIX) that `text` names."""
    try:
        found = names_at(text)
    except InvalidRequest:
        raise UserError(f"{text!r} is neither a folder nor s3://BUCKET/PREFIX.") from None
    if found is None:
        return Folder(Path(text))
    bucket, prefix = found
    where = {"region_name": region_of_environment()}
    return Bucket(client("s3", TRIES, where), bucket, f"{prefix}/" if prefix else "")


def folder_of(stream_id: str) -> str:
    """The folder of a stream in a backup: its percent-encoded id, or "=" and a SHA-256 if that is too long."""
    name = quote(stream_id, safe=":")
    if len(name) > _NAME_BYTES:
        name = f"={hashlib.sha256(stream_id.encode()).hexdigest()}"
    return f"streams/{name}/"


def described(name: str, content: bytes, items: int = 0) -> dict[str, Any]:
    """A file's entry in a manifest."""
    return {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "items": items}


def packed(items: Iterable[Item]) -> bytes:
    """The items as compressed lines; the same items give the same bytes."""
    lines = "".join(f'{{"Item":{encode(item)}}}\n' for item in items)
    return gzip.compress(lines.encode(), compresslevel=6, mtime=0)


def unpacked(content: bytes) -> list[Item]:
    """The items of `packed`."""
    return [json.loads(line, object_hook=binary)["Item"] for line in gzip.decompress(content).splitlines()]


def document(files: Files, name: str) -> dict[str, Any]:
    """A JSON file of a backup; raises UserError."""
    try:
        found: dict[str, Any] = json.loads(files.read(name))
    except ValueError:
        raise UserError(f"{name} of the backup is not JSON: it is damaged.") from None
    return found


class Archived:
    """A finished backup as a source of streams."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.manifest = document(files, MANIFEST)
        if self.manifest.get("format") != FORMAT:
            raise UserError(f"The backup has format {self.manifest.get('format')}, and this version reads {FORMAT}.")
        self._streams: dict[str, dict[str, Any]] = {one["stream"]: one for one in self.manifest["streams"]}

    @property
    def name(self) -> str:
        """The origin that is written into a restored stream."""
        return f"backup of {self.manifest['from']} at {self.manifest['began_at']}"

    def stream_ids(self) -> list[str]:
        """Its streams."""
        return list(self._streams)

    def ran(self, stream_id: str) -> bool:
        """Whether an execution kept the stream, and no stop was requested."""
        return bool(self._streams[stream_id]["ran"])

    def control(self, stream_id: str) -> list[Item]:
        """As `Source`."""
        return unpacked(self._checked(stream_id, CONTROL))

    def events(self, stream_id: str, lease: Item, after: Item | None = None) -> Iterator[list[Item]]:
        """As `Source`, always from the beginning."""
        del lease, after
        for file in self._streams[stream_id]["files"]:
            if file["name"].startswith("events-"):
                yield unpacked(self._checked(stream_id, file["name"]))

    def content(self, stream_id: str, key: str) -> bytes:
        """As `Source`; the last part of a key is the SHA-256 of the body."""
        content = self._files.read(f"{folder_of(stream_id)}objects/{object_name(key)}")
        if hashlib.sha256(content).hexdigest() != key.rpartition("/")[2]:
            raise UserError(f"The body {object_name(key)} of {stream_id} in the backup is damaged.")
        return content

    def _checked(self, stream_id: str, name: str) -> bytes:
        wanted = next(one for one in self._streams[stream_id]["files"] if one["name"] == name)
        content = self._files.read(folder_of(stream_id) + name)
        if described(name, content, wanted["items"]) != wanted:
            raise UserError(f"{name} of {stream_id} in the backup is not the file that was written: it is damaged.")
        return content


def object_name(key: str) -> str:
    """The file name of a body: the part of the object's key behind the stream."""
    return "-".join(key.split("/")[-2:])
