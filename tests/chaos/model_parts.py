"""Small parts of the model's steps: whether something is due, the writes to a lease, and the names of steps in a trace.

Invariant: each function returns a new world and changes none.
"""

from __future__ import annotations

from handlers.connection.effects import Claim, Effect, Heartbeat, MarkConnected, Release, RenewTurn, TakeTurn
from handlers.connection.inputs import Chunk, Claimed, ClaimRefused, Closed, Input, LeaseRead, Opened, Resumption
from handlers.connection.lease import Lease
from handlers.connection.phases import Phase
from tests.chaos.explorer import Violation
from tests.chaos.model_world import EXECUTIONS, Lane, Late, Process, World


def is_urgent(world: World) -> bool:
    """Returns whether something is due that cannot wait for the next tick."""
    now = world.now_ms
    if any(state in ("claiming", "renewing", "stop requested", "releasing") for state in world.executions):
        return True
    if any(lane.state not in ("off", "running") and lane.until_ms <= now for lane in world.lanes):
        return True
    for process in world.processes:
        if process.frozen_until_ms:
            if min(process.frozen_until_ms, process.deadline_ms) <= now:
                return True
            continue
        manager = process.manager
        due = [at for at in (manager.wake_at_ms, manager.lease_due_ms) if at is not None]
        if process.effects or process.inbox or (due and min(due) <= now):
            return True
        if process.link == "asked" and process.asked_until_ms <= now:
            return True
    return False


def with_lease(world: World, lease: Lease) -> World:
    """Returns the world with the written lease; raises Violation if a counter went back."""
    before = world.lease
    for name in ("fence", "connected_token", "released_token", "generation"):
        if getattr(lease, name) < getattr(before, name):
            raise Violation("only forward", f"{name} went back from {getattr(before, name)} to {getattr(lease, name)}")
    if max(lease.connected_token, lease.released_token) > lease.fence:
        raise Violation("only forward", "a mark is ahead of the fence")
    return world._replace(lease=lease)


def with_state(world: World, execution: int, state: str) -> World:
    """Returns the world with an execution in its new state."""
    first, second = world.executions
    return world._replace(executions=(state, second) if execution == 0 else (first, state))


def end_execution(world: World, execution: int) -> World:
    """Returns the world after a lane has ended its execution: the other lane ends too, its function is abandoned."""
    world = with_state(world.with_lane(execution, 0, Lane()).with_lane(execution, 1, Lane()), execution, "releasing")
    unheard = tuple(p._replace(heard=False) if p.execution == execution else p for p in world.processes)
    return world._replace(processes=unheard)


def is_connected(process: Process) -> bool:
    """Returns whether the process reads: answered, open at the upstream, and not leaving."""
    return process.link == "open" and process.manager.phase in (Phase.CONNECTED, Phase.OVERLAPPING)


def chunk(number: int) -> Chunk:
    """Returns one whole line of the stream."""
    return Chunk(b'{"id": "%d"}\n' % number)


def late_write(process: Process, effect: Effect) -> Late:
    """Returns the conditional write of an effect."""
    fence, request = process.manager.fence, process.request
    match effect:
        case MarkConnected(fence, expires_at_ms, _):
            return Late("MarkConnected", fence, expires_at_ms, request=request)
        case TakeTurn(fence, expires_at_ms, over):
            return Late("TakeTurn", fence, expires_at_ms, request=request, over=over)
        case RenewTurn(fence, expires_at_ms):
            return Late("Heartbeat", fence, expires_at_ms)
        case Heartbeat(cursor, _, expires_at_ms):
            return Late("Heartbeat", fence, expires_at_ms, None if cursor is None else int(cursor))
        case Release(cursor):
            return Late("Release", fence, 0, None if cursor is None else int(cursor))
        case Claim(after_fence, _, expires_at_ms):
            # Without a turn it is like any other claim.
            after = after_fence if expires_at_ms else 0
            return Late("Claim", after, expires_at_ms, None, EXECUTIONS[process.execution], request)
    raise TypeError(effect)


def resumption(world: World) -> Resumption:
    """Returns where a connection resumes that claims, or takes its turn, now."""
    return Resumption(str(world.cursor) if world.cursor else None)


def with_cursor(world: World, cursor: int, fence: int) -> World:
    """Returns the world with the cursor saved; raises Violation if it goes back or passes an unstored event."""
    if fence < world.cursor_fence:
        raise Violation("only forward", "the cursor was saved by an older fence than before")
    if missing := set(range(1, cursor + 1)) - world.stored:
        raise Violation("the cursor passes nothing", f"the cursor is {cursor}, {missing} are not stored")
    return world._replace(cursor=cursor, cursor_fence=fence)


def signal_name(signal: Effect | Input) -> str:
    """Returns the name of an effect or an input in a trace."""
    return type(signal).__name__


def answer_text(answer: Input | None) -> str:
    """Returns an answer in the words of a trace."""
    match answer:
        case Claimed(lease):
            return f": granted, {lease_text(lease)}"
        case ClaimRefused():
            return ": refused"
        case LeaseRead(lease):
            return f": {lease_text(lease)}"
    return ""


def arrival_text(arrival: Input) -> str:
    """Returns an arrival in the words of a trace."""
    match arrival:
        case Opened(status):
            return f" {status}"
        case Closed(reason):
            return f" ({reason})"
    return ""


def lease_text(lease: Lease) -> str:
    """Returns the lease in a few words."""
    stop = ", stop" if lease.stop else ""
    return f"fence {lease.fence}, connected {lease.connected_token}, released {lease.released_token}{stop}"
