"""Parses the profile's field `budget`: how much may be stored in a day of UTC, and what happens beyond that.

    budget = { events_per_day = 1000000, bytes_per_day = 500000000, then = "sample", keep_one_in = 100 }
    budget = { bytes_per_day = 500000000, then = "log" }
    budget = { profile_events_per_day = 50000000, then = "pause" }

The first two bound each stream, the third all streams of the profile together. A stage may have a budget as well, in
its settings; what happens beyond it is up to each profile.

Invariant: a `Budget` that is returned without a note in `Fields` is valid.
"""

from typing import Literal, NamedTuple, get_args

from handlers.profile.checked_fields import Fields, choice, integer

Then = Literal["go on", "sample", "log", "pause"]
MOST = 10**12
_LIMIT, _THEN, _ONE_IN = integer(MOST), choice(get_args(Then)), integer(1_000_000, least=2)


class SharedBudget(NamedTuple):
    """What the streams of the profile or of the stage may store together in a day; 0 is no bound."""

    owner: str
    most_events: int
    most_bytes: int

    def percent(self, events: int, size: int) -> int:
        """Returns the percentage of the budget that is used."""
        pairs = ((events, self.most_events), (size, self.most_bytes))
        return max((100 * used // most for used, most in pairs if most), default=0)


class Budget(NamedTuple):
    """What each stream of the profile may store in a day; 0 is no bound. A sample keeps one event in `one_in`.

    `shared` are the budgets that the stream shares with others.
    """

    most_events: int
    most_bytes: int
    then: Then
    one_in: int
    shared: tuple[SharedBudget, ...] = ()


def budget(fields: Fields) -> Budget | None:
    """Returns the budget; None if the field is not a table."""
    inner = fields.table("budget", "a table such as { events_per_day = 1000000 }")
    if inner is None:
        return None
    names = ("events_per_day", "bytes_per_day", "profile_events_per_day", "profile_bytes_per_day")
    if not any(inner.has(name) for name in names):
        inner.add_problem("", f"must have at least one of {', '.join(names)}")
    events, size, *of_profile = (inner.read(name, _LIMIT) or 0 for name in names)
    then, has_one_in = inner.read("then", _THEN, "go on"), inner.has("keep_one_in")
    one_in = inner.read("keep_one_in", _ONE_IN) or 0
    if then == "sample" and not has_one_in:
        inner.add_problem("keep_one_in", 'is missing: then = "sample" keeps one event of so many')
    if then != "sample" and has_one_in:
        inner.add_problem("keep_one_in", 'works only with then = "sample"')
    inner.refuse_unknown(f"budget: {', '.join(names)}, then, keep_one_in")
    return Budget(events, size, then, one_in, (SharedBudget("profile", *of_profile),) if any(of_profile) else ())


def with_stage(own: Budget | None, events: int, size: int) -> Budget:
    """Returns the budget with the stage's; a stream whose profile has none is stored beyond the stage's budget."""
    own = own or Budget(0, 0, "go on", 0)
    return own._replace(shared=(*own.shared, SharedBudget("stage", events, size)))
