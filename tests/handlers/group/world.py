"""Functions of one group in virtual time, on tables in memory, beside upstreams that keep to their policies.

The rosters, the duties, the store and the steps of each stream are those of the product; requests take no time. An
upstream answers at once, goes on behind the cursor, and sends each event to all who are connected. Invariant: the same
actions give the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from handlers.connection.effects import MarkConnected, Outcome
from handlers.connection.inputs import Chunk, Closed, LeaseRead, Opened
from handlers.connection.steps import Answer, Ended, Invocation, Step
from handlers.errors import StoreUnavailable
from handlers.group.duties import Duties, EndGroup, ReadMembers, ReadRecords, Remove, SendBeat
from handlers.group.fates import Fate
from handlers.group.keeping import Kept
from handlers.group.lease import Beat, GroupLease
from handlers.group.pacing import Pacing
from handlers.group.roster import Roster
from handlers.profile.parse import parse
from handlers.store import control_items
from handlers.store.batch_get import BatchGet
from handlers.store.event_items import partition_keys
from handlers.store.group_store import GroupStore
from handlers.store.grouped_store import GroupedStore, GroupFunction
from handlers.store.segment_items import is_segment, log_key, stored_events
from local.replay.table import MemoryDynamoDB
from tests.handlers.group.performer import GroupPerformer

EVENTS, CONTROL, GROUP, EXECUTION = "events", "control", "#1", "E1"
START_MS = 1_000_000
LIFE_MS, WAIT_MS, MARGIN_MS, EVERY_MS, OFTEN_MS, AT_ONCE = 60_000, 44_000, 4_000, 2_000, 500, 2
LIMIT = {"evicts": 1, "forbids": 1, "tolerates": 2}


@dataclass
class Upstream:
    """One stream's; `most` is how many connections were ever open at a time, `gaps` when none was."""

    policy: str
    is_down: bool = False
    emitted: int = 0
    links: list[VirtualGroup] = field(default_factory=list)
    most: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    bare_since: int | None = START_MS


