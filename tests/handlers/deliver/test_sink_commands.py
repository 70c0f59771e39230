"""Commands to a sink (pause, skip, replay), and where a new or returning sink begins."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.api.control_stage import COMMAND_S
from handlers.connection.inputs import Layout
from handlers.deliver import feed
from handlers.deliver.bells import ANSWERED_MS, Place
from handlers.deliver.sink_commands import Command, Lag, current_record, lag
from handlers.deliver.table_records import decode_image, group_by_stream
from tests.examples import one_in
from tests.handlers.deliver.records import NOW_MS, event, segment_record
from tests.handlers.deliver.stage import AWAY, OTHER, PLACE, TAKE, TARGET, Stage, asked, of


def test_a_sink_that_is_paused_gets_nothing_and_goes_on_from_there() -> None:
    """A paused sink gets nothing and continues from its place; its lag has the number and age of waiting events.

    Events that it accepted at once before the pause are counted, and sent once.
    """
    stage = Stage()
    for key in ("0", "1"):
        stage.come("a", event(key, at_ms=stage.clock.now_ms))
        stage.run()
    paused = asked(stage, "pause")
    assert (paused.is_paused, paused.delivered) == (True, 2)
    stage.come("a", event("2", at_ms=stage.clock.now_ms), event("3", at_ms=stage.clock.now_ms + 5))
    stage.run(300)
    assert (stage.keys(), stage.is_over) == (["0", "1"], True)
    behind = lag(stage.virtual.delivery.arrivals, "a", of(stage))
    assert (behind.events, stage.clock.now_ms - behind.oldest_ms) == (2, 300_000)
    asked(stage, "resume")
    stage.run(1)
    stage.come("a", event("4", at_ms=stage.clock.now_ms))
    stage.run(1)
    assert stage.keys() == ["0", "1", "2", "3", "4"]
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (0, 0)
    asked(stage, "pause")
    stage.expire()
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (0, 0)


def test_a_waiting_event_has_an_age_even_after_its_arrival_expired() -> None:
    """Expired arrivals no longer count, but the lag keeps the age of the oldest waiting event."""
    stage = Stage()
    stage.come("a", event("0"))
    stage.run()
    for n in (1, 2):
        asked(stage, "pause")
        stage.come("a", event(str(n), at_ms=NOW_MS + n))
        stage.run()
    stage.expire()
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (0, NOW_MS + 1)


def test_events_sent_at_once_count_as_delivered_before_a_worker() -> None:
    """If a sink accepts twelve events at once and refuses two, only these two wait, and one can be skipped."""
    stage = Stage()
    for n in range(12):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms))
        stage.run(1)
    stage.answer = lambda _target, _batch: {0: AWAY}
    delivery, at_ms = stage.virtual.delivery, stage.clock.now_ms
    for n in (12, 13):
        delivery.note(stage.stored("a", event(str(n), at_ms=at_ms + n)))
    assert of(stage).delivered == 1
    assert lag(delivery.arrivals, "a", of(stage)) == (2, at_ms + 12)
    assert current_record(delivery.arrivals, "a", of(stage)).delivered == 12
    assert (asked(stage, "skip").skipped, lag(delivery.arrivals, "a", of(stage)).events) == (1, 1)


@pytest.mark.parametrize("is_log", [False, True])
def test_events_that_are_stored_and_not_noted_count_in_lag_and_skip(*, is_log: bool) -> None:
    """If the delivery function is starved, the lag is the age of the first event that it has not noted.

    An event that came late and was noted before does not count. A skip waits a moment for the noting; it skips the
    events that the lag counts, or none with a message.
    """
    stage = Stage()

    def stored(*numbers: int, **marks: Any) -> list[dict[str, Any]]:
        events = [event(str(one), at_ms=NOW_MS + one) for one in numbers]
        records = [segment_record("a", events, numbers[0])] if is_log else stage.stored("a", *events)
        for one in records:
            stage.client.put_item(TableName="events", Item=decode_image(one["dynamodb"]["NewImage"]) | marks)
        return records

    delivery = stage.virtual.delivery
    frozen = stored(0)
    delivery.note(stored(1, 2))
    delivery.note(frozen)
    stage.run(1)
    stored(3, restored={"S": "2023"})
    assert lag(delivery.arrivals, "a", of(stage), delivery.feed.events) == (0, 0)
    late = stored(5, 6)
    assert lag(delivery.arrivals, "a", of(stage), delivery.feed.events) == (2, NOW_MS + 5 * (not is_log))
    stage.answer = lambda _target, batch: dict.fromkeys(range(len(batch)), AWAY)
    not_noted, asked_ms = "the newest events of a are stored and not noted yet; try again", stage.clock.now_ms
    assert delivery.carry_out(Command("skip"), PLACE) == not_noted
    assert stage.clock.now_ms - asked_ms <= COMMAND_S * 1000 / 2  # The API still waits for this answer.
    object.__setattr__(delivery.ports, "sleep", lambda _ms: delivery.note(late))
    assert asked(stage, "skip").skipped == 1
    late = stored(8, 9)
    assert asked(stage, "skip", is_all=True).skipped == 4
    stored(11)
    assert delivery.carry_out(Command("skip", is_all=True), PLACE) == not_noted
    assert lag(delivery.arrivals, "a", of(stage), delivery.feed.events).events == 1


def test_a_sink_that_refuses_within_a_segment_goes_on_within_it() -> None:
    """A sink's record counts the events of an arrival, so the accepted events of a segment are not sent again."""
    stage = Stage()
    stage.answer = lambda _target, batch: {at: AWAY for at, one in enumerate(batch) if one.key != "1"}
    one = segment_record("a", [event(str(n)) for n in (1, 2, 3)], 1)
    stage.client.put_item(TableName="events", Item=decode_image(one["dynamodb"]["NewImage"]))
    stage.virtual.schedule(NOW_MS, lambda: stage.virtual.delivery.note([one]))
    stage.run(40)
    assert stage.keys() == ["1"]
    stage.answer = lambda _target, _batch: TAKE
    stage.run(361)
    assert (stage.keys(), stage.is_over) == (["1", "2", "3"], True)


