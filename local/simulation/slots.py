"""Connects the product's own function to virtual upstreams: a slot for each stream in a function, and the ports.

A slot opens the stream's upstream; subclasses record the stream's steps, or leave some out. Invariant: an arrival
reaches only a living function, and only its newest opening of the stream.
"""

import functools
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar

from handlers.aws.secret_values import SecretValues
from handlers.connection.inputs import Arrival
from handlers.connection.lease import Lease
from handlers.connection.opening_steps import Preparation, Tokens
from handlers.connection.reconnection import attempts
from handlers.connection.steps import Answer, Invocation, Report, Step, Steps
from handlers.group.next_step import Delays, ShouldKeep, StreamEnd, keep_connected
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Reference, Secrets
from handlers.run.group_function import group_steps
from handlers.run.group_ports import GroupPorts, GroupTables, Needs, ReadProfiles, ReportEnd, Wait
from handlers.run.performer import Performer
from handlers.run.ports import LogReport, OpenUpstream, Ports, Threads, preparation_of
from handlers.run.requests import Requests
from handlers.store.connection_store import Store
from handlers.upstream.reader import Share
from local.simulation.shared_tasks import no_client
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_ports import PromptPool, VirtualReader
from local.upstreams.auth_servers import SECRET

T = TypeVar("T")


class Upstream(Protocol):
    """The upstream that a stream is read from."""

    def open(self, client: Any, cursor: str | None) -> Any:
        """Returns a link that sends the events after the cursor, or new events if there is none."""

    def close(self, link: Any) -> None:
        """Closes a link from the client's side; the client is not called again."""


class PlayedSecrets(SecretValues):
    """The secrets for the played servers: each is the secret of their client."""

    def __init__(self) -> None:
        super().__init__(no_client, "")

    def read(self, references: Iterable[Reference], *, anew: bool = False) -> Secrets:  # noqa: ARG002
        """Returns the values."""
        return dict.fromkeys(references, SECRET)


class Slot:
    """Opens the links of a stream's upstream for a function."""

    def __init__(self, function: VirtualFunction, upstream: Upstream) -> None:
        self.function = function
        self.upstream = upstream
        self._reader: VirtualReader | None = None
        self.before: Preparation | None = None  # the requests before the next opening, if its upstream has a Guard
        self.notify: Callable[[Callable[[], Lease]], None] = (
            ignore_lease  # for a lone stream: ends a wait for an arrival
        )

    def take_arrival(self, link: Any, arrival: Arrival) -> None:
        """Receives an arrival, unless the link is no longer the newest."""
        reader = self._reader
        if self.function.is_alive and reader is not None and reader.link in (None, link):
            reader.add_arrival(arrival)

    def open(self, cursor: str | None, on_arrival: Callable[[], None]) -> VirtualReader:
        """Opens the stream's upstream."""
        self._reader = reader = VirtualReader(
            self.function.now_ms, self.function.last_run_ms, on_arrival, self._closed, self.send_frame
        )
        if self.before is None:
            reader.link = self.upstream.open(self, cursor)
        else:
            reader.link = self.upstream.open_prepared(self, cursor, self.before)  # type: ignore[attr-defined]
        return reader

    def send_frame(self, link: Any, frame: bytes) -> None:
        """Receives a frame that the client sent on its socket; an upstream without one ignores it."""

    def close(self) -> None:
        """Closes its socket, as the function's end does."""
        if self._reader is not None and self._reader.link is not None:
            self.upstream.close(self._reader.link)

    def wrap_steps(self, steps: Steps[T]) -> Steps[T]:
        """Returns the stream's steps that are performed: here all of them."""
        return steps

    def draw(self, least: float, most: float) -> float:
        """Returns a number between the two."""
        return self.function.draw(least, most)

    def mark_lease_changed(self) -> None:
        """Called when the stream's lease has changed; the function reads it when it is due."""

    def wrap_should_keep(self, should_keep: ShouldKeep) -> ShouldKeep:
        """Returns the function that decides whether the group's function connects the stream again."""
        return should_keep

    def _closed(self, link: Any) -> None:
        # A killed function closes nothing: its socket may linger.
        if self.function.is_alive:
            self.upstream.close(link)


