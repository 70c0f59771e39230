"""Performs a function that keeps a group's streams in virtual time, so that each of its requests is made and counted.

As `counted_invocation.py` does for a stream alone. The function is the product's own
(`handlers/run/group_function.py`); its threads, sockets and clock are played, and no request takes time. Invariant:
after `kill` nothing of it runs.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation, Report, Steps
from handlers.group.fates import Delays
from handlers.group.keeping import Keeps, Kept, kept
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.run.group_function import group_steps
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, ReadProfiles
from handlers.run.threads import Answered, Bell
from handlers.store import typed_values
from handlers.store.group_store import member_key
from handlers.store.typed_values import Item
from handlers.upstream.reader import Share
from local.costs.steady_upstream import Client
from local.replay.virtual_invocation import VirtualConnection
from local.replay.virtual_reader import Reader
from states_language.clock import Clock, Timer

GROUP = "#1"


class Upstream(Protocol):
    """What a stream of the group is read from."""

    def open(self, client: Client, cursor: str | None) -> Any:
        """A link that brings what came after the cursor, or from now on where there is none."""

    def close(self, link: Any) -> None:
        """Closes a link from the client's side; the client hears nothing more."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a stage's functions keep together: a profile for all, and each stream's upstream, by its id."""

    profile: Profile
    upstreams: Mapping[str, Upstream]
    settings: Mapping[str, Any]
    names: Mapping[str, str]
    client: Any

    def joins(self) -> None:
        """Writes down that the streams have joined, as their POSTs do."""
        for stream_id in self.upstreams:
            place: Item = {"joined": {"S": "2026-01-01T00:00:00.000Z"}, "group": {"S": GROUP}}
            lease = typed_values.key(stream_id, "lease") | place | {"generation": typed_values.number(1)}
            self.client.put_item(TableName=self.names["control_table"], Item=lease)
            item = member_key(GROUP, stream_id) | {"joined": place["joined"]}
            self.client.put_item(TableName=self.names["control_table"], Item=item)
        self.client.update_item(
            TableName=self.names["control_table"],
            Key=typed_values.key(GROUP, "lease"),
            UpdateExpression="SET #size = :size",
            ExpressionAttributeNames={"#size": "size"},
            ExpressionAttributeValues={":size": typed_values.number(len(self.upstreams))},
        )


class _Opening(Reader):
    """An opening that is a client of an upstream."""

    def arrived(self, arrival: Any) -> None:
        """Takes what the upstream sends."""
        self.takes(arrival)


class _Prompt:
    """Threads whose requests take no time; each answer rings `bell` for `name`."""

    def __init__(self, bell: Bell, name: str) -> None:
        self._bell, self._name = bell, name
        self._answers: deque[tuple[str, Answered]] = deque()

    def ask(self, whom: str, *requests: Callable[[], Any]) -> None:
        """Makes the requests, one by one until one raises."""
        answer = Answered()
        try:
            for request in requests:
                answer = Answered(request())
        except Exception as error:
            answer = Answered(error=error)
        self._answers.append((whom, answer))
        self._bell.ring(self._name)

    def answered(self) -> Iterator[tuple[str, Answered]]:
        """Takes the answers, each with whose it is."""
        while self._answers:
            yield self._answers.popleft()

    def stop(self, wait_s: float) -> None:
        """Nothing is under way."""


class CountedGroup:
    """`on_end` is called once with the outcome, unless it is killed; `reports` are those of its connections."""

    def __init__(self, clock: Clock, group: Group, who: Invocation, on_end: Callable[[Outcome], None]) -> None:
        self._clock, self._group, self._on_end = clock, group, on_end
        self._bell = Bell()
        self._timer: Timer | None = None
        self._is_alive, self._is_awake = True, False
        self.reports: list[Report] = []
        self.connections: list[VirtualConnection] = []  # a counted run draws no picture
        settings, names = group.settings, group.names
        tables = GroupTables(
            group.client,
            _none,
            events_table=names["events_table"],
            control_table=names["control_table"],
            dead_letter_queue_url="",
            ledger_keep_days=settings["ledger_keep_days"],
        )
        ports = GroupPorts(
            clock=clock,
            secrets=SecretValues(_none, ""),
            bell=self._bell,
            pool=lambda _threads, name: _Prompt(self._bell, name),
            open_upstream=self._open,
            kept=self._kept,
            profiles=ReadProfiles(self._profile, self._profile),
            log_report=lambda _profile, _who, report, _blocked_ms: self.reports.append(report),
            reports=_nobody,
        )
        delays = Delays(*(settings[name] for name in Delays.__slots__))
        self._steps = group_steps(who, tables, delays, ports)
        self._move: Callable[[], Any] = functools.partial(next, self._steps)

    def advance(self) -> None:
        """Begins: claims the group, and ends at once where that is refused."""
        self._wake()

    def kill(self) -> None:
        """Ends it as SIGKILL does."""
        self.freeze()
        self._steps.close()

    def freeze(self) -> None:
        """Halts it as SIGSTOP does."""
        self._is_alive = False
        if self._timer is not None:
            self._timer.cancel()

    def lease_changed(self) -> None:
        """Nothing: it hears of changes in the answers to its beats."""

    def _wake(self) -> None:
        """Does all that is due now, and wakes again when more is."""
        if not self._is_alive or self._is_awake:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._is_awake = True
        try:
            wait_s = self._goes_on()
        except StopIteration as ended:
            self.freeze()
            self._on_end(ended.value)
            return
        finally:
            self._is_awake = False
        self._timer = self._clock.call_at(self._clock.now_ms() + max(1, round(1000 * wait_s)), self._wake)

    def _goes_on(self) -> float:
        """For how many seconds it waits now, where nobody rings."""
        while True:
            need = self._move()
            if isinstance(need, Ask):
                try:
                    self._move = functools.partial(self._steps.send, need.request())
                except Exception as error:
                    self._move = functools.partial(self._steps.throw, error)
                continue
            rung = self._bell.wait(0)
            if rung or need.for_s <= 0:
                self._move = functools.partial(self._steps.send, rung)
                continue
            self._move = lambda: self._steps.send(self._bell.wait(0))
            return float(need.for_s)

    def _kept(self, profile: Profile, who: Invocation, now_ms: int, delays: Delays, keeps: Keeps) -> Steps[Kept]:
        """The steps of one stream."""
        return kept(profile, who, now_ms, self._draw, delays, keeps)

    def _profile(self, _stream_id: str) -> Profile:
        """The profile of a stream."""
        return self._group.profile

    def _draw(self, least: float, most: float) -> float:
        return least + (most - least) * self._clock.random()

    def _open(self, stream_id: str, cursor: str | None, _profile: Profile, _values: Secrets, share: Share) -> Reader:
        upstream, heard = self._group.upstreams[stream_id], share.heard
        assert heard is not None

        def rings() -> None:
            heard()
            self._wake()

        opening = _Opening(self._clock.now_ms, rings, upstream.close)
        opening.link = upstream.open(opening, cursor)
        return opening


def _none(_service: str = "") -> Any:
    raise RuntimeError("a counted stream has no secret, and no event that is too large for an item")


def _nobody(_stream: str, _execution: str, _outcome: Outcome) -> None:
    return
