"""Deliberate defects of what keeps many streams in one function, which a schedule of groups must catch.

Each replaces a function or two of the product by what its docstring says, and names the rule that it must break and a
schedule that shows it. It decides nothing else. Invariant: the same schedule is clean without it
(`test_group_chaos_teeth.py` holds both).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from handlers.connection.effects import Effect, Outcome
from handlers.connection.inputs import Closed, Input, Written
from handlers.connection.lease import Lease
from handlers.connection.ledger import Record
from handlers.connection.manager import Manager
from handlers.connection.steps import Ended, Step
from handlers.errors import StoreUnavailable
from handlers.group.duties import Remove
from handlers.group.fates import Fate
from handlers.group.roster import Roster
from handlers.run.group_function import _Function
from handlers.run.group_profiles import GroupProfiles
from handlers.run.performer import Performer
from handlers.run.threads import Answered
from handlers.store import ledger_records
from handlers.store.connection_store import Reply, Store
from handlers.store.grouped_store import GroupedStore
from handlers.store.typed_values import Item
from local.chaos.chaotic_upstream import ChaoticUpstream
from local.chaos.deployments import OTHER_SETTINGS
from local.chaos.links import Link
from local.chaos.memory import Memory
from local.chaos.schedule import POLICIES, Fault
from tests.chaos.chaos_managers import LeavesWithoutLooking
from tests.chaos.group_defect import CALM, GroupDefect, group, stream
from tests.chaos.group_exemption_defects import (
    NEXT_TO_EXEMPTIONS,
    START_MACHINE,
    STOPPED,
    start_machine,
)

HEARTBEAT = Store.heartbeat
LISTED, ENDED = Roster.listed, Roster.ended
TAKE, OPEN = Performer._take, Performer._open
PERFORM, TAKES, REMOVES = Performer._perform, _Function._takes, _Function._removes
GROUPED_HEARTBEAT = GroupedStore.heartbeat
TO_RECORD, RECORDS = GroupedStore._to_record, ledger_records.records_of
CATCH_UP = ChaoticUpstream._catch_up


# --- the records ------------------------------------------------------------------------------------------------------


def reads_the_first(store: GroupedStore, _stream: str, _fence: int) -> Reply:
    """What is known of one stream answers the heartbeats of all."""
    return Reply(True, TO_RECORD(store, store._held(min(store._streams)).item))


def knows_the_first(store: GroupedStore, _stream: str) -> Lease:
    """And tells all what it knows of the one."""
    return TO_RECORD(store, store._held(min(store._streams)).item).lease


def saves_under_the_first(store: GroupedStore, _stream: str, *more: Any) -> Reply:
    """The cursors of all streams are saved under one stream's key."""
    return HEARTBEAT(store, min(store._streams), *more)


def saves_seldom(store: GroupedStore, *given: Any) -> Reply:
    """Who is evicted saves its cursor as seldom as who is not."""
    store.evicting.clear()
    return GROUPED_HEARTBEAT(store, *given)


def knows_by_name_alone(lease: Lease, holder: str, _after_fence: int) -> bool:
    """What a claim finds of the function's own earlier claim of the stream is taken for its own reply."""
    return lease.holder == holder


def beats_for_the_future(store: GroupedStore) -> int:
    """A beat answers for what nobody has stored yet."""
    return store._clock_ms() + 8_000


def owes_nothing(_store: GroupedStore) -> None:
    """A release that the table did not answer is not made again, nor one that nobody has asked for."""


def hears_of_no_change(_store: GroupedStore, _items: Iterable[Item]) -> list[str]:
    """What is read of the streams' records reaches none of them."""
    return []


def lets_nobody_go(_store: GroupedStore, *_given: str) -> bool:
    """No record says that its stream is over."""
    return True


# --- the function -----------------------------------------------------------------------------------------------------


def loses_who_joins_in_a_handover(roster: Roster, version: int, members: Mapping[str, str]) -> None:
    """Who joins while two functions live is left to the other function."""
    others = [beat for beat in roster._lease.beats.values() if beat.token != roster._token and not beat.is_buried]
    if others and roster._listed is not None:
        members = {stream: joined for stream, joined in members.items() if stream in roster._members}
    LISTED(roster, version, members)


def ends_with_one(roster: Roster, stream: str, fate: Fate) -> None:
    """Where one stream is over the function forgets whom else it is to keep."""
    ENDED(roster, stream, fate)
    if fate is Fate.OVER:
        roster._members.clear()


def waits_for_who_has_left(function: _Function, answer: Answered, now_ms: int) -> None:
    """After a stream has left the function asks for nothing more for its group."""
    if not isinstance(function._duty, Remove):
        TAKES(function, answer, now_ms)


def opens_from_anothers_cursor(driver: Performer[Any], stream: str, one: Any, cursor: str | None) -> None:
    """A stream is opened from the cursor of the one that was opened before it."""
    driver.last, cursor = cursor, getattr(driver, "last", cursor)  # type: ignore[attr-defined]
    OPEN(driver, stream, one, cursor)


