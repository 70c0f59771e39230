"""How many streams a machine holds, by its cores and its memory."""

import json
import os
from pathlib import Path

import pytest

from handlers.store import typed_values
from handlers.store.typed_values import Item
from local import stages
from local.chaos.deployments import STAGE
from local.service.capacity import Capacity, Room, compute, cores, find_group, free_mb, most_places, read
from local.simulation.tables import MemoryDynamoDB
from local.terminal import UserError


@pytest.mark.parametrize(
    ("of_cores", "free", "most", "because"),
    [
        (2, 23_000, 80, "2 cores, 22.5 GB free"),
        (0.5, 23_000, 20, "0.5 cores, 22.5 GB free"),
        (16, 5_000, 100, "16 cores, 4.9 GB free"),
        (1, 300, 1, "1 core, 0.3 GB free"),
    ],
)
def test_cores_and_memory_bound_the_capacity(of_cores: float, free: int, most: int, because: str) -> None:
    """A machine holds 40 streams a core or one per 45 MB, whichever is fewer, and at least one."""
    assert compute(of_cores, free) == Capacity(most, because)


def test_streamkeeper_streams_sets_the_capacity() -> None:
    """The number in STREAMKEEPER_STREAMS is used unchanged; an invalid one is refused with one sentence."""
    assert read({"STREAMKEEPER_STREAMS": "7"}).sentence == (
        "this machine holds about 7 streams, or groups of them (STREAMKEEPER_STREAMS says so)"
    )
    assert read({"STREAMKEEPER_STREAMS": ""}).most >= 1
    for text in ("0", "-1", "many", "1.5", "1000000", "٣"):
        with pytest.raises(UserError, match=r"^STREAMKEEPER_STREAMS must be a whole number from 1 to 100000, not '"):
            read({"STREAMKEEPER_STREAMS": text})


@pytest.mark.parametrize(
    ("quota", "share"), [("max 100000", None), ("50000 100000", 0.5), ("99900000 100000", None), ("", None)]
)
def test_a_control_group_lowers_the_cores_and_the_memory(tmp_path: Path, quota: str, share: float | None) -> None:
    """The control group's limits count if below the machine's cores or memory; without limits the machine's count."""
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
    """A stream under renewal has two executions and counts once; a stream that already runs is always admitted."""
    streams = ["a", "b", "b"]
    room = Room(Capacity(3, "a test"), lambda: streams)
    assert (room.count_running(), room.can_hold("c"), room.can_hold("b")) == (2, True, True)
    streams.append("c")
    assert (room.count_running(), room.can_hold("d"), room.can_hold("b")) == (3, False, True)
    assert room.running_in_words == "3 streams"
    streams[1:] = ["#1", "#1", "#2"]
    assert (room.count_running(), room.running_in_words) == (3, "2 groups and 1 stream")


CONTROL = "control"


def start_machine(together: int) -> str:
    """The deployed definition of the machine that answers a POST."""
    definition = stages.read_machine_file(stages.ROOT / "statemachines" / "start.asl.yml")
    settings = stages.load(STAGE, {"streams_per_function": together})
    return json.dumps(stages.resolve(definition, settings, stages.names(STAGE)))


@pytest.mark.parametrize("together", [1, 2, 500])
def test_the_places_of_a_group_are_read_from_the_deployed_machine(together: int) -> None:
    """The number of streams per group is read from the deployed machine; in a stack without that machine it is one."""
    connections = json.dumps(stages.read_machine_file(stages.ROOT / "statemachines" / "connections.asl.yml"))
    assert most_places([connections, start_machine(together)]) == together
    assert most_places([connections]) == 1


def room(sizes: dict[str, int], *running: str, most: int = 2, members: tuple[str, ...] = ()) -> Room:
    """Returns the room of a machine that is full with one function; `sizes` has the size of each open group."""
    tables = MemoryDynamoDB(CONTROL)

    def put(name: str, key: str, attributes: Item) -> None:
        tables.put_item(TableName=CONTROL, Item=typed_values.item_key(name, key) | attributes)

    put("#", "groups", {f"open:{group}": {"BOOL": True} for group in sizes} | {"last": {"N": "10"}})
    for group, size in sizes.items():
        put(group, "lease", {"size": {"N": str(size)}})
    for stream in members:
        put(stream, "lease", {"group": {"S": "#1"}})
    return Room(
        Capacity(1, "a test"), lambda: running, lambda stream_id: find_group(stream_id, lambda: tables, CONTROL, most)
    )


@pytest.mark.parametrize(
    ("sizes", "running", "members", "is_let_in"),
    [
        ({"#1": 1}, "#1", (), True),
        ({"#1": 2}, "#1", (), False),
        ({}, "#1", ("a",), True),
        ({}, "#1", (), False),
        ({"#1": 1}, "#2", (), False),
        ({"#1": 0}, "b", (), False),
        # The oldest group with a place is filled first, by its number.
        ({"#9": 2, "#10": 1}, "#10", (), True),
        ({"#9": 1, "#10": 1}, "#10", (), False),
    ],
)
def test_a_full_machine_admits_streams_that_join_a_running_group(
    sizes: dict[str, int], running: str, members: tuple[str, ...], is_let_in: bool
) -> None:
    """A full machine admits a stream that joins a running group, or already belongs to it. A stream that would open or
    wake a group is refused.
    """
    assert room(sizes, running, members=members).can_hold("a") is is_let_in


def test_no_table_is_read_if_each_stream_has_its_own_function() -> None:
    """If each stream has its own function, no table is read, and a full machine admits nothing."""
    assert find_group("a", pytest.fail, CONTROL, 1) == find_group("#1", pytest.fail, CONTROL, 2) == ""
    assert not Room(Capacity(1, "a test"), lambda: ["b"]).can_hold("a")


def test_all_parts_of_a_stream_are_admitted_or_none() -> None:
    """The parts of a stream are admitted only if all of them fit; parts that already run need no room."""
    room = Room(Capacity(3, "a test"), lambda: ["a:1", "b"])
    assert [room.can_hold("a:1", "a:2"), room.can_hold("a:1", "a:2", "a:3"), room.can_hold("a:1", "b")] == [
        True,
        False,
        True,
    ]
