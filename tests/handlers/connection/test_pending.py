"""Which cursor may be saved while writes are on their way to the store."""

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.record import Pending


@given(st.lists(st.sampled_from(["sent", "sent without", "stored", "skipped", "take"]), max_size=40))
def test_a_cursor_is_given_out_when_all_before_it_is_stored(steps: list[str]) -> None:
    """Frames are numbered; the cursor is a frame's number, and every frame up to it is stored, and it only grows."""
    pending = Pending()
    number, waiting, given_out = 0, [], [0]
    for step in steps:
        number += step in ("sent", "sent without", "skipped")
        if step == "sent":
            pending.sent(str(number))
            waiting.append(number)
        elif step == "sent without":
            pending.sent(None)
            waiting.append(number)
        elif step == "stored" and waiting:
            pending.stored()
            waiting.pop(0)
        elif step == "skipped":
            pending.skipped(str(number))
        elif step == "take" and (cursor := pending.take()) is not None:
            assert int(cursor) > given_out[-1]
            assert all(int(cursor) < unstored for unstored in waiting)
            given_out.append(int(cursor))
        assert pending.is_stored == (not waiting)


def test_what_is_saved_already_is_not_given_out_again() -> None:
    """The cursor that was read is the one that is saved; each new one is returned once."""
    pending = Pending()
    pending.begins("7")
    assert (pending.asked_from, pending.take()) == ("7", None)
    pending.skipped("8")
    assert (pending.take(), pending.take()) == ("8", None)


def test_the_first_cursor_of_all_is_told_apart() -> None:
    """It is first where none was ever saved and there is one to save; not after it was returned."""
    pending = Pending()
    pending.begins(None)
    assert not pending.is_first
    pending.sent("1")
    pending.stored()
    assert pending.is_first
    pending.take()
    assert not pending.is_first


def test_no_cursor_of_before_is_given_out_once_they_have_expired() -> None:
    """The fallback is saved in their place, and the writes that are on their way bring none."""
    pending = Pending()
    pending.begins("7")
    pending.sent("8")
    pending.expired("start")
    pending.stored()
    assert (pending.take(), pending.take()) == ("start", None)