def perform_each(steps: Steps[T], perform: Callable[[Step], Steps[Answer]]) -> Steps[T]:
    """Performs each step by `perform`, and continues with the answer that this returns."""
    move: Callable[[], Step] = functools.partial(next, steps)
    while True:
        try:
            step = move()
        except StopIteration as ended:
            result: T = ended.value
            return result
        try:
            answer = yield from perform(step)
        except Exception as error:
            move = functools.partial(steps.throw, error)
        else:
            move = functools.partial(steps.send, answer)


def stream_needs(
    function: VirtualFunction,
    slot: Slot,
    profile: Profile,
    store: Store,
    pool: Threads | None = None,
    log_report: LogReport = lambda *_: None,
) -> Needs:
    """Returns the needs of a function that keeps one stream."""
    invocation = function.task.invocation
    function.slots[invocation.stream_id] = slot
    ports = Ports(**_ports(function, None if pool is None else lambda *_named: pool, log_report))
    performer: Performer[Report] = Performer(ports)
    slot.notify = functools.partial(performer.notify, invocation.stream_id)
    steps = slot.wrap_steps(attempts(profile, invocation, function.now_ms(), slot.draw))
    performer.begin(profile, invocation, steps, Requests(profile, store, invocation, function.now_ms))
    rung: set[str] = set()
    while True:
        is_busy = performer.turn(rung)
        for _, report in performer.take_ended():
            if isinstance(report, Exception):
                raise report
            return report.outcome
        due_ms = performer.due_ms
        wait_ms = 0 if is_busy or due_ms is None else max(0, due_ms - function.now_ms())
        rung = yield Wait(wait_ms / 1000)


def group_needs(
    function: VirtualFunction,
    slot_of: Callable[[Profile, Invocation], Slot],
    tables: GroupTables,
    delays: Delays,
    profiles: ReadProfiles,
    *,
    pool: Callable[[int, str], Threads] | None = None,
    log_report: LogReport = lambda *_: None,
    reports: ReportEnd = lambda *_: None,
) -> Needs:
    """Returns the needs of a group's function; `slot_of` makes the slot of each stream, once."""

    def keep_in_slot(
        profile: Profile, who: Invocation, now_ms: int, delays: Delays, keeps: ShouldKeep
    ) -> Steps[StreamEnd]:
        slot = function.slots.get(who.stream_id)
        if slot is None:
            slot = function.slots[who.stream_id] = slot_of(profile, who)
        return slot.wrap_steps(keep_connected(profile, who, now_ms, delays, slot.wrap_should_keep(keeps), slot.draw))

    shared = _ports(function, pool, log_report)
    ports = GroupPorts(**shared, keep_connected=keep_in_slot, profiles=profiles, report_end=reports)
    return group_steps(function.task.invocation, tables, delays, ports)


def _ports(
    function: VirtualFunction, pool: Callable[[int, str], Threads] | None, log_report: LogReport
) -> dict[str, Any]:
    """Returns the ports of a function, for one stream or a group; without a pool, requests take no time."""
    pool, tokens = pool or functools.partial(PromptPool, function.bell), Tokens(nullcontext)
    return {
        "clock": function,
        "bell": function.bell,
        "pool": pool,
        "open_upstream": _opener(function, tokens),
        "secrets": PlayedSecrets(),
        "log_report": log_report,
        "mask": function.mask,
        "tokens": tokens,
    }


def _opener(function: VirtualFunction, tokens: Tokens) -> OpenUpstream:
    """Returns a function that opens the upstreams of a function's streams by their slots, with shared tokens."""

    def open_upstream(
        stream: str, cursor: str | None, profile: Profile, values: Secrets, share: Share
    ) -> VirtualReader:
        assert share.on_arrival is not None
        slot: Slot = function.slots[stream]
        slot.before = preparation_of(profile, stream, cursor, values, function.now_ms, tokens)
        return slot.open(cursor, share.on_arrival)

    return open_upstream


def ignore_lease(_known: Callable[[], Lease]) -> None:
    """Does nothing, because a group's function notifies its streams itself."""
