"""An event that a sink without an order refuses delays no other: it is set apart and retried for a day."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from handlers.deliver import delivery_records, set_apart, worker
from handlers.deliver.contract import Message, Refusal
from handlers.deliver.sink_commands import lag
from handlers.deliver.table_records import decode_image
from handlers.profile.deliver_field import Target
from tests.handlers.context import Killed
from tests.handlers.deliver.records import NOW_MS, event, segment_record
from tests.handlers.deliver.stage import AWAY, PLACE, TAKE, TARGET, Stage, asked, of

HOUR_S = 3_600


def refusing(*refused: str, request_ms: int = 300) -> Stage:
    """Return a stage whose sink refuses these events; by default it is too slow for sending at once."""
    stage = Stage(replace(TARGET, in_order=False), most=1, request_ms=request_ms)
    stage.answer = lambda _, batch: {at: AWAY for at, one in enumerate(batch) if one.key in refused}
    return stage


def come(stage: Stage, *numbers: int, every_s: int = 30, for_s: int = 300) -> None:
    """Let events come one after the other, then some time pass."""
    begun_ms = stage.clock.now_ms
    for at_ms, n in enumerate(numbers):
        at_ms = begun_ms + 1_000 * every_s * at_ms
        stage.come("a", event(str(n), at_ms=at_ms), at_ms=at_ms)
    stage.run(every_s * len(numbers) + for_s)


@pytest.mark.parametrize("request_ms", [10, 300])
def test_an_event_that_is_refused_alone_holds_up_no_other(request_ms: int) -> None:
    """Each other event is delivered once, and within a second once the refused event is set apart.

    Before, a webhook that answered 500 to one event got nothing more. The sink's lag still counts the refused event,
    which is delivered once the sink accepts it.
    """
    stage = refusing("2", request_ms=request_ms)
    come(stage, *range(20))
    assert (sorted(map(int, stage.keys())), stage.letters) == ([0, 1, *range(3, 20)], [])
    assert (lag(stage.delivery.arrivals, "a", of(stage)), of(stage).waits) == ((1, NOW_MS + 60_000), "away")
    refuses, late_ms = stage.answer, list[int]()

    def answer(target: Target, batch: Sequence[Message]) -> Mapping[int, Refusal]:
        refused = refuses(target, batch)
        late_ms.extend([] if refused else [stage.clock.now_ms - batch[0].received_at_ms])
        return refused

    stage.answer = answer
    come(stage, *range(20, 40), every_s=17)
    assert (len(late_ms), max(late_ms) < 1_000, 8 < stage.batches[-30:].count(["2"]) < 12) == (20, True, True)
    stage.answer = lambda _target, _batch: TAKE
    stage.run(130)
    assert (sorted(map(int, stage.keys())), stage.keys()[-1]) == ([*range(40)], "2")
    assert (of(stage).delivered, lag(stage.delivery.arrivals, "a", of(stage)), stage.is_over) == (40, (0, 0), True)


def test_an_event_that_is_refused_for_a_day_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event refused for a day is a dead letter only if the sink accepts newer events; a sink away gets it later.

    An outage or a pause does not count: the first refusal after it made a dead letter of an event that it had kept.
    """
    monkeypatch.setattr(set_apart, "REFUSED_MS", HOUR_S * 1_000)
    stage = refusing("0", "1")
    come(stage, *range(4))
    stage.answer = lambda _, batch: dict.fromkeys(range(len(batch)), AWAY)
    stage.run(2 * HOUR_S)
    come(stage, 4)
    assert stage.letters == []
    stage.answer = lambda _, batch: {at: AWAY for at, one in enumerate(batch) if one.key == "0"}
    stage.run(800)
    assert (sorted(stage.keys()), stage.letters) == (["1", "2", "3", "4"], [])
    stage.run(HOUR_S // 2)
    asked(stage, "pause")
    stage.run(HOUR_S)
    asked(stage, "resume")
    stage.run(HOUR_S)
    assert stage.letters == []
    stage.run(300)
    assert stage.is_over
    assert [(one.key, one.reason) for one in stage.letters] == [("0", "refused for a day, unlike newer events: away")]
    assert (of(stage).delivered, of(stage).dead_lettered, of(stage).waits) == (4, 1, "")


@pytest.mark.parametrize(("is_all", "taken"), [(False, ["0", "2", "3", "4", "5"]), (True, ["0", "4", "5"])])
def test_a_pause_keeps_events_set_apart_and_a_skip_drops_them(*, is_all: bool, taken: list[str]) -> None:
    """A skip drops the event that was refused first, or all events that were set apart; a pause keeps them."""
    stage = refusing("1", "2", "3")
    come(stage, *range(6))
    asked(stage, "pause")
    stage.answer = lambda _target, _batch: TAKE
    stage.run(2 * HOUR_S)
    assert (len(stage.keys()), lag(stage.delivery.arrivals, "a", of(stage)).events) == (3, 3)
    assert asked(stage, "skip", is_all=is_all).skipped == (3 if is_all else 1)
    asked(stage, "resume")
    stage.run(130)
    assert (sorted(stage.keys()), stage.is_over) == (taken, True)


@pytest.mark.parametrize("taken", [range(1, 40, 2), range(1, 40, 4), range(25, 40)])
def test_any_number_of_events_is_set_apart(taken: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty refused events in a row let nothing else through; if most were refused, others came again and again."""
    for module in (set_apart, delivery_records, worker):
        monkeypatch.setattr(module, "MOST_APART", 5)
    stage = refusing(*(str(n) for n in range(40) if n not in taken), request_ms=10)
    come(stage, *range(40), every_s=1, for_s=3 * HOUR_S)
    left, is_skipped = 40 - len(taken), taken.step == 4
    assert (sorted(map(int, stage.keys())), lag(stage.delivery.arrivals, "a", of(stage))) == ([*taken], (left, NOW_MS))
    if is_skipped:
        assert asked(stage, "skip", is_all=True).skipped == left
    stage.answer = lambda _target, _batch: TAKE
    stage.run(600)
    items = stage.delivery.records._read_spilled(PLACE)
    assert (len(stage.keys()), stage.letters, stage.is_over, [*items]) == (40 - left * is_skipped, [], True, [])


def test_what_a_busy_sink_refuses_is_no_more_than_it_can_take_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that takes five events a second, and refuses the others, gets a burst nearly as fast as it takes it."""
    for module in (set_apart, delivery_records, worker):
        monkeypatch.setattr(module, "MOST_APART", 20)
    stage, taken = refusing(request_ms=10), Counter[int]()
    most = list[int]()

    def answer(_target: Target, _batch: Sequence[Message]) -> Mapping[int, Refusal]:
        most.append(record.all_apart if (record := stage.delivery.records.read(PLACE)) else 0)
        second = stage.clock.now_ms // 1_000
        taken[second] += 1
        return {0: AWAY} if taken[second] > 5 else TAKE

    stage.answer = answer
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(200)))
    stage.run(60)
    assert (len(stage.keys()), max(most) < 60, stage.letters) == (200, True, [])


