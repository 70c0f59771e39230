"""The faults of the soak and their order: signals to processes, a bad network, a full disk, power cuts.

Invariant: the effect of a fault on the machine is undone when it ends, however it ends.
"""

import contextlib
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from handlers.aws.lambda_environment import now_ms
from local.upstreams.demo_streams import Upstreams
from tests.chaos.real.proxy import Proxy
from tests.chaos.real.shapes import STALL_AFTER_S, STREAMS, Journal, place_of
from tests.harness import Service

STARTED_WITHIN_S = 90
# The connection reads the stop within a second; in a back-off it reads the stop when that is over.
STOPPED_WITHIN_S = 12


@dataclass(frozen=True)
class Step:
    """One fault, its duration, its target (a number from 0 up to 1), and the pause after it."""

    fault: str
    lasts_s: float
    which: float
    rest_s: float


def draw_steps(seed: int) -> Iterator[Step]:
    """Yields the faults of a seed without end: each kind once in random order, then each again."""
    draws = random.Random(seed)
    while True:
        for fault in draws.sample([*FAULTS], len(FAULTS)):
            yield Step(fault, draws.uniform(2, 9), draws.random(), draws.uniform(0.2, 2))


@dataclass
class Scene:
    """The service, its upstream, the journal and the proxy; when streams should be stopped, and when no byte passed."""

    service: Service
    upstreams: Upstreams
    journal: Journal
    proxy: Proxy
    away: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    silences: list[tuple[int, int]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """What went wrong meanwhile."""

    def processes(self, part: bytes) -> list[int]:
        """Returns the processes below the service whose command or environment contains this."""
        below = sorted(self.service.descendants())
        return [pid for pid in below if part in _read(pid, "cmdline") + _read(pid, "environ")]

    def all_processes(self) -> list[int]:
        """Returns the service's process and all below it."""
        assert self.service.process is not None
        return [self.service.process.pid, *self.service.descendants()]

    def start(self) -> None:
        """Starts the service detached from this terminal, whose Ctrl-C is for the soak; returns once it answers."""
        self.service.launch("setsid")
        end_s = time.monotonic() + STARTED_WITHIN_S
        while not self.service.answers():
            assert time.monotonic() < end_s, self.service.log
            pause(0.2)

    def start_again(self, pids: list[int]) -> None:
        """Kills the service with all processes below it, and starts it in the same folder."""
        assert self.service.process is not None
        try:
            _send(pids, signal.SIGKILL)
            self.service.process.wait()
        finally:
            self.start()


def pause(seconds: float) -> None:
    """Lets time pass."""
    threading.Event().wait(seconds)


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _send(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stand_still(pids: Collection[int], lasts_s: float, halfway: Callable[[], object] = lambda: None) -> None:
    try:
        _send(pids, signal.SIGSTOP)
        pause(lasts_s / 2)
        halfway()
        pause(lasts_s / 2)
    finally:
        _send(pids, signal.SIGCONT)


def _silent(scene: Scene, step: Step) -> None:
    """Lets no byte pass and no connection close. A connection that leaves before `stall_after_s` cannot notice that."""
    scene.silences.append((now_ms(), now_ms() + STALL_AFTER_S * 1000))
    with scene.proxy.stalled():
        pause(step.lasts_s)


def _bad_network(scene: Scene, step: Step) -> None:
    """Bytes come late and in small pieces, and each side learns late that the other has closed."""
    scene.proxy.latency_s, scene.proxy.slice_bytes, scene.proxy.slow_close_s = step.which / 2, 99, 1
    try:
        pause(step.lasts_s)
    finally:
        scene.proxy.latency_s = scene.proxy.slice_bytes = scene.proxy.slow_close_s = 0


def _disk_full(scene: Scene, step: Step) -> None:
    """Lets the database and the service write no file; every second time, all functions are killed too.

    The means is RLIMIT_FSIZE: write(2) fails with EFBIG, not with ENOSPC as on a full disk; it needs no right to mount.
    """
    pids = scene.all_processes()
    try:
        _limit_files(pids, 0)
        _send(scene.service.sandboxes() if step.which < 0.5 else [], signal.SIGKILL)
        pause(step.lasts_s)
    finally:
        _limit_files({*pids, *scene.all_processes()}, resource.RLIM_INFINITY)


def _limit_files(pids: Collection[int], size_bytes: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def _power_cut(scene: Scene, _: Step) -> None:
    """Stops every process before it kills the first."""
    pids = scene.all_processes()
    _send(pids, signal.SIGSTOP)
    scene.start_again(pids)


def _stopped_and_started(scene: Scene, step: Step) -> None:
    """DELETEs a stream until it is not connected, and POSTs it: events in between do not count as missing."""
    stream, from_ms, end_s = STREAMS[int(step.which * len(STREAMS))], now_ms(), time.monotonic() + STOPPED_WITHIN_S
    try:
        scene.service.ask("DELETE", stream)
        while scene.journal.connected[stream][-1][1] and time.monotonic() < end_s:
            pause(0.2)
        if time.monotonic() >= end_s:
            scene.broken.append(f"{stream}: connected {STOPPED_WITHIN_S} s after a stop was requested")
    finally:
        while scene.service.ask("POST", stream)[0] != 200:
            pause(0.5)
        scene.away.setdefault(stream, []).append((from_ms, now_ms() + 5_000))


def _one(step: Step, pids: list[int]) -> list[int]:
    return [pids[int(step.which * len(pids))]] if pids else []


MANAGER, DATABASE = b"connection-manager", b"/dynoxide"
# A function is frozen for less or more time than its heartbeats count; silence is shorter or longer than the limit that
# ends a connection. During every second suspension of the host the upstream resets the connections.
FAULTS: Mapping[str, Callable[[Scene, Step], object]] = {
    "function killed": lambda scene, step: _send(_one(step, scene.processes(MANAGER)), signal.SIGKILL),
    "functions killed": lambda scene, _: _send(scene.service.sandboxes(), signal.SIGKILL),
    "function frozen": lambda scene, step: _stand_still(_one(step, scene.processes(MANAGER)), step.lasts_s),
    "frozen and reset": lambda scene, step: _stand_still(scene.processes(MANAGER), step.lasts_s, scene.proxy.reset),
    "host suspended": lambda scene, step: _stand_still(
        scene.all_processes(), step.lasts_s, scene.proxy.reset if step.which < 0.5 else lambda: 0
    ),
    "one reset": lambda scene, step: scene.upstreams.drop(place_of(STREAMS[int(step.which * len(STREAMS))])),
    "all reset": lambda scene, _: scene.proxy.reset(),
    "truncated": lambda scene, _: scene.proxy.truncate(),
    "silent": _silent,
    "bad network": _bad_network,
    "database killed": lambda scene, _: _send(scene.processes(DATABASE), signal.SIGKILL),
    "database frozen": lambda scene, step: _stand_still(scene.processes(DATABASE), step.lasts_s),
    "disk full": _disk_full,
    "service killed": lambda scene, _: scene.start_again(scene.all_processes()[:1]),
    "power cut": _power_cut,
    "stopped and started": _stopped_and_started,
}
