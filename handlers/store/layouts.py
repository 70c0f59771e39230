"""Refuses by name what a later version has written in a layout that this one does not know, or what is damaged.

    lease     `layout`, 2 here
    event     `layout` is absent here, as is that of a segment: where one says any, a later version wrote it

A version that changes what an item means writes another number there (docs/upgrade.md). Pure. Invariant: a refusal is
one sentence that names the item, what it has and what this version knows, and nothing of what the upstream sent.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from handlers.errors import StoreUnavailable
from handlers.store.control_items import Item, count
from handlers.store.control_record import layout_problem

# Of events and segments.
KNOWN = 1


def refusal(words: str) -> StoreUnavailable:
    """The error whose words a caller is to read: it says what is stored, and nothing passes by itself."""
    problem = StoreUnavailable(words)
    problem.is_unknown_layout = True
    return problem


def check_lease(item: Item) -> None:
    """Raises StoreUnavailable where the control record's layout is not known."""
    if problem := layout_problem(item):
        raise refusal(problem)


def check(item: Item, name: str) -> None:
    """Raises StoreUnavailable where the layout of an event or a segment is not known; `name` says which it is."""
    if "layout" in item and (layout := count(item, "layout")) != KNOWN:
        raise refusal(f"{name} has layout {layout}, and this version knows {KNOWN}")


@contextmanager
def named(name: str) -> Iterator[None]:
    """Has what cannot be unpacked inside refused by its name."""
    try:
        yield
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError):
        raise refusal(f"{name} cannot be read: it is damaged, or a later version wrote it") from None