def test_a_skip_drops_one_event_or_all_so_far() -> None:
    """A skip drops the first waiting event, or all of them, and no worker rings again; later events are delivered."""
    stage = Stage()
    stage.answer = lambda _target, batch: {0: AWAY} if int(batch[0].key) < 6 else TAKE
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(5)))
    stage.run(40)
    delivery = stage.virtual.delivery
    assert lag(delivery.arrivals, "a", of(stage)).events == 5
    assert asked(stage, "skip").skipped == 1
    assert lag(delivery.arrivals, "a", of(stage)).events == 4
    assert asked(stage, "skip", is_all=True).skipped == 5
    stage.come("a", event("5", at_ms=stage.clock.now_ms))
    stage.run(40)
    skipped, end = asked(stage, "skip"), delivery.arrivals.last_arrival("a")
    assert end is not None
    assert delivery.feed.page("a", skipped, 1, stage.clock.now_ms).end.is_at(end)
    stage.run(40)
    assert stage.is_over
    stage.come("a", event("6", at_ms=stage.clock.now_ms))
    stage.run(40)
    assert (stage.keys(), stage.is_over) == (["6"], True)


@pytest.mark.parametrize("layout", [Layout(), Layout(3), Layout(1, "none")])
def test_a_replay_sends_the_events_since_an_instant_again(layout: Layout) -> None:
    """A replay sends the events since an instant, in order and marked, even if arrivals expired; the lag has none."""
    stage = Stage(layout=layout)
    stage.come("a", *(event(str(n), at_ms=NOW_MS + 1000 * n) for n in range(8)), at_ms=NOW_MS + 9_000)
    stage.run(20)
    asked(stage, "replay", from_ms=NOW_MS + 4_000)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (0, 0)
    stage.run(120)
    assert (stage.keys()[:8], stage.keys()[8:]) == ([str(n) for n in range(8)], ["4", "5", "6", "7"])
    assert [json.loads(one.text).get("replayed", False) for _, one in stage.taken] == [False] * 8 + [True] * 4
    stage.come("a", event("8", at_ms=stage.clock.now_ms))
    stage.run(10)
    assert stage.keys()[12:] == ["8"]
    assert (of(stage).is_replaying, stage.is_over) == (False, True)