def one_failure_fails_all(driver: Performer[Any], stream: str, answer: Answered) -> None:
    """The writes of all streams are one batch, and an event that the table refuses fails it."""
    TAKE(driver, stream, answer)
    if isinstance(answer.value, Written) and answer.value.dead_lettered:
        driver.fail_waiting("a statement of the batch was refused")


def releases_all(driver: Performer[Any], stream: str, step: Step) -> None:
    """Where one stream's upstream refuses it, the function lets go of all."""
    PERFORM(driver, stream, step)
    if isinstance(step, Ended) and step.report.outcome.error == "StreamThrottled":
        driver.fail_waiting("another stream was refused")


def lets_go_unheard(function: _Function, stream: str, joined: str, outcome: Outcome) -> None:
    """Nobody is told of a stream that is rejected."""
    function._ports = replace(function._ports, reports=lambda *_given: None)
    REMOVES(function, stream, joined, outcome)


class RaisesAtAReset(Manager):
    """A manager that has a defect of its own."""

    def handle(self, now_ms: int, input_: Input, **when: int | None) -> list[Effect]:
        if isinstance(input_, Closed) and input_.reason == "reset":
            raise RuntimeError("a defect")
        return super().handle(now_ms, input_, **when)


def overlooks_who_was_cut_soon(item: Item) -> list[Record]:
    """Nothing is known of a connection that was answered and lasted for less than two seconds."""
    return [record for record in RECORDS(item) if record.last_ms - record.opened_ms >= 2_000]


def rests_for_longer(*_given: Any) -> tuple[float, float]:
    """After an end a stream is connected again when any overlap is over."""
    return 2.5, 3.5


def says_later_that_it_has_forgotten(upstream: ChaoticUpstream, link: Link) -> None:
    """It says so when the older connection has seen that the newer one is connected."""
    link.has_forgotten = upstream._has_forgotten(link)
    if link.has_forgotten:
        upstream._clock.call_at(upstream._clock.now_ms() + 900, lambda: CATCH_UP(upstream, link))
    else:
        CATCH_UP(upstream, link)


def keeps_alone(states: dict[str, Any]) -> None:
    """Starts an execution of the stream's own where its record cannot be read, as where each stream has one."""
    states["May it be kept alone"]["Choices"][0]["Next"] = "Start"


def ends_the_function(error: Exception) -> Any:
    """What one manager raises is raised by the function."""
    raise StoreUnavailable(f"a manager has raised: {error}")


def asks_nobody(_profiles: GroupProfiles, _stream: str, _joined: str | None) -> bool:
    """A function takes the profiles that it has for all that there are."""
    return False


REFUSED = stream("evicts", Fault(9_500, "reset"), Fault(9_500, "refusals", 6_000, 429))
REJECTED = stream("evicts", Fault(9_500, "reset"), Fault(9_500, "rejection", 6_000, 403))
DROPPED = stream("evicts", Fault(20_000, "reset"))
# It is answered half a second after its POST, and has no event until it is cut.
CUT = (Fault(8_700, "reset"), Fault(8_700, "refusals", 6_000, 429))
CUT_SOON = stream("evicts", *CUT, joins_ms=8_000, resumes=False, events_every_ms=2_000)
TWICE = stream("evicts", Fault(9_500, "reset"), Fault(12_000, "reset"))
LATE = stream("evicts", joins_ms=20_000)
# With a profile that comes with a redeployment which changes one more thing, how often functions beat.
NEW = stream("evicts", joins_ms=20_000, has_new_profile=True)
DEPLOYED = Fault(15_000, "redeploy", 0, 1 << [name for name, _ in OTHER_SETTINGS].index("progress_every_s"))
# The newer function cannot open it, so that two functions live for long.
HELD = stream("evicts", Fault(34_000, "no answers", 10_000))
DELAYED = stream("evicts", Fault(34_000, "no answers", 4_000))
# What it keeps, some four seconds, is more than a holder reads between two heartbeats, and less than in six seconds.
FORGETFUL = stream("evicts", events_every_ms=700, memory=Memory(keeps=6, word="frame"))
OFTEN = stream("tolerates", events_every_ms=300)
# It keeps less than comes between two savings of its cursor, and says so when the newer connection is there already.
FORGETS_AT_ONCE = stream("tolerates", events_every_ms=300, memory=Memory(keeps=6, word="frame"))

