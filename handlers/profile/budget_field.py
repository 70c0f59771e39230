"""Parses the profile's field `budget`: how much of a stream may be stored in a day of UTC, and what follows beyond it.

    budget = { events_per_day = 1000000, bytes_per_day = 500000000, then = "sample", keep_one_in = 100 }

Invariant: a `Budget` that is returned without a note in `Fields` is sound.
"""

from typing import Literal, NamedTuple, get_args

from handlers.profile.checked_fields import Fields, choice, whole

Then = Literal["go on", "sample", "pause"]
MOST = 10**12
_LIMIT, _THEN, _ONE_IN = whole(MOST), choice(get_args(Then)), whole(1_000_000, least=2)


class Budget(NamedTuple):
    """What each stream of the profile may store in a day; 0 is no bound. `one_in` is of how many a sample keeps one."""

    most_events: int
    most_bytes: int
    then: Then
    one_in: int


def budget(fields: Fields) -> Budget | None:
    """The budget; None where the field is no table."""
    inner = fields.table("budget", "a table such as { events_per_day = 1000000 }")
    if inner is None:
        return None
    events, size = (inner.read(name, _LIMIT) or 0 for name in ("events_per_day", "bytes_per_day"))
    then = inner.read("then", _THEN, "go on")
    one_in = inner.read("keep_one_in", _ONE_IN) or 0
    if not (events or size):
        inner.wrong("events_per_day", "or bytes_per_day must say how much a day may have")
    if bool(one_in) != (then == "sample"):
        inner.wrong(
            "keep_one_in", 'must say of how many events a sample keeps one, where then = "sample", and only there'
        )
    inner.refuse_the_rest("budget: events_per_day, bytes_per_day, then, keep_one_in")
    return Budget(events, size, then, one_in)
