"""Defines a schedule: how an upstream behaves, what a profile and its run choose, and a list of timed faults.

Times are integer milliseconds from the start of the run; local/chaos/faults.py carries the faults out. `draws.py` makes
a schedule from a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from handlers.api.verdict import plural
from local.chaos.plans import DeliveryPlan, Fault, RepairPlan, in_order
from local.simulation.upstream_memory import EVERYTHING, Memory, Ways

STORES = ("items", "log")


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: how the upstream behaves, the profile's choices, the clocks, and the faults in order of time.

    The upstream: it `resumes` from a cursor or not, and `memory` is how it forgets; with `retry_after_s` (0 for none)
    it refuses; `socket` makes it a WebSocket; if it is `timed`, its JSON events have their times; with `token_lives_s`
    other than 0 it requires a ticket, and a token that expires after that.

    The profile: `pace` names its back-off after failures ("" for none), `key` its rule for dedup keys, `reject_after_s`
    how long a refusal may last before the stream is rejected, `store` the form of storage, `order` whether items are
    indexed, `flush_s` how long events wait for a segment, `on_conflict` its rule for ids that start over. `unstorable`
    is which events no table takes (`wire.py`).

    The run: `renews` lets an execution start its successor after few cycles; `skew_ms` bounds the error of a function's
    clock; `beside` has the other streams of the account, each with its own faults; `delivery` is where all events are
    sent next, `repair` how gaps are repaired. With `most_items` other than 0 the tables cut their answers.

    With `group`, groups of streams run in place of a lone stream: `faults` affect all, and each has its own besides. A
    function keeps at most `together` of them. Each has a `name` and a POST at `joins_ms`; with `has_new_profile` its
    profile came with the last redeployment before that.
    """

    seed: int
    policy: str
    resumes: bool
    hot: bool
    reconnect_tries: int
    renews: bool
    skew_ms: int
    events_every_ms: int
    faults: tuple[Fault, ...]
    partitions: int = 1
    pace: str = ""
    retry_after_s: int = 0
    key: str = "id"
    memory: Memory = EVERYTHING
    unstorable: str = ""
    store: str = "items"
    order: str = "index"
    flush_s: float = 0
    reject_after_s: int = 0
    beside: tuple[Schedule, ...] = ()
    delivery: DeliveryPlan | None = None
    repair: RepairPlan | None = None
    name: str = ""
    joins_ms: int = 0
    has_new_profile: bool = False
    together: int = 0
    group: tuple[Schedule, ...] = ()
    socket: bool = False
    timed: bool = False
    token_lives_s: int = 0
    most_items: int = 0
    on_conflict: str = "first"

    @property
    def has_restarts(self) -> bool:
        """Whether the upstream's ids start over."""
        return any(fault.kind == "restart" for fault in self.faults)

    @property
    def drops(self) -> bool:
        """Whether an event whose key another one has is dropped."""
        return self.on_conflict == "first" and self.key != "hash"

    @property
    def can_forget(self) -> bool:
        """Whether the upstream ever forgets events: by its memory, or by a restart."""
        return self.memory.forgets or self.has_restarts

    @property
    def is_timed(self) -> bool:
        """Whether events have their times, and the profile names the field.

        Reordering excludes it: an event that is sent again out of order could have two times.
        """
        return self.timed and self.key != "id" and not self.ways.reorders

    @property
    def ways(self) -> Ways:
        """How the upstream behaves."""
        reorders = any(fault.kind == "reorders" for fault in self.faults)
        rest = self.retry_after_s, self.memory, reorders
        return Ways(self.seed, self.policy, self.resumes, self.events_every_ms, *rest, self.socket, self.token_lives_s)

    @property
    def flush_ms(self) -> int:
        """How long an event may wait for a segment of the log; 0 where each event is an item."""
        return round(1000 * self.flush_s) if self.store == "log" else 0

    @property
    def is_left_to_default(self) -> bool:
        """Whether the profile has no resume: then a cursor is sent by default, whether or not the upstream heeds it.

        This holds for an upstream that forgets in an unknown way, and for half of those that do not resume.
        """
        return self.memory.is_unknown if self.resumes else self.memory.forgets

    @property
    def all(self) -> tuple[Schedule, ...]:
        """The schedule of each stream of the run; the faults that affect every stream are in all of them."""
        shared = tuple(fault for fault in self.faults if self.group or fault.kind in SHARED)
        others = (replace(one, faults=in_order((*one.faults, *shared))) for one in self.group or self.beside)
        return (*others,) if self.group else (self, *others)

    def __str__(self) -> str:
        traits = [self.policy, "resumes" if self.resumes else "does not resume"]
        traits += ["is asked by default"] if self.is_left_to_default else []
        traits += ["talks over a socket"] if self.socket else []
        traits += [f"wants a token, which lives {self.token_lives_s} s, and a ticket"] if self.token_lives_s else []
        traits += ["hot standby"] if self.hot else []
        traits += [f"{plural(self.reconnect_tries, 'reconnection')} in place"] if self.reconnect_tries else []
        traits += ["renews soon"] if self.renews else []
        traits += [f"clocks within ±{self.skew_ms} ms"] if self.skew_ms else []
        traits += [f"{self.partitions} partitions"] if self.partitions > 1 else []
        traits += [f"{self.pace} rests after failures"] if self.pace else []
        traits += [f"rejections after {self.reject_after_s} s"] if self.reject_after_s else []
        traits += [f"Retry-After: {self.retry_after_s}"] if self.retry_after_s else []
        traits += [f"keys by {self.key}"] if self.key != "id" else []
        traits += ["says when events happened"] if self.is_timed else []
        traits += [str(self.memory)] if self.resumes and self.memory.forgets else []
        traits += [f"{self.unstorable} events that no table takes"] if self.unstorable else []
        traits += [f"stored in a log, flushed after {self.flush_s:g} s"] if self.store == "log" else []
        traits += ["a profile of the last deployment"] if self.has_new_profile else []
        traits += ["items in no order"] if self.store == "items" and self.order == "none" else []
        traits += [f"pages of {self.most_items} at most"] if self.most_items else []
        traits += [f'on_conflict = "{self.on_conflict}"'] if self.on_conflict != "first" else []
        head = f"seed {self.seed}: an upstream that {', '.join(traits)}; an event every {self.events_every_ms} ms"
        if self.name:
            head = f"{self.name}, which joins at {self.joins_ms / 1000:g} s, {head.partition(': ')[2]}"
        if self.group:
            ways = ["renews soon"] if self.renews else []
            ways += [f"clocks within ±{self.skew_ms} ms"] if self.skew_ms else []
            ways += [f"pages of {self.most_items} at most"] if self.most_items else []
            head = f"seed {self.seed}: groups of {self.together} at most{''.join(f', {way}' for way in ways)}"
            return "\n".join([head, *(f"  {fault}" for fault in self.faults), *map(str, self.group)])
        lines = [head, *(f"  {fault}" for fault in self.faults)]
        lines += [f"beside it, {one}" for one in self.beside]
        return "\n".join([*lines, *(str(plan) for plan in (self.delivery, self.repair) if plan is not None)])


def requests(schedule: Schedule) -> list[tuple[int, str]]:
    """Returns the requests of people, each an instant and "POST" or "DELETE", in order of time; the first starts it."""
    asked = [(schedule.joins_ms, "POST"), *(one for fault in schedule.faults for one in requests_of(fault))]
    return sorted(asked, key=lambda request: request[0])


def requests_of(fault: Fault) -> list[tuple[int, str]]:
    """Returns the requests of one fault."""
    match fault.kind:
        case "post" | "abort and post":
            return [(fault.at_ms + fault.value, "POST")]
        case "stop":
            return [(fault.at_ms, "DELETE")]
        case "stop and post":
            return [(fault.at_ms, "DELETE"), (fault.at_ms + fault.value, "POST")]
        case "abort, post and stop":
            return [(fault.at_ms, "POST"), (fault.at_ms + fault.value, "DELETE")]
    return []


# The faults that affect every stream of the account.
SHARED = frozenset(
    {"slow starts", "no functions", "throttles", "unknown outcomes", "slow store", "redeploy", "no successors"}
    | {"queue refuses", "no descriptions"}
)
