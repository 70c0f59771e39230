"""Keeps how far a consumer is, so that a killed one goes on: in a file, or in any object with `load` and `save`.

A file is replaced as a whole and written through to the disk: a kill leaves the former or the new one.
"""

import json
import os
from pathlib import Path
from typing import Any, Protocol

from streamkeeper.exceptions import StreamkeeperError


class Checkpoint(Protocol):
    """The place where `follow` saves its progress; both methods are called in a thread, one at a time."""

    def load(self) -> dict[str, Any] | None:
        """Returns the state that was saved last; None before the first."""

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the saved state, a few values of JSON; returns once a kill cannot undo it."""


class FileCheckpoint:
    """A checkpoint in a file, which one consumer has for itself."""

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self.path = Path(path)

    def load(self) -> dict[str, Any] | None:
        """Returns the saved state; None without a file. Raises StreamkeeperError if the file is no checkpoint."""
        try:
            state = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            state = None
        if not isinstance(state, dict):
            raise StreamkeeperError(f"{self.path} is not a checkpoint: name another file, or delete it to begin anew.")
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replaces the file."""
        part = self.path.with_name(f".{self.path.name}.part")
        with part.open("w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
