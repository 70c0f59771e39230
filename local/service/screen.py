"""Prints lines on standard output and, in a terminal, a moving picture below them.

Invariant: a line that standard output cannot accept, such as one to a file on a full disk, is lost and ends nothing.
"""

import contextlib
import sys
from datetime import datetime

from rich.console import Console, RenderableType
from rich.live import Live


class Screen:
    """Prints lines, each with the time of day, and a picture below them where standard output is a terminal."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._live: Live | None = None
        self.interactive = self._console.is_terminal and not self._console.is_dumb_terminal

    def plain(self, text: str) -> None:
        """Prints text unchanged."""
        with contextlib.suppress(OSError):
            self._console.print(text)
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Prints one line of news."""
        self.plain(f"{datetime.now().astimezone():%H:%M:%S} {text}")

    def show(self, picture_of: RenderableType | None) -> None:
        """Replaces the picture below the lines; None removes it."""
        if not self.interactive:
            return
        if picture_of is None:
            self.close()
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(picture_of, refresh=True)

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._console.width

    def close(self) -> None:
        """Removes the picture and shows the cursor."""
        if self._live is not None:
            self._live.stop()
            self._live = None
