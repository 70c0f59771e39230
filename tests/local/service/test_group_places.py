"""A POST beyond what the machine holds is let in where it joins a group that runs, and nowhere else."""

import json

import pytest

from handlers.store import typed_values
from handlers.store.typed_values import Item
from local import stages
from local.chaos.deployments import STAGE
from local.service.capacity import Capacity, Room
from local.service.group_places import GroupPlaces, most_places
from local.simulation.tables import MemoryDynamoDB

CONTROL = "control"


def start_machine(together: int) -> str:
    """The deployed definition of what answers a POST."""
    definition = stages.definition(stages.ROOT / "statemachines" / "start.asl.yml")
    settings = stages.load(STAGE, {"streams_per_function": together})
    return json.dumps(stages.resolve(definition, settings, stages.names(STAGE)))


@pytest.mark.parametrize("together", [1, 2, 500])
def test_the_machine_says_how_many_places_a_group_has(together: int) -> None:
    """The one that takes a place; of a stack without one a group has one."""
    connections = json.dumps(stages.definition(stages.ROOT / "statemachines" / "connections.asl.yml"))
    assert most_places([connections, start_machine(together)]) == together
    assert most_places([connections]) == 1


def room(sizes: dict[str, int], *running: str, most: int = 2, members: tuple[str, ...] = ()) -> Room:
    """The room of a machine that holds one function, and is used up; the sizes are those of groups that are open."""
    tables = MemoryDynamoDB(CONTROL)

    def put(name: str, key: str, attributes: Item) -> None:
        tables.put_item(TableName=CONTROL, Item=typed_values.key(name, key) | attributes)

    put("#", "groups", {f"open:{group}": {"BOOL": True} for group in sizes} | {"last": {"N": "10"}})
    for group, size in sizes.items():
        put(group, "lease", {"size": {"N": str(size)}})
    for stream in members:
        put(stream, "lease", {"group": {"S": "#1"}})
    places = GroupPlaces(lambda: tables, CONTROL, lambda: most)
    return Room(Capacity(1, "a test"), lambda: running, places.joins)


def test_who_joins_a_group_that_runs_is_let_in() -> None:
    """Also a member that is asked for again; one that would open a group, or wake one that is over, is not."""
    assert room({"#1": 1}, "#1").admits("a")
    assert not room({"#1": 2}, "#1").admits("a")
    assert room({}, "#1", members=("a",)).admits("a")
    assert not room({}, "#1").admits("a")
    assert not room({"#1": 1}, "#2").admits("a")
    assert not room({"#1": 0}, "b").admits("a")


def test_the_oldest_group_with_a_place_is_filled_first() -> None:
    """By its number; of those before it none has a place."""
    assert room({"#9": 2, "#10": 1}, "#10").admits("a")
    assert not room({"#9": 1, "#10": 1}, "#10").admits("a")


def test_where_each_stream_has_its_own_function_no_table_is_asked() -> None:
    """Nothing is read, and a machine that is full is full."""
    places = GroupPlaces(pytest.fail, CONTROL, lambda: 1)
    assert not Room(Capacity(1, "a test"), lambda: ["b"], places.joins).admits("a")
    assert GroupPlaces(pytest.fail, CONTROL, lambda: 2).joins("#1") == ""
