"""The queue between the reader's thread and the main one."""

import sys
import threading
import time

from handlers.upstream.inbox import Inbox
from handlers.upstream.standstill import elapsed_s
from tests.local.support import until

WAIT_S = 60.0
AGO_S = 3600


def waits(putter: threading.Thread) -> None:
    """Return 50 ms after the thread has begun to wait for room."""

    def is_waiting() -> bool:
        frame = sys._current_frames().get(putter.ident or 0)
        return frame is not None and frame.f_code is threading.Condition.wait.__code__

    assert until(is_waiting)
    putter.join(0.05)
    assert putter.is_alive()


def one(inbox: Inbox[str], wait_s: float) -> str | None:
    """Return the oldest item; None if there is none."""
    return next(iter(inbox.take(wait_s)), None)


def full(limit_bytes: int = 1) -> tuple[Inbox[str], threading.Thread, list[bool]]:
    """Return a full inbox with "a", the thread that has waited 50 ms to put "b", and whether that was accepted."""
    inbox: Inbox[str] = Inbox(limit_bytes)
    assert inbox.put("a", 99)
    accepted: list[bool] = []
    putter = threading.Thread(target=lambda: accepted.append(inbox.put("b", 1)))
    putter.start()
    waits(putter)
    assert accepted == []
    return inbox, putter, accepted


def test_a_full_inbox_makes_the_putter_wait_until_there_is_room() -> None:
    """An item over the limit fits an empty inbox, and the next one waits."""
    inbox, putter, accepted = full(10)
    assert one(inbox, 0) == "a"
    putter.join(WAIT_S)
    assert (accepted, one(inbox, 0)) == ([True], "b")
    assert inbox.blocked_ms >= 40


def test_closing_lets_the_putter_go_and_keeps_queued_items() -> None:
    """A closed inbox accepts no item; its queued items can be taken, then nothing, without waiting.

    Its end is as old as the first item that it refused.
    """
    inbox, putter, accepted = full()
    inbox.close()
    putter.join(WAIT_S)
    assert (accepted, inbox.put("c"), one(inbox, 0), (inbox.unread_age_s or 0) >= 0.05) == ([False], False, "a", True)
    assert (one(inbox, WAIT_S), inbox.taken_age_s >= 0.05) == (None, True)


def test_the_inbox_returns_since_when_its_oldest_item_waits() -> None:
    """`unread_age_s` is the age of the oldest waiting item, `taken_age_s` that of the item taken last."""
    inbox: Inbox[str] = Inbox(10)
    assert inbox.unread_age_s is None
    inbox.put("a", 1, elapsed_s() - AGO_S)
    inbox.put("b", 1)
    assert (inbox.unread_age_s or 0) >= AGO_S
    one(inbox, 0)
    assert inbox.taken_age_s >= AGO_S > (inbox.unread_age_s or 0)
    one(inbox, 0)
    assert inbox.taken_age_s < AGO_S
    assert inbox.unread_age_s is None


def test_an_item_after_a_full_inbox_counts_from_when_the_inbox_was_full() -> None:
    """An item after a full inbox may have waited since it was full; once all are taken, the next item is new."""
    inbox, putter, _ = full()
    one(inbox, 0)
    putter.join(WAIT_S)
    late = threading.Thread(target=inbox.put, args=("c", 1))
    late.start()
    waits(late)
    assert (one(inbox, 0), inbox.taken_age_s >= 0.05) == ("b", True)
    late.join(WAIT_S)
    assert (one(inbox, 0), inbox.taken_age_s >= 0.05) == ("c", True)
    before_s = time.monotonic()
    inbox.put("d", 1)
    assert (inbox.unread_age_s or 0) <= time.monotonic() - before_s


def test_waiting_items_are_taken_together_up_to_a_size() -> None:
    """Items come in order, and the excess stays; an item without a size comes alone.

    Items taken together are as old as the oldest: the stream is not known good between them.
    """
    inbox: Inbox[str] = Inbox(100)
    inbox.put("a", 4, elapsed_s() - AGO_S)
    for item, size_bytes in (("b", 3), ("c", 3), ("d", 1), ("end", 0), ("e", 80)):
        inbox.put(item, size_bytes)
    assert (inbox.take(0, 10), inbox.taken_age_s >= AGO_S) == (["a", "b", "c"], True)
    assert [inbox.take(0, 10) for _ in range(4)] == [["d"], ["end"], ["e"], []]
    assert (inbox.put("room again", 99), inbox.blocked_ms) == (True, 0)


def test_the_first_item_after_a_rest_may_be_as_old_as_the_rest() -> None:
    """Reading pauses in a rest, so the next item may be that old; the item after it is new."""
    inbox: Inbox[str] = Inbox(10)
    inbox.pause(0.05)
    assert inbox.unread_age_s is None
    inbox.put("a", 1)
    inbox.put("b", 1)
    assert (one(inbox, 0), inbox.taken_age_s >= 0.05) == ("a", True)
    assert (one(inbox, 0), inbox.unread_age_s) == ("b", None)


def test_closing_ends_a_rest() -> None:
    """The resting reader ends at once. Bytes that came meanwhile are unread, so the end is as old as the rest."""
    inbox: Inbox[str] = Inbox(10)
    resting = threading.Thread(target=inbox.pause, args=(WAIT_S,))
    resting.start()
    waits(resting)
    assert (inbox.unread_age_s or 0) >= 0.05
    inbox.close()
    resting.join(WAIT_S / 2)
    assert not resting.is_alive()
    assert ((inbox.unread_age_s or 0) >= 0.05, one(inbox, 0), inbox.taken_age_s >= 0.05) == (True, None, True)
