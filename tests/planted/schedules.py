"""Schedules of chaos that are made for what must show in them; `NAMED` are those that rows of the table name.

They decide nothing else. Invariant: the ways of a stream that a schedule does not name are the plainest.
"""

from dataclasses import replace
from typing import Any

from local.chaos.deployments import OTHER_SETTINGS
from local.chaos.draws import PAGE, generate
from local.chaos.plans import Fault, in_order
from local.chaos.schedule import Schedule
from local.simulation.upstream_memory import EVERYTHING, Memory


def outage(at_ms: int, for_ms: int) -> tuple[Fault, Fault]:
    """The connection is reset, and nobody listens for a while."""
    return Fault(at_ms, "reset"), Fault(at_ms, "no listener", for_ms)


# --- one stream -------------------------------------------------------------------------------------------------------

ALONE = Schedule(0, "evicts", True, False, 0, False, 0, 300, ())
# The second outage comes while the first is made up for. Each is shorter than the upstream goes back, both are longer.
TWO_OUTAGES = replace(ALONE, faults=(*outage(10_000, 5_000), *outage(17_500, 5_000)), memory=Memory(keeps_ms=10_000))

PAGED = replace(generate(9017), memory=Memory(keeps=6, word="status"))
DELIVERED = generate(22)
DELIVERS = DELIVERED.delivery
assert DELIVERS is not None

# --- groups -----------------------------------------------------------------------------------------------------------

PLAIN = replace(ALONE, events_every_ms=1_100, together=20)


def group(*streams: Schedule, faults: tuple[Fault, ...] = ()) -> Schedule:
    """A schedule of one group; `faults` meet all of it."""
    named = tuple(replace(one, name=f"m{number}") for number, one in enumerate(streams))
    return replace(PLAIN, policy="tolerates", faults=faults, group=named)


def stream(policy: str, *faults: Fault, **ways: Any) -> Schedule:
    """One stream of it, with its own faults."""
    return replace(PLAIN, policy=policy, faults=faults, **ways)


# A stream that nothing meets, beside which the others are put.
CALM = stream("evicts")
DROPPED = stream("evicts", Fault(20_000, "reset"))
REFUSED = stream("evicts", Fault(9_500, "reset"), Fault(9_500, "refusals", 6_000, 429))
OFTEN = stream("tolerates", events_every_ms=300)
STOPPED = stream("evicts", Fault(9_500, "stop"))
ABORT = Fault(12_000, "abort", 0, 30_000)

