"""Prints lines on standard output and, in a terminal, a moving picture below them.

Invariants: a line that standard output refuses, as a file on a full disk does, is lost and breaks nothing; no text
controls the terminal.
"""

import errno
import sys
import textwrap
from datetime import datetime

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from local.observers import suppress_failures
from local.printable import accept_any_text, encodable_picture, printable, printable_lines


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raises the error of the write; rich would end the process in the middle of a request."""
        raise BrokenPipeError(errno.EPIPE, "the reader of standard output has gone")


class Screen:
    """Prints lines with the time of day, and, on a terminal, a picture below them."""

    def __init__(self) -> None:
        accept_any_text(sys.stdout)
        self._console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._live: Live | None = None
        self.interactive = self._console.is_terminal and not self._console.is_dumb_terminal

    def print_lines(self, text: str) -> None:
        """Prints lines; control characters are escaped."""
        with suppress_failures("the display"):
            self._console.print(self._encodable(printable_lines(text)))
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Prints one line of news."""
        self.print_lines(f"{datetime.now().astimezone():%H:%M:%S} {printable(text)}")

    def show_picture(self, picture_of: RenderableType | None) -> None:
        """Replaces the picture below the lines; None removes it."""
        if not self.interactive:
            return
        if picture_of is None:
            self.close()
            return
        with suppress_failures("the display"):
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False, transient=True)
                self._live.start()
            self._live.update(picture_of, refresh=True)

    def wrap_lines(self, text: str, style: str = "") -> list[Text]:
        """Returns a line for a picture, wrapped for the terminal, which would cut a longer line of a picture.

        Control characters are escaped.
        """
        shown = self._encodable(printable(text))
        fits = len(shown) <= self.width
        return [Text(part, style=style) for part in ([shown] if fits else textwrap.wrap(shown, self.width))]

    def _encodable(self, text: str) -> str:
        return encodable_picture(self._console.encoding, text)

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._console.width

    def close(self) -> None:
        """Removes the picture and shows the cursor."""
        with suppress_failures("the display"):
            if self._live is not None:
                live, self._live = self._live, None
                live.stop()