class World:
    """The tables, the upstreams by stream, and the functions that run."""

    def __init__(self, policies: dict[str, str], **profile: Any) -> None:
        self.now_ms = START_MS
        self.profile = profile
        self.tables = MemoryDynamoDB(EVENTS, CONTROL)
        self.upstreams = {f"{policy}:{name}": Upstream(policy) for name, policy in policies.items()}
        self.functions: list[VirtualGroup] = []
        self.outcomes: dict[str, Outcome] = {}
        self._started = self._asked = 0
        self.draws = random.Random(1)
        self._actions: list[tuple[int, int, Callable[[], object]]] = []
        self.groups = GroupStore(self.tables, CONTROL, GROUP)
        item = control_items.key(GROUP, "lease") | {"execution": {"S": EXECUTION}}
        self.tables.put_item(TableName=CONTROL, Item=item)

    # --- who asks -----------------------------------------------------------------------------------------------------

    def at(self, after_ms: int, act: Callable[[], object]) -> None:
        """Lets something happen so long after the start."""
        self._asked += 1
        self._actions.append((START_MS + after_ms, self._asked, act))
        self._actions.sort()

    def join(self, *streams: str) -> None:
        """What a POST writes, in its order."""
        for stream in streams:
            joined = f"{self.now_ms}"
            self._update(stream, "SET #joined = :joined, #group = :group REMOVE #stop", joined=joined, group=GROUP)
            self.groups.joins(stream, joined)
        self.groups.changed()

    def leave(self, stream: str) -> None:
        """What a DELETE writes, in its order."""
        self._update(stream, "SET #stop = :stop", stop=True)
        self.groups.changed()

    def start(self, request_id: str, died: str = "", lane: str = "") -> None:
        """Starts a function of the group."""
        granted, lease = self.groups.claim(EXECUTION)
        if granted:
            self.functions.append(VirtualGroup(self, request_id, lease, died, lane))

    def run_lanes(self) -> None:
        """Starts the machine's lanes: from now on what follows from a function's end is theirs."""
        self.in_a_while(0, lambda: self.start_next("B"))
        self.in_a_while(WAIT_MS, lambda: self.start_next("A"))

    def start_next(self, lane: str, died: str = "") -> None:
        """Starts the next function of a lane."""
        self._started += 1
        self.start(f"r{self._started}", died, lane)

    def in_a_while(self, after_ms: int, act: Callable[[], object]) -> None:
        """Lets something happen so long after now."""
        self.at(self.now_ms - START_MS + after_ms, act)

    def has_ended(self, one: VirtualGroup, outcome: Outcome) -> None:
        """Lets the lane of a function that has ended do what the machine does."""
        self.outcomes[one.who.request_id] = outcome
        self.functions.remove(one)
        self.groups.bury(one.who.request_id, one.store.lease.beats[one.who.request_id])
        if one.lane and outcome.error == "StreamTakenOver":
            self.in_a_while(WAIT_MS, lambda: self.start_next(one.lane))
        elif one.lane and outcome.error:
            self.start_next(one.lane)

    def freeze_one(self, number: int, for_ms: int) -> None:
        """Lets nothing of one of those that run happen for so long; what arrives waits."""
        if self.functions:
            self.functions[number % len(self.functions)].frozen_until_ms = self.now_ms + for_ms

    def kill_one(self, number: int, *, is_proved: bool) -> None:
        """Kills one of those that run; its lane starts another a moment later."""
        if self.functions:
            one = self.functions[number % len(self.functions)]
            died = f"RequestId: {one.who.request_id} Error" if is_proved else ""
            self.kill(one.who.request_id)
            self.in_a_while(500, lambda: self.start_next(one.lane, died))

    def kill(self, request_id: str) -> None:
        """Ends a function as SIGKILL does."""
        for one in [one for one in self.functions if one.who.request_id == request_id]:
            one.close()
            self.functions.remove(one)

    def emit(self, *streams: str) -> None:
        """Lets upstreams send an event each."""
        for stream in streams:
            upstream = self.upstreams[stream]
            upstream.emitted += 1
            for link in upstream.links:
                link.arrives(stream, event(upstream.emitted))

    def _update(self, stream: str, text: str, **values: Any) -> None:
        typed = {f":{name}": {"BOOL": value} if value is True else {"S": value} for name, value in values.items()}
        words = ("joined", "group", "stop")
        self.tables.update_item(
            TableName=CONTROL,
            Key=control_items.key(stream, "lease"),
            UpdateExpression=text,
            ExpressionAttributeNames={f"#{word}": word for word in words if f"#{word}" in text},
            ExpressionAttributeValues=typed,
        )

    # --- what came of it ----------------------------------------------------------------------------------------------

    def stored(self, stream: str) -> list[int]:
        """The numbers of its events in the table."""
        is_log = self.profile.get("store") == "log"
        key = log_key(stream) if is_log else partition_keys(stream, 1)[0]
        answer = self.tables.query(
            TableName=EVENTS, KeyConditionExpression="PK = :key", ExpressionAttributeValues={":key": {"S": key}}
        )
        if not is_log:
            return sorted(int(item["SK"]["S"]) for item in answer["Items"])
        items = [item for item in answer["Items"] if is_segment(item)]
        return [int(one.key) for item in items for one in stored_events(item, lambda _key: None)]

    def uncovered(self, stream: str) -> list[tuple[int, int]]:
        """The intervals without a connection of which no gap is written down that holds them."""
        answer = self.tables.query(
            TableName=CONTROL,
            KeyConditionExpression="PK = :key AND begins_with(SK, :gap)",
            ExpressionAttributeValues={":key": {"S": stream}, ":gap": {"S": "gap#"}},
        )
        known = sorted(
            (int(item["from_ms"]["N"]) - START_MS, int(item["to_ms"]["N"]) - START_MS) for item in answer["Items"]
        )
        missing = []
        for from_ms, to_ms in self.upstreams[stream].gaps:
            place_ms = from_ms
            for begins_ms, ends_ms in known:
                place_ms = max(place_ms, ends_ms) if begins_ms <= place_ms else place_ms
            # It is written down once the next connection has lasted for as long as a silent one may live.
            is_due = to_ms + 8 * EVERY_MS < self.now_ms - START_MS
            if from_ms and is_due and place_ms < to_ms:
                missing.append((from_ms, to_ms))
        return missing

    def holders(self, stream: str) -> list[str]:
        """The requests of the functions that are connected."""
        return [link.who.request_id for link in self.upstreams[stream].links]

    def run(self, until_ms: int) -> None:
        """Lets so much happen as happens until so long after the start."""
        until_ms += START_MS
        while True:
            while self._actions and self._actions[0][0] <= self.now_ms:
                self._actions.pop(0)[2]()
            turns = [one.turn() for one in [*self.functions]]
            if any(turns):
                continue
            instants = [at_ms for at_ms, *_ in self._actions[:1]]
            instants += [at_ms for one in self.functions for at_ms in one.instants()]
            next_ms = min(instants, default=until_ms)
            if next_ms > until_ms or (next_ms == until_ms and not instants):
                self.now_ms = until_ms
                return
            assert next_ms > self.now_ms, "time stands still"
            self.now_ms = next_ms