NAMED = {
    "two outages": TWO_OUTAGES,
    # The second outage comes while the upstream still sends what came in the first.
    "outages of which events say when": replace(
        ALONE,
        timed=True,
        key="path",
        faults=(*outage(10_000, 6_000), *outage(22_000, 9_500)),
        memory=Memory(keeps_ms=10_000),
    ),
    # The next POST asks for what came since the handover, of which nobody knows that it brought all.
    "a stop after a handover": replace(
        ALONE,
        events_every_ms=700,
        key="path",
        faults=(Fault(17_988, "burst", 0, 20), Fault(32_467, "stop and post", 0, 9_000)),
        memory=Memory(keeps_ms=10_000),
    ),
    # The successor had claimed before it, and opens after it.
    "a stop at a handover": replace(
        ALONE,
        events_every_ms=700,
        key="path",
        faults=(Fault(32_467, "stop and post", 0, 9_000),),
        memory=Memory(keeps_ms=6_000, word="status"),
    ),
    # The store is slower than the stream for two lives of a function, which stay alive by what they write meanwhile.
    "a store that stays slow": replace(ALONE, faults=(Fault(12_000, "slow store", 30_000, 1_500),)),
    # Longer than a function lives, and shorter than the profile lets a refusal last.
    "a page for a minute": replace(ALONE, faults=(Fault(10_000, "rejection", 60_000, PAGE),), reject_after_s=300),
    # The same, long after a standstill that was longer than the profile lets a refusal last.
    "a page after a standstill": replace(
        ALONE, faults=(Fault(3_000, "freeze", 9_000), Fault(30_000, "rejection", 20_000, PAGE)), reject_after_s=10
    ),
    # The seed's own ways, and gaps that no resuming closes.
    "repaired page by page": PAGED,
    # A connection stands still for a moment, and no repair.
    "repaired after a freeze": replace(PAGED, faults=in_order((Fault(700, "freeze", 100), *PAGED.faults))),
    # The queue refuses once all is delivered.
    "delivered before a fault": replace(
        DELIVERED, delivery=replace(DELIVERS, faults=(*DELIVERS.faults, Fault(300_000, "no queue", 30_000)))
    ),
    "forgets by a status": replace(ALONE, faults=outage(20_000, 9_000), memory=Memory(keeps=6, word="status")),
    # What it keeps is less than a holder has read between two heartbeats: many a successor's first request is in vain.
    "short memory": replace(
        ALONE,
        policy="tolerates",
        faults=(Fault(40_863, "redeploy", 0, 50_116), Fault(47_125, "truncation", 0, 3_118)),
        key="path",
        pace="long",
        memory=Memory(keeps=6, word="frame"),
    ),
    # The peer of the first is dead when it is let go; whoever goes on is killed while it is sent what that kept back.
    "dead peer": replace(
        TWO_OUTAGES,
        policy="forbids",
        faults=(Fault(12_000, "stall"), Fault(17_000, "vanish"), Fault(17_000, "no functions", 9_000)),
    ),
    # The outage is long, and so is the catch-up that is cut: whoever asks for the status meanwhile sees the gap.
    "cut while it catches up": replace(
        ALONE,
        memory=Memory(keeps_ms=10_000, word="frame"),
        faults=tuple(
            fault
            for at_ms in (12_000, 27_000, 42_000)
            for fault in (*outage(at_ms, 6_500), Fault(at_ms + 11_000, "reset"))
        ),
    ),
    # What the restarted server forgot shows only in ids that are smaller than the cursor.
    "ids start over": replace(ALONE, key="hash", faults=(*outage(15_000, 3_000), Fault(16_000, "restart"))),
    # Each handover after that begins with known ids too.
    "known ids": replace(ALONE, policy="forbids", faults=(Fault(40_000, "restart"),)),
    # No connection is sent three of them before it is reset.
    "few known ids": replace(
        ALONE,
        events_every_ms=1_100,
        faults=(Fault(6_000, "restart"), *(Fault(at_ms, "reset") for at_ms in (7_700, 9_400, 11_100))),
    ),
    "known ids in a log": replace(ALONE, store="log", faults=(Fault(40_000, "restart"),)),
    # The answers of the store are lost while the upstream says that the cursor is too old.
    "lost answers": replace(
        ALONE,
        faults=(*outage(10_000, 9_000), Fault(18_000, "unknown outcomes", 6_000)),
        memory=Memory(keeps_ms=6_000, word="status"),
    ),
    # What a pause held back comes in pieces, and the connection is reset in the middle of one.
    "cut off": replace(
        ALONE,
        resumes=False,
        events_every_ms=1_100,
        memory=EVERYTHING,
        faults=tuple(
            fault
            for at_ms in (8_000, 13_000, 18_000, 23_000)
            for fault in (Fault(at_ms, "pause", 1_500), Fault(at_ms + 1_501, "reset"))
        ),
    ),
    # Both lanes are refused for so long that each writes down a rest while the other's try is under way.
    "refused twice": replace(
        ALONE,
        resumes=False,
        reconnect_tries=3,
        renews=True,
        events_every_ms=700,
        faults=(Fault(15_821, "truncation", 0, 22_979), Fault(25_971, "refusals", 5_941, 503)),
        pace="long",
        retry_after_s=9,
    ),
    # Killed while events wait for a log, by clocks that differ by less than these waited.
    "killed with waiting events": replace(
        ALONE,
        resumes=False,
        skew_ms=300,
        events_every_ms=500,
        faults=tuple(Fault(at_ms, "kill") for at_ms in (20_000, 40_000, 60_000)),
        store="log",
        flush_s=3,
    ),
    # The client sends requests again whose answers were lost, for so short a time that it does not give up.
    "sent again": replace(
        ALONE,
        events_every_ms=1_100,
        faults=tuple(Fault(at_ms, "unknown outcomes", 1_300, at_ms) for at_ms in (16_000, 24_000, 32_000, 48_000)),
        store="log",
    ),
    "one of two is refused": group(REFUSED, CALM),
    # The other one is calm until then.
    "one of two is refused, one cut later": group(REFUSED, stream("evicts", Fault(40_000, "reset"))),
    "one of two has many events": group(CALM, OFTEN),
    "killed with one that does not resume": group(
        stream("evicts", resumes=False), CALM, faults=(Fault(15_000, "kill"),)
    ),
    "joined in a handover": group(
        stream("evicts", Fault(34_000, "no answers", 4_000)), CALM, stream("evicts", joins_ms=37_300)
    ),
    "stopped beside a drop": group(STOPPED, DROPPED),
    "stopped before another joins": group(STOPPED, stream("evicts", joins_ms=20_000), CALM),
    "stopped with a log": group(replace(STOPPED, store="log"), CALM),
    "stopped beside a calm one": group(STOPPED, CALM),
    "stopped alone": group(STOPPED),
    "refused by the table": group(stream("evicts", unstorable="refused"), CALM),
    "dropped beside many events": group(DROPPED, OFTEN),
    "dropped beside a calm one": group(DROPPED, CALM),
    "rejected": group(stream("evicts", Fault(9_500, "reset"), Fault(9_500, "rejection", 6_000, 403)), CALM),
    # The newer function cannot open it, so that two functions live for long.
    "held by the older function": group(stream("evicts", Fault(34_000, "no answers", 10_000)), CALM),
    # It is answered half a second after its POST, and has no event until it is cut.
    "cut soon": group(
        stream(
            "evicts",
            *(Fault(8_700, "reset"), Fault(8_700, "refusals", 6_000, 429)),
            joins_ms=8_000,
            resumes=False,
            events_every_ms=2_000,
        ),
        CALM,
    ),
    # It keeps some four seconds: more than a holder reads between two heartbeats, and less than in six seconds.
    "forgetful": group(stream("evicts", events_every_ms=700, memory=Memory(keeps=6, word="frame"))),
    # It keeps less than comes between two savings of its cursor, and says so once the newer connection is there.
    "forgets at once": group(stream("tolerates", events_every_ms=300, memory=Memory(keeps=6, word="frame")), CALM),
    "joined while the store throttles": group(
        stream("evicts", joins_ms=20_000), CALM, faults=(Fault(19_000, "throttles", 3_000),)
    ),
    # With a profile that comes with a redeployment which changes one more thing, how often functions send heartbeats.
    "joined with a new profile": group(
        CALM,
        stream("evicts", joins_ms=20_000, has_new_profile=True),
        faults=(Fault(15_000, "redeploy", 0, 1 << [name for name, _ in OTHER_SETTINGS].index("progress_every_s")),),
    ),
    # It is asked to stop before its POST can have joined.
    "overtaken by a stop": group(stream("evicts", Fault(20_040, "stop"), joins_ms=20_000), CALM),
    "stopped and posted": group(stream("evicts", Fault(9_500, "stop and post", 0, 800)), CALM),
    # Two of a hot standby that follow an outage have both caught up long before they end.
    "caught up": group(stream("tolerates", *outage(6_000, 4_000), hot=True, memory=Memory(keeps=6)), CALM),
    # Cut, its connection of the newer function counts as behind for long; soon the older one's successor follows.
    "aborted and killed": group(stream("tolerates"), CALM, faults=(ABORT, Fault(14_000, "kill"))),
    "aborted": group(stream("tolerates"), STOPPED, faults=(ABORT,)),
}