DRIVER, FUNCTION = "handlers.run.performer.Performer", "handlers.run.group_function._Function"
ROSTER = "handlers.group.roster.Roster"
GROUPED = "handlers.store.grouped_store.GroupedStore"
STORE = "handlers.store.connection_store"
# Beyond two handovers.
MORE_MS = 40_000
DEFECTS = (
    GroupDefect(
        "one stream's mark is read as another's",
        "disturbed",
        {f"{GROUPED}._from_known": reads_the_first, f"{GROUPED}.known": knows_the_first},
        group(REFUSED, CALM),
    ),
    GroupDefect(
        "a cursor is saved under another's key",
        "cursor-ahead",
        {f"{STORE}.Store.heartbeat": saves_under_the_first},
        group(CALM, OFTEN),
    ),
    GroupDefect(
        "a claim is answered by another's reply",
        "wrong-counts",
        {f"{STORE}._is_claimed_by": knows_by_name_alone},
        group(
            *(replace(TWICE, policy=policy, reconnect_tries=3) for policy in POLICIES),
            faults=(Fault(9_400, "unknown outcomes", 8_000),),
        ),
    ),
    GroupDefect(
        "beats answer for what is not stored",
        "lost",
        {f"{GROUPED}.beat_at_ms": beats_for_the_future},
        group(stream("evicts", resumes=False), CALM, faults=(Fault(15_000, "kill"),)),
    ),
    GroupDefect(
        "a release without an answer is forgotten",
        "stuck",
        {f"{GROUPED}.releases_again": owes_nothing},
        group(replace(TWICE, policy="forbids"), CALM, faults=(Fault(9_400, "throttles", 400),)),
    ),
    GroupDefect(
        "a join in a handover is lost",
        "stuck",
        {f"{ROSTER}.listed": loses_who_joins_in_a_handover},
        group(DELAYED, CALM, stream("evicts", joins_ms=37_300)),
    ),
    GroupDefect(
        "one stream's end is the end of others", "stuck", {f"{ROSTER}.ended": ends_with_one}, group(STOPPED, DROPPED)
    ),
    GroupDefect(
        "a stream that leaves holds up the rest",
        "stuck",
        {f"{FUNCTION}._takes": waits_for_who_has_left},
        group(STOPPED, LATE, CALM),
    ),
    GroupDefect(
        "a stream is not told of its changed record",
        "stuck",
        {f"{GROUPED}.refreshed": hears_of_no_change},
        group(replace(STOPPED, store="log"), CALM),
    ),
    GroupDefect(
        "one failure fails a shared batch",
        "disturbed",
        {f"{DRIVER}._take": one_failure_fails_all},
        group(stream("evicts", unstorable="refused"), CALM),
    ),
    GroupDefect(
        "a refusal of one stream releases all", "disturbed", {f"{DRIVER}._perform": releases_all}, group(REFUSED, CALM)
    ),
    GroupDefect(
        "a stream is opened from another's cursor",
        "lost",
        {f"{DRIVER}._open": opens_from_anothers_cursor},
        group(DROPPED, OFTEN),
    ),
    GroupDefect(
        "a stream that is over stays in its group",
        "stuck",
        {f"{GROUPED}.lets_go": lets_nobody_go},
        group(STOPPED, CALM),
    ),
    GroupDefect(
        "nobody is told of a rejection",
        "dead-letters",
        {f"{FUNCTION}._removes": lets_go_unheard},
        group(REJECTED, CALM),
    ),
    GroupDefect(
        "a lane waits in full after a function that was kept too long",
        "disturbed",
        {f"{FUNCTION}.late_s": lambda *_given: 0},
        group(HELD, CALM),
        MORE_MS,
    ),
    GroupDefect(
        "a first connection that is cut soon is not known",
        "lost",
        {"handlers.store.ledger_records.records_of": overlooks_who_was_cut_soon},
        group(CUT_SOON, CALM),
    ),
    GroupDefect(
        "who is evicted saves its cursor seldom",
        "stuck",
        {f"{GROUPED}.heartbeat": saves_seldom},
        group(FORGETFUL),
        MORE_MS,
    ),
    GroupDefect(
        "an older connection leaves without looking again",
        "disturbed",
        {"handlers.connection.loop.Manager": LeavesWithoutLooking},
        group(FORGETS_AT_ONCE, CALM),
        MORE_MS,
        always={
            "handlers.group.keeping.rest_bounds_s": rests_for_longer,
            "local.chaos.chaotic_upstream.ChaoticUpstream._catch_up": says_later_that_it_has_forgotten,
        },
    ),
    GroupDefect(
        "a POST that reads no record keeps its stream alone",
        "cross-talk",
        {START_MACHINE: start_machine(keeps_alone)},
        group(stream("evicts", joins_ms=20_000), CALM, faults=(Fault(19_000, "throttles", 3_000),)),
    ),
    GroupDefect(
        "a stream of a new profile is rejected unasked",
        "stuck",
        {"handlers.run.group_profiles.GroupProfiles.asks": asks_nobody},
        group(CALM, NEW, faults=(DEPLOYED,)),
    ),
    GroupDefect(
        "a stream of a new profile waits for the next function",
        "disturbed",
        {"handlers.run.group_profiles.GroupProfiles._ask": lambda *_given: None},
        group(CALM, NEW, faults=(DEPLOYED,)),
    ),
    GroupDefect(
        "a manager that raises ends the function",
        "disturbed",
        {"handlers.group.keeping.raised": ends_the_function, "handlers.run.group_function.raised": ends_the_function},
        group(DROPPED, CALM),
        always={"handlers.connection.loop.Manager": RaisesAtAReset},
    ),
    *NEXT_TO_EXEMPTIONS,
)


def table() -> str:
    """Which rule catches which defect, in Markdown."""
    rows = [f"| {defect.name} | `{defect.shows_as}` |" for defect in DEFECTS]
    return "\n".join(["| defect | broken rule |", "|---|---|", *rows])


if __name__ == "__main__":
    print(table())
