"""How many streams a machine holds, by its cores and its memory."""

import os
from pathlib import Path

import pytest

from local.service.capacity import Capacity, Room, computed, cores, free_mb, read
from local.user_error import UserError


@pytest.mark.parametrize(
    ("of_cores", "free", "most", "because"),
    [
        (2, 23_000, 80, "2 cores, 22.5 GB free"),
        (0.5, 23_000, 20, "0.5 cores, 22.5 GB free"),
        (16, 5_000, 100, "16 cores, 4.9 GB free"),
        (1, 300, 1, "1 core, 0.3 GB free"),
    ],
)
def test_cores_and_memory_bound_it(of_cores: float, free: int, most: int, because: str) -> None:
    """Forty streams a core, 45 MB each, whichever is less; one at least."""
    assert computed(of_cores, free) == Capacity(most, because)


def test_a_number_that_somebody_sets_is_taken() -> None:
    """As it is; what is no such number is one sentence."""
    assert read({"STREAMKEEPER_STREAMS": "7"}).sentence == (
        "this machine holds about 7 streams (STREAMKEEPER_STREAMS says so)"
    )
    assert read({"STREAMKEEPER_STREAMS": ""}).most >= 1
    for text in ("0", "-1", "many", "1.5", "1000000", "٣"):
        with pytest.raises(UserError, match=r"^STREAMKEEPER_STREAMS must be a whole number from 1 to 100000, not '"):
            read({"STREAMKEEPER_STREAMS": text})


@pytest.mark.parametrize(
    ("quota", "share"), [("max 100000", None), ("50000 100000", 0.5), ("99900000 100000", None), ("", None)]
)
def test_a_control_group_may_allow_less(tmp_path: Path, quota: str, share: float | None) -> None:
    """Of the cores and of the memory of the machine; where it says nothing, the machine counts."""
    (tmp_path / "cpu.max").write_text(quota)
    assert cores(tmp_path) == (share or len(os.sched_getaffinity(0)))
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  4096000 kB\nMemAvailable:   2048000 kB\n")
    assert free_mb(tmp_path, meminfo) == 2000
    (tmp_path / "memory.max").write_text(str(600 * 2**20))
    (tmp_path / "memory.current").write_text(str(100 * 2**20))
    assert free_mb(tmp_path, meminfo) == 500
    (tmp_path / "memory.max").write_text("max")
    assert free_mb(tmp_path, meminfo) == 2000


def test_room_counts_streams_and_not_executions() -> None:
    """A stream that is being renewed has two for a moment; one that runs is always admitted."""
    streams = ["a", "b", "b"]
    room = Room(Capacity(3, "a test"), lambda: streams)
    assert (room.running(), room.admits("c"), room.admits("b")) == (2, True, True)
    streams.append("c")
    assert (room.running(), room.admits("d"), room.admits("b")) == (3, False, True)
