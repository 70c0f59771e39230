"""Models the protocol of a group: functions that hand over, streams that join and leave, kills between writes.

Deployed code decides which streams a function keeps (`handlers/group/roster.py`), what a group's lease and a stream's
record mean together (`handlers/group/group_lease.py`), and what a connection does then
(`handlers/connection/lease.py`). The connections are as simple as possible, because `model.py` has the real ones. This
module has the steps; each is one write, or one message of the upstream. Free steps must lead to rest (`explorer.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from handlers.connection.lease import Lease, LeaseView, lease_view, may_open
from handlers.group.group_lease import GroupHeartbeat, GroupLease, compose_lease, known_ended_turn
from handlers.group.next_step import NextStep
from tests.chaos import explorer
from tests.chaos.explorer import Violation
from tests.chaos.model_group_rules import Rules
from tests.chaos.model_group_world import (
    ALIVE_MS,
    LAST_MS,
    LIMIT,
    NOW_MS,
    PAST_MS,
    Asked,
    Conn,
    Function,
    Record,
    World,
)

Next = Iterator[tuple[str, World, bool]]
EXECUTION = "E1"


class Model(explorer.Model[World]):
    """The steps of a group whose streams have these policies; `joined` of them are members at first.

    The group is at rest if each wanted stream is connected by the newest function and by no other, no other stream is
    connected, and one lane waits; or if the group is empty and its execution is over.
    """

    may_stutter = True

    def __init__(
        self, policies: Sequence[str], budget: dict[str, int], joined: int = 1, rules: Rules | None = None
    ) -> None:
        self.policies = {f"s{number}": policy for number, policy in enumerate(policies, 1)}
        self.budget, self.joined, self.rules = budget, joined, rules or Rules()

    def first(self) -> World:
        """Returns the first state: the execution has claimed the group, and its first function is about to start."""
        members = dict.fromkeys([*self.policies][: self.joined], 1)
        records = {name: Record(joined=members.get(name, 0)) for name in self.policies}
        group = GroupLease(execution=EXECUTION, version=1)
        return World(tuple(sorted(self.budget.items())), records, members, group, ("waiting", "starting"))

    def key(self, world: World) -> Hashable:
        """Returns a value that two equal states have in common."""
        return world.key()

    def is_stable(self, world: World) -> bool:
        """Returns whether everything is as requested, and nothing is about to change."""
        if world.asked:
            return False
        wanted = {stream for stream in world.records if world.is_wanted(stream)}
        if not wanted:
            return not world.group.execution and not world.functions and not world.members
        if len(world.functions) != 1 or sorted(world.lanes) != ["running", "waiting"] or set(world.members) != wanted:
            return False
        (one,) = world.functions
        held = {stream for stream, conn in one.conns.items() if conn.phase == "connected"}
        marked = all(world.records[stream].lease.connected_token == one.conns[stream].fence for stream in held)
        return one.token == world.group.token and held == wanted == set(one.conns) and marked

    def steps(self, world: World) -> Iterator[explorer.Step]:
        """Returns every step of `world`; raises Violation."""
        return itertools.starmap(explorer.Step, self._steps(world))

    def _steps(self, world: World) -> Next:
        for function in world.functions:
            yield from self._function(world, function)
            yield from self._faults(world, function)
        for lane, state in enumerate(world.lanes):
            if state == "starting":
                yield f"lane {'AB'[lane]} starts a function", self._start(world, lane), True
            if state == "waiting" and world.left("handover"):
                yield f"lane {'AB'[lane]} has waited", _with_lane(world.spend("handover"), lane, "starting"), False
        for name, heartbeat in world.group.heartbeats.items():
            if heartbeat.is_alive(NOW_MS) and all(one.request != name for one in world.functions):
                yield (
                    f"the heartbeat of {name} runs out",
                    world.with_heartbeat(name, replace(heartbeat, until_ms=PAST_MS)),
                    True,
                )
        yield from self._requests(world)

    # --- a function ---------------------------------------------------------------------------------------------------

    def _function(self, world: World, one: Function) -> Next:
        roster, name = one.roster, one.request
        lease = roster.__dict__["_lease"]
        heartbeat = world.group.heartbeats.get(name)
        is_renewed = heartbeat is None or heartbeat.until_ms == PAST_MS
        if is_renewed or world.conclusions_from(one, lease) != world.conclusions_from(one, world.group):
            yield f"{name} sends a heartbeat", self._send_heartbeat(world, one), True
        if roster.is_behind:
            yield f"{name} reads the members", self._read_members(world, one), True
        if one.is_unread or (roster.__dict__["_has_newer"] and self.rules.reads_beside_newer):
            yield f"{name} reads its streams", self._read_records(world, one), True
        for stream in roster.streams_to_open(one.now_ms):
            yield f"{name} claims {stream}", self._claim(world, one, stream), True
        for stream in roster.former_members:
            yield f"{name} lets {stream} go", self._leave(world, one, stream, NextStep.OVER), True
        for stream, conn in one.conns.items():
            yield from self._connection(world, one, stream, conn)
        yield from self._removals(world, one)
        version = roster.empty_version
        if version is not None:
            done = self.rules.ends_group(world.group, version)
            ended = world if done is None else replace(world, group=done)
            yield f"{name} ends the empty group", _feed_lease(ended, one), True
        outcome = roster.outcome(one.now_ms)
        if outcome is not None and not one.conns:
            yield f"{name} ends: {outcome.error or outcome.status}", self._end_function(world, one, outcome.error), True

    def _send_heartbeat(self, world: World, one: Function) -> World:
        heartbeat = world.group.heartbeats.get(one.request)
        if heartbeat is None or heartbeat.is_ended:
            # A refused function counts as dead and closes everything.
            return _feed_lease(world, self._close_all(one))
        after = world.with_heartbeat(one.request, replace(heartbeat, until_ms=ALIVE_MS))
        # A function that sends a heartbeat removes those of functions whose limit has passed.
        shown = {record.lease.connected_by for record in world.records.values()}
        for request, other in world.group.heartbeats.items():
            is_gone = all(request != each.request for each in world.functions) and request not in shown
            if is_gone and not other.is_alive(NOW_MS):
                after = after.with_heartbeat(request, None)
        return _feed_lease(after, one)

    def _close_all(self, one: Function) -> Function:
        one = one.with_own_roster()
        for stream in one.conns:
            one.roster.mark_ended(stream, NextStep.AGAIN)
        return replace(one, conns={})

    def _read_members(self, world: World, one: Function) -> World:
        one = one.with_own_roster()
        version = self.rules.version_listed(world.group, one.roster.__dict__["_lease"])
        one.roster.set_members(version, {stream: str(stamp) for stream, stamp in world.members.items()})
        # The records, which are read as well, show the streams that were asked to stop.
        return world.with_function(replace(one, is_unread=self.rules.reads_after_members))

    def _claim(self, world: World, one: Function, stream: str) -> World:
        one = one.with_own_roster()
        one.roster.mark_begun(stream)
        record = self.rules.claim(world.records[stream], one.token)
        if record is None:
            own = world.records[stream]
            one.roster.mark_ended(stream, NextStep.OVER if own.lease.stop or not own.joined else NextStep.RELIEVED)
            return world.with_function(one)
        if record.lease.stop:
            raise Violation("a stop is final", f"{stream} was claimed while its stop request stands")
        conn = Conn(record.lease.fence, "claimed")
        return world.with_record(stream, record).with_function(one.with_conn(stream, conn))

    def _connection(self, world: World, one: Function, stream: str, conn: Conn) -> Next:
        label = f"{one.request} {{}} {stream}"
        if conn.phase == "claimed" and self.policies[stream] == "forbids":
            yield from self._wait_for_turn(world, one, stream, conn)
        elif conn.phase == "claimed":
            yield from self._opening_steps(world, one, stream, conn)
        elif conn.phase == "open":
            marked = self.rules.mark(world.records[stream], conn.fence, one.request)
            one = one.with_conn(stream, Conn(conn.fence, "connected"))
            yield label.format("marks"), world.with_record(stream, marked).with_function(one), True
        elif conn.phase == "overlapping":
            yield label.format("has overlapped with"), self._end_overlap(world, one, stream, conn), True
        elif conn.phase == "closed":
            released = self.rules.release(world.records[stream], conn.fence)
            closed = one.with_conn(stream, Conn(conn.fence, "released"))
            yield label.format("releases"), world.with_record(stream, released).with_function(closed), True
        elif conn.phase == "released":
            yield from self._explain_close(world, one, stream, conn)

    def _wait_for_turn(self, world: World, one: Function, stream: str, conn: Conn) -> Next:
        """If two are forbidden: marks the older as ended, takes the turn, opens; closes if claimed again or stopped."""
        own, known = world.records[stream].lease, one.roster.__dict__["_lease"]
        view = lease_view(compose_lease(own, known), conn.fence)
        label = f"{one.request} {{}} {stream}"
        if own.connected_token == conn.fence:
            yield from self._opening_steps(world, one, stream, conn)
            return
        if view is not LeaseView.HOLDER or own.connected_token > conn.fence:
            next_step = NextStep.OVER if view is LeaseView.STOPPED else NextStep.RELIEVED
            yield label.format("lets go of the claim of"), self._leave(world, one, stream, next_step), True
            return
        request = self.rules.function_to_mark_ended(own, known, conn.fence, one.died)
        if request:
            yield (
                f"{one.request} marks {request} as ended",
                _feed_lease(self._mark_ended(world, request, known), one),
                True,
            )
        elif may_open(compose_lease(own, known), conn.fence, NOW_MS, one.died) or known_ended_turn(own, known):
            over = self.rules.ended_turn(own, known)
            record = self.rules.take_turn(world.records[stream], conn.fence, one.request, over)
            if record != world.records[stream]:
                took = world.with_record(stream, record)
                yield label.format("takes the turn of"), took, True

    def _mark_ended(self, world: World, request: str, known: GroupLease) -> World:
        buried = self.rules.mark_ended(world.group, request, known.heartbeats[request])
        if buried is None:
            return world
        runs = any(one.request == request for one in world.functions)
        if runs and world.group.heartbeats[request].is_alive(NOW_MS):
            raise Violation("who is said to be over is over", f"{request} was ended, and has sent heartbeats in time")
        return replace(world, group=buried)

    def _opening_steps(self, world: World, one: Function, stream: str, conn: Conn) -> Next:
        label = f"{one.request} {{}} {stream}"
        yield label.format("opens"), self._open(world, one, stream, conn), True
        if world.left("refuse"):
            refused = self._leave(world.spend("refuse"), one, stream, NextStep.AGAIN)
            yield label.format("is refused by"), refused, False

    def _open(self, world: World, one: Function, stream: str, conn: Conn) -> World:
        policy = self.policies[stream]
        open_ = [other for other in world.functions if stream in other.conns and other.conns[stream].is_open]
        if policy == "evicts":
            for other in open_:
                closed = replace(other.conns[stream], phase="closed")
                world = world.with_function(other.with_conn(stream, closed))
        count = sum(not world.group.heartbeats[other.request].is_ended for other in open_ if policy != "evicts")
        if count + 1 > LIMIT[policy]:
            raise Violation("connections allowed", f"{count + 1} connections of {stream} are open")
        phase = "connected" if policy == "forbids" else "open"
        return world.with_function(one.with_conn(stream, Conn(conn.fence, phase)))

    def _read_records(self, world: World, one: Function) -> World:
        """Reads the records of the function's streams, which a newer function may have claimed, and acts on them."""
        one = replace(one, is_unread=False)
        world = world.with_function(one)
        for stream, conn in one.conns.items():
            view = lease_view(self._lease_of(world, one, stream), conn.fence)
            if view is LeaseView.STOPPED:
                world = self._leave(world, _current(world, one), stream, NextStep.OVER)
            elif conn.is_open and self._forbids(stream) and view is not LeaseView.HOLDER:
                world = self._leave(world, _current(world, one), stream, NextStep.RELIEVED)
            elif conn.is_open and not self._forbids(stream):
                world = world.with_function(_current(world, one).with_conn(stream, _after_lease_read(conn, view)))
        return world

    def _end_overlap(self, world: World, one: Function, stream: str, conn: Conn) -> World:
        """Ends the overlap: reads the lease again, and stays if the newer connection is closed again."""
        view = lease_view(self._lease_of(world, one, stream), conn.fence)
        if view is LeaseView.STOPPED:
            return self._leave(world, one, stream, NextStep.OVER)
        if view is not LeaseView.TAKEN_OVER and self.rules.rereads_lease:
            return world.with_function(one.with_conn(stream, _after_lease_read(conn, view)))
        own = world.records[stream].lease
        if own.connected_token <= max(conn.fence, own.released_token):
            raise Violation("who leaves is relieved", f"{one.request} leaves {stream}, and nobody else is connected")
        return self._leave(world, one, stream, NextStep.RELIEVED)

    def _forbids(self, stream: str) -> bool:
        return self.policies[stream] == "forbids"

    def _lease_of(self, world: World, one: Function, stream: str) -> Lease:
        return compose_lease(self.rules.record_of(world.records, stream).lease, one.roster.__dict__["_lease"])

    def _explain_close(self, world: World, one: Function, stream: str, conn: Conn) -> Next:
        """Reads why the upstream closed a connection, and waits while another one that has claimed may still open."""
        view = lease_view(compose_lease(world.records[stream].lease, one.roster.__dict__["_lease"]), conn.fence)
        newer = any(
            other.conns[stream].fence > conn.fence and other.conns[stream].phase in ("claimed", "open")
            for other in world.functions
            if stream in other.conns
        )
        if view is LeaseView.CLAIMED and newer:
            return
        next_steps = {LeaseView.TAKEN_OVER: NextStep.RELIEVED, LeaseView.STOPPED: NextStep.OVER}
        left = self._leave(world, one, stream, next_steps.get(view, NextStep.AGAIN))
        yield f"{one.request} learns why {stream} closed: {view.value}", left, True

    def _leave(self, world: World, one: Function, stream: str, next_step: NextStep) -> World:
        """Returns the world after the connection was closed and marked as released."""
        conn = one.conns.get(stream)
        one = one.with_conn(stream, None).with_own_roster()
        one.roster.mark_ended(stream, next_step)
        if conn is not None and (conn.phase != "claimed" or world.records[stream].lease.connected_token == conn.fence):
            world = world.with_record(stream, self.rules.release(world.records[stream], conn.fence))
        return world.with_function(one)

    def _removals(self, world: World, one: Function) -> Next:
        """Removes a stream that is over from the group: first in its record, then from the members."""
        for stream in world.records:
            joined = one.roster.removal_of(stream)
            if joined is None:
                continue
            record = world.records[stream]
            if record.joined == int(joined) and record.lease.stop:
                out = world.with_record(stream, replace(record, joined=0))
                yield f"{one.request} writes that {stream} is out", out, True
                continue
            after = one.with_own_roster()
            after.roster.mark_removed(stream)
            members = self.rules.remove(world.members, stream, int(joined))
            done = replace(world, members=members).with_function(after)
            yield f"{one.request} removes {stream}", done, True

    def _end_function(self, world: World, one: Function, error: str) -> World:
        functions = tuple(other for other in world.functions if other.token != one.token)
        after = replace(world, functions=functions, group=self.rules.over_with(world.group, one.request))
        after = replace(after, told=tuple("" if at == one.lane else text for at, text in enumerate(world.told)))
        if error == "":
            return replace(after, lanes=(), functions=(), group=replace(after.group, execution=""), told=("", ""))
        if error == "StreamTakenOver":
            if after.lanes[1 - one.lane] == "waiting":
                raise Violation("who waits is relieved", "both lanes wait")
            return _with_lane(after, one.lane, "waiting")
        return _with_lane(after, one.lane, "starting")

    def _faults(self, world: World, one: Function) -> Next:
        if world.left("kill"):
            killed = replace(world.spend("kill"), functions=tuple(x for x in world.functions if x.token != one.token))
            proof = f"RequestId: {one.request} Error"
            told = tuple(proof if at == one.lane else text for at, text in enumerate(world.told))
            yield f"{one.request} is killed", _with_lane(replace(killed, told=told), one.lane, "starting"), False
        if world.left("vanish"):
            gone = replace(world.spend("vanish"), functions=tuple(x for x in world.functions if x.token != one.token))
            yield f"{one.request} is killed, and nothing proves it", _with_lane(gone, one.lane, "starting"), False
        heartbeat = world.group.heartbeats.get(one.request)
        if world.left("slow") and heartbeat is not None and heartbeat.until_ms != PAST_MS:
            slow = world.spend("slow").with_heartbeat(one.request, replace(heartbeat, until_ms=PAST_MS))
            yield f"{one.request} sends a heartbeat too late", slow, False
        if world.left("deadline") and not one.is_late:
            yield f"{one.request} comes to its deadline", self._reach_deadline(world.spend("deadline"), one), False
        for stream, conn in one.conns.items():
            if world.left("drop") and conn.is_open:
                dropped = one.with_conn(stream, replace(conn, phase="closed"))
                yield f"{stream} drops {one.request}", world.spend("drop").with_function(dropped), False

    def _reach_deadline(self, world: World, one: Function) -> World:
        """Expires each connection that the function still has at its deadline."""
        world = world.with_function(replace(one, is_late=True))
        for stream in one.conns:
            world = self._leave(world, _current(world, one), stream, NextStep.EXPIRED)
        return world

    # --- the machine and its callers ----------------------------------------------------------------------------------

    def _start(self, world: World, lane: int) -> World:
        lease, token = world.group, world.group.token + 1
        if lease.stop:
            return _with_lane(world, lane, "over")
        world = replace(world, group=replace(lease, token=token)).with_heartbeat(
            f"r{token}", GroupHeartbeat(token, 0, ALIVE_MS)
        )
        roster = self.rules.roster(token, lease.execution, LAST_MS)
        roster.apply_lease(world.group, NOW_MS)
        function = Function(token, lane, roster, {}, died=world.told[lane])
        return _with_lane(replace(world, functions=(*world.functions, function)), lane, "running")

    def _requests(self, world: World) -> Next:
        for at, asked in enumerate(world.asked):
            others = world.asked[:at] + world.asked[at + 1 :]
            yield f"{asked.kind} {asked.stream}, step {asked.stage + 1}", self._make_write(world, asked, others), True
        for kind, word in (("join", "POST"), ("leave", "DELETE")):
            for stream in self.policies if world.left(kind) else ():
                asked = Asked(word, stream, world.stamps + 1)
                begun = replace(world.spend(kind), stamps=asked.stamp, asked=(*world.asked, asked))
                yield f"{word} {stream}", begun, False

    def _make_write(self, world: World, asked: Asked, others: tuple[Asked, ...]) -> World:
        """Returns the world after the next write of a POST or a DELETE."""
        stream, record = asked.stream, world.records[asked.stream]
        onward = replace(world, asked=(*others, replace(asked, stage=asked.stage + 1)))
        if asked.kind == "DELETE":
            if asked.stage == 0:
                stopped = replace(record, lease=replace(record.lease, stop=True), stop_at=asked.stamp)
                return onward.with_record(stream, stopped)
            return replace(world, asked=others, group=self.rules.with_change(world.group))
        write = self.rules.join_order[asked.stage] if asked.stage < len(self.rules.join_order) else "start"
        if write == "record":
            joined = self.rules.join(record, asked.stamp)
            if joined is not None and record.stop_at > asked.stamp:
                raise Violation("a stop is final", f"a POST of {stream} cleared a stop request that is younger")
            return replace(world, asked=others) if joined is None else onward.with_record(stream, joined)
        if write == "member":
            return replace(onward, members={**world.members, stream: asked.stamp})
        if write == "version":
            return replace(onward, group=self.rules.with_change(world.group))
        # Either the group's execution runs by now, or one is started, and waits while the other one stops.
        if world.group.execution:
            return replace(world, asked=others) if not world.group.stop else world
        group = replace(world.group, execution=f"E{world.executions + 1}", stop=False)
        return replace(world, asked=others, group=group, lanes=("waiting", "starting"), executions=world.executions + 1)


def _after_lease_read(conn: Conn, view: LeaseView) -> Conn:
    """Returns the connection after reading the lease: it overlaps if taken over, or goes on if the newer one closed."""
    if view is LeaseView.TAKEN_OVER:
        return replace(conn, phase="overlapping")
    return replace(conn, phase="connected") if conn.phase == "overlapping" else conn


def _with_lane(world: World, lane: int, state: str) -> World:
    return replace(world, lanes=tuple(state if at == lane else one for at, one in enumerate(world.lanes)))


def _current(world: World, one: Function) -> Function:
    return next(other for other in world.functions if other.token == one.token)


def _feed_lease(world: World, one: Function) -> World:
    """Returns the world after the function has read the group's lease."""
    one = one.with_own_roster()
    one.roster.apply_lease(world.group, one.now_ms if not one.is_late else NOW_MS)
    return world.with_function(one)
