"""What a person can ask of a sink (pause, skip, replay), and where a new or returning sink begins."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.api.control_stage import COMMAND_S
from handlers.connection.inputs import Layout
from handlers.deliver import feed
from handlers.deliver.bells import ANSWERED_MS, Place
from handlers.deliver.operating import Command, Lag, current, lag
from handlers.deliver.table_records import by_stream, decoded
from tests.examples import one_in
from tests.handlers.deliver.records import NOW_MS, event, segment_record
from tests.handlers.deliver.stage import AWAY, OTHER, PLACE, TAKE, TARGET, Stage, asked, of


def test_a_sink_that_is_paused_gets_nothing_and_goes_on_from_there() -> None:
    """Its lag says how much waits, and for how long. What it took at once before is counted, and comes once."""
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


def test_what_waits_for_a_paused_sink_has_an_age_even_after_two_weeks_without_events() -> None:
    """Nobody counts expired arrivals, but the oldest event is still late."""
    stage = Stage()
    stage.come("a", event("0"))
    stage.run()
    for n in (1, 2):
        asked(stage, "pause")
        stage.come("a", event(str(n), at_ms=NOW_MS + n))
        stage.run()
    stage.expire()
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)) == (0, NOW_MS + 1)


def test_what_was_sent_at_once_counts_as_taken_before_the_worker_has_come() -> None:
    """A sink takes twelve events at once; and then refuses two: these alone wait, and one of them is skipped."""
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
    assert current(delivery.arrivals, "a", of(stage)).delivered == 12
    assert (asked(stage, "skip").skipped, lag(delivery.arrivals, "a", of(stage)).events) == (1, 1)


@pytest.mark.parametrize("is_log", [False, True])
def test_what_is_stored_and_not_noted_yet_is_behind_and_skipped(*, is_log: bool) -> None:
    """The delivery function is starved: the lag is the age of the first event that it has not noted.

    What was noted before an event that came late is none. A skip waits for a moment until it has; it skips what the lag
    counts, or nothing and says so.
    """
    stage = Stage()

    def stored(*numbers: int, **marks: Any) -> list[dict[str, Any]]:
        events = [event(str(one), at_ms=NOW_MS + one) for one in numbers]
        records = [segment_record("a", events, numbers[0])] if is_log else stage.stored("a", *events)
        for one in records:
            stage.client.put_item(TableName="events", Item=decoded(one["dynamodb"]["NewImage"]) | marks)
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
    """Its record counts the events of an arrival, so what it took of the segment is not sent again."""
    stage = Stage()
    stage.answer = lambda _target, batch: {at: AWAY for at, one in enumerate(batch) if one.key != "1"}
    one = segment_record("a", [event(str(n)) for n in (1, 2, 3)], 1)
    stage.client.put_item(TableName="events", Item=decoded(one["dynamodb"]["NewImage"]))
    stage.virtual.at(NOW_MS, lambda: stage.virtual.delivery.note([one]))
    stage.run(40)
    assert stage.keys() == ["1"]
    stage.answer = lambda _target, _batch: TAKE
    stage.run(361)
    assert (stage.keys(), stage.is_over) == (["1", "2", "3"], True)


def test_what_is_in_the_way_is_skipped_alone_or_with_all_behind_it() -> None:
    """One event is skipped, or all so far; later ones are delivered."""
    stage = Stage()
    stage.answer = lambda _target, batch: {0: AWAY} if int(batch[0].key) < 5 else TAKE
    stage.come("a", *(event(str(n), at_ms=NOW_MS + n) for n in range(5)))
    stage.run(40)
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)).events == 5
    assert asked(stage, "skip").skipped == 1
    assert lag(stage.virtual.delivery.arrivals, "a", of(stage)).events == 4
    assert asked(stage, "skip", is_all=True).skipped == 5
    stage.come("a", event("5", at_ms=stage.clock.now_ms))
    stage.run(40)
    assert (stage.keys(), stage.is_over) == (["5"], True)


def test_once_the_only_event_that_waits_is_skipped_nothing_is_left_to_do() -> None:
    """A worker that found the sink behind what it has passed would ring for itself, again and again."""
    stage = Stage()
    stage.answer = lambda _target, _batch: {0: AWAY}
    stage.come("a", event("0"))
    stage.run(40)
    delivery, skipped = stage.virtual.delivery, asked(stage, "skip")
    end = delivery.arrivals.end("a")
    assert end is not None
    assert delivery.feed.page("a", skipped, 1, stage.clock.now_ms).end.is_at(end)
    stage.run(40)
    assert stage.is_over


@pytest.mark.parametrize("layout", [Layout(), Layout(3), Layout(1, "none")])
def test_a_replay_sends_again_what_came_since_an_instant(layout: Layout) -> None:
    """In order and marked, though the arrivals have expired; then it goes on where it was. It counts as no lag."""
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
    """Without an order all events are read for those of an hour: more than a function has time for at once."""
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
def test_a_new_sink_begins_now_or_with_what_its_profile_says(from_ms: int | None, keys: list[str]) -> None:
    """A profile's `from` is an instant, or the start; such events are no repetition and have no mark.

    A call stays for those that the index may show late. The event that rang waits for that, and is sent once.
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
def test_what_an_expired_arrival_had_is_read_from_the_events(later: list[str], *, is_new: bool) -> None:
    """A sink that was away longer than arrivals are kept gets what came since it last took something, or it began.

    Its lag is the age of the oldest of these events, which a skip passes over. A replay meanwhile changes nothing.
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
    asked(stage, "replay", place, from_ms=stage.clock.now_ms)  # Nothing has come since.
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
def test_arrivals_that_expire_in_any_order_take_no_event_along(left: int, way: str) -> None:
    """DynamoDB deletes within days, and in any order. A sink that got nothing meanwhile gets all of it.

    An event that comes after that is sent once, and to a sink that was not away too: no number is used twice.
    """
    stage = Stage(request_ms=250 if way == "slow" else 10)  # what is too slow to be sent at once moves the record
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


def test_a_replay_of_what_came_last_leaves_nothing_out_that_waits_before_it() -> None:
    """The sink was paused until its arrivals had expired; a person has it begin with the newest event."""
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


def test_what_waited_behind_a_backfill_comes_though_its_arrival_has_expired() -> None:
    """The backfill left that event to its arrival, and the sink was away until the arrival had expired."""
    stage = Stage(replace(OTHER, from_ms=NOW_MS))
    stage.answer = lambda _target, _batch: {0: AWAY}
    stage.come("a", event("0", at_ms=NOW_MS - 7_200_000), at_ms=NOW_MS)
    stage.run(600)
    stage.expire()
    stage.answer = lambda _target, _batch: TAKE
    stage.run(600)
    assert (stage.keys(OTHER.label), stage.is_over) == (["0"], True)


def test_a_replay_amid_a_backfill_lets_none_of_it_be_lost() -> None:
    """A new sink refuses the fourth of its old events, and a person has the next two replayed: marked, and first.

    Then the backfill goes on where it was, and until then its lag is the age of the event that it must send next.
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
def test_a_sink_that_has_not_begun_begins_by_hand_as_its_profile_says(names: list[str], keys: list[str]) -> None:
    """Even if the stream brings nothing more, or it is paused first. A replay to it is no repetition."""
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
def test_a_command_before_a_new_sinks_worker_has_come_leaves_nothing_out(name: str, *, is_killed: bool) -> None:
    """Its first event has rung for it, or will: it begins with that one, whatever a person asks meanwhile."""
    stage = Stage(replace(OTHER, from_ms=NOW_MS + 500), TARGET)
    place, delivery, records = Place("a", OTHER.label), stage.delivery, stage.stored("a", event("0", at_ms=NOW_MS))
    if is_killed:  # before it rings; Lambda repeats the call
        stage.virtual.at(NOW_MS + 1_000, lambda: delivery.note(records))
        delivery.arrivals.note({"a": by_stream(records)["a"][:2]}, NOW_MS)
    else:
        delivery.note(records)
        stage.clock.now_ms += ANSWERED_MS
    asked(stage, name, place, from_ms=NOW_MS + 500)
    asked(stage, "resume", place)
    stage.run(150)
    assert (stage.keys(OTHER.label), stage.is_over) == (["0"], True)
