"""Where an archive lies: in a bucket (s3://bucket/prefix) or in a folder.

Invariant: an object or a file is there whole or not at all.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from local.user_error import UserError


class Place(Protocol):
    """Names are paths with slashes below the archive."""

    def read(self, name: str) -> bytes | None:
        """What is there; None where nothing is."""

    def write(self, name: str, content: bytes) -> None:
        """Puts it there, in place of what was there."""

    def put(self, name: str, file: Path) -> None:
        """Puts a file's content there."""

    def names(self, below: str) -> list[str]:
        """All names that begin with this one and a slash."""

    def remove(self, name: str) -> None:
        """Takes it away."""


class Folder:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """As Place has it."""
        path = self._folder / name
        return path.read_bytes() if path.is_file() else None

    def write(self, name: str, content: bytes) -> None:
        """As Place has it."""
        self._replace(name, lambda part: part.write_bytes(content))

    def put(self, name: str, file: Path) -> None:
        """As Place has it."""
        self._replace(name, lambda part: shutil.copyfile(file, part))

    def names(self, below: str) -> list[str]:
        """As Place has it."""
        paths = (path for path in (self._folder / below).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self._folder)) for path in paths)

    def remove(self, name: str) -> None:
        """As Place has it."""
        (self._folder / name).unlink()

    def _replace(self, name: str, fill: Callable[[Path], object]) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readers of Parquet pass over what begins with a dot.
        part = path.with_name(f".{path.name}.part")
        fill(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


class Bucket:
    """A bucket, by boto3's client of S3; several threads may share it."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def read(self, name: str) -> bytes | None:
        """As Place has it."""
        try:
            content: bytes = self._s3.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """As Place has it."""
        self._s3.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)

    def put(self, name: str, file: Path) -> None:
        """As Place has it: a large one in parts, which S3 shows once they are together."""
        self._s3.upload_file(str(file), self._bucket, self._prefix + name)

    def names(self, below: str) -> list[str]:
        """As Place has it."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{self._prefix}{below}/"
        )
        return [one["Key"].removeprefix(self._prefix) for page in pages for one in page.get("Contents", ())]

    def remove(self, name: str) -> None:
        """As Place has it."""
        self._s3.delete_object(Bucket=self._bucket, Key=self._prefix + name)


def place_at(address: str) -> Place:
    """The place; s3:// is reached as the AWS command line reaches it. Raises UserError."""
    if not address.startswith("s3://"):
        return Folder(Path(address))
    import boto3

    parts = urlsplit(address)
    if not parts.netloc:
        raise UserError(f"--to must be s3://BUCKET/PREFIX or a folder, not {address!r}.")
    return Bucket(boto3.client("s3"), parts.netloc, parts.path.strip("/"))
