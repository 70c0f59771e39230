"""How long events of a stream with a log wait, and that none is forgotten when the connection leaves."""

from handlers.connection.effects import CloseUpstream, Effect, Heartbeat, Release, SaveRecord, Write
from handlers.connection.inputs import LOG, Chunk, Closed, LeaseRead, Opened, Woken, Written
from handlers.connection.lease import Lease
from handlers.connection.manager import Manager
from handlers.segments.codec import WAITING_BYTES
from tests.handlers.connection.managers import FENCE, claimed, event, kinds


def gathering(flush_s: float = 2, partitions: int = LOG) -> Manager:
    """Return the manager of a stream with a log, which was answered at 30 ms."""
    manager = claimed("tolerates", store="log", flush_s=flush_s, partitions=partitions)
    manager.handle(30, Opened(200))
    return manager


def ids(effects: list[Effect]) -> list[str | None]:
    """Return the ids of the events in the first write, which must be the only one."""
    assert isinstance(effects[0], Write)
    return [one.id for one in effects[0].events]


def test_events_of_a_log_wait_and_are_written_together() -> None:
    """Events are written together, `flush_s` after the first of them at most; later ones begin a new wait."""
    manager = gathering()
    assert manager.handle(1_000, Chunk(event(8) + event(9))) == []
    assert (manager.handle(2_999, Chunk(event(10))), manager.wake_at_ms) == ([], 3_000)
    effects = manager.handle(3_000, Woken())
    assert (kinds(effects), ids(effects), effects[0]) == (
        [Write],
        ["8", "9", "10"],
        Write(FENCE, 0, effects[0].events, 2_999),  # type: ignore[union-attr]
    )
    assert manager.wake_at_ms is not None
    assert manager.wake_at_ms > 3_000
    assert manager.handle(3_010, Written(3, 0)) == []
    assert manager.handle(3_500, Chunk(event(11))) == []
    effects = manager.handle(5_500, Woken())
    assert (ids(effects), effects[0].first) == (["11"], 3)  # type: ignore[union-attr]


def test_the_cursor_passes_no_waiting_event() -> None:
    """A cursor that comes without an event is saved only once the waiting events before it are stored."""
    manager = gathering()
    manager.handle(1_000, Chunk(event(8)))
    manager.handle(1_500, Chunk(b"id: 9\n\n"))
    saved = manager.handle(6_000, LeaseRead(Lease(fence=FENCE, connected_token=FENCE, execution="mine")))
    assert [one.cursor for one in saved if isinstance(one, Heartbeat)] == [None]
    manager.handle(6_010, Woken())
    manager.handle(6_020, Written(1, 0))
    saved = manager.handle(12_000, LeaseRead(Lease(fence=FENCE, connected_token=FENCE, execution="mine")))
    assert [one.cursor for one in saved if isinstance(one, Heartbeat)] == ["9"]


def test_a_connection_is_known_good_until_its_first_waiting_event_arrived() -> None:
    """A connection is known good until its first waiting event arrived: a kill before the append loses that."""
    manager = gathering(flush_s=10)
    manager.handle(1_000, Chunk(event(8)))
    manager.handle(4_000, Chunk(event(9)))
    heartbeats = manager.handle(6_000, LeaseRead(Lease(fence=FENCE, connected_token=FENCE, execution="mine")))
    assert [one.progress.seen_ms for one in heartbeats if isinstance(one, Heartbeat)] == [1_000]
    manager.handle(11_000, Woken())
    manager.handle(11_010, Written(2, 0))
    heartbeats = manager.handle(16_100, LeaseRead(Lease(fence=FENCE, connected_token=FENCE, execution="mine")))
    assert [one.progress.seen_ms for one in heartbeats if isinstance(one, Heartbeat)] == [16_100]


def test_a_segment_that_is_full_waits_no_longer() -> None:
    """Waiting events are written at once when they have as many bytes as one segment holds."""
    manager = gathering()
    body = b"a" * (WAITING_BYTES // 4)
    for number in range(3):
        assert manager.handle(1_000, Chunk(b"id: %d\ndata: %s\n\n" % (number, body))) == []
    assert ids(manager.handle(1_000, Chunk(b"id: 3\ndata: %s\n\n" % body))) == ["0", "1", "2", "3"]


def test_waiting_events_are_written_when_the_connection_leaves() -> None:
    """Waiting events are written at the close, before the cursor is saved and the connection is released."""
    manager = gathering()
    manager.handle(1_000, Chunk(event(8)))
    effects = manager.handle(1_100, Closed("reset"))
    assert (kinds(effects), ids(effects[1:])) == ([CloseUpstream, Write], ["8"])
    saved, released = manager.handle(1_200, Written(1, 0))[:2]
    assert isinstance(saved, SaveRecord)
    assert isinstance(released, Release)
    assert (released.cursor, saved.progress.stored) == ("8", 1)


def test_events_read_while_the_connection_leaves_are_written_too() -> None:
    """Chunks that came before the upstream's close are written together with the waiting events."""
    manager = gathering()
    manager.handle(1_000, Chunk(event(8)))
    manager.handle(1_100, LeaseRead(Lease(fence=FENCE, connected_token=FENCE, execution="mine", stop=True)))
    assert manager.handle(1_110, Chunk(event(9))) == []
    assert ids(manager.handle(1_120, Closed("closed_here"))) == ["8", "9"]


def test_no_event_waits_with_a_flush_time_of_zero() -> None:
    """With `flush_s = 0` each chunk is a write."""
    assert ids(gathering(flush_s=0).handle(1_000, Chunk(event(8)))) == ["8"]


def test_the_first_claim_fixes_whether_events_are_items_or_in_a_log() -> None:
    """The profile's present `store` does not count: a stream whose events are items writes at once."""
    assert ids(gathering(partitions=1).handle(1_000, Chunk(event(8)))) == ["8"]
