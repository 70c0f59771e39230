"""Says what the processes below this one use: processor time and memory. Source: proc(5), stat and smaps_rollup.

Invariant: a process that ends meanwhile is left out, and nothing raises.
"""

import os
from collections.abc import Iterable
from pathlib import Path

OWN = os.getpid()
_TICKS = os.sysconf("SC_CLK_TCK")


def descendants() -> list[int]:
    """The processes below this one."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    below = [os.getpid()]
    for pid in below:
        below += [child for child, parent in parents.items() if parent == pid]
    return below[1:]


def functions() -> list[int]:
    """Those that are sandboxes of functions."""
    return [pid for pid in descendants() if "bootstrap.py" in command(pid)]


def command(pid: int) -> str:
    """With which words a process was started, "" of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def own_spent_s(pid: int) -> float:
    """The processor time of a process alone, user and system."""
    return sum(_times(pid)[:2]) / _TICKS


def ended_spent_s() -> float:
    """The processor time of the children of this process that have ended."""
    return sum(_times(os.getpid())[2:]) / _TICKS


def spent_s() -> float:
    """The processor time of this process and of all below it, of children that have ended too."""
    return sum(sum(_times(pid)) for pid in [os.getpid(), *descendants()]) / _TICKS


def memory_mb(pids: Iterable[int]) -> list[float]:
    """The memory of each process; of what several share each has its part."""
    found = []
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found.append(sum(int(text.split()[1]) for text in lines if text.startswith("Pss:")) / 1024)
    return found


def resident_mb(pid: int | str = "self") -> float:
    """The most memory that a process had resident; of this program alone, where getrusage begins with its parent's."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def _times(pid: int) -> list[int]:
    """Ticks: its own as user and as system, and those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return [0, 0, 0, 0]
    return [int(fields[at]) for at in (11, 12, 13, 14)]
