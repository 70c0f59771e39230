"""Writes to the place of an archive: a bucket (s3://bucket/prefix) or a folder.

Invariant: an object or a file is there whole or not at all.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from local.user_error import UserError
from streamkeeper import archive_places
from streamkeeper.exceptions import InvalidRequest


class Place(archive_places.Readable, Protocol):
    """A place; names are paths with slashes below the archive."""

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces the content."""

    def put(self, name: str, file: Path) -> None:
        """Writes or replaces it with a file's content."""

    def remove(self, name: str) -> None:
        """Removes it."""


class Folder(archive_places.Folder):
    """A folder of this machine; folders that it makes have this mode."""

    def __init__(self, folder: Path, mode: int = 0o777) -> None:
        super().__init__(folder)
        self._mode = mode

    def write(self, name: str, content: bytes) -> None:
        """As Place has it."""
        self._replace(name, lambda part: part.write_bytes(content))

    def put(self, name: str, file: Path) -> None:
        """As Place has it."""
        self._replace(name, lambda part: shutil.copyfile(file, part))

    def remove(self, name: str) -> None:
        """As Place has it."""
        (self.folder / name).unlink()

    def _replace(self, name: str, fill: Callable[[Path], object]) -> None:
        path = self.folder / name
        path.parent.mkdir(self._mode, parents=True, exist_ok=True)
        # Readers of Parquet ignore names that begin with a dot.
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        fill(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


class Bucket(archive_places.Bucket):
    """A bucket."""

    def write(self, name: str, content: bytes) -> None:
        """As Place has it."""
        self.s3.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)

    def put(self, name: str, file: Path) -> None:
        """Sends a large file in parts, which S3 shows once all are there."""
        self.s3.upload_file(str(file), self.bucket, self.prefix + name)

    def remove(self, name: str) -> None:
        """As Place has it."""
        self.s3.delete_object(Bucket=self.bucket, Key=self.prefix + name)


def place_at(address: str) -> Place:
    """The place; s3:// is reached as by the AWS command line. Raises UserError."""
    try:
        found = archive_places.bucket_at(address)
    except InvalidRequest:
        raise UserError(f"--to must be s3://BUCKET/PREFIX or a folder, not {address!r}.") from None
    return Folder(Path(address)) if found is None else Bucket(*found)
