"""Shows a command's help, and reads its options; a wrong one becomes a sentence with its name, bounds and value."""

import argparse
import contextlib
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence


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
    """Returns an option that is a number."""
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
