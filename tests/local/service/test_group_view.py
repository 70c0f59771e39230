"""The lines and the picture that the service prints about streams that share a function."""

from dataclasses import replace

from handlers.api.connection_records import Connection, Records
from handlers.connection.lease import Lease
from local.service.group_view import MOST_DRAWN, MOST_NAMED, GroupView
from timeline.picture import GAP, LABEL

LATE_MS, WINDOW_MS = 60_000, 100_000


def records(good_until_ms: int, opened_ms: int = 0) -> Records:
    """Returns the records of a stream whose holder counts as alive until `good_until_ms`."""
    opened = Connection(1, opened_ms, opened_ms, opened_ms, lane="B", execution="arn:1", request_id="r1")
    lease = Lease(execution="arn:1", started_at_ms=1, expires_at_ms=good_until_ms)
    return Records(lease, None, None, [opened])


def test_each_loss_and_return_of_a_stream_is_printed_once_and_drawn() -> None:
    """A drawn gap lasts from the last sign of life to the next opening; gaps before the picture are forgotten."""
    view = GroupView("#1")
    well = {"a": records(10**6), "b": records(10**6)}

    def look(streams: dict[str, Records], now_ms: int) -> list[str]:
        return view.update(streams, now_ms, now_ms - WINDOW_MS, LATE_MS)

    # A stream that has never been connected is not reported as away.
    assert look({"a": records(0), "b": records(10**6)}, 1_000) == ["group #1: b is connected"]
    assert look(well, 2_000) == ["group #1: a is connected"]
    gone = {"a": records(9_000), "b": records(10**6)}
    assert look(gone, 10_000) == ["group #1: a is not connected"]
    assert look(gone, 11_000) == []
    assert view.summary == "2 streams in one function, 1 connected"
    assert look(gone, 70_000) == ["ALERT: group #1: a is not connected for 1 min"]
    assert look(gone, 71_000) == []
    assert look({"a": records(10**6, 79_000), "b": records(10**6)}, 80_000) == ["group #1: a is connected"]
    row, said = view.draw(0, 100_000, 100)
    assert (row[LABEL:].index(GAP), row.count(GAP), said) == (9, 70, "gaps: 1 a")
    look(well, 180_000)
    assert view.draw(80_000, 180_000, 100) == ["no stream had a gap"]


def test_a_stream_that_stops_or_has_ended_is_not_printed_as_connected() -> None:
    """A stream that stops or has ended prints no line and is not counted, whether it was ever connected or not."""
    view, well = GroupView("#1"), records(10**6)
    leaving = [replace(well, lease=replace(well.lease, stop=True)), replace(well, lease=Lease(expires_at_ms=10**6))]
    for number, each in enumerate(leaving):
        assert view.update({"a": well, f"b{number}": records(0)}, 1_000, 0, LATE_MS)[1:] == []
        assert view.update({"a": well, f"b{number}": each}, 2_000, 0, LATE_MS) == []
        assert view.summary == "1 stream in one function, 1 connected"
    assert view.update({"a": leaving[0]}, 3_000, 0, LATE_MS) == []


def test_streams_of_an_earlier_run_have_time_to_connect() -> None:
    """The time away of a stream counts from this run's first check, however long ago the earlier run ended."""
    view, left = GroupView("#1"), {"a": records(1_000)}
    assert [view.update(left, 10**6 + later_ms, 0, LATE_MS) for later_ms in (0, LATE_MS - 1)] == [[], []]
    assert view.update(left, 10**6 + LATE_MS, 0, LATE_MS) == ["ALERT: group #1: a is not connected for 1 min"]


def test_a_hundred_streams_take_a_few_lines() -> None:
    """Some are named and drawn, the others counted; a stream that leaves the group is forgotten."""
    view, names = GroupView("#1"), [f"demo:{number:02d}" for number in range(100)]
    view.update(dict.fromkeys(names, records(10**6)), 1_000, 0, LATE_MS)
    (news,) = view.update(dict.fromkeys(names, records(4_000)), 5_000, 0, LATE_MS)
    assert news == f"group #1: {', '.join(names[:MOST_NAMED])} and {100 - MOST_NAMED} more are not connected"
    assert len(view.draw(0, 6_000, 40)) == MOST_DRAWN + 1
    assert view.draw(0, 6_000, 40)[-1].endswith(f" and {100 - MOST_DRAWN} more")
    assert view.update({}, 7_000, 0, LATE_MS) == []
    assert (view.summary, view.gaps) == ("0 streams in one function, 0 connected", {})


def test_a_quiet_stream_alerts_once_for_each_silence() -> None:
    """A stream whose profile expects an event each second alerts after 1.5 s, once per silence: in a group its record
    may be half as late again.
    """
    view, well = GroupView("#1"), records(10**6)

    def alerts(event_ms: int, now_ms: int, expect_ms: int | None = 1_000) -> list[str]:
        heard = replace(well.connections[0], event_ms=event_ms, seen_ms=now_ms, expect_ms=expect_ms, pause_ms=9)
        shown = replace(well, connections=[heard], group="#1")
        return [one for one in view.update({"a": shown}, now_ms, 0, LATE_MS) if "ALERT" in one]

    words = "ALERT: a: quiet: nothing new for {} s, and one is expected every 1 s"
    assert [alerts(1_000, now_ms) for now_ms in (2_400, 2_500, 3_500)] == [[], [words.format(1)], []]
    assert [alerts(3_600, 3_700), alerts(3_600, 6_600)] == [[], [words.format(3)]]
    assert [alerts(7_000, 7_100), alerts(7_000, 5 * 10**5, None)] == [[], []]
