"""Prints what commands print, and reads their options.

Any text is made safe to print: characters that control a terminal, or cannot be encoded, are escaped.

    printable("\x1b[2Jgone")  # the text \x1b[2Jgone, with a backslash

Texts of streams, profiles and requests come from strangers. Invariant: a printed text moves no cursor, reverses no line
and raises nothing, whatever the terminal's encoding; a wrong option becomes a sentence with its name, bounds and value.
"""

import argparse
import contextlib
import io
import math
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

# C0 and C1 controls, changes of the writing direction (UAX #9), other line ends, halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# The columns without a terminal; no table is that wide.
NO_TERMINAL_COLUMNS = 1000
# How often a long command says how much is done.
PROGRESS_EVERY_S = 10.0
_NO_BREAK = "\N{NO-BREAK SPACE}"
_CONTROL_BUT_LINE_ENDS = re.compile(_CONTROL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def printable(text: str) -> str:
    """Returns the text as one line, with control characters escaped."""
    return _CONTROL.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Returns the text as `printable` does, but keeps line ends."""
    return _CONTROL_BUT_LINE_ENDS.sub(_escape, text)


def accept_any_text(stream: TextIO) -> None:
    """Makes a stream escape characters that its encoding lacks, instead of raising UnicodeEncodeError."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def width_of(text: str) -> int:
    """Returns how many columns a terminal takes for a printable text: two for 語, none for a combining accent."""
    from rich.cells import cell_len  # imported late: every verb imports this module, and few show a table

    return cell_len(text)


def pad(text: str, columns: int) -> str:
    """Returns a printable text followed by spaces up to that many columns."""
    return text + " " * (columns - width_of(text))


def truncate(text: str, columns: int) -> str:
    """Returns a printable text that takes at most that many columns; "…" ends one that was longer."""
    if width_of(text) <= columns:
        return text
    while width_of(text) >= columns:
        text = text[:-1]
    return f"{text}…"


def terminal_columns(stream: TextIO, default: int) -> int:
    """Returns the columns of the terminal behind a stream; `default` if there is none.

    COLUMNS in the environment sets them for terminals and pipes.
    """
    if os.environ.get("COLUMNS", "").isdecimal() or stream.isatty():
        return shutil.get_terminal_size((default, 24)).columns
    return default


def align_table(lines: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Returns a table as lines: the first column is aligned left, the others right.

    No row is cut. In a table that is too wide, the first cell of each row stands on a line of its own, and headers of
    several words take two lines. Columns that still exceed the width go on below in another table, which repeats the
    first column.
    """
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    if sum(widths) + 2 * (len(widths) - 1) > columns and (narrow := _names_above(lines, columns)):
        return narrow
    shown: list[str] = []
    first = 1
    while first < len(widths):
        last, width = first, widths[0]
        while last < len(widths) and (last == first or width + 2 + widths[last] <= columns):
            width += 2 + widths[last]
            last += 1
        for line in lines:
            cells = (line[at].rjust(widths[at]) for at in range(first, last))
            shown.append("  ".join([line[0].ljust(widths[0]), *cells]))
        if last < len(widths):
            shown.append("")
        first = last
    return shown


def _names_above(lines: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Returns the table with the first cell of each row above the others; nothing if that does not fit either."""
    titles = [title.rpartition(" ") for title in lines[0][1:]]
    rows = [[above for above, _, _ in titles], [below for _, _, below in titles], *(line[1:] for line in lines[1:])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(titles))]
    for between in ("  ", " "):
        if 2 + sum(widths) + len(between) * (len(widths) - 1) <= columns:
            shown = ["  " + between.join(map(str.rjust, row, widths)) for row in rows]
            named = [text for line, row in zip(lines[1:], shown[2:], strict=True) for text in (line[0], row)]
            return [*(row.rstrip() for row in shown[:1] if row.strip()), shown[1], *named]
    return []


@contextlib.contextmanager
def report_if_slow(
    message: str, share_done: Callable[[], float] | None = None, *, after_s: float = 1.0, is_quiet: bool = False
) -> Iterator[None]:
    """Prints a line on standard error if the block is not over after that time, unless `is_quiet`.

    If `share_done` returns the share that is done, a line every ten seconds says how long the rest takes.
    """
    is_over, began_s = threading.Event(), time.monotonic()

    def say() -> None:
        if is_over.wait(after_s):
            return
        print(f"streamkeeper: {message}", file=sys.stderr, flush=True)
        while share_done is not None and not is_over.wait(PROGRESS_EVERY_S):
            share = max(share_done(), 1e-6)
            left_s = (time.monotonic() - began_s) * (1 / share - 1)
            print(f"streamkeeper: {share:.0%} done, about {left_s:.0f} s left", file=sys.stderr, flush=True)

    if not is_quiet:
        threading.Thread(target=say, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def print_line(line: str, indent: int = 4) -> None:
    """Prints a line as `printable`; a narrow terminal gets it wrapped between words, what follows indented."""
    print("\n".join(wrap_line(printable(line), indent)), flush=True)


def wrap_line(line: str, indent: int) -> list[str]:
    """Returns a line as `print_line` prints it."""
    columns = max(terminal_columns(sys.stdout, NO_TERMINAL_COLUMNS), indent + 20)
    if width_of(line) <= columns:
        return [line]
    # While lines are wrapped, a wide character is followed by one that no printable text has.
    wide = "".join(character + "\0" * (width_of(character) - 1) for character in line)
    lines = textwrap.wrap(wide, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return [one.replace("\0", "") for one in lines]


def join_items(stream: TextIO, items: Iterable[str]) -> str:
    """Returns the items in one line, or, on a terminal, in as many lines as needed without cutting one."""
    if not stream.isatty():
        return " ".join(items)
    together = " ".join(item.replace(" ", _NO_BREAK) for item in items)
    width = terminal_columns(stream, 80)
    return textwrap.fill(together, width, break_on_hyphens=False, break_long_words=False).replace(_NO_BREAK, " ")


def encodable_picture(encoding: str | None, text: str) -> str:
    """Returns the text, with a picture's marks replaced by ASCII ones if the encoding lacks them."""
    from timeline import picture  # imported late: every verb imports this module, and few draw

    try:
        picture.LEGEND.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(picture.ASCII)
    return text


def _escape(sign: re.Match[str]) -> str:
    return sign[0].encode("unicode_escape").decode("ascii")


_MOST = 100
_reported: set[tuple[str, str]] = set()


@contextlib.contextmanager
def suppress_failures(what: str) -> Iterator[None]:
    """Runs the body; an exception in it is reported once and ends only the body.

        with suppress_failures("the display"):
            screen.show(lanes)

    Invariant: no exception leaves the block; each cause is reported once per process, in a line on standard error.
    """
    try:
        yield
    except Exception as problem:
        cause = (what, type(problem).__name__)
        if cause in _reported or len(_reported) >= _MOST:
            return
        _reported.add(cause)
        sentence = f"streamkeeper: {what} failed, and the service continues without it: {cause[1]}: {problem}"
        # Standard error may be the closed pipe or be on the full disk.
        with contextlib.suppress(Exception):
            print(printable(sentence).encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)


class UserError(Exception):
    """The user's input or machine is at fault; the command prints the sentence and exits with 2.

    Invariant: the text is one sentence that names what is wrong and what to do.
    """


@contextlib.contextmanager
def explain_os_errors(words: str, hint: str = "") -> Iterator[None]:
    """Raises an OSError as a UserError: the words, such as "x.toml cannot be read", the system's reason, the hint."""
    try:
        yield
    except OSError as problem:
        raise UserError(f"{words}: {problem.strerror or problem}{hint}.") from None


class WrappedHelp(argparse.HelpFormatter):
    """Wraps the paragraphs of a description and an epilog; a paragraph with indented lines keeps its lines.

    A command that takes several lines can be pasted: all but the last end in a backslash.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._paragraph(part, width, indent) for part in text.split("\n\n"))

    def _paragraph(self, text: str, width: int, indent: str) -> str:
        if "\n  " not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(self._line(line, width) for line in text.split("\n"))

    def _line(self, line: str, width: int) -> str:
        is_command = line.startswith("  streamkeeper ") and "   " not in line.strip()
        width, end = (width - 2, " \\\n") if is_command and len(line) > width else (width, "\n")
        return end.join(textwrap.wrap(line, width, subsequent_indent=" " * 6, break_on_hyphens=False))


def whole_number(option: str, value: str, least: int, most: int) -> int:
    """Returns an option that is a whole number, written with digits only."""
    if not (value.isascii() and value.isdigit() and len(value) <= 17 and least <= int(value) <= most):
        raise UserError(f"{option} must be a whole number from {least} to {most}, not {value!r}.")
    return int(value)


def read_choice(option: str, value: str, allowed: Sequence[str]) -> str:
    """Returns an option that is one of these words."""
    if value not in allowed:
        raise UserError(f"{option} must be one of {', '.join(allowed)}, not {value!r}.")
    return value


def read_number(option: str, value: str, least: float, most: float) -> float:
    try:
        given = float(value) if value.isascii() and "_" not in value else math.nan
    except ValueError:
        given = math.nan
    if not least <= given <= most:
        raise UserError(f"{option} must be a number from {least:g} to {most:g}, not {value!r}.")
    return given


def read_port(environment: Mapping[str, str]) -> int:
    """Returns the port of the HTTP API: PORT, 3000 by default; raises UserError if it is not one."""
    text = environment.get("PORT") or "3000"
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= 65533):
        raise UserError(f"PORT must be a number from 1 to 65533, not {text[:20]!r}; PORT, PORT+1 and PORT+2 are used.")
    return int(text)
