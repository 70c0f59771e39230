"""The places of an archive's files: a bucket (s3://bucket/prefix), or a folder. A name is a path with slashes below it.

The client reads them and `streamkeeper archive` writes them; several threads may share a place. Invariant: an object or
a file is there whole or not at all.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast

from streamkeeper.dataframes import import_package
from streamkeeper.exceptions import InvalidRequest


class Folder:
    """A folder on this machine; folders that it makes have this mode."""

    def __init__(self, folder: Path, mode: int = 0o777) -> None:
        self.folder, self._mode = folder, mode

    def read(self, name: str) -> bytes | None:
        """The content under a name; None if there is none."""
        path = self.folder / name
        return path.read_bytes() if path.is_file() else None

    def names(self, below: str) -> list[str]:
        """All names that begin with this one and a slash, sorted."""
        paths = (path for path in (self.folder / below).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.folder)) for path in paths)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file with the content under a name."""
        return (self.folder / name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        """Writes or replaces the content."""
        self._fill_file(name, lambda part: part.write_bytes(content)).replace(self.folder / name)

    def add(self, name: str, content: bytes) -> bool:
        """Writes the content if the name has none; returns whether it did."""
        part = self._fill_file(name, lambda part: part.write_bytes(content))
        try:
            os.link(part, self.folder / name)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            part.replace(self.folder / name)
        finally:
            part.unlink(missing_ok=True)
        return True

    def put(self, name: str, file: Path) -> None:
        """Writes or replaces it with a file's content."""
        self._fill_file(name, lambda part: shutil.copyfile(file, part)).replace(self.folder / name)

    def remove(self, name: str) -> None:
        """Removes it."""
        (self.folder / name).unlink()

    def _fill_file(self, name: str, fill: Callable[[Path], object]) -> Path:
        path = self.folder / name
        path.parent.mkdir(self._mode, parents=True, exist_ok=True)
        # Readers of Parquet ignore names that begin with a dot.
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            fill(part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
        except BaseException:
            # Each further try of a full disk would take more of it.
            part.unlink(missing_ok=True)
            raise
        return part


class Bucket:
    """The same in a bucket, by boto3's client of S3."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self.s3, self.bucket = s3, bucket
        self.prefix = f"{prefix}/" if prefix else ""

    def read(self, name: str) -> bytes | None:
        """See Folder."""
        try:
            content: bytes = self.s3.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None
        return content

    def names(self, below: str) -> list[str]:
        """See Folder."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}{below}/")
        return [one["Key"].removeprefix(self.prefix) for page in pages for one in page.get("Contents", ())]

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """See Folder; a copy on this machine, because a Parquet file is read from its end."""
        file = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.s3.download_fileobj(self.bucket, self.prefix + name, file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return cast(AbstractContextManager[BinaryIO], file)

    def write(self, name: str, content: bytes) -> None:
        """See Folder."""
        self.s3.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content)

    def add(self, name: str, content: bytes) -> bool:
        """See Folder."""
        try:
            self.s3.put_object(Bucket=self.bucket, Key=self.prefix + name, Body=content, IfNoneMatch="*")
        except self.s3.exceptions.ClientError as refusal:
            if refusal.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"):
                return False
            raise
        return True

    def put(self, name: str, file: Path) -> None:
        """See Folder; sends a large file in parts, which S3 shows once all are there."""
        self.s3.upload_file(str(file), self.bucket, self.prefix + name)

    def remove(self, name: str) -> None:
        """See Folder."""
        self.s3.delete_object(Bucket=self.bucket, Key=self.prefix + name)


Place = Folder | Bucket


def names_at(address: str) -> tuple[str, str] | None:
    """The bucket and the prefix of s3://BUCKET/PREFIX; None if the address is a folder. Raises InvalidRequest."""
    scheme, is_address, rest = address.partition("://")
    if address and not is_address:
        return None
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InvalidRequest(f"An archive's address must be s3://BUCKET/PREFIX or a folder, not {address!r}.")
    return bucket, prefix.strip("/")


def place_at(address: str) -> Place:
    """The place at an address; s3:// uses the AWS command line's settings. Raises InvalidRequest."""
    found = names_at(address)
    return Folder(Path(address)) if found is None else Bucket(import_package("boto3").client("s3"), *found)
