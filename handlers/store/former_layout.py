"""Reads what a former version kept in items of their own: the cursor (`cursor`), the rest (`rest`), and its ledger.

A control record of such a version is converted at the first claim (`connection_store.py`). A connection of it that is
connected meanwhile goes on writing there until it is relieved, so whoever claims after it reads there again.
Invariant: nothing is written, and every read is consistent.
"""

from handlers.connection.backoff import Rest
from handlers.connection.ledger import known
from handlers.store import control_items
from handlers.store.control_record import Former
from handlers.store.control_table import ControlTable
from handlers.store.ledger_records import LOOK_BACK


def read(table: ControlTable, stream_id: str) -> Former:
    """What is there; nothing where nothing is."""
    # The ledger after the cursor: that more was stored meanwhile is no harm, the other way round it would be.
    cursor = table.get(stream_id, "cursor") or {}
    rows = table.newest(stream_id, "connection#", LOOK_BACK)
    return Former(
        cursor=control_items.text(cursor, "cursor"),
        cursor_fence=control_items.count(cursor, "fence") or 0,
        saved_ms=control_items.count(cursor, "saved_at_ms"),
        rest=read_rest(table, stream_id),
        known=known(record for row in rows for record in control_items.records(row)),
    )


def read_rest(table: ControlTable, stream_id: str) -> Rest:
    """The rest that a function of a former version has written down; none where there is none."""
    return control_items.rest_of(table.get(stream_id, "rest") or {}, "")
