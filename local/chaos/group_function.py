"""One function of a group in virtual time: `handlers/run/group_function.py`, whose requests take time.

Only its threads, its sockets and its clock are simulated (`pool.py`, `seat.py`). It may be killed at any instant, in a
request, or between any two steps of a stream. Invariant: after `kill` nothing of it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.inputs import StoreFailed
from handlers.connection.steps import Invocation, Report, Steps
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.group.fates import Delays
from handlers.group.keeping import Keeps, Kept, kept
from handlers.profile.behaviour import Profile
from handlers.profile.secret_references import Secrets
from handlers.run.group_function import group_steps
from handlers.run.group_ports import Ask, GroupPorts, GroupTables, Needs, ReadProfiles, Reports
from handlers.run.group_profiles import PROFILES
from handlers.upstream.reader import Share
from local.chaos.link import Link
from local.chaos.pool import VirtualBell, VirtualPool
from local.chaos.running import Running
from local.chaos.seat import Place, Seat
from local.chaos.slow_requests import Task, Waits
from local.replay.virtual_reader import Reader
from local.simulation.unreliable_tables import UnreliableDynamoDB
from states_language.clock import VirtualClock

# How long a function takes to start that is asked for a profile, in milliseconds.
STARTS_MS = (100, 1_500)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every function of the groups finds; `place` is what one of a version finds of a stream.

    `newest` is the number of the version that is deployed now.
    """

    dynamodb: UnreliableDynamoDB
    tables: GroupTables
    delays: Delays
    reports: Reports
    place: Callable[[str, int], Place | None]
    newest: Callable[[], int]


class VirtualGroup(Running):
    """The function that `task` asks for."""

    def __init__(
        self, clock: VirtualClock, around: Surroundings, task: Task, on_end: Callable[[Outcome], None]
    ) -> None:
        super().__init__(clock, around.dynamodb, task, on_end)
        self._around = around
        self._seats: dict[str, Seat] = {}
        self._told: dict[str, int] = {}  # of streams whose profile it was told: the version that has told it
        self._bell = VirtualBell(self.heard)
        ports = GroupPorts(
            clock=self,
            secrets=SecretValues(_no_client, ""),
            bell=self._bell,
            pool=self._pool,
            open_upstream=self._open,
            kept=self._kept,
            profiles=ReadProfiles(self._own, self._deployed),
            log_report=_not_logged,
            reports=around.reports,
        )
        self._steps: Needs = group_steps(task.invocation, around.tables, around.delays, ports)

    @property
    def links_by_fence(self) -> dict[int, Link]:
        """None of its own: its seats have them, for each stream counts its tokens for itself."""
        return {}

    def _run(self) -> Waits[Outcome]:
        move: Callable[[], Any] = functools.partial(next, self._steps)
        while True:
            try:
                need = move()
            except StopIteration as ended:
                outcome: Outcome = ended.value
                return outcome
            except StoreUnavailable as error:
                return Outcome("StoreUnavailable", "", str(error))
            if isinstance(need, Ask):
                answer = yield from self.slow.ask(need.request)
                if isinstance(answer, StoreFailed):
                    move = functools.partial(self._steps.throw, StoreUnavailable(answer.detail))
                else:
                    move = functools.partial(self._steps.send, answer)
                continue
            rung = self._bell.wait(0)
            if not rung and need.for_s > 0:
                yield self._clock.now_ms() + max(1, round(1000 * need.for_s)), True
                rung = self._bell.wait(0)
            move = functools.partial(self._steps.send, rung)

    def _close_sockets(self) -> None:
        for seat in self._seats.values():
            seat.close()

    def _pool(self, threads: int, name: str) -> VirtualPool:
        takes = self._starts_another if name == PROFILES else None
        return VirtualPool(self._clock, self, self._bell, threads, name, takes)

    def _starts_another(self, request: Callable[[], Any]) -> Waits[Any]:
        """The answer of the function as it is deployed now, which has to start for that."""
        yield self._clock.now_ms() + self._draws.randrange(*STARTS_MS), False
        return request()

    def _own(self, stream: str) -> Profile:
        return self._read(stream, self.task.version)

    def _deployed(self, stream: str) -> Profile:
        self._told[stream] = self._around.newest()
        return self._read(stream, self._told[stream])

    def _read(self, stream: str, version: int) -> Profile:
        place = self._around.place(stream, version)
        if place is None:
            raise InvalidRequest(f"there is no stream {stream!r}")
        return place.profile

    def _kept(self, profile: Profile, who: Invocation, now_ms: int, delays: Delays, keeps: Keeps) -> Steps[Kept]:
        seat = self._seats.get(who.stream_id)
        if seat is None:
            place = self._around.place(who.stream_id, self._told.get(who.stream_id, self.task.version))
            assert place is not None, "its profile was read"
            self._seats[who.stream_id] = seat = Seat(self._clock, self, who, place)
            place.clients.append(seat)

        def draw(least: float, most: float) -> float:
            value = self._draws.uniform(least, most)
            seat.notes.drew(least, most, value)
            return value

        def keeps_on(at_ms: int) -> bool:
            seat.notes.rests()  # it is asked in the function's own rests alone
            return keeps(at_ms)

        return seat.noted(kept(profile, who, now_ms, draw, delays, keeps_on))

    def _open(self, stream: str, cursor: str | None, _profile: Profile, _values: Secrets, share: Share) -> Reader:
        assert share.heard is not None
        return self._seats[stream].open(cursor, share.heard)


def _no_client(_service: str) -> Any:
    raise RuntimeError("no profile of a run has a secret")


def _not_logged(_profile: Profile, _who: Invocation, _report: Report, _blocked_ms: int) -> None:
    return
