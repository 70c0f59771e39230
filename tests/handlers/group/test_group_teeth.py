"""Deliberate defects of what a group stores and of its functions: the checks of a run find each of them."""

from collections.abc import Callable
from typing import Any

import pytest

from handlers.group.lease import Beat
from handlers.store import group_store, grouped_store, known_streams
from handlers.store.connection_store import Reply, Store
from handlers.store.grouped_store import GroupedStore
from handlers.store.typed_values import Item
from tests.handlers.group.test_group_functions import check
from tests.handlers.group.world import EVERY_MS, World

Patch = pytest.MonkeyPatch


def run() -> None:
    """A handover of which one opening comes late, a drop, a kill that nothing proves, a leave: what must be so is."""
    world = World({"a": "evicts", "b": "tolerates", "c": "forbids"})
    streams = [*world.upstreams]

    def is_down(is_so: bool) -> None:
        world.upstreams[streams[1]].is_down = is_so

    world.join(*streams)
    world.start("r1")
    for number in [*range(1, 27), *range(43, 100)]:
        # Each has its own pace, so that the cursor of one is no other's; none has an event while r2 takes over, so that
        # nothing but a beat says that it has.
        world.at(700 * number, lambda number=number: world.emit(*streams[: number % 3 + 1]))  # type: ignore[misc]
    world.at(5_000, lambda: world.upstreams[streams[1]].drop(world.upstreams[streams[1]].links[0]))
    world.at(19_000, lambda: is_down(True))
    # Between two beats of r1.
    world.at(20_300, lambda: world.start("r2"))
    world.at(24_000, lambda: is_down(False))
    world.run(29_000)
    assert [world.holders(stream) for stream in streams] == [["r2"]] * 3
    world.at(30_500, lambda: world.kill("r2"))
    world.at(31_000, lambda: world.start("r3"))
    world.run(50_000)
    check(world)
    # Nothing but the kill has met the first stream.
    assert world.upstreams[streams[0]].gaps == [(30_500, 31_000)]
    world.leave(streams[0])
    world.run(55_000)
    assert [world.holders(stream) for stream in streams] == [[], ["r3"], ["r3"]]


def _saves_under_anothers_key(patch: Patch) -> None:
    heartbeat = Store.heartbeat

    def to_another(self: Store, _stream: str, *more: Any) -> Reply:
        # The stream with the fewest events, and so with the smallest cursor.
        return heartbeat(self, "forbids:c", *more)

    patch.setattr(Store, "heartbeat", to_another)
    patch.setattr(known_streams, "CURSOR_EVERY_MS", EVERY_MS)


def _speaks_of_the_future(patch: Patch) -> None:
    def until(seen_ms: int, lag_ms: int | None, beat: Beat | None) -> int:
        return seen_ms if beat is None or lag_ms is None else max(seen_ms, beat.until_ms)

    patch.setattr(group_store, "good_until_ms", until)


def _counts_no_turn(patch: Patch) -> None:
    patch.setattr(GroupedStore, "turns", property(lambda _self: 0, lambda _self, _value: None), raising=False)


def _reads_what_is_known_of_another(patch: Patch) -> None:
    held = GroupedStore._held
    patch.setattr(GroupedStore, "_from_known", lambda self, _stream, _fence: Reply(True, self._to_record(_first(self))))
    patch.setattr(GroupedStore, "known", lambda self, _stream: self._to_record(_first(self)).lease)

    def _first(self: GroupedStore) -> Item:
        # The one that was dropped, and so has claimed once more than the others.
        return held(self, max(self._streams)).item


def _takes_turns_of_the_living(patch: Patch) -> None:
    patch.setattr(grouped_store, "known_over", lambda own, _group: own.connected_token)
    patch.setattr("handlers.connection.manager.may_open", lambda *_given: True)


def _forgets_the_lag(patch: Patch) -> None:
    patch.setattr(GroupedStore, "beat_at_ms", lambda self: self._clock_ms() + 10 * EVERY_MS)


DEFECTS: tuple[Callable[[Patch], None], ...] = (
    _saves_under_anothers_key,
    _speaks_of_the_future,
    _counts_no_turn,
    _reads_what_is_known_of_another,
    _takes_turns_of_the_living,
    _forgets_the_lag,
)


def test_the_product_passes() -> None:
    """Without a defect nothing is found."""
    run()


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__.strip("_").replace("_", " "))
def test_a_deliberate_defect_is_found(defect: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """Some check of the same run does not hold."""
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        run()
