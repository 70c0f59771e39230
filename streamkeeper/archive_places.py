"""Reads the files of an archive from a bucket (s3://bucket/prefix) or a folder.

`streamkeeper archive` writes them, by classes that extend these (`local/archive/destinations.py`). A name is a path
with slashes, relative to the archive.
"""

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from streamkeeper.dataframes import imported
from streamkeeper.exceptions import InvalidRequest


class Readable(Protocol):
    """A place to read from; several threads may share it."""

    def read(self, name: str) -> bytes | None:
        """The content under a name; None if there is none."""

    def names(self, below: str) -> list[str]:
        """All names that begin with this one and a slash, sorted."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A file with the content under a name."""


class Folder:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes | None:
        """See Readable."""
        path = self.folder / name
        return path.read_bytes() if path.is_file() else None

    def names(self, below: str) -> list[str]:
        """See Readable."""
        paths = (path for path in (self.folder / below).rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.folder)) for path in paths)

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """See Readable."""
        return (self.folder / name).open("rb")


class Bucket:
    """A bucket, read by boto3's client of S3."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        self.s3, self.bucket = s3, bucket
        self.prefix = f"{prefix}/" if prefix else ""

    def read(self, name: str) -> bytes | None:
        """See Readable."""
        try:
            content: bytes = self.s3.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None
        return content

    def names(self, below: str) -> list[str]:
        """See Readable."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}{below}/")
        return [one["Key"].removeprefix(self.prefix) for page in pages for one in page.get("Contents", ())]

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """See Readable; a copy on this machine, because a Parquet file is read from its end."""
        file = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.s3.download_fileobj(self.bucket, self.prefix + name, file)
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return cast(AbstractContextManager[BinaryIO], file)


def names_at(address: str) -> tuple[str, str] | None:
    """The bucket and the prefix of s3://BUCKET/PREFIX; None if the address is a folder. Raises InvalidRequest."""
    scheme, is_address, rest = address.partition("://")
    if address and not is_address:
        return None
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise InvalidRequest(f"An archive's address must be s3://BUCKET/PREFIX or a folder, not {address!r}.")
    return bucket, prefix.strip("/")


def bucket_at(address: str) -> tuple[Any, str, str] | None:
    """The same as `names_at`, with the client before the names."""
    found = names_at(address)
    return None if found is None else (imported("boto3").client("s3"), *found)


def place_at(address: str) -> Readable:
    """The place at an address; s3:// uses the AWS command line's settings. Raises InvalidRequest."""
    found = bucket_at(address)
    return Folder(Path(address)) if found is None else Bucket(*found)