def test_a_replay_of_few_among_many_remembers_how_far_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an order a replay reads all events, more than fit into one call, so it saves how far it has read."""
    monkeypatch.setattr(feed, "MOST_PLACES", 3, raising=False)
    stage, places = Stage(layout=Layout(1, "none")), list[list[str]]()
    stage.stored("a", *(event(f"{n:02d}", at_ms=NOW_MS - (n != 8) * 10_000) for n in range(16)))
    sink = replace(asked(stage, "resume"), replay_from_ms=NOW_MS - 1, replay_until_ms=NOW_MS + 1)
    while sink.is_replaying:
        page = stage.virtual.delivery.feed.page("a", sink, 1000, NOW_MS + 60_000)
        sink = page.end
        places.append([one.key for one in page.messages])
    assert places == [[], [], ["08"], [], [], []]


@pytest.mark.parametrize(
    ("from_ms", "keys"), [(None, ["3"]), (NOW_MS + 1_000, ["1", "2", "3"]), (0, ["0", "1", "2", "3"])]
)
def test_a_new_sink_begins_now_or_at_its_profiles_instant(from_ms: int | None, keys: list[str]) -> None:
    """A new sink begins now, or at its profile's `from`; these events have no mark of a replay.

    A call waits for events that the index may show late. The event that rang waits with them, and is sent once.
    """
    stage = Stage()
    stage.come("a", *(event(str(n), at_ms=NOW_MS + 1000 * n) for n in range(3)), at_ms=NOW_MS + 3_000)
    stage.run(20)
    stage.targets = (TARGET, replace(OTHER, from_ms=from_ms))
    came_ms = stage.clock.now_ms - 50
    stage.come("a", event("3", at_ms=came_ms))
    waited: list[Lag] = []
    sleep = stage.virtual.delivery.ports.sleep

    def sleeps(ms: int) -> None:
        waited.append(lag(stage.virtual.delivery.arrivals, "a", of(stage, Place("a", OTHER.label))))
        sleep(ms)

    object.__setattr__(stage.virtual.delivery.ports, "sleep", sleeps)
    stage.run(20)
    assert waited == [(1, came_ms)] * (from_ms is not None)
    assert stage.keys(OTHER.label) == keys
    assert not [one for _, one in stage.taken if "replayed" in one.text]
    assert (stage.keys(), stage.is_over) == (["0", "1", "2", "3"], True)


@pytest.mark.parametrize("later", [[], ["4"]], ids=["nothing more comes", "one more comes"])
@pytest.mark.parametrize("is_new", [False, True])
def test_events_of_expired_arrivals_are_read_from_the_table(later: list[str], *, is_new: bool) -> None:
    """A sink that was away longer than arrivals are kept gets all events since its last one, or since it began.

    Its lag is the age of the oldest of these events, which a skip drops. A replay meanwhile changes nothing.
    """
    stage = Stage()
    stage.come("a", event("0"))
    stage.run(2)
    stage.clock.now_ms += 86_400_000
    place = Place("a", OTHER.label) if is_new else PLACE
    stage.targets = (OTHER,) if is_new else (TARGET,)
    stage.taken.clear()
    first_ms = stage.clock.now_ms + 1 if is_new else NOW_MS
    stage.answer = lambda _target, _batch: {0: AWAY}
    for n in range(1, 4):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms + n), at_ms=stage.clock.now_ms + n)
    stage.run(600)
    asked(stage, "replay", place, from_ms=stage.clock.now_ms)  # No event has come since.
    stage.run(600)
    stage.expire()
    for key in later:
        stage.come("a", event(key, at_ms=stage.clock.now_ms))
    stage.run(600)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage, place)).oldest_ms == first_ms
    assert asked(stage, "skip", place).skipped == 1
    stage.answer = lambda _target, _batch: TAKE
    stage.run(600)
    assert list(dict.fromkeys(stage.keys(place.label))) == [*["1"] * (not is_new), "2", "3", *later]
    assert stage.is_over


WAYS = ("paused", "resumed before more comes", "removed", "quick", "slow")


@pytest.mark.parametrize(("left", "way"), one_in(4, itertools.product(range(0, 64, 2), WAYS)))
def test_arrivals_that_expire_in_any_order_lose_no_event(left: int, way: str) -> None:
    """DynamoDB deletes arrivals in any order within days; a sink that got nothing meanwhile gets every event.

    A later event is sent once, also to a sink that was not away, because no number is used twice.
    """
    stage = Stage(request_ms=250 if way == "slow" else 10)  # a slow sink's worker moves the record
    for n in range(6):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms))
        stage.run(2)
        if way == "removed":
            stage.targets = (OTHER,)
        elif way not in ("quick", "slow"):
            asked(stage, "pause")
    stage.expire(kept=[0, *(at for at in range(1, 6) if left >> at & 1)])
    stage.targets = (TARGET,)
    if way == "resumed before more comes":
        asked(stage, "resume")
        stage.run(150)
    stage.come("a", event("6", at_ms=stage.clock.now_ms - 9))
    stage.run(150)
    if way == "paused":
        asked(stage, "resume")
        stage.run(150)
    assert list(dict.fromkeys(stage.keys())) == [str(n) for n in range(7)]
    assert (stage.keys().count("6"), stage.is_over) == (1, True)


def test_a_replay_of_the_newest_event_loses_no_waiting_event() -> None:
    """A replay of the newest event to a sink whose arrivals expired in a pause does not drop the events before it."""
    stage = Stage()
    stage.come("a", event("0"))
    stage.run()
    asked(stage, "pause")
    days = [NOW_MS + 86_400_000 * n for n in (1, 2, 3)]
    for n, stage.clock.now_ms in enumerate(days, 1):
        stage.come("a", event(str(n), at_ms=stage.clock.now_ms))
        stage.run()
    stage.expire()
    asked(stage, "replay", from_ms=days[-1])
    asked(stage, "resume")
    stage.run()
    assert stage.keys() == ["0", "3", "0", "1", "2", "3"]


def test_an_event_that_waited_behind_a_backfill_outlives_its_arrival() -> None:
    """An event that a backfill left to its arrival is delivered even if the arrival expired while the sink was away."""
    stage = Stage(replace(OTHER, from_ms=NOW_MS))
    stage.answer = lambda _target, _batch: {0: AWAY}
    stage.come("a", event("0", at_ms=NOW_MS - 7_200_000), at_ms=NOW_MS)
    stage.run(600)
    stage.expire()
    stage.answer = lambda _target, _batch: TAKE
    stage.run(600)
    assert (stage.keys(OTHER.label), stage.is_over) == (["0"], True)


def test_a_replay_during_a_backfill_loses_no_event() -> None:
    """A replay of two events during a refused backfill sends them first and marked.

    Then the backfill continues from its place; until then the lag is the age of the event that it must send next.
    """
    stage = Stage()
    stage.come("a", *(event(str(n), at_ms=NOW_MS + 1000 * n) for n in range(6)), at_ms=NOW_MS + 9_000)
    stage.run(20)
    stage.taken.clear()
    stage.targets = (replace(OTHER, from_ms=0),)
    stage.answer = lambda _target, batch: {0: AWAY} if batch[0].key == "3" else TAKE
    stage.come("a", event("6", at_ms=stage.clock.now_ms))
    stage.run(5)
    place = Place("a", OTHER.label)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage, place)) == (1, NOW_MS + 3_000)
    asked(stage, "replay", place, from_ms=NOW_MS + 4_000)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage, place)) == (1, NOW_MS + 3_000)
    stage.answer = lambda _target, _batch: TAKE
    stage.run(150)
    sent = [(one.key, "replayed" in one.text) for _, one in stage.taken]
    assert sent[:5] == [("0", False), ("1", False), ("2", False), ("4", True), ("5", True)]
    assert sent[5:] == [("3", False), ("4", False), ("5", False), ("6", False)]
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage, place)) == (0, 0)


@pytest.mark.parametrize(
    ("names", "keys"), [(["resume"], ["1", "2"]), (["pause", "resume"], ["1", "2"]), (["replay"], ["0", "1", "2"])]
)
def test_a_command_starts_a_sink_that_has_not_begun(names: list[str], keys: list[str]) -> None:
    """A command starts a new sink at its profile's `from`, even without further events; a replay to it is unmarked."""
    stage = Stage()
    stage.come("a", *(event(str(n), at_ms=NOW_MS + 1000 * n) for n in range(3)), at_ms=NOW_MS + 3_000)
    stage.run(20)
    stage.targets, place = (TARGET, replace(OTHER, from_ms=NOW_MS + 1_000)), Place("a", OTHER.label)
    for name in names:
        asked(stage, name, place)
    stage.run(150)
    assert (stage.keys(OTHER.label), of(stage, place).is_replaying) == (keys, False)
    assert not [one for _, one in stage.taken if "replayed" in one.text]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", ["pause", "resume", "replay"])
def test_a_command_before_a_new_sinks_first_worker_loses_no_event(name: str, *, is_killed: bool) -> None:
    """A new sink begins with the event that rang for it first, whatever command comes before its first worker."""
    stage = Stage(replace(OTHER, from_ms=NOW_MS + 500), TARGET)
    place, delivery, records = Place("a", OTHER.label), stage.delivery, stage.stored("a", event("0", at_ms=NOW_MS))
    if is_killed:  # the call is killed before it rings; Lambda repeats it
        stage.virtual.schedule(NOW_MS + 1_000, lambda: delivery.note(records))
        delivery.arrivals.note({"a": group_by_stream(records)["a"][:2]}, NOW_MS)
    else:
        delivery.note(records)
        stage.clock.now_ms += ANSWERED_MS
    asked(stage, name, place, from_ms=NOW_MS + 500)
    asked(stage, "resume", place)
    stage.run(150)
    assert (stage.keys(OTHER.label), stage.is_over) == (["0"], True)