def test_an_event_that_waits_before_newer_ones_outlives_its_arrival() -> None:
    """A refused event is delivered even if a newer one was accepted, its worker died and the arrivals have expired."""
    stage, answers = Stage(order="none", most=2), iter([{0: AWAY, 1: AWAY}, TAKE])

    def answer(_target: Target, _batch: Sequence[Message]) -> Mapping[int, Refusal]:
        if (refused := next(answers, None)) is None:
            raise Killed
        return refused

    stage.answer = answer
    stage.come("a", *(event(str(n), at_ms=NOW_MS - (2 - n) * HOUR_S * 2_000) for n in range(3)))
    stage.run(1)
    stage.expire()
    stage.answer = lambda _target, _batch: TAKE
    stage.run(600)
    assert (sorted({*stage.keys()}), stage.is_over) == (["0", "1", "2"], True)


def test_single_events_of_a_segment_are_set_apart() -> None:
    """An event set apart is found again within its segment; once it is gone from the table, the wait for it ends."""
    stage = refusing("2", "3")
    one = segment_record("a", [event(str(n)) for n in range(6)], 1)
    stage.client.put_item(TableName="events", Item=decode_image(one["dynamodb"]["NewImage"]))
    stage.virtual.schedule(NOW_MS, lambda: stage.delivery.note([one]))
    stage.run(300)
    assert [refused.at for refused in of(stage).set_apart] == [3, 4]
    stage.answer = lambda _, batch: {0: AWAY} if batch[0].key == "3" else TAKE
    stage.run(130)
    assert stage.keys() == ["0", "1", "4", "5", "2"]
    stage.client.delete_item(TableName="events", Key={name: one["dynamodb"]["Keys"][name] for name in ("PK", "SK")})
    stage.run(130)
    assert (of(stage).apart, stage.is_over) == ("", True)
