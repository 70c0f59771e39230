"""Names the attributes of a lease that cannot be read, so that a person can mend them.

handlers/store/control_items.py reads such an attribute as if it were absent. For example a lease whose `started_at` is
"yesterday" reads as one that nobody started, and is named for it here; so is the `layout` of a later release. Pure.
Invariant: a lease as a release up to this one writes it has no damage.
"""

from handlers.store.control_items import Item, count, fixed_partitions, instant_ms, known_numbers, live_record, text
from handlers.store.control_record import LAYOUT

_NUMBERS = ("fence", "connected", "released", "expires_at_ms", "generation", "layout", "rest_until_ms")
_TEXTS = ("execution", "holder", "ending", "ending_cause", "marked")
_INSTANTS = ("started_at", "ended_at", "stop_at")
# All of the lease itself and what refuses a claim, which the watch reads; the record has cursor and ledger besides.
ATTRIBUTES = (*_NUMBERS, *_TEXTS, *_INSTANTS, "partitions", "order", "stop")
_OTHER_NUMBERS = (
    *("cursor_fence", "saved_at_ms", "looked", "rest_failures", "rest_reconnection_ms", "rest_same_ends"),
    *("rest_refused_since_ms", "rest_final_ms", "rest_tried_ms"),
)


def damage(item: Item) -> tuple[str, ...]:
    """The names of the attributes that cannot be read, or that are missing where an execution holds the stream."""
    names = [name for name in (*_NUMBERS, *_OTHER_NUMBERS) if name in item and count(item, name) is None]
    names += ["layout"] if count(item, "layout") not in (None, LAYOUT) else []
    names += [
        name for name in (*_TEXTS, "cursor", "rest_kind", "rest_same_end") if name in item and text(item, name) is None
    ]
    names += [name for name in _INSTANTS if name in item and instant_ms(text(item, name)) is None]
    if "partitions" in item and fixed_partitions(item) is None:
        names.append("partitions")
    if "order" in item and text(item, "order") != "none":
        names.append("order")
    if "known" in item and known_numbers(item) is None:
        names.append("known")
    if "live" in item and live_record(item) is None:
        names.append("live")
    if "stop" in item and not isinstance(item["stop"].get("BOOL"), bool):
        names.append("stop")
    # Without either nobody knows since when the stream has not been connected.
    if "execution" in item and "started_at" not in item and "expires_at_ms" not in item:
        names.append("started_at")
    return tuple(names)
