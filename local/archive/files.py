"""Writes the Parquet files of one hour: as few as possible, of 64 to 512 MB each, or a single smaller one.

A file ends once it has `most` bytes. If the last one has less than `least`, it is joined with the one before.
Invariant: at most one row group is in memory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from streamkeeper import dataframes

MOST_BYTES, LEAST_BYTES = 384 * 1024**2, 64 * 1024**2
# The size of a row group: good for readers, and small enough for the memory of a small machine.
ROWS, GROUP_BYTES = 100_000, 64 * 1024**2


class HourFiles:
    """The files of an hour, in their own folder."""

    def __init__(self, folder: Path, schema: Any, most: int = MOST_BYTES, least: int = LEAST_BYTES) -> None:
        self._folder = folder
        self._schema = schema
        self._most, self._least = most, least
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0
        self._files: list[Path] = []
        self._open: tuple[Any, BinaryIO] | None = None
        self.events = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row."""
        self._rows.append(row)
        self.events += 1
        self._bytes += len(row["data"] or "") + len(row["bytes"] or b"") + 100
        if len(self._rows) >= ROWS or self._bytes >= min(GROUP_BYTES, self._most):
            self._write()

    def close(self) -> list[Path]:
        """The complete files, in the order of their rows; none if there was no row."""
        self._write()
        self._close_file()
        if len(self._files) > 1 and self._files[-1].stat().st_size < self._least:
            self._join_last_two()
        return self._files

    def _write(self) -> None:
        if not self._rows:
            return
        pyarrow, parquet = dataframes.import_package("pyarrow"), dataframes.import_package("pyarrow.parquet")
        if self._open is None:
            path = self._folder / f"part-{len(self._files):04d}.parquet"
            self._files.append(path)
            file = path.open("wb")
            self._open = parquet.ParquetWriter(file, self._schema, compression="zstd"), file
        writer, sink = self._open
        writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._bytes = [], 0
        if sink.tell() >= self._most:
            self._close_file()

    def _close_file(self) -> None:
        if self._open is not None:
            writer, sink = self._open
            writer.close()
            sink.close()
            self._open = None

    def _join_last_two(self) -> None:
        """Joins the last two files, a row group at a time."""
        parquet = dataframes.import_package("pyarrow.parquet")
        last, before = self._files.pop(), self._files[-1]
        joined = before.with_suffix(".joined")
        with parquet.ParquetWriter(joined, self._schema, compression="zstd") as writer:
            for path in (before, last):
                with parquet.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group))
        last.unlink()
        joined.replace(before)
