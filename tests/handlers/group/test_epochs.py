"""Upstreams whose ids start over, read by functions of a group: each event is stored once and delivered once."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from handlers.connection.inputs import IN_A_LOG, Layout
from handlers.deliver.contract import Message, Refusal
from handlers.profile.deliver_field import Target
from handlers.store.event_reader import EventReader
from handlers.store.typed_values import Item
from tests.examples import examples
from tests.handlers.deliver.stage import AWAY, Stage
from tests.handlers.group.world import EVENTS, START_MS, World

# How long a life of an upstream lasts; in its first part functions die, in its last nothing happens any more.
LIFE_MS, QUIET_MS = 25_000, 12_000


class Run:
    """Two streams of one group; the first one's upstream is restarted, and counts from 1 again."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        store = self.draw.choice(["items", "log"])
        self.layout = IN_A_LOG if store == "log" else Layout()
        self.writes: list[tuple[int, Item]] = []
        policies = {name: self.draw.choice(["evicts", "forbids", "tolerates"]) for name in "ab"}
        profile = {"on_conflict": "epoch", "key": "id", "store": store}
        self.world = World(policies, lambda *write: self.writes.append(write), **profile)
        self.restarted, self.steady = self.world.upstreams
        # By stream, the key under which each body must be found.
        self.expected: dict[str, dict[str, str]] = {stream: {} for stream in self.world.upstreams}
        self.world.join(*self.world.upstreams)
        self.world.run_lanes()
        lengths: list[int] = []
        for life in range(self.draw.randint(2, 3)):
            self._live(life, lengths)
        self.world.run(LIFE_MS * len(lengths))

    def _live(self, life: int, lengths: list[int]) -> None:
        """Plan a life of the upstreams; `lengths` are how many events the earlier lives had."""
        begin_ms, count = LIFE_MS * life, self.draw.randint(1, 7)
        if life:
            self.world.at(begin_ms, self.world.upstreams[self.restarted].restart)
        for one in range(1, count + 1):
            taken = sum(one <= length for length in lengths)
            self.expected[self.restarted][f"{1_000 * life + one}"] = f"{one}#{taken}" if taken else f"{one}"
            steady = f"{sum(lengths) + one}"
            self.expected[self.steady][steady] = steady
            for stream in self.world.upstreams:
                self._at(begin_ms, partial(self.world.emit, stream))
        lengths.append(count)
        for _ in range(self.draw.randint(0, 2)):
            is_proved = self.draw.random() < 0.5
            self._at(begin_ms, partial(self.world.kill_one, self.draw.randint(0, 1), is_proved=is_proved))
        self._at(begin_ms, self.drop_all)

    def _at(self, begin_ms: int, act: Callable[[], object]) -> None:
        self.world.at(begin_ms + self.draw.randint(1, LIFE_MS - QUIET_MS), act)

    def stored(self, stream: str) -> list[tuple[str, str]]:
        """Return the body and the key of each event."""
        reader, layout = EventReader(self.world.tables, EVENTS, lambda _key: None), self.layout
        entries = reader.entries(stream, layout, self.world.now_ms, "", 1_000)
        return sorted((str(event.data), event.key) for _, event in entries if event is not None)

    def delivered(self) -> list[Message]:
        """Return what a sink takes that is away from time to time."""
        stage = Stage(layout=self.layout, client=self.world.tables)

        def answer(_target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
            return {at: AWAY for at in range(len(batch)) if self.draw.random() < 0.2}

        stage.answer = answer
        stage.bring([(at_ms - START_MS, item) for at_ms, item in self.writes])
        stage.run(3600)
        assert stage.is_over
        return [one for _, one in stage.taken]

    def drop_all(self) -> None:
        """Drop all connections."""
        for upstream in self.world.upstreams.values():
            for link in [*upstream.links]:
                upstream.drop(link)


@pytest.mark.cpu(8)
# A smaller seed is no smaller run: shrinking would only repeat it.
@settings(max_examples=examples(60), phases=set(Phase) - {Phase.shrink, Phase.explain})
@example(seed=449565)  # a sink refuses the second of two events that came together
@given(seed=st.integers(0, 2**32))
def test_ids_that_start_over_in_a_group_lose_nothing_and_deliver_nothing_twice(seed: int) -> None:
    """Whatever dies meanwhile, each new event has a key of the new epoch, in the table and at the sink.

    A stream beside it keeps its keys.
    """
    run = Run(seed)
    taken = run.delivered()
    for stream, expected in run.expected.items():
        assert run.stored(stream) == sorted(expected.items()), stream
        at_sink = [(json.loads(one.text)["data"], one.key) for one in taken if one.stream_id == stream]
        assert sorted(at_sink) == sorted(expected.items()), stream
