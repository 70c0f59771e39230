"""Computes how many streams this machine can hold, and whether it has room for one more.

Every stream has its own process, and a second one during a handover. Each reads, stores and checks its lease, so cores
are exhausted first: docs/bench.md has the measurements with ten events a second, and `python -m bench.capacity`
repeats them. Invariants: running streams are never refused; a configured number is used as it is.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from handlers.api.verdict import plural
from handlers.errors import StoreUnavailable
from handlers.group import GROUP, is_group
from handlers.store.control_table import Table
from handlers.store.group_store import OPEN, group_lease
from handlers.store.typed_values import read_text
from local.terminal import whole_number

SETTING = "STREAMKEEPER_STREAMS"
STREAMS_PER_CORE = 40
# Two functions, as measured; shared memory is counted once.
STREAM_MB = 45
# Memory that is reserved for the service itself and everything else.
_RESERVED_MB = 500
_MOST = 100_000
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Capacity:
    """How many streams this machine holds; `because` is a phrase that says why."""

    most: int
    because: str

    @property
    def sentence(self) -> str:
        """The number and its reason."""
        return f"this machine holds about {plural(self.most, 'stream')}, or groups of them ({self.because})"


def read(environment: Mapping[str, str]) -> Capacity:
    """Returns the number in STREAMKEEPER_STREAMS, or what cores and memory allow; raises UserError for a bad one."""
    text = environment.get(SETTING, "")
    return (
        Capacity(whole_number(SETTING, text, 1, _MOST), f"{SETTING} says so") if text else compute(cores(), free_mb())
    )


def compute(cores: float, free_mb: int) -> Capacity:
    """Returns how many streams these cores and this free memory hold, at least one."""
    by_memory = max(0, free_mb - _RESERVED_MB) // STREAM_MB
    most = max(1, min(int(cores * STREAMS_PER_CORE), by_memory))
    return Capacity(most, f"{cores:g} core{'' if cores == 1 else 's'}, {free_mb / 1024:.1f} GB free")


def cores(group: Path = _GROUP) -> float:
    """Returns how many cores this process may use; half a core is 0.5."""
    usable = float(len(os.sched_getaffinity(0)))
    # Source: Linux, "Control Group v2", cpu.max: "$MAX $PERIOD", and "max" for no limit.
    quota, _, period = _read_text(group / "cpu.max").partition(" ")
    return min(usable, int(quota) / int(period)) if quota.isdigit() and period.isdigit() else usable


def free_mb(group: Path = _GROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Returns how much memory new processes may use."""
    lines = dict(line.split(":", 1) for line in _read_text(meminfo).splitlines() if ":" in line)
    free = int(lines.get("MemAvailable", "0 kB").split()[0]) // 1024
    most, used = _read_text(group / "memory.max"), _read_text(group / "memory.current")
    return min(free, (int(most) - int(used)) // 2**20) if most.isdigit() and used.isdigit() else free


def _read_text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


class Room:
    """The room for streams; `running` returns the ids of running ones, perhaps with repetitions.

    A group of streams that share a function counts as one. `group_to_join` returns the group that a stream would
    join, or "".
    """

    def __init__(
        self,
        capacity: Capacity,
        running: Callable[[], Iterable[str]],
        group_to_join: Callable[[str], str] = lambda _stream_id: "",
    ) -> None:
        self.capacity = capacity
        self._running = running
        self._group_to_join = group_to_join

    def count_running(self) -> int:
        """Returns the number of running streams and groups."""
        return len(set(self._running()))

    @property
    def running_in_words(self) -> str:
        """The running streams that have functions of their own, and the running groups, in words."""
        ids = set(self._running())
        counts = {"group": (groups := sum(map(is_group, ids))), "stream": len(ids) - groups}
        return " and ".join(plural(number, what) for what, number in counts.items() if number) or "no stream"

    def can_hold(self, *stream_ids: str) -> bool:
        """Returns whether the streams already run, fit on this machine, or join running groups."""
        streams = set(self._running())
        fresh = sum(one not in streams and self._group_to_join(one) not in streams for one in stream_ids)
        return not fresh or len(streams) + fresh <= self.capacity.most

    @property
    def refusal(self) -> str:
        """The sentence with which a stream is refused."""
        return (
            f"This machine holds {plural(self.capacity.most, 'stream')}, or groups of them ({self.capacity.because}),"
            f" and runs {self.running_in_words}; stop one, or set {SETTING} to a higher number and restart the service."
        )


def most_places(definitions: Iterable[str]) -> int:
    """Returns how many streams a group may have, by the definition of the machine that takes a place; or 1."""
    for definition in definitions:
        take = json.loads(definition).get("States", {}).get("Take place", {})
        most = take.get("Arguments", {}).get("ExpressionAttributeValues", {}).get(":most", {}).get("N", "")
        if number := re.search(r"\d+", most):
            return int(number[0])
    return 1


def find_group(stream_id: str, dynamodb: Callable[[], Any], control_table: str, most: int) -> str:
    """Returns the group of the stream, or the group that it would join by a POST; "" if none is known.

    It is the oldest group with fewer than `most` streams, which the machine fills next.
    """
    if most == 1 or is_group(stream_id):
        return ""
    try:
        table = Table(dynamodb(), control_table)
        own = read_text(table.get(stream_id, "lease") or {}, "group")
        if own is not None:
            return own
        names = [name.removeprefix(OPEN) for name in table.get(GROUP, "groups") or {} if name.startswith(OPEN)]
        groups = sorted((name for name in names if name[1:].isdecimal()), key=lambda name: int(name[1:]))
        return next((one for one in groups if group_lease(table.get(one, "lease")).size < most), "")
    except (BotoCoreError, ClientError, StoreUnavailable):
        return ""
