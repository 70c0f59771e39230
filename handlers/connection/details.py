"""Makes a phrase for people safe to show: bounded, on one line, and every character of it visible.

A phrase says why something ended. It is written into the ledger and shown by the API and in a terminal, so no control
character may move a cursor there, and no length may fill an item. For example a line end becomes `\\n`. Invariant: what
is returned has at most MOST_CHARACTERS characters, can be encoded, and holds no control character.
"""

from __future__ import annotations

MOST_CHARACTERS = 300


def bounded(text: str) -> str:
    """Returns the phrase as it may be shown; the end of a longer one is replaced by an ellipsis."""
    visible = "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text[: MOST_CHARACTERS + 1]
    )
    return visible if len(visible) <= MOST_CHARACTERS else visible[: MOST_CHARACTERS - 1] + "…"