def event(number: int) -> Chunk:
    """One event with its id."""
    return Chunk(b"id: %d\ndata: %d\n\n" % (number, number))


class VirtualGroup(GroupPerformer):
    """One function of the group."""

    def __init__(self, world: World, request_id: str, lease: GroupLease, died: str, lane: str) -> None:
        self.world, self.lane, self.frozen_until_ms = world, lane, 0
        self.limit_ms = world.now_ms + LIFE_MS
        self.who = GroupFunction(GROUP, lease.token, request_id, EXECUTION, self.limit_ms, 4 * EVERY_MS, died)
        names = {"events_table": EVENTS, "control_table": CONTROL, "dead_letter_queue_url": ""}
        self.store = GroupedStore(world.tables, lambda: None, self.who, lambda: world.now_ms, **names)
        super().__init__(self.store, {})
        self.now_ms = world.now_ms
        self.roster = Roster(lease.token, EXECUTION, self.limit_ms - 3 * MARGIN_MS)
        self.duties = Duties(self.roster, lease.token, EVERY_MS, OFTEN_MS)
        self.pacing = Pacing(AT_ONCE, 1_000)
        _, self.store.lease = world.groups.first_beat(request_id, EXECUTION, self._beat())
        self.duties.claimed(self.store.lease, self.now_ms)
        self._batches = BatchGet(world.tables, CONTROL)
        self._causes: dict[str, Outcome] = {}
        self._untold: set[str] = set()

    def _perform(self, stream: str, step: Step) -> None:
        if isinstance(step, MarkConnected | Ended):
            self.pacing.done(stream)
        super()._perform(stream, step)

    def instants(self) -> list[int]:
        """When something is to be done next."""
        if self.world.now_ms < self.frozen_until_ms:
            return [self.frozen_until_ms]
        return [at_ms for at_ms in (*self.next_ms(), self.duties.due_ms, self.pacing.due_ms(self.now_ms)) if at_ms]

    def turn(self) -> bool:
        """Does what is due now; whether there was anything."""
        if self.world.now_ms < self.frozen_until_ms:
            return False
        self.now_ms = self.world.now_ms
        done = self._performs_duty()
        for stream in self.roster.to_open(self.now_ms):
            if self.pacing.may_begin(self.now_ms):
                self._begins(stream)
                done = True
        for stream in [one for one, _ in self.rounds.awaiting() if one in self._untold]:
            self._untold.discard(stream)
            self.rounds.answer(stream, Answer(self.now_ms, LeaseRead(self.store.known(stream))))
            done = True
        done = self.step() or done
        for stream, kept in list(self.ended.items()):
            del self.ended[stream]
            assert isinstance(kept, Kept), kept
            self._has_ended(stream, kept)
            done = True
        outcome = self.roster.outcome(self.now_ms)
        if outcome is not None:
            self.world.has_ended(self, outcome)
            return True
        return done

    def close(self) -> None:
        """Its sockets close with it."""
        for stream in self.world.upstreams:
            self._leave(stream)

    def _beat(self) -> Beat:
        at_ms = self.store.beat_at_ms()
        return Beat(self.who.token, at_ms, self.now_ms + 4 * EVERY_MS, self.store.turns)

    def _performs_duty(self) -> bool:
        groups, duty = self.world.groups, self.duties.next(self.now_ms)
        match duty:
            case None:
                return False
            case SendBeat():
                _, self.store.lease = groups.beat(self.who.request_id, self._beat(), self.store.lease)
                self.duties.answered(self.now_ms, self.store.lease)
                if self.store.lease.beats[self.who.request_id].is_buried:
                    self._fails_all()
            case ReadMembers():
                self.duties.answered(self.now_ms, groups.members())
            case ReadRecords():
                keys = [control_items.key(stream, "lease") for stream in self._requests if stream in self.rounds]
                self._untold.update(self.store.refreshed(self._batches.items(keys, consistent=True)))
                self.duties.read()
            case Remove(stream, joined):
                outcome = self._causes[stream]
                self.store.lets_go(stream, joined, outcome.error or "StreamEnded", outcome.message)
                groups.leaves(stream, joined, self.now_ms)
                self.duties.removed(stream)
            case EndGroup(version):
                _, self.store.lease = groups.ends(EXECUTION, version)
                self.duties.answered(self.now_ms, self.store.lease)
        return True

    def _fails_all(self) -> None:
        for stream, _ in self.rounds.awaiting():
            self.rounds.fail(stream, StoreUnavailable("the function was buried"), self.now_ms)

    def _begins(self, stream: str) -> None:
        self.roster.begins(stream)
        self.pacing.begins(stream, self.now_ms)
        policy = self.world.upstreams[stream].policy
        table = {"address": "https://upstream.invalid/{streamId}", "framing": "sse", "overlap": policy, "overlap_s": 1}
        table |= self.world.profile
        profile = parse(policy, {**table, "resume": {"header": "Last-Event-ID"}, "connect_timeout_s": 2}, {})
        self.store.lags[stream] = profile.flush_ms if profile.store == "log" else 0
        self.store.stalls[stream] = round(1000 * profile.stall_after_s)
        who = Invocation(
            stream, "A", EXECUTION, self.who.request_id, self.limit_ms, MARGIN_MS, 1_000, EVERY_MS, 10_000,
            died=self.who.died,
        )  # fmt: skip
        self.begin(profile, who)

    def _has_ended(self, stream: str, kept: Kept) -> None:
        self.store.forget(stream)
        self._causes[stream] = kept.report.outcome
        self.roster.ended(stream, kept.fate)
        if kept.fate is Fate.OVER:
            self.duties.over(stream)

    def _draw(self, least: float, most: float) -> float:
        return self.world.draws.uniform(least, most)

    def _keeps(self, stream: str, _now_ms: int) -> bool:
        return self.roster.keeps(stream)

    # --- the upstream -------------------------------------------------------------------------------------------------

    def arrives(self, stream: str, arrival: Chunk | Closed) -> None:
        """Takes what the upstream sends."""
        self._arrivals.setdefault(stream, []).append((self.world.now_ms, arrival))

    def is_dropped(self, stream: str) -> None:
        """Loses the connection of a stream."""
        self._leave(stream)
        self.arrives(stream, Closed("reset"))

    def _open(self, stream: str, cursor: str | None) -> None:
        self._leave(stream)
        upstream, now_ms = self.world.upstreams[stream], self.world.now_ms
        self._arrivals[stream] = []
        if upstream.is_down:
            self._arrivals[stream].append((now_ms, Closed("refused")))
            return
        if upstream.policy == "evicts":
            for other in [*upstream.links]:
                other._leave(stream)
                other.arrives(stream, Closed("ended_by_upstream"))
        upstream.links.append(self)
        upstream.most = max(upstream.most, len(upstream.links))
        if upstream.bare_since is not None and upstream.bare_since < now_ms:
            upstream.gaps.append((upstream.bare_since - START_MS, now_ms - START_MS))
        upstream.bare_since = None
        self._arrivals[stream].append((now_ms, Opened(200)))
        for number in range(int(cursor or 0) + 1, upstream.emitted + 1):
            self.arrives(stream, event(number))

    def _leave(self, stream: str) -> None:
        links = self.world.upstreams[stream].links
        if self in links:
            links.remove(self)
            if not links:
                self.world.upstreams[stream].bare_since = self.world.now_ms
