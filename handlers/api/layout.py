"""Writes an answer as JSON that a person can read in a terminal, and a program as any other JSON.

What fits stands on one line. Of what does not, each member has a line of its own, two blanks further in:

    {
      "stream": "demo",
      "lanes": {
        "A": {"phase": "waiting"},
        "B": {"phase": "connected", "fence": 1, ...}
      }
    }

Invariants: it is the value that was given; a line is longer than WIDTH characters only where a text in it is.
"""

from __future__ import annotations

import json
from typing import Any

# A gap and a lane, with their instants, are rows of a table on a wide terminal, and two lines on one of 80 columns.
WIDTH = 200


def laid_out(value: Any, indent: int = 0, before: int = 0) -> str:
    """The value as JSON; it begins behind `indent` blanks and `before` more characters, and ends without a line end."""
    line = json.dumps(value, ensure_ascii=False)
    # One for the comma behind it.
    if not value or not isinstance(value, dict | list) or indent + before + len(line) + 1 <= WIDTH:
        return line
    inner = indent + 2
    if isinstance(value, dict):
        names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value]
        lines = [name + laid_out(one, inner, len(name)) for name, one in zip(names, value.values(), strict=True)]
    else:
        lines = [laid_out(one, inner) for one in value]
    blanks = "\n" + " " * inner
    return f"{line[0]}{blanks}{f',{blanks}'.join(lines)}\n{' ' * indent}{line[-1]}"
